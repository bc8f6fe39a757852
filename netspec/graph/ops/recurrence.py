"""A cell run along a sequence, and its gradient. What the cell computes is data: any elementwise function of Values.

Only what depends on the step before is in here. The product of the inputs, and the gradients of all weights, are
matrix products over all steps at once, and nodes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from netspec.graph.fused import Fused
from netspec.graph.onnx_map import GRADIENT, Decomposed
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.recurrence_cell import Derivative, derivative_of, holding
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.shape import Concat, PadAxis, Slice
from netspec.graph.ops.source import Fill
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Recurrence(Op):
    """r[t] = h[t-1] · u + bias; (h[t], c[t], …) = cell(z[t], r[t], h[t-1], c[t-1], …).

    The cell is elementwise over the units: it reads `gates` parts of z, `products` parts of r, and the states, and
    gives the new states, of which the first is the output, and number `fed` is what u multiplies. With `reverse` it
    runs from the end to the start. The states start as 0, with `initial` as further operands. With `masked` the last
    operand says which steps count: at the others all states stay as they are.
    """

    cell: Fused
    gates: int
    products: int
    reverse: bool = False
    fed: int = 0
    initial: bool = False
    masked: bool = False
    onnx = Decomposed()

    @property
    def states(self) -> int:
        """How many states the cell has."""
        return len(self.cell.results)

    def apart(self, rest: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The operands behind u: bias (one, or none), first states (all, or none), mask (one, or none)."""
        last = len(rest) - self.masked
        first = last - self.states * self.initial
        return rest[:first], rest[first:last], rest[last:]

    def whole(self, dtype: DType) -> Fused:
        """The cell; with `masked` its last operand is whether the step counts."""
        return holding(self.cell, self.gates + self.products, dtype) if self.masked else self.cell

    def derivative(self, dtype: DType) -> Derivative:
        """How gradients run through the cell."""
        return derivative_of(self.whole(dtype), self.gates, self.products, self.fed, self.masked, dtype)

    def step(self, dtype: DType) -> Fused:
        """The cell with further results: what its gradient keeps."""
        whole = self.whole(dtype)
        return replace(whole, results=(*whole.results, *self.derivative(dtype).saved))

    def operands(self, dtype: DType) -> tuple[DType, ...]:
        """Element types of the operands of a step."""
        return (dtype,) * self.cell.arity + (DType.BOOL,) * self.masked

    def infer(self, z: TensorType, u: TensorType, *rest: TensorType) -> tuple[TensorType, ...]:
        """z: (N, T, gates · H), u: (H, products · H) and more → (N, T, H), several, and (N, H), each state in the end.

        The further operands are a bias, which may be left out: (products · H), first states: (N, H), a mask: (N, T).
        The sequences are the output, each state as it was before each step, and what the gradient needs besides.
        """
        self.check(z.rank == 3, "the operand is no sequence", expected="(batch, steps, features)", got=z)
        units = u.shape[0]
        fits = z.shape[2] == self.gates * units and u.shape[1:] == (self.products * units,)
        self.check(fits and z.dtype == u.dtype, "the recurrent kernel is for another number of units", got=f"{z}, {u}")
        bias, initial, mask = self.apart(rest)
        state = z.with_shape(z.shape[0], units)
        self.check(
            len(bias) <= 1 and all(one == u.with_shape(u.shape[1]) for one in bias),
            "the recurrent bias does not fit",
            got=bias,
        )
        self.check(
            all(one == state for one in initial), "the first states do not fit", expected=f"{state}", got=initial
        )
        steps = TensorType(z.shape[:2], DType.BOOL)
        self.check(all(one == steps for one in mask), "the mask does not fit", expected=f"{steps}", got=mask)
        one = z.with_shape(*z.shape[:2], units)
        return (one,) * (1 + self.states + len(self.derivative(z.dtype).saved)) + (state,) * self.states

    def forward(self, xp: Xp, z: Array, u: Array, *rest: Array) -> tuple[Array, ...]:
        (batch, steps, _), units = z.shape, u.shape[0]
        bias, initial, mask = self.apart(rest)
        step = self.step(DType(str(z.dtype)))
        states = list(initial) or [xp.zeros((batch, units), z.dtype)] * self.states
        found = [xp.empty((batch, steps, units), z.dtype) for _ in range(1 + len(step.results))]
        for t in in_order(steps, self.reverse):
            for before, state in zip(found[1:], states, strict=False):
                before[:, t] = state
            product = xp.matmul(states[self.fed], u)
            for one in bias:
                product = product + one
            counts = [one[:, t : t + 1] for one in mask]
            made = step.evaluate(xp, [*_parts(z[:, t], units), *_parts(product, units), *states, *counts])
            states = list(made[: self.states])
            found[0][:, t] = states[0]
            for kept, one in zip(found[1 + self.states :], made[self.states :], strict=True):
                kept[:, t] = one
        return (*found, *states)

    def decompose(self, z: Value, u: Value, *rest: Value) -> tuple[Value, ...]:
        batch, steps, _ = z.shape
        bias, initial, mask = self.apart(rest)
        units, step = u.shape[0], self.step(z.dtype)
        # In ONNX the batch may be left open: the first states are one row for all samples.
        states = list(initial) or [Fill(0.0, z.type.with_shape(1, units))()] * self.states
        found: dict[int, list[Value]] = {}
        for t in in_order(steps, self.reverse):
            product = MatMul()(states[self.fed], u)
            for one in bias:
                product = product + one
            counts = [Slice(1, t, t + 1)(one) for one in mask]
            made = step.decompose(*columns(at_step(z, t), units), *columns(product, units), *states, *counts)
            found[t] = [_rows_of(batch, one) for one in (made[0], *states, *made[self.states :])]
            states = list(made[: self.states])
        sequences = [sequence_of([found[t][k] for t in range(steps)]) for k in range(len(found[0]))]
        return (*sequences, *(_rows_of(batch, state) for state in states))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        z, u, *rest = ys[0].inputs
        derivative, (bias, initial, mask) = self.derivative(z.dtype), self.apart(rest)
        count = len(ys) - self.states
        dy, *between = dys[:count]
        if dys[count] is not None:  # in the end the first state is the output of the last step
            dy = self._at_end(dys[count], z.shape[1]) if dy is None else dy + self._at_end(dys[count], z.shape[1])
        last = {state: one for state, one in enumerate(dys[count:]) if state and one is not None}
        if any(one is not None for one in between) or not all(derivative.places[state] for state in last):
            return super().vjp_outputs(ys, dys)  # a gradient of a gradient: step by step
        if dy is None and not last:
            return [None] * len(ys[0].inputs)
        kept = [ys[index] for index in derivative.kept]
        grad = RecurrenceGrad(self, tuple(last))
        dz, *others = grad.many(dy or Fill(0.0, ys[0].type)(), u, *kept, *mask, *last.values())
        dr = dz if derivative.shared else others.pop(0)
        du = MatMul(transpose_a=True)(_rows(ys[1 + self.fed]), _rows(dr))
        first = dict(zip(grad.first(z.dtype), others, strict=True))
        by_states = [first.get(state) for state in range(len(initial))]
        return (dz, du, *(ReduceSum((0, 1))(dr) for _ in bias), *by_states, *(None for _ in mask))

    def _at_end(self, state: Value | None, steps: int) -> Value:
        """A gradient of a state in the end as one of the sequence."""
        assert state is not None
        place = 0 if self.reverse else steps - 1
        return PadAxis(1, place, steps - 1 - place)(reshape_to(state, (state.shape[0], 1, state.shape[1])))

    def flops(self, z: TensorType, u: TensorType, *rest: TensorType) -> int:
        batch, steps, _ = z.shape
        one, whole = z.with_shape(batch, steps, u.shape[0]), self.whole(z.dtype)
        types = (one.with_dtype(dtype) for dtype in self.operands(z.dtype))
        bias: int = sum(one.size for one in self.apart(rest)[0])
        return batch * steps * (2 * u.size + bias) + whole.flops(*types)


