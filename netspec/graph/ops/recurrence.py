"""A cell run along a sequence, and its gradient. What the cell computes is data: any elementwise function of Values.

Only what depends on the step before is in here. The product of the inputs, and the gradients of all weights, are
matrix products over all steps at once, and nodes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from netspec.graph.autodiff import pullback
from netspec.graph.fused import Fused, fused
from netspec.graph.graph import topological
from netspec.graph.onnx_map import GRADIENT, Decomposed
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import Fill, Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Recurrence(Op):
    """r[t] = h[t-1] · u + bias; (h[t], c[t], …) = cell(z[t], r[t], h[t-1], c[t-1], …), from states that are 0.

    The cell is elementwise over the units: it reads `gates` parts of z, `products` parts of r, and the states, and
    gives the new states, of which the first is the output, and number `fed` is what u multiplies. With `reverse` it
    runs from the end to the start.
    """

    cell: Fused
    gates: int
    products: int
    reverse: bool = False
    fed: int = 0
    onnx = Decomposed()

    @property
    def states(self) -> int:
        """How many states the cell has."""
        return len(self.cell.results)

    def derivative(self, dtype: DType) -> Derivative:
        """How gradients run through the cell."""
        return _derivative(self.cell, self.gates, self.products, self.fed, dtype)

    def step(self, dtype: DType) -> Fused:
        """The cell with further results: what its gradient keeps."""
        return replace(self.cell, results=(*self.cell.results, *self.derivative(dtype).saved))

    def infer(self, z: TensorType, u: TensorType, *bias: TensorType) -> tuple[TensorType, ...]:
        """z: (N, T, gates · H), u: (H, products · H), bias, which may be left out: (products · H) → (N, T, H), several.

        They are the output, each state as it was before each step, and what the gradient needs besides.
        """
        self.check(z.rank == 3, "the operand is no sequence", expected="(batch, steps, features)", got=z)
        units = u.shape[0]
        fits = z.shape[2] == self.gates * units and u.shape[1:] == (self.products * units,)
        self.check(fits and z.dtype == u.dtype, "the recurrent kernel is for another number of units", got=f"{z}, {u}")
        self.check(all(one == u.with_shape(u.shape[1]) for one in bias), "the recurrent bias does not fit", got=bias)
        one = z.with_shape(*z.shape[:2], units)
        return (one,) * (1 + self.states + len(self.derivative(z.dtype).saved))

    def forward(self, xp: Xp, z: Array, u: Array, *bias: Array) -> tuple[Array, ...]:
        (batch, steps, _), units = z.shape, u.shape[0]
        step, states = self.step(DType(str(z.dtype))), [xp.zeros((batch, units), z.dtype)] * self.states
        found = [xp.empty((batch, steps, units), z.dtype) for _ in range(1 + len(step.results))]
        for t in in_order(steps, self.reverse):
            for before, state in zip(found[1:], states, strict=False):
                before[:, t] = state
            product = xp.matmul(states[self.fed], u)
            for one in bias:
                product = product + one
            made = step.evaluate(xp, [*_parts(z[:, t], units), *_parts(product, units), *states])
            states = list(made[: self.states])
            found[0][:, t] = states[0]
            for kept, one in zip(found[1 + self.states :], made[self.states :], strict=True):
                kept[:, t] = one
        return tuple(found)

    def decompose(self, z: Value, u: Value, *bias: Value) -> tuple[Value, ...]:
        batch, steps, _ = z.shape
        units, step = u.shape[0], self.step(z.dtype)
        # In ONNX the batch may be left open: the first states are one row for all samples.
        states = [Fill(0.0, z.type.with_shape(1, units))()] * self.states
        found: dict[int, list[Value]] = {}
        for t in in_order(steps, self.reverse):
            product = MatMul()(states[self.fed], u)
            for one in bias:
                product = product + one
            made = step.decompose(*columns(at_step(z, t), units), *columns(product, units), *states)
            found[t] = [_rows_of(batch, one) for one in (made[0], *states, *made[self.states :])]
            states = list(made[: self.states])
        return tuple(sequence_of([found[t][k] for t in range(steps)]) for k in range(len(found[0])))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        if dys[0] is None or any(dy is not None for dy in dys[1:]):
            return super().vjp_outputs(ys, dys)  # a gradient of a gradient: step by step
        z, u, *bias = ys[0].inputs
        kept = [ys[index] for index in self.derivative(z.dtype).kept]
        dz, *others = RecurrenceGrad(self).many(dys[0], u, *kept)
        dr = others[0] if others else dz
        du = MatMul(transpose_a=True)(_rows(ys[1 + self.fed]), _rows(dr))
        return (dz, du, *(ReduceSum((0, 1))(dr) for _ in bias))

    def flops(self, z: TensorType, u: TensorType, *bias: TensorType) -> int:
        batch, steps, _ = z.shape
        one = z.with_shape(batch, steps, u.shape[0])
        return batch * steps * (2 * u.size + sum(one.size for one in bias)) + self.cell.flops(*(one,) * self.cell.arity)


@dataclass(frozen=True)
class RecurrenceGrad(Op):
    """Gradient of a recurrence by z, and by r where that is another: back through time, from the last step."""

    recurrence: Recurrence
    onnx = GRADIENT

    def infer(self, dy: TensorType, u: TensorType, *kept: TensorType) -> tuple[TensorType, ...]:
        """dy: (N, T, H), u: (H, products · H), kept: (N, T, H) each → (N, T, gates · H), (N, T, products · H)."""
        one, derivative = self.recurrence, self.recurrence.derivative(dy.dtype)
        self.check(
            len(kept) == len(derivative.kept) and all(like == dy for like in kept), "the gradient lacks operands"
        )
        sizes = (one.gates,) if derivative.shared else (one.gates, one.products)
        return tuple(dy.with_shape(*dy.shape[:2], size * u.shape[0]) for size in sizes)

    def forward(self, xp: Xp, dy: Array, u: Array, *kept: Array) -> tuple[Array, ...]:
        (batch, steps, units), derivative = dy.shape, self.recurrence.derivative(DType(str(dy.dtype)))
        parts = self.parts(derivative)
        zero = xp.zeros((batch, units), dy.dtype)
        flow, carried = zero, [zero] * len(derivative.carried)
        found = [xp.empty((batch, steps, (last - first) * units), dy.dtype) for first, last in parts]
        for t in reversed(in_order(steps, self.recurrence.reverse)):
            made = derivative.body.evaluate(xp, [*(one[:, t] for one in kept), dy[:, t], flow, *carried])
            for gradient, (first, last) in zip(found, parts, strict=True):
                gradient[:, t] = xp.concatenate(made[first:last], axis=1)
            flow = xp.matmul(found[-1][:, t], u.T)
            carried = list(made[parts[-1][1] :])
        return tuple(found)

    def decompose(self, dy: Value, u: Value, *kept: Value) -> tuple[Value, ...]:
        (batch, steps, units), derivative = dy.shape, self.recurrence.derivative(dy.dtype)
        parts = self.parts(derivative)
        zero = Fill(0.0, dy.type.with_shape(batch, units))()
        flow, carried = zero, [zero] * len(derivative.carried)
        found: dict[int, list[Value]] = {}
        for t in reversed(in_order(steps, self.recurrence.reverse)):
            made = derivative.body.decompose(*(at_step(one, t) for one in kept), at_step(dy, t), flow, *carried)
            found[t] = [Concat(1)(*made[first:last]) for first, last in parts]
            flow = MatMul(transpose_b=True)(found[t][-1], u)
            carried = list(made[parts[-1][1] :])
        return tuple(sequence_of([found[t][k] for t in range(steps)]) for k in range(len(parts)))

    def parts(self, derivative: Derivative) -> list[tuple[int, int]]:
        """Which results of the derivative's body make up each result of this op."""
        gates, products = self.recurrence.gates, self.recurrence.products
        return [(0, gates)] if derivative.shared else [(0, gates), (gates, gates + products)]

    def flops(self, dy: TensorType, u: TensorType, *kept: TensorType) -> int:
        body = self.recurrence.derivative(dy.dtype).body
        return 2 * dy.shape[0] * dy.shape[1] * u.size + body.flops(*(dy,) * body.arity)


