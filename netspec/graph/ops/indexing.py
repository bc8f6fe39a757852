"""Elements found, or put, at computed places: ONNX's GatherElements, GatherND, ScatterElements and ScatterND.

A place that is negative counts from the end; one beyond either end is an error of the operands, not of types.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

from netspec.graph.onnx_map import Emitter, OnnxExpansion, OnnxMap, integer
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Equal, Greater, Where, cast, scalar
from netspec.graph.ops.linear import Gather, RowsOfBatch
from netspec.graph.ops.reduce import BroadcastLike, ReduceSum, reshape_to
from netspec.graph.ops.source import Fill, constant
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

How: TypeAlias = Literal["none", "add", "mul", "min", "max"]
"""What is done with what is put where something is: it replaces it ("none"; of several the last), or joins it."""


@dataclass(frozen=True)
class GatherElements(Op):
    """For each place the element of x at its own position, but along `axis` at the one that the place says."""

    axis: int
    traits = Traits(rounds=(0,))
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
        f"the places do not fit to what they are of along the other axes than {axis}",
        expected="whole numbers, with as many as there are of all other axes",
        got=f"{x}, {index}",
    )


class Scatter(Op):
    """Base of ops that put `updates` into a copy of x at places, and join them with what is there as `how` says."""

    how: How

    def placed(self, xp: Xp, y: Array, where: tuple[Array, ...], updates: Array) -> Array:
        """`y` with the updates put in."""
        if self.how == "none":
            y[where] = updates
        else:
            functions = {"add": xp.add, "mul": xp.multiply, "min": xp.minimum, "max": xp.maximum}
            functions[self.how].at(y, where, updates)
        return y

    def found(self, x: Value, index: Value) -> Value:
        """What the result `x` of such an op has at the places."""
        raise NotImplementedError  # abstract: subclasses say

    def vjp(self, y: Value, dy: Value) -> Grads:
        """Where nothing is joined, a place that comes twice has the last update: the gradient takes it for both."""
        x, index, updates = y.inputs
        at = self.found(dy, index)
        if self.how == "add":
            return dy, None, at
        if self.how == "none":
            return self(dy, index, Fill(0.0, updates.type)()), None, at
        if self.how == "mul":  # numbers that are 0 have no such gradient
            return dy * (y / x), None, at * self.found(y, index) / updates
        kept, taken = Equal()(x, y), Equal()(updates, self.found(y, index))
        return dy * cast(kept, dy.dtype), None, at * cast(taken, dy.dtype)


def _joined(how: How) -> dict[str, Any]:
    """The attribute that says it, where it is not the default."""
    return {} if how == "none" else {"reduction": how}


@dataclass(frozen=True)
class ScatterElements(Scatter):
    """x with `updates` put where `GatherElements` would find them."""

    axis: int
    how: How = "none"
    onnx = OnnxExpansion(
        lambda g, y, *operands: g.node("ScatterElements", *operands, axis=y.op.axis, **_joined(y.op.how))
    )

    def infer(self, x: TensorType, index: TensorType, updates: TensorType) -> TensorType:
        """x: (…, size, …), index and updates: (…, k, …) → x."""
        _check_elements(self, self.axis, x, index)
        _check_updates(self, x.with_shape(*index.shape), updates)
        return x

    def forward(self, xp: Xp, x: Array, index: Array, updates: Array) -> Array:
        where = list(xp.indices(index.shape, sparse=True))
        where[self.axis] = index
        return self.placed(xp, x.copy(), tuple(where), updates)

    def found(self, x: Value, index: Value) -> Value:
        return GatherElements(self.axis)(x, index)


def _check_updates(op: Op, wanted: TensorType, updates: TensorType) -> None:
    op.check(updates == wanted, "there is not one update for each place", expected=str(wanted), got=updates)


@dataclass(frozen=True)
class GatherND(Op):
    """Parts of x whose places along as many axes are the last axis of `index`; the first axes of both are the same."""

    batch_dims: int = 0
    traits = Traits(rounds=(0,))
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
        return x.with_shape(*index.shape[:-1], *_rest(self, self.batch_dims, x, index))

    def forward(self, xp: Xp, x: Array, index: Array) -> Array:
        return x[_places(xp, self.batch_dims, index)]

    def decompose(self, x: Value, index: Value) -> Value:
        """Rows of one table, looked up by one number each."""
        b, count = self.batch_dims, index.shape[-1]
        sizes, rest = x.shape[b : b + count], x.shape[b + count :]
        lead, places = prod(x.shape[:b]), index.shape[:-1]
        flat = reshape_to(_flat(index, sizes), (lead, prod(index.shape[b:-1])))
        numbers = RowsOfBatch(prod(sizes))(flat) if b else flat
        rows = reshape_to(x, (lead * prod(sizes), *rest))
        return reshape_to(Gather()(rows, numbers), (*places, *rest))

    def simplified(self, x: Value, index: Value) -> Value:
        return self.decompose(x, index)

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _rest(op: Op, batch_dims: int, x: TensorType, index: TensorType) -> tuple[int, ...]:
    """The sizes of x behind the axes that places are along."""
    fits = index.rank > batch_dims and not index.dtype.is_float and index.dtype != DType.BOOL
    count = index.shape[-1] if fits else 0
    op.check(
        0 < count <= x.rank - batch_dims and x.shape[:batch_dims] == index.shape[:batch_dims],
        "the places are not those of such an operand",
        expected="whole numbers (…, count), with as many along the first axes as there are, and a count of its others",
        got=f"{x}, {index}",
    )
    return x.shape[batch_dims + count :]


def _places(xp: Xp, batch_dims: int, index: Array) -> tuple[Array, ...]:
    """What arrays are indexed by: the first axes by their own numbers, others by what `index` says."""
    spread = (slice(None),) * batch_dims + (None,) * (index.ndim - 1 - batch_dims)
    own = (one[spread] for one in xp.indices(index.shape[:batch_dims], sparse=True))
    return (*own, *(index[..., k] for k in range(index.shape[-1])))


def _flat(index: Value, sizes: tuple[int, ...]) -> Value:
    """Places along several axes as numbers of the elements of what these axes are, taken as one."""
    import numpy as np

    dtype = str(index.dtype)
    steps = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    counted = Where()(Greater()(scalar(0, index.dtype), index), index + constant(np.asarray(sizes, dtype)), index)
    if len(sizes) == 1:
        return reshape_to(counted, index.shape[:-1])
    return ReduceSum((len(index.shape) - 1,))(counted * constant(np.asarray(steps, dtype)))


def _as_int64(g: Emitter, index: Value, name: str) -> str:
    """What the operator takes alone."""
    return name if index.dtype == DType.INT64 else g.node("Cast", name, to=DType.INT64)


def _scatter_nd_to_onnx(g: Emitter, y: Value, x: str, index: str, updates: str) -> str:
    # ONNX's has no axes that both share: the number of each sample comes before its places.
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
    return g.node("ScatterND", x, index, updates, **_joined(op.how))


@dataclass(frozen=True)
class ScatterND(Scatter):
    """x with `updates` put where `GatherND` would find them; axis 0 is the samples, each with its own places."""

    how: How = "none"
    onnx = OnnxExpansion(_scatter_nd_to_onnx)

    def infer(self, x: TensorType, index: TensorType, updates: TensorType) -> TensorType:
        """x: (N, s…, rest…), index: (N, i…, q) with q the number of s, updates: (N, i…, rest…) → x."""
        _check_updates(self, x.with_shape(*index.shape[:-1], *_rest(self, 1, x, index)), updates)
        return x

    def forward(self, xp: Xp, x: Array, index: Array, updates: Array) -> Array:
        return self.placed(xp, x.copy(), _places(xp, 1, index), updates)

    def found(self, x: Value, index: Value) -> Value:
        return GatherND(1)(x, index)

    def decompose(self, x: Value, index: Value, updates: Value) -> Value:
        """Elements put into the axes of places taken as one."""
        sizes, rest = x.shape[1 : index.shape[-1] + 1], prod(x.shape[index.shape[-1] + 1 :])
        rows = reshape_to(updates, (x.shape[0], prod(index.shape[1:-1]), rest))
        flat = BroadcastLike()(reshape_to(_flat(index, sizes), (*rows.shape[:2], 1)), rows)
        table = reshape_to(x, (x.shape[0], prod(sizes), rest))
        return reshape_to(ScatterElements(1, self.how)(table, flat, rows), x.shape)
