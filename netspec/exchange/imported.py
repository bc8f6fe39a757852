"""What every importer is told, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, listing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.exchange.drafting import Draft
    from netspec.graph.types import TensorType
    from netspec.schema.net import NetSpec


def sizes_shown(sizes: Sequence[int | None], names: Sequence[str | None] = ()) -> str:
    """Sizes of axes for a message; one that is open by its name: `[batch, 3, ?, ?]`."""
    return f"[{', '.join(str(size or name or '?') for size, name in zip_longest(sizes, names[: len(sizes)]))}]"


class WithoutNet(InputError):
    """A file holds weights alone: what net they are of must be said by somebody else."""


def not_finite(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Names of the arrays that hold NaN or an infinity."""
    import numpy as np

    return [name for name, array in arrays.items() if not np.isfinite(array).all()]


def notes_of_not_finite(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """What the user should know of such weights."""
    return [f"the weights `{name}` hold values that are not finite" for name in not_finite(arrays)]


@dataclass(frozen=True)
class ImportOptions:
    """What the user adds to what the file says."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes of inputs that the file leaves open."""
    weights: Path | None = None
    """The file of the weights, for formats that keep them apart from the net."""
    phase: str = ""
    """`train` or `test`, where a file has several forms of a net and one of them is wanted."""
    level: int = 0
    stages: tuple[str, ...] = ()
    """What else a file may make layers depend on."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Numbers that inputs always have, which are no inputs of the net then."""


FLAGS = {
    "shapes": "--shape", "weights": "--weights", "phase": "--phase", "level": "--level", "stages": "--stage",
    "values": "--value",
}  # fmt: skip
"""What the fields of `ImportOptions` are called where users give them."""


def check_given(options: ImportOptions, known: Sequence[str], path: Path, what: str) -> None:
    """Raise `InputError` where an option is given that such a file knows not: those that it knows are named."""
    plain = ImportOptions()
    given = [flag for name, flag in FLAGS.items() if getattr(options, name) != getattr(plain, name)]
    allowed = [FLAGS[name] for name in known]
    unknown = [flag for flag in given if flag not in allowed]
    if unknown:
        raise InputError(
            f"{path} is {what}, which takes no {listing(unknown)}",
            expected=listing(allowed, len(allowed)) + ", or none" if allowed else f"no {listing(unknown)}",
            got=listing(given),
        )  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """A net as YAML, its weights by state name, and what the user should know of the conversion."""

    net: str
    arrays: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    """What netspec's own files say beside the arrays, to be written with them."""
    train: str = ""
    """How the file says that the net is trained, as the YAML of a training file whose net is `net.yaml`."""
    slots: dict[str, NDArray[Any]] = field(default_factory=dict)
    """States of the solver, by the names that they have in a checkpoint of that training."""
    step: int = 0
    """How many steps the training had taken, where there are slots."""
    draft: Draft | None = None
    """The net as it was put together, where it is one that an importer made: what can still be changed."""


def as_they_are(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays by the names that the file gives them."""
    return arrays


@dataclass(frozen=True)
class Target:
    """A net that weights alone are laid onto."""

    net: NetSpec
    states: Mapping[str, TensorType]
    """Its parameters and statistics by name, in the order of the layers."""
    renamed: Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] = as_they_are
    """What the user wants the arrays of the file to be called, by their names there."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of the states by name."""
        return {name: kind.shape for name, kind in self.states.items()}
