"""Checks of arrays that a caller passes to a model against the net's inputs, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import Compiler, input_type
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.graph.types import TensorType
from netspec.training.arguments import array_argument
from netspec.training.required_inputs import input_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def check_inputs(compiler: Compiler, inputs: object, names: Sequence[str]) -> tuple[dict[str, Array], int]:
    """Return the arrays of the `names` inputs and their number of samples. Raises `InputError` with all mismatches.

    Ignores inputs of the net that are not wanted; a name that is not an input of the net is an error.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            "inputs are not given by name",
            expected=f"a mapping {{input: array}}: {', '.join(f'{{{name!r}: …}}' for name in names[:1])}",
            got=f"an array of shape {list(inputs.shape)}" if isinstance(inputs, np.ndarray) else type(inputs).__name__,
        )
    arrays = {name: array_argument(name, inputs[name]) for name in names if name in inputs}
    declared = compiler.spec.inputs
    problems = [
        Problem(
            f"the net has no input `{name}`", expected=f"one of {listing(list(declared))}",
            hint=did_you_mean(str(name), declared),
        )
        for name in inputs
        if name not in declared
    ]  # fmt: skip
    for name in names:
        kind = input_type(declared[name], 1, compiler.dtype)
        if name in arrays:
            problems += _problems(compiler, name, arrays[name], kind)
        else:
            problems.append(Problem(f"the input `{name}` is missing", expected=_described(kind)))
    sizes = {name: len(array) for name, array in arrays.items() if array.ndim}
    if len(set(sizes.values())) > 1:
        problems.append(Problem("the inputs have different numbers of samples", got=str(sizes)))
    if problems:
        raise InputError(problems)
    return arrays, next(iter(sizes.values()))


def _problems(compiler: Compiler, name: str, array: Array, kind: TensorType) -> Iterator[Problem]:
    if array.ndim != kind.rank or array.shape[1:] != kind.shape[1:] or not len(array):
        yield Problem(f"the input `{name}` has the wrong shape", expected=_described(kind), got=str(list(array.shape)))
        return
    into_float = kind.dtype.is_float and array.dtype.kind in "iub"
    if not into_float and not np.can_cast(array.dtype, str(kind.dtype), "same_kind"):
        yield Problem(f"the input `{name}` has the wrong type", expected=_described(kind), got=str(array.dtype))
        return
    allowed = input_ranges(compiler).get(name)
    if allowed is not None and not allowed.contains(array).all():
        expected = f"{allowed}: {allowed.why}"
        yield Problem(f"`{name}` is out of range", expected=expected, got=f"{array.min()} to {array.max()}")


def _described(kind: TensorType) -> str:
    return f"{kind.dtype} of shape [{', '.join(['N', *map(str, kind.shape[1:])])}] with N ≥ 1"
