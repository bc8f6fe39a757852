"""Gather and scatter with computed indices: GatherElements, GatherND, ScatterElements and ScatterND of ONNX.

A negative index counts from the end. An index out of range is an error in the data, which types cannot reveal.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

from netspec.graph.onnx_map import Emitter, OnnxExpansion, OnnxMap, integer
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Equal, Greater, Where, cast, scalar
from netspec.graph.ops.linear import BatchRowIndices, Gather
from netspec.graph.ops.reduce import BroadcastLike, ReduceSum, reshape_to
from netspec.graph.ops.source import Fill, constant
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

ScatterReduction: TypeAlias = Literal["none", "add", "mul", "min", "max"]
"""Operation that combines an update with the old element: "none" replaces it (the last update wins)."""


@dataclass(frozen=True)
class GatherElements(Op):
    """The elements of x at the positions of the indices, except along `axis`, where the index is the position."""

    axis: int
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxMap("GatherElements", axis=integer("axis"))

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        """x: (…, size, …), index: (…, k, …), otherwise equal → (…, k, …)."""
        _check_element_indices(self, self.axis, x, index)
        return x.with_shape(*index.shape)

    def forward(self, xp: Xp, x: Array, index: Array) -> Array:
        return xp.take_along_axis(x, index, axis=self.axis)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, index = y.inputs
        return ScatterElements(self.axis, "add")(Fill(0.0, x.type)(), index, dy), None

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _check_element_indices(op: Op, axis: int, x: TensorType, index: TensorType) -> None:
    fits = 0 <= axis < x.rank == index.rank and not index.dtype.is_float and index.dtype != DType.BOOL
    others = [k for k in range(x.rank) if k != axis]
    op.check(
        fits and all(x.shape[k] == index.shape[k] for k in others),
        f"indices must match the data on every axis except {axis}",
        expected="integers, with the data's sizes along all other axes",
        got=f"{x.describe()}, {index.describe()}",
    )


class ScatterBase(Op):
    """Base of ops that write `updates` into a copy of x at indices, combined by `reduction`."""

    reduction: ScatterReduction

    def scatter_into(self, xp: Xp, y: Array, indices: tuple[Array, ...], updates: Array) -> Array:
        """Write the updates into `y`."""
        if self.reduction == "none":
            y[indices] = updates
        else:
            functions = {"add": xp.add, "mul": xp.multiply, "min": xp.minimum, "max": xp.maximum}
            functions[self.reduction].at(y, indices, updates)
        return y

    def gather_from(self, x: Value, index: Value) -> Value:
        """The elements of `x` that the updates are written to."""
        raise NotImplementedError  # abstract

    def vjp(self, y: Value, dy: Value) -> Grads:
        """Gradients of x and updates. With "none", repeated indices keep the last update, and all get its gradient."""
        x, index, updates = y.inputs
        dy_at_index = self.gather_from(dy, index)
        if self.reduction == "add":
            return dy, None, dy_at_index
        if self.reduction == "none":
            return self(dy, index, Fill(0.0, updates.type)()), None, dy_at_index
        if self.reduction == "mul":  # the gradient of zero elements is not finite
            return dy * (y / x), None, dy_at_index * self.gather_from(y, index) / updates
        x_kept, update_kept = Equal()(x, y), Equal()(updates, self.gather_from(y, index))
        return dy * cast(x_kept, dy.dtype), None, dy_at_index * cast(update_kept, dy.dtype)


def _reduction_attribute(reduction: ScatterReduction) -> dict[str, Any]:
    """The ONNX attribute `reduction`, unless it has its default."""
    return {} if reduction == "none" else {"reduction": reduction}


@dataclass(frozen=True)
class ScatterElements(ScatterBase):
    """x with `updates` written to the positions that `GatherElements` reads."""

    axis: int
    reduction: ScatterReduction = "none"
    onnx = OnnxExpansion(
        lambda g, y, *operands: g.node(
            "ScatterElements", *operands, axis=y.op.axis, **_reduction_attribute(y.op.reduction)
        )
    )

    def infer(self, x: TensorType, index: TensorType, updates: TensorType) -> TensorType:
        """x: (…, size, …), index and updates: (…, k, …) → x."""
        _check_element_indices(self, self.axis, x, index)
        _check_updates(self, x.with_shape(*index.shape), updates)
        return x

    def forward(self, xp: Xp, x: Array, index: Array, updates: Array) -> Array:
        indices = list(xp.ix_(*map(xp.arange, index.shape)))
        indices[self.axis] = index
        return self.scatter_into(xp, x.copy(), tuple(indices), updates)

    def gather_from(self, x: Value, index: Value) -> Value:
        return GatherElements(self.axis)(x, index)


def _check_updates(op: Op, expected: TensorType, updates: TensorType) -> None:
    op.check(
        updates == expected,
        "the updates do not match the indices",
        expected=expected.describe(),
        got=updates.describe(),
    )


@dataclass(frozen=True)
class GatherND(Op):
    """Slices of x at index tuples along the last axis of `index`; the first axes of both are shared."""

    batch_dims: int = 0
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(
        lambda g, y, x, index: g.node(
            "GatherND",
            x,
            _as_int64(g, y.inputs[1], index),
            **({"batch_dims": y.op.batch_dims} if y.op.batch_dims else {}),
        )
    )

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        """x: (b…, s…, rest…), index: (b…, i…, q) with q the number of s → (b…, i…, rest…)."""
        return x.with_shape(*index.shape[:-1], *_indexed_shape(self, self.batch_dims, x, index))

    def forward(self, xp: Xp, x: Array, index: Array) -> Array:
        return x[_index_arrays(xp, self.batch_dims, index)]

    def decompose(self, x: Value, index: Value) -> Value:
        """Look up rows of one table by a single index each."""
        b, count = self.batch_dims, index.shape[-1]
        sizes, trailing = x.shape[b : b + count], x.shape[b + count :]
        lead, index_shape = prod(x.shape[:b]), index.shape[:-1]
        flat = reshape_to(_flat_indices(index, sizes), (lead, prod(index.shape[b:-1])))
        rows_of_batch = BatchRowIndices(prod(sizes))(flat) if b else flat
        rows = reshape_to(x, (lead * prod(sizes), *trailing))
        return reshape_to(Gather()(rows, rows_of_batch), (*index_shape, *trailing))

    def simplify(self, x: Value, index: Value) -> Value:
        return self.decompose(x, index)

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _indexed_shape(op: Op, batch_dims: int, x: TensorType, index: TensorType) -> tuple[int, ...]:
    """The sizes of the axes of x after those that are indexed."""
    fits = index.rank > batch_dims and not index.dtype.is_float and index.dtype != DType.BOOL
    count = index.shape[-1] if fits else 0
    leading = "".join(f"{size}, " for size in ("batch", *x.shape[1:])[:batch_dims])
    op.check(
        0 < count <= x.rank - batch_dims and x.shape[:batch_dims] == index.shape[:batch_dims],
        "the indices do not match the data",
        expected=f"integers ({leading}…, count) with count from 1 to {x.rank - batch_dims}"
        if batch_dims < x.rank
        else f"`batch_dims` below {x.rank}, the number of axes of the data",
        got=f"{x.describe()}, {index.describe()}",
    )
    return x.shape[batch_dims + count :]


def _index_arrays(xp: Xp, batch_dims: int, index: Array) -> tuple[Array, ...]:
    """Index arrays for NumPy: the position along shared axes, and the given indices along the others."""
    to_index_rank = (slice(None),) * batch_dims + (None,) * (index.ndim - 1 - batch_dims)
    batch_indices = (positions[to_index_rank] for positions in xp.ix_(*map(xp.arange, index.shape[:batch_dims])))
    return (*batch_indices, *(index[..., k] for k in range(index.shape[-1])))


def _flat_indices(index: Value, sizes: tuple[int, ...]) -> Value:
    """Index tuples as indices into the flattened axes."""
    import numpy as np

    index = cast(index, DType.INT64) if prod(sizes) > np.iinfo(str(index.dtype)).max else index
    dtype = str(index.dtype)
    steps = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    from_start = Where()(Greater()(scalar(0, index.dtype), index), index + constant(np.asarray(sizes, dtype)), index)
    if len(sizes) == 1:
        return reshape_to(from_start, index.shape[:-1])
    return ReduceSum((len(index.shape) - 1,))(from_start * constant(np.asarray(steps, dtype)))


def _as_int64(g: Emitter, index: Value, name: str) -> str:
    """Convert indices to the type that the operator requires."""
    return name if index.dtype == DType.INT64 else g.node("Cast", name, to=DType.INT64)


def _scatter_nd_to_onnx(g: Emitter, y: Value, x: str, index: str, updates: str) -> str:
    # ONNX's ScatterND has no shared axes: the index of the sample is prepended to its indices.
    op, index_value = y.op, y.inputs[1]
    assert isinstance(op, ScatterND)
    index = _as_int64(g, index_value, index)
    samples = g.node("Gather", g.node("Shape", index), g.constant(0, "int64"), axis=0)
    sample_indices = g.node("Range", g.constant(0, "int64"), samples, g.constant(1, "int64"))
    column = g.node("Reshape", sample_indices, g.constant([-1] + [1] * (len(index_value.shape) - 1), "int64"))
    last = g.constant([-1], "int64")
    zeros = g.node("Slice", index, g.constant([0], "int64"), g.constant([1], "int64"), last)
    zeros = g.node("Mul", zeros, g.constant(0, "int64"))
    index = g.node("Concat", g.node("Add", zeros, column), index, axis=-1)
    return g.node("ScatterND", x, index, updates, **_reduction_attribute(op.reduction))


@dataclass(frozen=True)
class ScatterND(ScatterBase):
    """x with `updates` written to the slices that `GatherND` reads; axis 0 is the batch."""

    reduction: ScatterReduction = "none"
    onnx = OnnxExpansion(_scatter_nd_to_onnx)

    def infer(self, x: TensorType, index: TensorType, updates: TensorType) -> TensorType:
        """x: (N, s…, rest…), index: (N, i…, q) with q the number of s, updates: (N, i…, rest…) → x."""
        _check_updates(self, x.with_shape(*index.shape[:-1], *_indexed_shape(self, 1, x, index)), updates)
        return x

    def forward(self, xp: Xp, x: Array, index: Array, updates: Array) -> Array:
        return self.scatter_into(xp, x.copy(), _index_arrays(xp, 1, index), updates)

    def gather_from(self, x: Value, index: Value) -> Value:
        return GatherND(1)(x, index)

    def decompose(self, x: Value, index: Value, updates: Value) -> Value:
        """Write elements into the flattened indexed axes."""
        sizes, trailing = x.shape[1 : index.shape[-1] + 1], prod(x.shape[index.shape[-1] + 1 :])
        rows = reshape_to(updates, (x.shape[0], prod(index.shape[1:-1]), trailing))
        flat = BroadcastLike()(reshape_to(_flat_indices(index, sizes), (*rows.shape[:2], 1)), rows)
        table = reshape_to(x, (x.shape[0], prod(sizes), trailing))
        return reshape_to(ScatterElements(1, self.reduction)(table, flat, rows), x.shape)
