"""A recurrent cell applied along a sequence, and its gradient. The cell is any elementwise function, passed as data.

The op contains only what depends on the previous step. The product of the inputs and the gradients of all weights are
matrix products over all steps at once, in separate nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import add
from typing import Any

from netspec.graph.autodiff import pullback
from netspec.graph.fused import Fused, fuse_between
from netspec.graph.graph import topological_order
from netspec.graph.onnx_map import GRADIENT, Decomposed
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Where
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.shape import Concat, PadAxis, Slice
from netspec.graph.ops.source import Fill, Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class CellGradient:
    """The gradient of a cell as an elementwise op."""

    saved: tuple[int, ...]
    """The values that the cell returns in addition to its states: indices as in `Fused.results`."""
    results_read: tuple[int, ...]
    """Indices of the recurrence's results that the body reads."""
    carried: tuple[int, ...]
    """Indices of the states through which a gradient reaches the previous step other than by the matrix product."""
    body: Fused
    """results read…, mask of valid steps (if masked), dy, gradient of h through the next product, carried… →
    gradients of gates…, products…, carried…"""
    shared: bool
    """Whether the gradients of products equal the gradients of gates, and are not returned separately."""
    masked: bool
    """Whether there is a mask."""
    flow_indices: tuple[tuple[int, ...], ...]
    """For each state, the indices of its gradients between steps: 0 is through the next product, 1 and up are
    carried."""

    def operand_dtypes(self, dtype: DType) -> tuple[DType, ...]:
        """Element types of the body's operands."""
        return (dtype,) * len(self.results_read) + (DType.BOOL,) * self.masked + (dtype,) * (2 + len(self.carried))


@cache
def masked_cell(cell: Fused, before: int, dtype: DType) -> Fused:
    """The cell with an additional bool operand; where it is False, the states do not change.

    `before` is the number of operands of the cell that come before the states.
    """
    element_type = TensorType((1,), dtype)
    operands, is_valid = (
        [Input("", element_type)() for _ in range(cell.arity)],
        Input("", element_type.with_dtype(DType.BOOL))(),
    )
    states = operands[before:]
    new_states = cell.decompose(*operands)
    return fuse_between(
        [*operands, is_valid], [Where()(is_valid, new, state) for new, state in zip(new_states, states, strict=True)]
    )


@cache
def cell_gradient(
    cell: Fused, gates: int, products: int, product_state: int, masked: bool, dtype: DType
) -> CellGradient:
    """The gradient of a cell; with `masked`, the cell's last operand says whether the step is valid."""
    element_type, preceding = TensorType((1,), dtype), gates + products
    operands = [Input(f"{index}", element_type)() for index in range(cell.arity - masked)]
    valid = [Input("valid", element_type.with_dtype(DType.BOOL))()] * masked
    values = [*operands, *valid]
    for step in cell.body:
        values.append(step.op(*(values[index] for index in step.operands)))
    new_states, states = [values[index] for index in cell.results], operands[preceding:]
    seeds = [Input(f"carried {index}", element_type)() for index in range(len(new_states))]
    carried_gradients = pullback(new_states, seeds, states)
    carried = tuple(index for index, gradient in enumerate(carried_gradients) if gradient is not None)
    dy, flow = Input("dy", element_type)(), Input("flow", element_type)()
    flows: list[Value | None] = [seeds[index] if index in carried else None for index in range(len(new_states))]
    for index, gradient in ((0, dy), (product_state, flow)):
        known_flow = flows[index]
        flows[index] = gradient if known_flow is None else known_flow + gradient
    operand_gradients = pullback(new_states, flows, operands)
    shared = gates == products and all(
        operand_gradients[index] is operand_gradients[gates + index] for index in range(gates)
    )
    nullable = [
        *operand_gradients[: gates if shared else preceding],
        *(operand_gradients[preceding + index] for index in carried),
    ]
    results = [value for value in nullable if value is not None]
    assert len(results) == len(nullable), "the cell does not depend on one of its operands"

    index_of = {value: index for index, value in reversed(list(enumerate(values))) if not isinstance(value.op, Fill)}
    for value in valid:
        del index_of[value]
    gradient_operands = [*valid, dy, flow, *(seeds[index] for index in carried)]
    nodes = topological_order(results, stop=frozenset([*index_of, *gradient_operands]))
    read = [value for node in nodes for value in node.inputs if value in index_of]
    read = list(dict.fromkeys([*read, *(value for value in results if value in index_of)]))
    saved, results_read = _results_to_read([index_of[value] for value in read], cell, range(preceding, len(operands)))
    flow_indices = tuple(
        (*((1 + carried.index(state),) if state in carried else ()), *((0,) if state == product_state else ()))
        for state in range(len(new_states))
    )
    body = fuse_between([*read, *gradient_operands], results)
    return CellGradient(saved, results_read, carried, body, shared, masked, flow_indices)


