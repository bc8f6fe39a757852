"""Import operations of Keras that reduce, or return indices, as operators of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.importing.axes import TensorView, axis_in_net
from netspec.exchange.formats.keras.importing.elementwise import as_boolean, cast_to
from netspec.exchange.formats.keras.importing.operations import operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.rules.functions import FORMULA
from netspec.exchange.unsupported import UnsupportedFeature

REDUCTIONS = {
    "mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
    "amax": "ReduceMax", "amin": "ReduceMin", "average": "ReduceMean", "logsumexp": "ReduceLogSumExp",
    "reduce_logsumexp": "ReduceLogSumExp", "norm": "ReduceL2", "reduce_euclidean_norm": "ReduceL2",
}  # fmt: skip
KEYWORD_ONLY = 99
"""The position of an argument that is always passed by keyword."""


@operation(*REDUCTIONS)
def reduction(op: KerasOperation) -> str:
    """Reductions along axes of each sample."""
    if op.argument("weights", KEYWORD_ONLY) is not None or op.argument("initial", KEYWORD_ONLY) is not None:
        raise UnsupportedFeature("`weights` and `initial` are not supported")
    order, axes = op.argument("ord", KEYWORD_ONLY), _axes(op, 2 if op.name == "norm" else 1)
    if order not in (None, 2, "fro", "euclidean") or (order == 2 and len(axes) > 1):
        raise UnsupportedFeature(f"the norm of order {order} is not supported")
    return _reduced(op, REDUCTIONS[op.name], op.tensor, axes)


def _axes(op: KerasOperation, index: int = 1) -> list[int]:
    axes, rank = op.argument("axis", index), len(op.tensor.order)
    axes_of_sample = [axis % rank for axis in (axes if isinstance(axes, list) else [axes])] if axes is not None else []
    if not axes_of_sample or 0 in axes_of_sample:
        raise UnsupportedFeature("it reduces the batch axis")
    return axes_of_sample


def _reduced(op: KerasOperation, op_type: str, operand: Any, axes: Sequence[int]) -> str:
    return op.node(op_type, operand, axes=axes, keepdims=int(bool(op.arguments.get("keepdims"))))


@operation("var", "std", "reduce_variance", "reduce_std")
def variance_or_std(op: KerasOperation) -> str:
    """Variance and standard deviation."""
    axes = _axes(op)
    mean = op.node("ReduceMean", op.tensor, axes=axes, keepdims=1)
    squares = op.node(FORMULA, op.tensor, mean, domain=DOMAIN, text="({0} - {1}) ** 2")
    variance = _reduced(op, "ReduceMean", squares, axes)
    return op.node("Sqrt", variance) if op.name.endswith("std") else variance


@operation("ptp")
def peak_to_peak(op: KerasOperation) -> str:
    """Maximum minus minimum."""
    axes = _axes(op)
    return op.node("Sub", *(_reduced(op, op_type, op.tensor, axes) for op_type in ("ReduceMax", "ReduceMin")))


_TRUTHS = {
    "all": "ReduceMin", "any": "ReduceMax", "reduce_all": "ReduceMin", "reduce_any": "ReduceMax",
    "count_nonzero": "ReduceSum",
}  # fmt: skip


@operation(*_TRUTHS)
def boolean_reduction(op: KerasOperation) -> str:
    """`all`, `any` and `count_nonzero`, on 0 and 1."""
    result = _reduced(op, _TRUTHS[op.name], cast_to(op, as_boolean(op, op.tensor), "int32"), _axes(op))
    return result if op.name == "count_nonzero" else cast_to(op, result, "bool")


@operation("normalize", "l2_normalize")
def normalize(op: KerasOperation) -> Sequence[TensorView]:
    """Normalize to length 1 along axes, as the layer."""
    view, axis = op.tensor, op.argument("axis", 1, -1)
    if op.arguments.get("order", 2) != 2:
        raise UnsupportedFeature(f"the norm of order {op.arguments['order']} is not supported")
    axes = [axis_in_net(int(axis_), view.order) for axis_ in (axis if isinstance(axis, list) else [axis])]
    return op.layer("UnitNormalization", {"axis": sorted(axes)}, [view], view.order)


def axis_of_sample(axis: Any, view: TensorView) -> int:
    """An axis of Keras other than the batch."""
    rank = len(view.order)
    if type(axis) is not int or not -rank <= axis < rank or axis % rank == 0:
        raise UnsupportedFeature("it operates along the batch axis")
    return axis % rank


_ALONG_AXIS = {"argmax": "ArgMax", "argmin": "ArgMin", "cumsum": "CumSum", "cumprod": "CumProd"}


@operation(*_ALONG_AXIS)
def along_axis(op: KerasOperation) -> str:
    """Indices of extremes, cumulative sums and products."""
    op_type, x = _ALONG_AXIS[op.name], op.tensor_in_keras_order
    axis = axis_of_sample(op.argument("axis", 1), op.tensor)
    if op_type.startswith("Cum"):
        return op.node(op_type, x, axis)
    return op.node(op_type, x, axis=axis, keepdims=int(bool(op.arguments.get("keepdims"))))


@operation("top_k")
def top_k(op: KerasOperation) -> Sequence[str]:
    """The largest elements along the last axis, and their indices."""
    return op.node_with_results(2, "TopK", op.tensor_in_keras_order, [op.argument("k", 1)])


@operation("sort", "argsort")
def sort(op: KerasOperation) -> str:
    """Sort, ascending."""
    axis = axis_of_sample(op.argument("axis", 1, -1), op.tensor)
    size = op.tensor.shape[axis]
    results = op.node_with_results(2, "TopK", op.tensor_in_keras_order, [size], axis=axis, largest=0)
    return results[int(op.name == "argsort")]


@operation("one_hot")
def one_hot(op: KerasOperation) -> str:
    """OneHot."""
    dtype = str(op.call.layer.config.get("dtype") or "float32")
    values = np.asarray([0, 1], "float32" if "float" in dtype else dtype)
    depth, axis = op.argument("num_classes", 1), op.argument("axis", 2, -1)
    return op.node("OneHot", op.tensor_in_keras_order, depth, values, axis=axis)


@operation("tril", "triu", "det")
def of_matrices(op: KerasOperation) -> str:
    """The triangle or determinant of each matrix."""
    if op.name == "det":
        return op.node("Det", op.tensor_in_keras_order)
    return op.node("Trilu", op.tensor_in_keras_order, op.argument("k", 1, 0), upper=int(op.name == "triu"))