@dataclass(frozen=True)
class Derivative:
    """How gradients run through a cell, as an elementwise op of its own."""

    saved: tuple[int, ...]
    """What the cell must give besides its states; numbers of its operands and steps, as in `Fused.results`."""
    kept: tuple[int, ...]
    """The results of the recurrence that the body reads."""
    carried: tuple[int, ...]
    """The states through which a gradient reaches the step before without passing the product."""
    body: Fused
    """kept…, dy, gradient of h by way of the next product, carried… → gradients of gates…, products…, carried…"""
    shared: bool
    """The gradients of the products are those of the gates, and no results of their own."""


@cache
def _derivative(cell: Fused, gates: int, products: int, fed: int, dtype: DType) -> Derivative:
    kind, own = TensorType((1,), dtype), gates + products
    known = [Input(f"{index}", kind)() for index in range(cell.arity)]
    operands = list(known)
    for step in cell.body:
        known.append(step.op(*(known[index] for index in step.operands)))
    new, states = [known[index] for index in cell.results], operands[own:]
    seeds = [Input(f"carried {index}", kind)() for index in range(len(new))]
    reached = pullback(new, seeds, states)
    carried = tuple(index for index, gradient in enumerate(reached) if gradient is not None)
    dy, flow = Input("dy", kind)(), Input("flow", kind)()
    flows: list[Value | None] = [seeds[index] if index in carried else None for index in range(len(new))]
    for index, gradient in ((0, dy), (fed, flow)):
        known_flow = flows[index]
        flows[index] = gradient if known_flow is None else known_flow + gradient
    by = pullback(new, flows, operands)
    shared = gates == products and all(by[index] is by[gates + index] for index in range(gates))
    wanted = [*by[: gates if shared else own], *(by[own + index] for index in carried)]
    results = [value for value in wanted if value is not None]
    assert len(results) == len(wanted), "the cell does not depend on one of its operands"

    number = {value: index for index, value in reversed(list(enumerate(known))) if not isinstance(value.op, Fill)}
    given = [dy, flow, *(seeds[index] for index in carried)]
    nodes = topological(results, stop=frozenset([*number, *given]))
    read = [value for node in nodes for value in node.inputs if value in number]
    read = list(dict.fromkeys([*read, *(value for value in results if value in number)]))
    saved: list[int] = []
    kept: list[int] = []
    for value in read:
        place = number[value]
        if place == cell.results[0]:
            kept.append(0)
        elif own <= place < cell.arity:
            kept.append(1 + place - own)
        else:
            kept.append(1 + len(new) + len(saved))
            saved.append(place)
    return Derivative(tuple(saved), tuple(kept), carried, fused([*read, *given], results), shared)