def _results_to_read(read: Sequence[int], cell: Fused, states: range) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return `saved` and `results_read` of a `CellGradient` that reads these values; `states` are operands."""
    saved: list[int] = []
    results: list[int] = []
    for index in read:
        if index == cell.results[0]:
            results.append(0)
        elif index in states:
            results.append(1 + index - states.start)
        else:
            results.append(1 + len(cell.results) + len(saved))
            saved.append(index)
    return tuple(saved), tuple(results)


@dataclass(frozen=True)
class Recurrence(Op):
    """r[t] = h[t-1] · u + bias; (h[t], c[t], …) = cell(z[t], r[t], h[t-1], c[t-1], …).

    The cell is elementwise over the units. It reads `gates` parts of z, `products` parts of r and the states, and
    returns the new states: the first one is the output, and u multiplies the one at index `product_state`. With
    `reverse` it runs from the end to the start. The states start as 0, or as further operands with `initial`. With
    `masked` the last operand marks the valid steps; the other steps change no state.
    """

    cell: Fused
    gates: int
    products: int
    reverse: bool = False
    product_state: int = 0
    initial: bool = False
    masked: bool = False
    onnx = Decomposed()

    @property
    def states(self) -> int:
        """Number of states of the cell."""
        return len(self.cell.results)

    def split_operands(self, optional: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The operands after u: bias (0 or 1), initial states (all or none), mask (0 or 1)."""
        last = len(optional) - self.masked
        first = last - self.states * self.initial
        return optional[:first], optional[first:last], optional[last:]

    def full_cell(self, dtype: DType) -> Fused:
        """The cell; with `masked` its last operand says whether the step is valid."""
        return masked_cell(self.cell, self.gates + self.products, dtype) if self.masked else self.cell

    def gradient(self, dtype: DType) -> CellGradient:
        """The gradient of the cell."""
        return cell_gradient(self.full_cell(dtype), self.gates, self.products, self.product_state, self.masked, dtype)

    def saving_cell(self, dtype: DType) -> Fused:
        """The cell, which also returns the intermediate values that its gradient reads."""
        cell = self.full_cell(dtype)
        return replace(cell, results=(*cell.results, *self.gradient(dtype).saved))

    def operand_dtypes(self, dtype: DType) -> tuple[DType, ...]:
        """Element types of the operands of a step."""
        return (dtype,) * self.cell.arity + (DType.BOOL,) * self.masked

    def infer(self, z: TensorType, u: TensorType, *optional: TensorType) -> tuple[TensorType, ...]:
        """z: (N, T, gates · H), u: (H, products · H), … → several (N, T, H), and the final states (N, H).

        The further operands are an optional bias (products · H), initial states (N, H) and a mask (N, T). The sequences
        are the output, each state before each step, and the other values that the gradient reads.
        """
        self.check(z.rank == 3, "the operand must be a sequence", expected="(batch, steps, features)", got=z)
        units = u.shape[0]
        fits = z.shape[2] == self.gates * units and u.shape[1:] == (self.products * units,)
        self.check(
            fits and z.dtype == u.dtype, "the recurrent kernel has the wrong number of units or gates", got=f"{z}, {u}"
        )
        bias, initial, mask = self.split_operands(optional)
        state = z.with_shape(z.shape[0], units)
        self.check(
            len(bias) <= 1 and all(operand == u.with_shape(u.shape[1]) for operand in bias),
            "the recurrent bias has the wrong shape",
            got=bias,
        )
        self.check(
            all(operand == state for operand in initial),
            "an initial state has the wrong shape",
            expected=f"{state}",
            got=initial,
        )
        steps = TensorType(z.shape[:2], DType.BOOL)
        self.check(
            all(operand == steps for operand in mask),
            "the mask has the wrong shape or type",
            expected=f"{steps}",
            got=mask,
        )
        sequence = z.with_shape(*z.shape[:2], units)
        return (sequence,) * (1 + self.states + len(self.gradient(z.dtype).saved)) + (state,) * self.states

    def forward(self, xp: Xp, z: Array, u: Array, *optional: Array) -> tuple[Array, ...]:
        (batch, steps, _), units = z.shape, u.shape[0]
        bias, initial, mask = self.split_operands(optional)
        step = self.saving_cell(DType(str(z.dtype)))
        states = list(initial) or [xp.zeros((batch, units), z.dtype)] * self.states
        sequences = [xp.empty((batch, steps, units), z.dtype) for _ in range(1 + len(step.results))]
        for t in time_steps(steps, self.reverse):
            for before, state in zip(sequences[1:], states, strict=False):
                before[:, t] = state
            product = xp.matmul(states[self.product_state], u)
            for bias_vector in bias:
                product = product + bias_vector
            valid = [steps_mask[:, t : t + 1] for steps_mask in mask]
            gates, products = _split_array(z[:, t], units), _split_array(product, units)
            step_results = step.evaluate(xp, [*gates, *products, *states, *valid])
            states = list(step_results[: self.states])
            sequences[0][:, t] = states[0]
            for sequence, saved in zip(sequences[1 + self.states :], step_results[self.states :], strict=True):
                sequence[:, t] = saved
        return (*sequences, *states)

    def decompose(self, z: Value, u: Value, *optional: Value) -> tuple[Value, ...]:
        batch, steps, _ = z.shape
        bias, initial, mask = self.split_operands(optional)
        units, step = u.shape[0], self.saving_cell(z.dtype)
        # The batch is symbolic in ONNX: initial states are one row, broadcast to all samples.
        states = list(initial) or [Fill(0.0, z.type.with_shape(1, units))()] * self.states
        by_step: dict[int, list[Value]] = {}
        for t in time_steps(steps, self.reverse):
            product = MatMul()(states[self.product_state], u)
            for bias_vector in bias:
                product = product + bias_vector
            valid = [Slice(1, t, t + 1)(steps_mask) for steps_mask in mask]
            step_results = step.decompose(
                *split_columns(time_step(z, t), units), *split_columns(product, units), *states, *valid
            )
            by_step[t] = [
                _broadcast_batch(batch, value) for value in (step_results[0], *states, *step_results[self.states :])
            ]
            states = list(step_results[: self.states])
        sequences = [stack_steps([by_step[t][k] for t in range(steps)]) for k in range(len(by_step[0]))]
        return (*sequences, *(_broadcast_batch(batch, state) for state in states))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        z, u, *rest = ys[0].inputs
        derivative, (bias, initial, mask) = self.gradient(z.dtype), self.split_operands(rest)
        count = len(ys) - self.states
        dy, *between = dys[:count]
        if dys[count] is not None:  # the first final state is the output of the last step
            dy = self._at_end(dys[count], z.shape[1]) if dy is None else dy + self._at_end(dys[count], z.shape[1])
        last = {state: gradient for state, gradient in enumerate(dys[count:]) if state and gradient is not None}
        if any(gradient is not None for gradient in between) or not all(
            derivative.flow_indices[state] for state in last
        ):
            return super().vjp_outputs(ys, dys)  # second-order gradients differentiate the unrolled steps
        if dy is None and not last:
            return [None] * len(ys[0].inputs)
        saved = [ys[index] for index in derivative.results_read]
        grad = RecurrenceGrad(self, tuple(last))
        dz, *others = grad.call_multi(dy or Fill(0.0, ys[0].type)(), u, *saved, *mask, *last.values())
        dr = dz if derivative.shared else others.pop(0)
        du = MatMul(transpose_a=True)(_flatten_steps(ys[1 + self.product_state]), _flatten_steps(dr))
        first = dict(zip(grad.initial_states(z.dtype), others, strict=True))
        by_states = [first.get(state) for state in range(len(initial))]
        return (dz, du, *(ReduceSum((0, 1))(dr) for _ in bias), *by_states, *(None for _ in mask))

    def _at_end(self, state: Value | None, steps: int) -> Value:
        """The gradient of a final state as a gradient of the sequence."""
        assert state is not None
        last_step = 0 if self.reverse else steps - 1
        return PadAxis(1, last_step, steps - 1 - last_step)(reshape_to(state, (state.shape[0], 1, state.shape[1])))

    def flops(self, z: TensorType, u: TensorType, *optional: TensorType) -> int:
        batch, steps, _ = z.shape
        sequence, cell = z.with_shape(batch, steps, u.shape[0]), self.full_cell(z.dtype)
        types = (sequence.with_dtype(dtype) for dtype in self.operand_dtypes(z.dtype))
        bias: int = sum(operand.size for operand in self.split_operands(optional)[0])
        return batch * steps * (2 * u.size + bias) + cell.flops(*types)


