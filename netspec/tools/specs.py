"""Reading specs for commands: with every layer, solver and data source known, net or training alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import netspec.data
import netspec.layers
import netspec.solvers  # noqa: F401  # these make their classes known to the spec language
from netspec.graph.types import Precision
from netspec.schema.load import load_spec, load_train
from netspec.schema.specs.net import NetSpec

if TYPE_CHECKING:
    from netspec.schema.specs.train import TrainSpec

__all__ = [
    "batch_size_of",
    "kernel_settings",
    "load_spec",
    "load_train",
    "model_settings",
    "net_of",
    "precision_of",
]


def net_of(spec: NetSpec | TrainSpec) -> NetSpec:
    """The net of a training, or the net itself."""
    return spec if isinstance(spec, NetSpec) else spec.net


def batch_size_of(spec: NetSpec | TrainSpec, batch_size: int | None) -> int:
    """Return `batch_size`; by default that of the training file, or 1 for a net."""
    return batch_size or (1 if isinstance(spec, NetSpec) else spec.data.train.batch_size)


def kernel_settings(spec: NetSpec | TrainSpec, autotune: str | None = None) -> dict[str, Any]:
    """Return the fields of `compile` in a training file, or the defaults for a net; `autotune` overrides the file's."""
    from netspec.schema.specs.train import CompileSpec

    settings = CompileSpec() if isinstance(spec, NetSpec) else spec.compile
    return {
        "autotune": autotune or settings.autotune, "rounding": settings.rounding,
        "deterministic": settings.deterministic,
    }  # fmt: skip


def model_settings(spec: NetSpec | TrainSpec, autotune: str | None = None) -> dict[str, Any]:
    """Return the arguments with which `load` computes as the training file says."""
    return {"precision": str(precision_of(spec)), **kernel_settings(spec, autotune)}


def precision_of(spec: NetSpec | TrainSpec) -> Precision:
    """Precision of a training file; float32 for a net."""
    return Precision.FLOAT32 if isinstance(spec, NetSpec) else Precision(spec.train.precision)
