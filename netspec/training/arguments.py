"""Checks of arguments of the Python API. A wrong argument raises an `InputError` that says what is expected."""

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


def int_argument(name: str, value: object, *, least: int) -> int:
    """Return the argument `name` as an int from `least` to 2⁶³ - 1."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and least <= value <= MAX_INT:
        return int(value)
    raise InputError(f"`{name}` is wrong", expected=f"an integer of at least {least}", got=repr(value))


def precision_argument(value: object) -> Precision:
    """Return the argument `precision`, one of the names of `Precision`."""
    return Precision(_one_of("precision", value, get_args(PrecisionName)))


def autotune_argument(value: object) -> str:
    """Return the argument `autotune`, one of the levels of `AutotuneLevel`."""
    return _one_of("autotune", value, get_args(AutotuneLevel))


def rounding_argument(value: object) -> str:
    """Return the argument `rounding`, one of the levels of `RoundingLevel`."""
    return _one_of("rounding", value, get_args(RoundingLevel))


def bool_argument(name: str, value: object) -> bool:
    """Return the argument `name`, which must be a bool."""
    if isinstance(value, bool):
        return value
    raise InputError(f"`{name}` is not a bool", expected="True or False", got=repr(value))


def _one_of(name: str, value: object, choices: Sequence[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    near = did_you_mean(value, choices) if isinstance(value, str) else None
    raise InputError(f"`{name}` is unknown", expected=f"one of {', '.join(choices)}", got=repr(value), hint=near)


def path_argument(name: str, value: object) -> Path:
    """Return the argument `name` as a path."""
    if isinstance(value, str) or (isinstance(value, PathLike) and isinstance(fspath(value), str)):
        return Path(value)
    raise InputError(f"`{name}` is not a path", expected="the path of a file, as str or Path", got=repr(value))


def device_argument(value: object) -> str:
    """Return the argument `device`, which must be a name; opening the device checks that it exists."""
    if isinstance(value, str):
        return value
    raise InputError("`device` is not a name", expected="a device that `netspec devices` lists", got=repr(value))


def array_argument(name: str, value: object) -> np.ndarray[Any, Any]:
    """Return the value of `name` as an array."""
    try:
        return np.asarray(value)
    except ValueError:
        got = "lists of different lengths"
        raise InputError(f"`{name}` is not an array", expected="rows of equal length", got=got) from None


def state_value(name: str, value: object, kind: TensorType) -> np.ndarray[Any, Any]:
    """Return the new value of the parameter or statistic `name` in its type. Raises `InputError` if it does not fit."""
    array, expected = array_argument(name, value), f"real numbers of shape {list(kind.shape)}"
    if array.shape != kind.shape:
        raise InputError(f"`{name}` has the wrong shape", expected=str(list(kind.shape)), got=str(list(array.shape)))
    if array.dtype.kind not in "biuf":
        raise InputError(f"`{name}` has the wrong type", expected=expected, got=str(array.dtype))
    with np.errstate(over="ignore"):
        converted = array.astype(str(kind.dtype))
    if (np.isinf(converted) & np.isfinite(array)).any():
        raise InputError(f"`{name}` has values that {kind.dtype} cannot hold", expected=expected, got=str(array.dtype))
    return converted