@dataclass(frozen=True)
class RecurrenceGrad(Op):
    """Gradient of a recurrence by z, by r where that is another, and by the first states: back through time.

    `last` are the states whose values in the end have a gradient too.
    """

    recurrence: Recurrence
    last: tuple[int, ...] = ()
    onnx = GRADIENT

    def apart(self, rest: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The operands behind u: what was kept, mask (one, or none), gradients of states in the end."""
        last = len(rest) - len(self.last)
        first = last - self.recurrence.masked
        return rest[:first], rest[first:last], rest[last:]

    def infer(self, dy: TensorType, u: TensorType, *rest: TensorType) -> tuple[TensorType, ...]:
        """dy: (N, T, H), u: (H, products · H) and more → (N, T, gates · H), (N, T, products · H), first states: (N, H).

        The further operands are what was kept: (N, T, H), a mask: (N, T), gradients of states in the end: (N, H).
        """
        one, derivative = self.recurrence, self.recurrence.derivative(dy.dtype)
        kept, mask, last = self.apart(rest)
        state = dy.with_shape(dy.shape[0], u.shape[0])
        fits = len(kept) == len(derivative.kept) and all(like == dy for like in kept)
        fits = fits and all(like == state for like in last) and all(like.shape == dy.shape[:2] for like in mask)
        self.check(fits, "the gradient lacks operands")
        sizes = (one.gates,) if derivative.shared else (one.gates, one.products)
        made = tuple(dy.with_shape(*dy.shape[:2], size * u.shape[0]) for size in sizes)
        return made + (state,) * len(self.first(dy.dtype))

    def first(self, dtype: DType) -> list[int]:
        """The states whose first values get a gradient."""
        places = self.recurrence.derivative(dtype).places
        return [state for state, one in enumerate(places) if one and self.recurrence.initial]

    def forward(self, xp: Xp, dy: Array, u: Array, *rest: Array) -> tuple[Array, ...]:
        (batch, steps, units), dtype = dy.shape, DType(str(dy.dtype))
        derivative, (kept, mask, last) = self.recurrence.derivative(dtype), self.apart(rest)
        parts, places = self.parts(derivative), derivative.places
        flows = [xp.zeros((batch, units), dy.dtype)] * (1 + len(derivative.carried))
        for state, gradient in zip(self.last, last, strict=True):
            flows[places[state][0]] = gradient
        found = [xp.empty((batch, steps, (end - first) * units), dy.dtype) for first, end in parts]
        for t in reversed(in_order(steps, self.recurrence.reverse)):
            counts = [one[:, t : t + 1] for one in mask]
            made = derivative.body.evaluate(xp, [*(one[:, t] for one in kept), *counts, dy[:, t], *flows])
            for gradient, (first, end) in zip(found, parts, strict=True):
                gradient[:, t] = xp.concatenate(made[first:end], axis=1)
            flows = [xp.matmul(found[-1][:, t], u.T), *made[parts[-1][1] :]]
        return (*found, *(sum(flows[place] for place in places[state]) for state in self.first(dtype)))

    def decompose(self, dy: Value, u: Value, *rest: Value) -> tuple[Value, ...]:
        (batch, steps, units), derivative = dy.shape, self.recurrence.derivative(dy.dtype)
        (kept, mask, last), parts, places = self.apart(rest), self.parts(derivative), derivative.places
        flows = [Fill(0.0, dy.type.with_shape(batch, units))()] * (1 + len(derivative.carried))
        for state, gradient in zip(self.last, last, strict=True):
            flows[places[state][0]] = gradient
        found: dict[int, list[Value]] = {}
        for t in reversed(in_order(steps, self.recurrence.reverse)):
            counts = [Slice(1, t, t + 1)(one) for one in mask]
            made = derivative.body.decompose(*(at_step(one, t) for one in kept), *counts, at_step(dy, t), *flows)
            found[t] = [Concat(1)(*made[first:end]) for first, end in parts]
            flows = [MatMul(transpose_b=True)(found[t][-1], u), *made[parts[-1][1] :]]
        sequences = [sequence_of([found[t][k] for t in range(steps)]) for k in range(len(parts))]
        return (*sequences, *(reduce(add, [flows[k] for k in places[state]]) for state in self.first(dy.dtype)))

    def parts(self, derivative: Derivative) -> list[tuple[int, int]]:
        """Which results of the derivative's body make up each result of this op."""
        gates, products = self.recurrence.gates, self.recurrence.products
        return [(0, gates)] if derivative.shared else [(0, gates), (gates, gates + products)]

    def flops(self, dy: TensorType, u: TensorType, *rest: TensorType) -> int:
        derivative = self.recurrence.derivative(dy.dtype)
        types = (dy.with_dtype(dtype) for dtype in derivative.operands(dy.dtype))
        return 2 * dy.shape[0] * dy.shape[1] * u.size + derivative.body.flops(*types)


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
    return reshape_to(Slice(1, t, t + 1)(x), (x.shape[0], *x.shape[2:]))


def sequence_of(xs: Sequence[Value]) -> Value:
    """A sequence of its steps."""
    return Concat(1)(*(reshape_to(x, (x.shape[0], 1, *x.shape[1:])) for x in xs))


def _rows_of(batch: int, x: Value) -> Value:
    """A matrix of so many rows, which may have been one for all."""
    return x if x.shape[0] == batch else Broadcast((batch, x.shape[1]))(x)


def _rows(x: Value) -> Value:
    """All steps of all samples as the rows of a matrix."""
    return reshape_to(x, (x.shape[0] * x.shape[1], x.shape[2]))
