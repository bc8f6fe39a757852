"""Arguments of the Python interface that come from no spec: a wrong one is an `InputError` with what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args

import numpy as np

from netspec.errors import InputError, did_you_mean
from netspec.graph.types import Precision, TensorType
from netspec.schema.specs.train import AutotuneLevel, PrecisionName, RoundingLevel
from netspec.schema.yaml.scalars import MAX_INT


def int_argument(name: str, given: object, *, least: int) -> int:
    """The argument `name` as an int of `least` or more, below 2⁶³."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool) and least <= given <= MAX_INT:
        return int(given)
    raise InputError(f"`{name}` is wrong", expected=f"a whole number from {least} up", got=repr(given))


def precision_argument(given: object) -> Precision:
    """Return the argument `precision`, one of the names of `Precision`."""
    return Precision(_one_of("precision", given, get_args(PrecisionName)))


def autotune_argument(given: object) -> str:
    """Whether kernels race."""
    return _one_of("autotune", given, get_args(AutotuneLevel))


def rounding_argument(given: object) -> str:
    """Whether kernels may round more than direct sums."""
    return _one_of("rounding", given, get_args(RoundingLevel))


def bool_argument(name: str, given: object) -> bool:
    """The argument `name`, which is true or false."""
    if isinstance(given, bool):
        return given
    raise InputError(f"`{name}` is neither true nor false", expected="True or False", got=repr(given))


def _one_of(name: str, given: object, known: Sequence[str]) -> str:
    if isinstance(given, str) and given in known:
        return given
    near = did_you_mean(given, known) if isinstance(given, str) else None
    raise InputError(f"`{name}` is unknown", expected=f"one of {', '.join(known)}", got=repr(given), hint=near)


def path_argument(name: str, given: object) -> Path:
    """Return the argument `name` as a path."""
    if isinstance(given, str) or (isinstance(given, PathLike) and isinstance(fspath(given), str)):
        return Path(given)
    raise InputError(f"`{name}` is not a path", expected="the path of a file, as text or Path", got=repr(given))


def device_argument(given: object) -> str:
    """Return the argument `device`, which must be a name; opening the device checks that it exists."""
    if isinstance(given, str):
        return given
    raise InputError("`device` is not a name", expected="one of those that `netspec devices` lists", got=repr(given))


def array_argument(name: str, given: object) -> np.ndarray[Any, Any]:
    """Return the value of `name` as an array."""
    try:
        return np.asarray(given)
    except ValueError:
        got = "lists of different lengths"
        raise InputError(f"`{name}` is not an array", expected="as many numbers in every row", got=got) from None


def state_value(name: str, given: object, kind: TensorType) -> np.ndarray[Any, Any]:
    """Check the new value of the parameter or statistic `name`: real numbers of its shape in the range of its type."""
    array, expected = array_argument(name, given), f"real numbers of shape {list(kind.shape)}"
    if array.shape != kind.shape:
        raise InputError(f"`{name}` has another shape", expected=str(list(kind.shape)), got=str(list(array.shape)))
    if array.dtype.kind not in "biuf":
        raise InputError(f"`{name}` is of another type", expected=expected, got=str(array.dtype))
    with np.errstate(over="ignore"):
        held = array.astype(str(kind.dtype))
    if (np.isinf(held) & np.isfinite(array)).any():
        raise InputError(f"`{name}` has values that {kind.dtype} cannot hold", expected=expected, got=str(array.dtype))
    return held
