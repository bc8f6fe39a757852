"""Arguments and results of importers: options, targets, and imported nets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, listing
from netspec.exchange.net_yaml_writer import Draft
from netspec.exchange.notes import Note
from netspec.graph.types import TensorType
from netspec.schema.specs.net import NetSpec


def sizes_shown(sizes: Sequence[int | None], names: Sequence[str | None] = ()) -> str:
    """Sizes of axes for a message, with the names of open ones: `[batch, 3, ?, ?]`."""
    return f"[{', '.join(str(size or name or '?') for size, name in zip_longest(sizes, names[: len(sizes)]))}]"


class WithoutNet(InputError):
    """The file contains only weights, without their net."""


def not_finite(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Names of the arrays that hold NaN or an infinity."""
    return [name for name, array in arrays.items() if not np.isfinite(array).all()]


def notes_of_not_finite(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Notes on weights that are not finite."""
    kind = "{count} arrays of weights hold values that are not finite"
    return [
        Note(f"the weights `{name}` hold values that are not finite", kind, f"`{name}`") for name in not_finite(arrays)
    ]


def unread(name: str) -> tuple[str, str, str]:
    """Arguments of `Note` for an input that nothing reads."""
    text = f"the input `{name}` is left out: nothing reads it"
    return text, "{count} inputs are left out, since nothing reads them", f"`{name}`"


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import, for facts that the file does not contain."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes of inputs that the file does not specify."""
    weights: Path | None = None
    """The file of the weights, for formats that keep them apart from the net."""
    phase: str = ""
    """`train` or `test`, to choose one of several forms of a net in a file."""
    level: int = 0
    stages: tuple[str, ...] = ()
    """Stages that layers of a file may depend on."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Constant values of inputs; these are removed from the net's inputs."""
    until: tuple[str, ...] = ()
    """Layers or tensors at which the net is cut: they become its outputs."""
    drop_head: int = 0
    """Number of layers with parameters, from the end, that are dropped with all layers that depend on them."""


FLAGS = {
    "shapes": "--shape", "weights": "--weights", "phase": "--phase", "level": "--level", "stages": "--stage",
    "values": "--value", "until": "--until", "drop_head": "--drop-head",
}  # fmt: skip
"""Names of the fields of `ImportOptions` for users."""


CUT = ("until", "drop_head")
"""Fields of `ImportOptions` that cut a net."""


def check_import_options(options: ImportOptions, allowed_names: Sequence[str], path: Path, subject: str) -> None:
    """Raise `InputError` for an option that does not apply to such a file; the message names those that do."""
    plain = ImportOptions()
    flags = [flag for name, flag in FLAGS.items() if getattr(options, name) != getattr(plain, name)]
    allowed = [FLAGS[name] for name in allowed_names]
    unknown = [flag for flag in flags if flag not in allowed]
    if unknown:
        raise InputError(
            f"{path} is {subject}, which takes no {listing(unknown)}",
            expected=listing(allowed, len(allowed)) + ", or none" if allowed else f"no {listing(unknown)}",
            got=listing(flags),
        )  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """A net as YAML, its weights by state name, and notes on the conversion for the user."""

    net: str
    arrays: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    """Metadata of netspec's own files, to be written with the arrays."""
    train: str = ""
    """The training in the file, as the YAML of a training file for `net.yaml`."""
    slots: dict[str, NDArray[Any]] = field(default_factory=dict)
    """States of the solver, by the names that they have in a checkpoint of that training."""
    step: int = 0
    """Number of steps of the training, if there are slots."""
    draft: Draft | None = None
    """The draft of the net, if an importer made it; it can still be changed."""


def as_they_are(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays by the names that the file gives them."""
    return arrays


@dataclass(frozen=True)
class Target:
    """A net that weights are loaded into."""

    net: NetSpec
    states: Mapping[str, TensorType]
    """Its parameters and statistics by name, in the order of the layers."""
    renamed: Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] = as_they_are
    """New names of the arrays of the file, by their names there."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of the states by name."""
        return {name: kind.shape for name, kind in self.states.items()}
