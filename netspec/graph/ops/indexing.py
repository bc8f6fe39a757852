"""Gather and scatter with computed indices: GatherElements, GatherND, ScatterElements and ScatterND of ONNX.

A negative index counts from the end. An index out of range is an error of the data, which types cannot show.
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
"""How an update is combined with the element that it meets: "none" replaces it (the last update wins)."""


@dataclass(frozen=True)
class GatherElements(Op):
    """For each index the element of x at the same position, except for `axis`, where the index replaces it."""

    axis: int
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxMap("GatherElements", axis=integer("axis"))

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        """x: (…, size, …), index: (…, k, …), otherwise equal → (…, k, …)."""
        _check_elements(self, self.axis, x, index)
        return x.with_shape(*index.shape)

    def forward(self, xp: Xp, x: Array, index: Array) -> Array:
        return xp.take_along_axis(x, index, axis=self.axis)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, index = y.inputs
        return ScatterElements(self.axis, "add")(Fill(0.0, x.type)(), index, dy), None

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _check_elements(op: Op, axis: int, x: TensorType, index: TensorType) -> None:
    fits = 0 <= axis < x.rank == index.rank and not index.dtype.is_float and index.dtype != DType.BOOL
    others = [k for k in range(x.rank) if k != axis]
    op.check(
        fits and all(x.shape[k] == index.shape[k] for k in others),
        f"indices must match the data on every axis except {axis}",
        expected="integers, with the data's sizes along all other axes",
        got=f"{x}, {index}",
    )


class ScatterBase(Op):
    """Base of ops that write `updates` into a copy of x at indices, combined by `reduction`."""

    reduction: ScatterReduction

    def scatter_into(self, xp: Xp, y: Array, where: tuple[Array, ...], updates: Array) -> Array:
        """Write the updates into `y`."""
        if self.reduction == "none":
            y[where] = updates
        else:
            functions = {"add": xp.add, "mul": xp.multiply, "min": xp.minimum, "max": xp.maximum}
            functions[self.reduction].at(y, where, updates)
        return y

    def gather_from(self, x: Value, index: Value) -> Value:
        """The elements of the result `x` at the indices."""
        raise NotImplementedError  # abstract

    def vjp(self, y: Value, dy: Value) -> Grads:
        """With reduction "none", an index that occurs twice has the last update; the gradient goes to both."""
        x, index, updates = y.inputs
        at = self.gather_from(dy, index)
        if self.reduction == "add":
            return dy, None, at
        if self.reduction == "none":
            return self(dy, index, Fill(0.0, updates.type)()), None, at
        if self.reduction == "mul":  # zero elements have no such gradient
            return dy * (y / x), None, at * self.gather_from(y, index) / updates
        kept, taken = Equal()(x, y), Equal()(updates, self.gather_from(y, index))
        return dy * cast(kept, dy.dtype), None, at * cast(taken, dy.dtype)


def _reduction_attribute(how: ScatterReduction) -> dict[str, Any]:
    """The ONNX attribute `reduction`, unless it has its default."""
    return {} if how == "none" else {"reduction": how}


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
        _check_elements(self, self.axis, x, index)
        _check_updates(self, x.with_shape(*index.shape), updates)
        return x

    def forward(self, xp: Xp, x: Array, index: Array, updates: Array) -> Array:
        where = list(xp.ix_(*map(xp.arange, index.shape)))
        where[self.axis] = index
        return self.scatter_into(xp, x.copy(), tuple(where), updates)

    def gather_from(self, x: Value, index: Value) -> Value:
        return GatherElements(self.axis)(x, index)


def _check_updates(op: Op, wanted: TensorType, updates: TensorType) -> None:
    op.check(updates == wanted, "the updates do not match the indices", expected=str(wanted), got=updates)


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
        """Rows of one table, looked up by a single index each."""
        b, count = self.batch_dims, index.shape[-1]
        sizes, rest = x.shape[b : b + count], x.shape[b + count :]
        lead, places = prod(x.shape[:b]), index.shape[:-1]
        flat = reshape_to(_flat_indices(index, sizes), (lead, prod(index.shape[b:-1])))
        numbers = BatchRowIndices(prod(sizes))(flat) if b else flat
        rows = reshape_to(x, (lead * prod(sizes), *rest))
        return reshape_to(Gather()(rows, numbers), (*places, *rest))

    def simplify(self, x: Value, index: Value) -> Value:
        return self.decompose(x, index)

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _indexed_shape(op: Op, batch_dims: int, x: TensorType, index: TensorType) -> tuple[int, ...]:
    """The sizes of the axes of x behind those that are indexed."""
    fits = index.rank > batch_dims and not index.dtype.is_float and index.dtype != DType.BOOL
    count = index.shape[-1] if fits else 0
    op.check(
        0 < count <= x.rank - batch_dims and x.shape[:batch_dims] == index.shape[:batch_dims],
        "the places are not those of such an operand",
        expected="whole numbers (…, count), with as many along the first axes as there are, and a count of its others",
        got=f"{x}, {index}",
    )
    return x.shape[batch_dims + count :]


def _index_arrays(xp: Xp, batch_dims: int, index: Array) -> tuple[Array, ...]:
    """Index arrays for NumPy: the position along shared axes, and the given indices along the others."""
    spread = (slice(None),) * batch_dims + (None,) * (index.ndim - 1 - batch_dims)
    own = (one[spread] for one in xp.ix_(*map(xp.arange, index.shape[:batch_dims])))
    return (*own, *(index[..., k] for k in range(index.shape[-1])))


def _flat_indices(index: Value, sizes: tuple[int, ...]) -> Value:
    """Index tuples as indices into the flattened axes."""
    import numpy as np

    index = cast(index, DType.INT64) if prod(sizes) > np.iinfo(str(index.dtype)).max else index
    dtype = str(index.dtype)
    steps = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    counted = Where()(Greater()(scalar(0, index.dtype), index), index + constant(np.asarray(sizes, dtype)), index)
    if len(sizes) == 1:
        return reshape_to(counted, index.shape[:-1])
    return ReduceSum((len(index.shape) - 1,))(counted * constant(np.asarray(steps, dtype)))


def _as_int64(g: Emitter, index: Value, name: str) -> str:
    """The index type that the operator requires."""
    return name if index.dtype == DType.INT64 else g.node("Cast", name, to=DType.INT64)


def _scatter_nd_to_onnx(g: Emitter, y: Value, x: str, index: str, updates: str) -> str:
    # ONNX's ScatterND has no shared axes: the sample's number is prepended to its indices.
    op, places = y.op, y.inputs[1]
    assert isinstance(op, ScatterND)
    index = _as_int64(g, places, index)
    samples = g.node("Gather", g.node("Shape", index), g.constant(0, "int64"), axis=0)
    numbers = g.node("Range", g.constant(0, "int64"), samples, g.constant(1, "int64"))
    column = g.node("Reshape", numbers, g.constant([-1] + [1] * (len(places.shape) - 1), "int64"))
    last = g.constant([-1], "int64")
    nothing = g.node("Slice", index, g.constant([0], "int64"), g.constant([1], "int64"), last)
    nothing = g.node("Mul", nothing, g.constant(0, "int64"))
    index = g.node("Concat", g.node("Add", nothing, column), index, axis=-1)
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
        """Elements written into the flattened indexed axes."""
        sizes, rest = x.shape[1 : index.shape[-1] + 1], prod(x.shape[index.shape[-1] + 1 :])
        rows = reshape_to(updates, (x.shape[0], prod(index.shape[1:-1]), rest))
        flat = BroadcastLike()(reshape_to(_flat_indices(index, sizes), (*rows.shape[:2], 1)), rows)
        table = reshape_to(x, (x.shape[0], prod(sizes), rest))
        return reshape_to(ScatterElements(1, self.reduction)(table, flat, rows), x.shape)
