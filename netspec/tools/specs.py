"""Reading specs for commands: with every layer, solver and data source known, net or training alike."""

from __future__ import annotations

import netspec.data
import netspec.layers
import netspec.solvers  # noqa: F401  # these make their classes known to the spec language
from netspec.graph.types import Precision
from netspec.schema.load import load_spec, load_train
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec

__all__ = [
    "autotune_of",
    "deterministic_of",
    "load_spec",
    "load_train",
    "net_of",
    "precision_of",
    "rounding_of",
]


def net_of(spec: NetSpec | TrainSpec) -> NetSpec:
    """The net of a training, or the net itself."""
    return spec.net if isinstance(spec, TrainSpec) else spec


def autotune_of(spec: NetSpec | TrainSpec) -> str:
    """Autotune level of a training file; `off` for a net."""
    return spec.compile.autotune if isinstance(spec, TrainSpec) else "off"


def rounding_of(spec: NetSpec | TrainSpec) -> str:
    """Rounding level of a training file; `fast` for a net."""
    return spec.compile.rounding if isinstance(spec, TrainSpec) else "fast"


def deterministic_of(spec: NetSpec | TrainSpec) -> bool:
    """Whether a training file requires deterministic kernels; true for a net."""
    return spec.compile.deterministic if isinstance(spec, TrainSpec) else True


def precision_of(spec: NetSpec | TrainSpec) -> Precision:
    """Precision of a training file; float32 for a net."""
    return Precision(spec.train.precision) if isinstance(spec, TrainSpec) else Precision.FLOAT32
