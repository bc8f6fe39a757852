"""Places through all samples of a batch, as Keras's `scatter_update` takes them: first the number of the sample.

A net says where within each sample. So what numbers the samples, `cumsum(ones_like(x), axis=0) - 1`, and what lays the
rows of all samples one behind another, a reshape to (samples · rows, …), is followed up to the `scatter_update` that
reads both, where the numbers are left out. Nothing else may read such tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from netspec.exchange.keras_import.axes import Held, Through, identity
from netspec.exchange.keras_import.config import Call, Tensor, tensors_in
from netspec.exchange.keras_import.fields import Unsupported
from netspec.exchange.keras_import.operations import argument, arguments, name_of, operation
from netspec.exchange.keras_import.translate import Translator
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType, broadcast_shapes


def followed(net: Translator, call: Call) -> bool:
    """Whether an operation goes through all samples, and was taken down as what it is of each."""
    name = name_of(call)
    found = _FOLLOWED.get(name)
    if found is None:
        return False
    made = found(net, call, arguments(call))
    if made is not None:
        net.put(call, made)
    return made is not None


def _held(net: Translator, value: Any) -> Held | None:
    return net.held.get((value.call, value.index)) if isinstance(value, Tensor) else None


def _numbers(source: Held, shape: Sequence[int], through: Through) -> Held:
    """The numbers of samples in this shape; they stand nowhere in the net."""
    value = Input(source.source, TensorType(tuple(shape), DType.INT32))()
    return Held(source.source, value, identity(len(shape)), through=through)


def _counted(net: Translator, call: Call, given: Mapping[str, Any]) -> Held | None:
    """The sum of ones up to each sample."""
    ones = given["args"][0] if given["args"] else None
    held = _held(net, ones)
    if held is None or ones is None or argument(given, "axis", 1) != 0 or name_of(ones.call) != "ones_like":
        return None
    return _numbers(held, held.value.shape, Through(first=1))


def _moved(net: Translator, call: Call, given: Mapping[str, Any]) -> Held | None:
    """Numbers of samples that begin elsewhere, or are repeated: to them zeros of a larger shape are added."""
    a, b = given["args"][:2] if len(given["args"]) > 1 else (None, None)
    sign = -1 if name_of(call) == "subtract" else 1
    if sign == 1 and _first(net, a) is None:
        a, b = b, a
    held, first = _held(net, a), _first(net, a)
    if held is None or held.through is None or first is None:
        return None
    if type(b) is int:
        return replace(held, through=replace(held.through, first=first + sign * b))
    zeros = _held(net, b)
    shape = None if zeros is None else broadcast_shapes(held.value.shape, zeros.value.shape)
    if shape is None or zeros is None or zeros.through is not None or b is None or name_of(b.call) != "zeros_like":
        return None
    return _numbers(held, shape, held.through)


def _first(net: Translator, value: Any) -> int | None:
    """Of numbers of samples, that of the first."""
    held = _held(net, value)
    return held.through.first if held is not None and held.through is not None else None


def _laid(net: Translator, call: Call, given: Mapping[str, Any]) -> Held | None:
    """Rows of all samples one behind another."""
    held, shape = _held(net, given["args"][0] if given["args"] else None), argument(given, "shape", 1)
    sizes = shape if isinstance(shape, list) else [shape]
    if held is None or sizes[:1] not in ([-1], [None]) or any(type(one) is not int or one < 1 for one in sizes[1:]):
        return None
    total, row = prod(held.value.shape[1:]), prod(sizes[1:])
    if total % row or (held.through is None and total == row):
        return None
    through = replace(held.through or Through(), rows=total // row if total != row else 0)
    made = [total // row, *sizes[1:]] if through.rows else sizes[1:]
    if through.first is not None:
        return _numbers(held, (held.value.shape[0], *made), through)
    if held.through is not None or held.rows is not None:
        return None
    (laid,) = net.add(call, "Reshape", {"target_shape": made}, [net.plain(held)])
    return replace(laid, through=through)


def _places(net: Translator, call: Call, given: Mapping[str, Any]) -> Held | None:
    """Places of rows: the number of the sample, and behind it where in the sample."""
    first, *rest = [_held(net, one) for one in tensors_in(given["args"][:1])] or [None]
    if first is None or first.through is None or first.through.first != 0 or not rest:
        return None
    rows = first.through.rows
    laid, rank = Through(rows=rows) if rows else None, 3 if rows else 2
    inner = [one for one in rest if one is not None and one.through == laid and len(one.value.shape) == rank]
    if len(inner) < len(rest) or argument(given, "axis", 1, -1) not in (1, -1) or len(first.value.shape) != rank:
        return None
    found = inner[0] if len(inner) == 1 else net.add(call, "Concatenate", {"axis": rank - 1}, inner)[0]
    return replace(found, through=Through(rows=rows, numbered=True))


_JOINED = {None: "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@operation("scatter_update")
def put(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Numbers at places of each sample."""
    x, places, updates = (given["args"] + [given.get(key) for key in ("indices", "updates")])[:3]
    index, new = _held(net, places), _held(net, updates)
    numbered = index is not None and index.through is not None and index.through.numbered
    how = argument(given, "reduction", 3)
    laid = None if index is None or index.through is None else replace(index.through, numbered=False)
    if index is None or not numbered or new is None or (new.through or Through()) != laid:
        raise Unsupported("its places are not told as the number of each sample, and where in that sample")
    if how not in _JOINED:
        raise Unsupported(f"it joins numbers by {str(how)[:40]}")
    index = replace(index, through=None)
    if index.value.dtype.is_float:
        (index,) = net.add(call, "Cast", {"dtype": "int32"}, [index], name=f"{net.name_of(call)}/whole")
    inputs = [net.plain(x), index, replace(new, through=None)]
    net.put(call, *net.add(call, "ScatterND", {"reduction": _JOINED[how]}, inputs))


_FOLLOWED: dict[str, Callable[[Translator, Call, Mapping[str, Any]], Held | None]] = {
    "cumsum": _counted, "add": _moved, "subtract": _moved, "reshape": _laid, "concatenate": _places,
}  # fmt: skip
