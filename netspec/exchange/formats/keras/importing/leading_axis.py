"""Indices over all samples of a batch, as Keras's `scatter_update` takes them: first the index of the sample.

ONNX's ScatterND counts alike, but rules of `lift` do not handle tensors that combine samples. So these operations are
followed here, up to the layer ScatterND, which counts within each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from netspec.exchange.axis_view import axes_of_order
from netspec.exchange.formats.keras.importing.axes import SampleIndices, TensorView
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall, tensors_in
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operations import arguments, name_of, operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType, broadcast_shapes


def followed(importer: KerasImporter, call: LayerCall) -> bool:
    """Whether an operation combines all samples, and was recorded as an operation on each."""
    found = _FOLLOWED.get(name_of(call))
    if found is None:
        return False
    made = found(KerasOperation(importer, call, name_of(call), arguments(call)))
    if made is not None:
        importer.put(call, made)
    return made is not None


def _held(op: KerasOperation, value: Any) -> TensorView | None:
    return op.importer.held.get((value.call, value.index)) if isinstance(value, CallOutput) else None


def _numbers(source: TensorView, shape: Sequence[int], through: SampleIndices) -> TensorView:
    """Indices of samples in this shape, which are not part of the net."""
    value = Input(source.source, TensorType(tuple(shape), DType.INT32))()
    return TensorView(source=source.source, axes=axes_of_order(range(len(shape))), value=value, through=through)


def _counted(op: KerasOperation) -> TensorView | None:
    """A cumulative sum of ones over the samples."""
    ones = op.arguments["args"][0] if op.arguments["args"] else None
    held = _held(op, ones)
    if held is None or ones is None or op.argument("axis", 1) != 0 or name_of(ones.call) != "ones_like":
        return None
    return _numbers(held, held.value.shape, SampleIndices(first=1))


def _moved(op: KerasOperation) -> TensorView | None:
    """Indices of samples with an offset, or repeated by adding zeros of a larger shape."""
    a, b = op.arguments["args"][:2] if len(op.arguments["args"]) > 1 else (None, None)
    sign = -1 if op.name == "subtract" else 1
    if sign == 1 and _first(op, a) is None:
        a, b = b, a
    held, first = _held(op, a), _first(op, a)
    if held is None or held.through is None or first is None:
        return None
    if type(b) is int:
        return replace(held, through=replace(held.through, first=first + sign * b))
    zeros = _held(op, b)
    shape = None if zeros is None else broadcast_shapes(held.value.shape, zeros.value.shape)
    if shape is None or zeros is None or zeros.through is not None or b is None or name_of(b.call) != "zeros_like":
        return None
    return _numbers(held, shape, held.through)


def _first(op: KerasOperation, value: Any) -> int | None:
    """The first of some indices of samples."""
    held = _held(op, value)
    return held.through.first if held is not None and held.through is not None else None


def _laid(op: KerasOperation) -> TensorView | None:
    """Concatenated rows of all samples."""
    held, shape = _held(op, op.arguments["args"][0] if op.arguments["args"] else None), op.argument("shape", 1)
    sizes = shape if isinstance(shape, list) else [shape]
    if held is None or sizes[:1] not in ([-1], [None]) or any(type(size) is not int or size < 1 for size in sizes[1:]):
        return None
    total, row = prod(held.value.shape[1:]), prod(sizes[1:])
    if total % row or (held.through is None and total == row):
        return None
    through = replace(held.through or SampleIndices(), rows=total // row if total != row else 0)
    made = [total // row, *sizes[1:]] if through.rows else sizes[1:]
    if through.first is not None:
        return _numbers(held, (held.value.shape[0], *made), through)
    if held.through is not None or held.rows is not None:
        return None
    (laid,) = op.layer("Reshape", {"target_shape": made}, [op.importer.plain(held)])
    return replace(laid, through=through)


def _places(op: KerasOperation) -> TensorView | None:
    """Indices of rows: the index of the sample, then those within it."""
    first, *rest = [_held(op, one) for one in tensors_in(op.arguments["args"][:1])] or [None]
    if first is None or first.through is None or first.through.first != 0 or not rest:
        return None
    rows = first.through.rows
    laid, rank = SampleIndices(rows=rows) if rows else None, 3 if rows else 2
    inner = [one for one in rest if one is not None and one.through == laid and len(one.value.shape) == rank]
    if len(inner) < len(rest) or op.argument("axis", 1, -1) not in (1, -1) or len(first.value.shape) != rank:
        return None
    found = inner[0] if len(inner) == 1 else op.layer("Concatenate", {"axis": rank - 1}, inner)[0]
    return replace(found, through=SampleIndices(rows=rows, numbered=True))


_JOINED = {None: "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@operation("scatter_update")
def put(op: KerasOperation) -> Sequence[TensorView]:
    """Scatter values at indices of each sample."""
    x, places, updates = (op.arguments["args"] + [op.arguments.get(key) for key in ("indices", "updates")])[:3]
    index, new = _held(op, places), _held(op, updates)
    numbered = index is not None and index.through is not None and index.through.numbered
    how = op.argument("reduction", 3)
    laid = None if index is None or index.through is None else replace(index.through, numbered=False)
    if index is None or not numbered or new is None or (new.through or SampleIndices()) != laid:
        raise UnsupportedFeature("its indices are not the index of each sample, followed by indices within it")
    if how not in _JOINED:
        raise UnsupportedFeature(f"it combines values by {str(how)[:40]}")
    index = replace(index, through=None)
    if index.value.dtype.is_float:
        (index,) = op.layer("Cast", {"dtype": "int32"}, [index], name=f"{op.layer_name}/whole")
    inputs = [op.importer.plain(x), index, replace(new, through=None)]
    return op.layer("ScatterND", {"reduction": _JOINED[how]}, inputs)


_FOLLOWED: dict[str, Callable[[KerasOperation], TensorView | None]] = {
    "cumsum": _counted, "add": _moved, "subtract": _moved, "reshape": _laid, "concatenate": _places,
}  # fmt: skip
