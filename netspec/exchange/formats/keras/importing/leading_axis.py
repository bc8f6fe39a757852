"""Import indices over all samples of a batch, as Keras's `scatter_update` takes them: first the index of the sample.

ONNX's ScatterND has the same indices, but rules of `lift` do not handle tensors that combine samples. This module
follows such operations up to the layer ScatterND, whose indices are within each sample.
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


def import_across_samples(importer: KerasImporter, call: LayerCall) -> bool:
    """Record an operation that combines all samples as an operation on each sample. Return whether it is one."""
    follow = _ACROSS_SAMPLES.get(name_of(call))
    if follow is None:
        return False
    view = follow(KerasOperation(importer, call, name_of(call), arguments(call)))
    if view is not None:
        importer.set_results(call, view)
    return view is not None


def _view(op: KerasOperation, value: Any) -> TensorView | None:
    return op.importer.views.get((value.call, value.index)) if isinstance(value, CallOutput) else None


def _index_view(source: TensorView, shape: Sequence[int], through: SampleIndices) -> TensorView:
    """Record indices of samples of this shape, which are not part of the net."""
    value = Input(source.source, TensorType(tuple(shape), DType.INT32))()
    return TensorView(source=source.source, axes=axes_of_order(range(len(shape))), value=value, across_samples=through)


def _sample_indices(op: KerasOperation) -> TensorView | None:
    """A cumulative sum of ones over the samples."""
    ones = op.arguments["args"][0] if op.arguments["args"] else None
    view = _view(op, ones)
    if view is None or ones is None or op.argument("axis", 1) != 0 or name_of(ones.call) != "ones_like":
        return None
    return _index_view(view, view.value.shape, SampleIndices(first=1))


def _shifted_indices(op: KerasOperation) -> TensorView | None:
    """Indices of samples with an offset, or repeated by adding zeros of a larger shape."""
    a, b = op.arguments["args"][:2] if len(op.arguments["args"]) > 1 else (None, None)
    sign = -1 if op.name == "subtract" else 1
    if sign == 1 and _first_index(op, a) is None:
        a, b = b, a
    view, first = _view(op, a), _first_index(op, a)
    if view is None or view.across_samples is None or first is None:
        return None
    if type(b) is int:
        return replace(view, across_samples=replace(view.across_samples, first=first + sign * b))
    zeros = _view(op, b)
    shape = None if zeros is None else broadcast_shapes(view.value.shape, zeros.value.shape)
    if (
        shape is None
        or zeros is None
        or zeros.across_samples is not None
        or b is None
        or name_of(b.call) != "zeros_like"
    ):
        return None
    return _index_view(view, shape, view.across_samples)


def _first_index(op: KerasOperation, value: Any) -> int | None:
    """The first of some indices of samples."""
    view = _view(op, value)
    return view.across_samples.first if view is not None and view.across_samples is not None else None


def _rows_of_samples(op: KerasOperation) -> TensorView | None:
    """Concatenated rows of all samples."""
    view, shape = _view(op, op.arguments["args"][0] if op.arguments["args"] else None), op.argument("shape", 1)
    sizes = shape if isinstance(shape, list) else [shape]
    if view is None or sizes[:1] not in ([-1], [None]) or any(type(size) is not int or size < 1 for size in sizes[1:]):
        return None
    total, row = prod(view.value.shape[1:]), prod(sizes[1:])
    if total % row or (view.across_samples is None and total == row):
        return None
    through = replace(view.across_samples or SampleIndices(), rows_per_sample=total // row if total != row else 0)
    target_shape = [total // row, *sizes[1:]] if through.rows_per_sample else sizes[1:]
    if through.first is not None:
        return _index_view(view, (view.value.shape[0], *target_shape), through)
    if view.across_samples is not None or view.feature_order is not None:
        return None
    (laid,) = op.layer("Reshape", {"target_shape": target_shape}, [op.importer.in_keras_order(view)])
    return replace(laid, across_samples=through)


def _row_indices(op: KerasOperation) -> TensorView | None:
    """Indices of rows: the index of the sample, then those within it."""
    first, *inner_views = [_view(op, view) for view in tensors_in(op.arguments["args"][:1])] or [None]
    if first is None or first.across_samples is None or first.across_samples.first != 0 or not inner_views:
        return None
    rows = first.across_samples.rows_per_sample
    expected, rank = SampleIndices(rows_per_sample=rows) if rows else None, 3 if rows else 2
    matching = [
        view
        for view in inner_views
        if view is not None and view.across_samples == expected and len(view.value.shape) == rank
    ]
    if len(matching) < len(inner_views) or op.argument("axis", 1, -1) not in (1, -1) or len(first.value.shape) != rank:
        return None
    indices = matching[0] if len(matching) == 1 else op.layer("Concatenate", {"axis": rank - 1}, matching)[0]
    return replace(indices, across_samples=SampleIndices(rows_per_sample=rows, has_sample_index=True))


_REDUCTIONS = {None: "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@operation("scatter_update")
def scatter_update(op: KerasOperation) -> Sequence[TensorView]:
    """Scatter values at indices of each sample."""
    x, index_tensor, updates = (op.arguments["args"] + [op.arguments.get(key) for key in ("indices", "updates")])[:3]
    indices, values = _view(op, index_tensor), _view(op, updates)
    is_complete = indices is not None and indices.across_samples is not None and indices.across_samples.has_sample_index
    reduction = op.argument("reduction", 3)
    expected = (
        None
        if indices is None or indices.across_samples is None
        else replace(indices.across_samples, has_sample_index=False)
    )
    if indices is None or not is_complete or values is None or (values.across_samples or SampleIndices()) != expected:
        raise UnsupportedFeature("its indices must be the index of each sample, followed by indices within the sample")
    if reduction not in _REDUCTIONS:
        raise UnsupportedFeature(f"its reduction {str(reduction)[:40]} is not supported")
    indices = replace(indices, across_samples=None)
    if indices.value.dtype.is_float:
        (indices,) = op.layer("Cast", {"dtype": "int32"}, [indices], name=f"{op.layer_name}/whole")
    inputs = [op.importer.in_keras_order(x), indices, replace(values, across_samples=None)]
    return op.layer("ScatterND", {"reduction": _REDUCTIONS[reduction]}, inputs)


_ACROSS_SAMPLES: dict[str, Callable[[KerasOperation], TensorView | None]] = {
    "cumsum": _sample_indices, "add": _shifted_indices, "subtract": _shifted_indices, "reshape": _rows_of_samples,
    "concatenate": _row_indices,
}  # fmt: skip