def in_order(count: int, reverse: bool) -> range:
    """The steps of a sequence in the order in which they are taken."""
    return range(count - 1, -1, -1) if reverse else range(count)


def _parts(array: Array, units: int) -> list[Array]:
    """As `columns`, of an array."""
    return [array[:, start : start + units] for start in range(0, array.shape[1], units)]


def columns(x: Value, units: int) -> list[Value]:
    """The parts of a matrix, `units` columns each."""
    return [Slice(1, start, start + units)(x) for start in range(0, x.shape[1], units)]


def at_step(x: Value, t: int) -> Value:
    """Step t of a sequence."""
    return reshape_to(Slice(1, t, t + 1)(x), (x.shape[0], x.shape[2]))


def sequence_of(xs: Sequence[Value]) -> Value:
    """A sequence of its steps."""
    return Concat(1)(*(reshape_to(x, (x.shape[0], 1, x.shape[1])) for x in xs))


def _rows_of(batch: int, x: Value) -> Value:
    """A matrix of so many rows, which may have been one for all."""
    return x if x.shape[0] == batch else Broadcast((batch, x.shape[1]))(x)


def _rows(x: Value) -> Value:
    """All steps of all samples as the rows of a matrix."""
    return reshape_to(x, (x.shape[0] * x.shape[1], x.shape[2]))