@dataclass(frozen=True)
class RecurrenceGrad(Op):
    """Backpropagation through time: gradients with respect to z, r (if not equal to z's) and the initial states.

    `final_states` are the indices of the states whose final values receive a gradient.
    """

    recurrence: Recurrence
    final_states: tuple[int, ...] = ()
    onnx = GRADIENT

    def split_operands(self, optional: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The operands after u: results read, mask (0 or 1), gradients of final states."""
        last = len(optional) - len(self.final_states)
        first = last - self.recurrence.masked
        return optional[:first], optional[first:last], optional[last:]

    def infer(self, dy: TensorType, u: TensorType, *optional: TensorType) -> tuple[TensorType, ...]:
        """dy: (N, T, H), u: (H, products · H), … → gradients of z, of r, and of initial states (N, H).

        The further operands are the results read (N, T, H), a mask (N, T), and gradients of final states (N, H). The
        gradients of z and r are (N, T, gates · H) and (N, T, products · H).
        """
        recurrence, derivative = self.recurrence, self.recurrence.gradient(dy.dtype)
        saved, mask, last = self.split_operands(optional)
        state = dy.with_shape(dy.shape[0], u.shape[0])
        fits = len(saved) == len(derivative.results_read) and all(operand == dy for operand in saved)
        fits = fits and all(operand == state for operand in last)
        fits = fits and all(operand.shape == dy.shape[:2] for operand in mask)
        self.check(fits, "the operands are not those of the recurrence's gradient")
        sizes = (recurrence.gates,) if derivative.shared else (recurrence.gates, recurrence.products)
        sequences = tuple(dy.with_shape(*dy.shape[:2], size * u.shape[0]) for size in sizes)
        return sequences + (state,) * len(self.initial_states(dy.dtype))

    def initial_states(self, dtype: DType) -> list[int]:
        """The states whose initial values get a gradient."""
        flow_indices = self.recurrence.gradient(dtype).flow_indices
        return [state for state, indices in enumerate(flow_indices) if indices and self.recurrence.initial]

    def forward(self, xp: Xp, dy: Array, u: Array, *optional: Array) -> tuple[Array, ...]:
        (batch, steps, units), dtype = dy.shape, DType(str(dy.dtype))
        derivative, (saved, mask, last) = self.recurrence.gradient(dtype), self.split_operands(optional)
        spans, flow_indices = self.result_spans(derivative), derivative.flow_indices
        flows = [xp.zeros((batch, units), dy.dtype)] * (1 + len(derivative.carried))
        for state, gradient in zip(self.final_states, last, strict=True):
            flows[flow_indices[state][0]] = gradient
        sequences = [xp.empty((batch, steps, (end - first) * units), dy.dtype) for first, end in spans]
        for t in reversed(time_steps(steps, self.recurrence.reverse)):
            valid = [steps_mask[:, t : t + 1] for steps_mask in mask]
            step_results = derivative.body.evaluate(
                xp, [*(sequence[:, t] for sequence in saved), *valid, dy[:, t], *flows]
            )
            for gradient, (first, end) in zip(sequences, spans, strict=True):
                gradient[:, t] = xp.concatenate(step_results[first:end], axis=1)
            flows = [xp.matmul(sequences[-1][:, t], u.T), *step_results[spans[-1][1] :]]
        return (
            *sequences,
            *(sum(flows[index] for index in flow_indices[state]) for state in self.initial_states(dtype)),
        )

    def decompose(self, dy: Value, u: Value, *optional: Value) -> tuple[Value, ...]:
        (batch, steps, units), derivative = dy.shape, self.recurrence.gradient(dy.dtype)
        saved, mask, last = self.split_operands(optional)
        spans, flow_indices = self.result_spans(derivative), derivative.flow_indices
        flows = [Fill(0.0, dy.type.with_shape(batch, units))()] * (1 + len(derivative.carried))
        for state, gradient in zip(self.final_states, last, strict=True):
            flows[flow_indices[state][0]] = gradient
        by_step: dict[int, list[Value]] = {}
        for t in reversed(time_steps(steps, self.recurrence.reverse)):
            valid = [Slice(1, t, t + 1)(steps_mask) for steps_mask in mask]
            kept_steps = [time_step(sequence, t) for sequence in saved]
            step_results = derivative.body.decompose(*kept_steps, *valid, time_step(dy, t), *flows)
            by_step[t] = [Concat(1)(*step_results[first:end]) for first, end in spans]
            flows = [MatMul(transpose_b=True)(by_step[t][-1], u), *step_results[spans[-1][1] :]]
        sequences = [stack_steps([by_step[t][k] for t in range(steps)]) for k in range(len(spans))]
        return (
            *sequences,
            *(reduce(add, [flows[k] for k in flow_indices[state]]) for state in self.initial_states(dy.dtype)),
        )

    def result_spans(self, derivative: CellGradient) -> list[tuple[int, int]]:
        """For each returned sequence, the span of results of the gradient's body that it concatenates."""
        gates, products = self.recurrence.gates, self.recurrence.products
        return [(0, gates)] if derivative.shared else [(0, gates), (gates, gates + products)]

    def flops(self, dy: TensorType, u: TensorType, *optional: TensorType) -> int:
        derivative = self.recurrence.gradient(dy.dtype)
        types = (dy.with_dtype(dtype) for dtype in derivative.operand_dtypes(dy.dtype))
        return 2 * dy.shape[0] * dy.shape[1] * u.size + derivative.body.flops(*types)


def time_steps(count: int, reverse: bool) -> range:
    """The indices of the steps in processing order."""
    return range(count - 1, -1, -1) if reverse else range(count)


def _split_array(array: Array, units: int) -> list[Array]:
    """Split a matrix into parts of `units` columns."""
    return [array[:, start : start + units] for start in range(0, array.shape[1], units)]


def split_columns(x: Value, units: int) -> list[Value]:
    """Split a matrix into parts of `units` columns, as graph values."""
    return [Slice(1, start, start + units)(x) for start in range(0, x.shape[1], units)]


def time_step(x: Value, t: int) -> Value:
    """Step t of a sequence."""
    return reshape_to(Slice(1, t, t + 1)(x), (x.shape[0], *x.shape[2:]))


def stack_steps(xs: Sequence[Value]) -> Value:
    """Stack steps (N, …) to a sequence (N, T, …)."""
    return Concat(1)(*(reshape_to(x, (x.shape[0], 1, *x.shape[1:])) for x in xs))


def _broadcast_batch(batch: int, x: Value) -> Value:
    """A matrix with `batch` rows; a single row is broadcast."""
    return x if x.shape[0] == batch else Broadcast((batch, x.shape[1]))(x)


def _flatten_steps(x: Value) -> Value:
    """All steps of all samples as the rows of a matrix."""
    return reshape_to(x, (x.shape[0] * x.shape[1], x.shape[2]))
