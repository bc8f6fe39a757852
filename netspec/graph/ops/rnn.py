"""Recurrent ops on sequences, named as in ONNX: LSTM, GRU and RNN.

Each is exported as one node. The compiler expands it to a matrix product of all inputs and a `Recurrence`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Protocol, TypeAlias

from netspec.graph.fused import Fused, fuse_between
from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Op, Xp, call_simplified
from netspec.graph.ops.elementwise import Add, Where
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.recurrence import Recurrence, split_columns, stack_steps, time_step, time_steps
from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import Fill, Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value

Apply: TypeAlias = Callable[..., Value]
"""Applies an op to operands."""
ONNX_ACTIVATIONS = ("Tanh", "Sigmoid", "Relu")
"""The activations without parameters that are ops both here and in ONNX."""


class Activation(Protocol):
    """An elementwise function of values. It is hashable: cells with equal activations are equal."""

    def apply(self, x: Value) -> Value:
        """Apply the function to `x`."""

    def __hash__(self) -> int: ...


def activate(function: Activation | None, x: Value) -> Value:
    """Apply `function` to `x`; None is the identity."""
    return x if function is None else function.apply(x)


def _onnx_activation(function: Activation | None) -> str | None:
    """ONNX's name for an activation; None if it is not a single op that ONNX's cells support."""
    x = Input("", TensorType((1,), DType.FLOAT32))()
    y = activate(function, x)
    return y.op.name if y.op.name in ONNX_ACTIVATIONS and y.inputs == (x,) else None


@dataclass(frozen=True)
class RecurrentOp(Op, ABC):
    """Base of recurrent ops: x, kernel, recurrent kernel, … → the output of each step, and the final states.

    Further operands, in order: the bias (`use_bias`), a factor (N, H) of the state before each recurrent product
    (`has_dropout`), the initial states (N, H), otherwise 0 (`has_initial_state`), and a mask (N, T) of the valid steps
    (`has_mask`); the other steps change no state.
    """

    activation: Activation | None
    use_bias: bool = True
    reverse: bool = False
    has_dropout: bool = False
    has_initial_state: bool = False
    has_mask: bool = False
    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def split_operands(
        self, optional: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The operands after the kernels: bias, dropout factor, initial states, mask; empty if there is none."""
        ends = list(
            accumulate(
                (self.use_bias, self.has_dropout, self.states * self.has_initial_state, self.has_mask), initial=0
            )
        )
        bias, dropout, initial, mask = (optional[start:end] for start, end in pairwise(ends))
        return bias, dropout, initial, mask

    def infer(
        self, x: TensorType, kernel: TensorType, recurrent: TensorType, *optional: TensorType
    ) -> tuple[TensorType, ...]:
        """x: (N, T, C), kernel: (C, gates · H), recurrent kernel: (H, gates · H), … → (N, T, H), states: (N, H)."""
        units = recurrent.shape[0]
        self.check(x.rank == 3, "the input must be a sequence", expected="(batch, steps, features)", got=x)
        columns = self.gates * units
        self.check(
            recurrent.shape == (units, columns),
            f"the recurrent kernel of {self.name} has the wrong shape",
            expected=f"{units}, {columns}",
            got=recurrent,
        )
        self.check(
            kernel.shape == (x.shape[2], columns), "the kernel has the wrong shape", expected=f"{x.shape[2]}, {columns}"
        )
        state = x.with_shape(x.shape[0], units)
        shapes = [self.bias_shape(units)] * self.use_bias
        shapes += [state.shape] * (self.has_dropout + self.states * self.has_initial_state) + [
            x.shape[:2]
        ] * self.has_mask
        self.check(
            [x.shape for x in optional] == shapes,
            "a further operand has the wrong shape",
            expected=f"{shapes}",
            got=optional,
        )
        return x.with_shape(*x.shape[:2], units), *(state,) * self.states

    def bias_shape(self, units: int) -> tuple[int, ...]:
        """The shape of the bias."""
        return (self.gates * units,)

    @abstractmethod
    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        """The new states, from the parts of x · kernel (one per gate), of h · recurrent kernel, and the old states."""

    def activations(self) -> list[Activation | None]:
        """The activations, in ONNX's order."""
        return [self.activation]

    def recurrence(self, dtype: DType) -> Recurrence:
        """The op after the product z = x · kernel. With dropout, z also contains the dropout factor."""
        product_state, gates = self.states if self.has_dropout else 0, self.gates + self.has_dropout
        return Recurrence(
            _body(self, dtype), gates, self.gates, self.reverse, product_state, self.has_initial_state, self.has_mask
        )

    def biases(self, bias: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The biases of x · kernel and of the recurrent product; each list may be empty."""
        return list(bias), []

    def decompose(self, *operands: Value) -> tuple[Value, ...]:
        return self.expand(Op.__call__, *operands)

    def simplify(self, *operands: Value) -> tuple[Value, ...]:
        # Simplified at once: the gradient decomposes this op too, and its simplified nodes are merged with these.
        return self.expand(call_simplified, *operands)

    def expand(self, apply: Apply, x: Value, kernel: Value, recurrent: Value, *optional: Value) -> tuple[Value, ...]:
        """The results by simpler ops; `apply` calls the ops that compute x · kernel + bias."""
        bias, dropout, initial, mask = self.split_operands(optional)
        input_bias, recurrent_bias = self.biases(bias)
        z = apply(MatMul(), x, kernel)
        for vector in input_bias:
            z = apply(Add(), z, vector)
        if dropout:
            repeat_steps = Broadcast((*x.shape[:2], recurrent.shape[0]))
            z = Concat(2)(
                z, *(repeat_steps(reshape_to(factor, (x.shape[0], 1, factor.shape[1]))) for factor in dropout)
            )
        states = [*initial, *(initial[0] * factor for factor in dropout if initial)]
        y, *others = self.recurrence(x.dtype).call_multi(z, recurrent, *recurrent_bias, *states, *mask)
        return y, *others[len(others) - self.states - self.has_dropout :][: self.states]

    def forward(self, xp: Xp, x: Array, kernel: Array, recurrent: Array, *optional: Array) -> tuple[Array, ...]:
        bias, dropout, initial, mask = self.split_operands(optional)
        input_bias, recurrent_bias = self.biases(bias)
        z = xp.matmul(x, kernel)
        for vector in input_bias:
            z = z + vector
        for factor in dropout:
            z = xp.concatenate([z, xp.broadcast_to(factor[:, None], (*x.shape[:2], factor.shape[1]))], axis=2)
        states = [*initial, *(initial[0] * factor for factor in dropout if initial)]
        y, *others = self.recurrence(DType(str(x.dtype))).forward(xp, z, recurrent, *recurrent_bias, *states, *mask)
        return y, *others[len(others) - self.states - self.has_dropout :][: self.states]

    def flops(self, x: TensorType, kernel: TensorType, recurrent: TensorType, *optional: TensorType) -> int:
        sequence, body = x.with_shape(*x.shape[:2], recurrent.shape[0]), _body(self, x.dtype)
        return 2 * x.shape[0] * x.shape[1] * (kernel.size + recurrent.size) + body.flops(*(sequence,) * body.arity)


@cache
def _body(cell: RecurrentOp, dtype: DType) -> Fused:
    """The cell's equations as one elementwise op; with dropout, h times the dropout factor is a further state."""
    element_type = TensorType((1,), dtype)

    def operands(count: int) -> list[Value]:
        return [Input("", element_type)() for _ in range(count)]

    x, dropout, r, states = map(operands, (cell.gates, cell.has_dropout, cell.gates, cell.states))
    new_states = cell.equations(x, r, states)
    return fuse_between(
        [*x, *dropout, *r, *states, *operands(cell.has_dropout)],
        [*new_states, *(new_states[0] * factor for factor in dropout)],
    )


def _sequence_to_onnx(
    g: Emitter, y: Value, op_type: str, operands: Sequence[str], initial: Sequence[str]
) -> tuple[str, ...]:
    """The ONNX node of a cell: X, W, R, B, lengths, states → Y, whose first axis is the step, and states."""
    op, units = y.op, y.shape[2]
    assert isinstance(op, RecurrentOp)
    axis = g.constant([0], "int64")
    missing = ("",) * (5 - len(operands))  # lengths, and the bias if there is none
    sequence = g.node(
        op_type,
        g.node("Transpose", operands[0], perm=[1, 0, 2]),
        *operands[1:],
        *((*missing, *(g.node("Unsqueeze", state, axis) for state in initial)) if initial else ()),
        outputs=1 + op.states,
        hidden_size=units,
        direction="reverse" if op.reverse else "forward",
        activations=[_onnx_activation(function) for function in op.activations()],
        **({"linear_before_reset": 1} if isinstance(op, GRU) and op.reset_after else {}),
    )
    steps_first = g.node("Squeeze", sequence, g.constant([1], "int64"))
    states = (g.node("Squeeze", f"{sequence}:{k}", axis) for k in range(1, 1 + op.states))
    return g.node("Transpose", steps_first, perm=[1, 0, 2]), *states


def _weights_to_onnx(g: Emitter, cell: RecurrentOp, name: str, units: int, order: Sequence[int]) -> str:
    """A kernel (in, gates · H) in ONNX's form (1, gates · H, in), with the gates in ONNX's order."""
    transposed = g.node("Transpose", name, perm=[1, 0])
    if list(order) != sorted(order):
        by_gate = g.node("Reshape", transposed, g.constant([len(order), units, -1], "int64"))
        sorted_ = g.node("Gather", by_gate, g.constant(list(order), "int64"), axis=0)
        return g.node("Reshape", sorted_, g.constant([1, len(order) * units, -1], "int64"))
    return g.node("Unsqueeze", transposed, g.constant([0], "int64"))


def _writer(op_type: str, order: Sequence[int]) -> OnnxExpansion:
    """The ONNX form of a cell; `order` holds the index of our gate for each of ONNX's gates."""

    def write(g: Emitter, y: Value, x: str, kernel: str, recurrent: str, *optional: str) -> tuple[str, ...]:
        op, units, gates = y.op, y.shape[2], len(order)
        assert isinstance(op, RecurrentOp)
        bias, _, initial, _ = op.split_operands(optional)
        weights = [_weights_to_onnx(g, op, name, units, order) for name in (kernel, recurrent)]
        for bias_name in bias:  # B has the bias of x · kernel, then that of the recurrent product
            if y.inputs[3].shape == (gates * units,):
                by_gate = g.node("Reshape", bias_name, g.constant([gates, units], "int64"))
                sorted_ = g.node("Gather", by_gate, g.constant(list(order), "int64"), axis=0)
                flat = g.node("Reshape", sorted_, g.constant([1, gates * units], "int64"))
                zeros = g.constant([[0.0] * gates * units], str(y.dtype))
                weights.append(g.node("Concat", flat, zeros, axis=1))
            else:
                weights.append(g.node("Reshape", bias_name, g.constant([1, 2 * gates * units], "int64")))
        return _sequence_to_onnx(g, y, op_type, [x, *weights], initial)

    def accepts(op: RecurrentOp) -> bool:
        return not (op.has_dropout or op.has_mask) and None not in map(_onnx_activation, op.activations())

    return OnnxExpansion(write, accepts)


class RNN(RecurrentOp):
    """h' = activation(x + r)"""

    gates: ClassVar[int] = 1
    onnx = _writer("RNN", (0,))

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        return (activate(self.activation, x[0] + r[0]),)


@dataclass(frozen=True)
class GatedRecurrentOp(RecurrentOp):
    """Base of cells whose gates have a separate activation."""

    recurrent_activation: Activation | None = field(kw_only=True)

    def activations(self) -> list[Activation | None]:
        """The activations, in ONNX's order."""
        return [self.recurrent_activation, self.activation]

    def gate(self, x: Value) -> Value:
        """Apply the recurrent activation to x."""
        return activate(self.recurrent_activation, x)


class LSTM(GatedRecurrentOp):
    """i, f, o = gate(x + r), g = activation(x + r); c' = f · c + i · g, h' = o · activation(c'); parts i, f, g, o.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """

    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    onnx = _writer("LSTM", (0, 3, 1, 2))  # ONNX: i, o, f, c

    def activations(self) -> list[Activation | None]:
        return [self.recurrent_activation, self.activation, self.activation]

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        i, f, g, o = (input_part + recurrent_part for input_part, recurrent_part in zip(x, r, strict=True))
        c = self.gate(f) * states[1] + self.gate(i) * activate(self.activation, g)
        return self.gate(o) * activate(self.activation, c), c


@dataclass(frozen=True)
class GRU(GatedRecurrentOp):
    """u, r = gate(x + h · U), g = activation(x + r · (h · U)); h' = u · h + (1 - u) · g; parts u, r, g.

    Without `reset_after` g = activation(x + (r · h) · U). Cho et al. 2014, arXiv:1406.1078.
    """

    reset_after: bool = True
    gates: ClassVar[int] = 3
    onnx = _writer("GRU", (0, 1, 2))

    def bias_shape(self, units: int) -> tuple[int, ...]:
        return (2, 3 * units) if self.reset_after else (3 * units,)

    def biases(self, bias: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        if not self.reset_after:
            return list(bias), []
        rows = [[_row(matrix, k) for matrix in bias] for k in range(2)]
        return rows[0], rows[1]

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        update, reset = self.gate(x[0] + r[0]), self.gate(x[1] + r[1])
        candidate = activate(self.activation, x[2] + reset * r[2])
        return (self.interpolate(update, states[0], candidate),)

    @staticmethod
    def interpolate(update: Any, h: Any, candidate: Any) -> Any:
        """u · h + (1 - u) · g, in a form whose gradient reads only u, h and g."""
        return update * h + candidate - update * candidate

    def expand(self, apply: Apply, x: Value, kernel: Value, recurrent: Value, *optional: Value) -> tuple[Value, ...]:
        if self.reset_after:
            return super().expand(apply, x, kernel, recurrent, *optional)
        # Step by step: each step has two products with elementwise ops between them.
        bias, dropout, initial, mask = self.split_operands(optional)
        units = recurrent.shape[0]
        z = apply(MatMul(), x, kernel)
        for vector in bias:
            z = apply(Add(), z, vector)
        gates, candidates = Slice(1, 0, 2 * units)(recurrent), Slice(1, 2 * units, 3 * units)(recurrent)
        (h,), by_step = initial or [Fill(0.0, x.type.with_shape(1, units))()], {}
        for t in time_steps(x.shape[1], self.reverse):
            parts = split_columns(time_step(z, t), units)
            dropped = h
            for factor in dropout:
                dropped = dropped * factor
            update, reset = (
                self.gate(a + b) for a, b in zip(parts, split_columns(MatMul()(dropped, gates), units), strict=False)
            )
            candidate = activate(self.activation, parts[2] + MatMul()(reset * dropped, candidates))
            new = self.interpolate(update, h, candidate)
            for valid in mask:
                new = Where()(Slice(1, t, t + 1)(valid), new, h)
            h = by_step[t] = new
        return stack_steps([by_step[t] for t in range(x.shape[1])]), h

    def forward(self, xp: Xp, x: Array, kernel: Array, recurrent: Array, *optional: Array) -> tuple[Array, ...]:
        if self.reset_after:
            return super().forward(xp, x, kernel, recurrent, *optional)
        bias, dropout, initial, mask = self.split_operands(optional)
        units, dtype = recurrent.shape[0], DType(str(x.dtype))
        z = xp.matmul(x, kernel)
        for vector in bias:
            z = z + vector
        gate, candidate = _activation_op(self.recurrent_activation, dtype), _activation_op(self.activation, dtype)
        h, y = xp.zeros((x.shape[0], units), x.dtype), xp.empty((*x.shape[:2], units), x.dtype)
        for state in initial:
            h = state
        for t in time_steps(x.shape[1], self.reverse):
            dropped = h
            for factor in dropout:
                dropped = dropped * factor
            (gates,) = gate.evaluate(xp, [z[:, t, : 2 * units] + xp.matmul(dropped, recurrent[:, : 2 * units])])
            product = xp.matmul(gates[:, units:] * dropped, recurrent[:, 2 * units :])
            (new_candidate,) = candidate.evaluate(xp, [z[:, t, 2 * units :] + product])
            new = self.interpolate(gates[:, :units], h, new_candidate)
            for valid in mask:
                new = xp.where(valid[:, t : t + 1], new, h)
            y[:, t] = h = new
        return y, h


@cache
def _activation_op(activation: Activation | None, dtype: DType) -> Fused:
    """An activation as an op."""
    x = Input("", TensorType((1,), dtype))()
    return fuse_between([x], [activate(activation, x)])


def _row(matrix: Any, index: int) -> Any:
    """A row of a matrix, which is an array or a value."""
    if isinstance(matrix, Value):
        return reshape_to(Slice(0, index, index + 1)(matrix), matrix.shape[1:])
    return matrix[index]
