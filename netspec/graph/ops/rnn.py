"""The recurrent ops of whole sequences, by ONNX's names: LSTM, GRU and RNN.

Each is one node for export. To the compiler it is a matrix product of all inputs at once and a `Recurrence`.
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
"""The activations without parameters that both ONNX and this package have as ops."""


class Activation(Protocol):
    """An elementwise function of values. It is hashable: cells with equal activations are equal."""

    def apply(self, x: Value) -> Value:
        """Apply the function to `x`."""

    def __hash__(self) -> int: ...


def activate(function: Activation | None, x: Value) -> Value:
    """Apply `function` to `x`; None is the identity."""
    return x if function is None else function.apply(x)


def _onnx_activation(function: Activation | None) -> str | None:
    """Return ONNX's name for an activation, or None if the activation is not a single op that ONNX's cells know."""
    x = Input("", TensorType((1,), DType.FLOAT32))()
    y = activate(function, x)
    return y.op.name if y.op.name in ONNX_ACTIVATIONS and y.inputs == (x,) else None


@dataclass(frozen=True)
class RecurrentOp(Op, ABC):
    """Base of these ops: x, kernel, recurrent kernel and more → the output of each step, and each state in the end.

    The other operands are with `use_bias` the bias; with `dropped` what the state is multiplied with before each
    recurrent product (N, H), for dropout; with `initial` the first states (N, H), which are 0 otherwise; with `masked`
    which steps count (N, T): at the others the states stay as they are.
    """

    activation: Activation | None
    use_bias: bool = True
    reverse: bool = False
    has_dropout: bool = False
    has_initial_state: bool = False
    has_mask: bool = False
    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def split_operands(self, rest: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]:
        """The operands behind the kernels: bias, dropout, first states, mask; empty where there is none."""
        ends = list(
            accumulate(
                (self.use_bias, self.has_dropout, self.states * self.has_initial_state, self.has_mask), initial=0
            )
        )
        bias, dropout, initial, mask = (rest[start:end] for start, end in pairwise(ends))
        return bias, dropout, initial, mask

    def infer(
        self, x: TensorType, kernel: TensorType, recurrent: TensorType, *rest: TensorType
    ) -> tuple[TensorType, ...]:
        """x: (N, T, C), kernel: (C, gates · H), recurrent kernel: (H, gates · H), … → (N, T, H), states: (N, H)."""
        units = recurrent.shape[0]
        self.check(x.rank == 3, "the input must be a sequence", expected="(batch, steps, features)", got=x)
        wide = self.gates * units
        self.check(recurrent.shape == (units, wide), f"the recurrent kernel is not that of {self.name}", got=recurrent)
        self.check(kernel.shape == (x.shape[2], wide), "the kernel does not fit", expected=f"{x.shape[2]}, {wide}")
        state = x.with_shape(x.shape[0], units)
        own = [self.bias_shape(units)] * self.use_bias
        own += [state.shape] * (self.has_dropout + self.states * self.has_initial_state) + [x.shape[:2]] * self.has_mask
        self.check([one.shape for one in rest] == own, "the further operands do not fit", expected=f"{own}", got=rest)
        return x.with_shape(*x.shape[:2], units), *(state,) * self.states

    def bias_shape(self, units: int) -> tuple[int, ...]:
        """The shape of the bias."""
        return (self.gates * units,)

    @abstractmethod
    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        """The new states, from the gates' parts of the inputs' product and of the states', and the states before."""

    def activations(self) -> list[Activation | None]:
        """The activations, in ONNX's order."""
        return [self.activation]

    def recurrence(self, dtype: DType) -> Recurrence:
        """What is left when the inputs' product is taken out; dropout is one more part of it."""
        fed, gates = self.states if self.has_dropout else 0, self.gates + self.has_dropout
        return Recurrence(
            _body(self, dtype), gates, self.gates, self.reverse, fed, self.has_initial_state, self.has_mask
        )

    def biases(self, bias: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """That of the inputs' product, and that of the recurrent one; empty where there is none."""
        return list(bias), []

    def decompose(self, *operands: Value) -> tuple[Value, ...]:
        return self.expand(Op.__call__, *operands)

    def simplify(self, *operands: Value) -> tuple[Value, ...]:
        # Each op as the pass `simplify` has it. The gradient decomposes this op too: both become one computation.
        return self.expand(call_simplified, *operands)

    def expand(self, apply: Apply, x: Value, kernel: Value, recurrent: Value, *rest: Value) -> tuple[Value, ...]:
        """What it decomposes into; `apply` makes the product of the inputs."""
        bias, dropout, initial, mask = self.split_operands(rest)
        outer, inner = self.biases(bias)
        z = apply(MatMul(), x, kernel)
        for one in outer:
            z = apply(Add(), z, one)
        if dropout:
            wide = Broadcast((*x.shape[:2], recurrent.shape[0]))
            z = Concat(2)(z, *(wide(reshape_to(one, (x.shape[0], 1, one.shape[1]))) for one in dropout))
        first = [*initial, *(initial[0] * one for one in dropout if initial)]
        y, *made = self.recurrence(x.dtype).call_multi(z, recurrent, *inner, *first, *mask)
        return y, *made[len(made) - self.states - self.has_dropout :][: self.states]

    def forward(self, xp: Xp, x: Array, kernel: Array, recurrent: Array, *rest: Array) -> tuple[Array, ...]:
        bias, dropout, initial, mask = self.split_operands(rest)
        outer, inner = self.biases(bias)
        z = xp.matmul(x, kernel)
        for one in outer:
            z = z + one
        for one in dropout:
            z = xp.concatenate([z, xp.broadcast_to(one[:, None], (*x.shape[:2], one.shape[1]))], axis=2)
        first = [*initial, *(initial[0] * one for one in dropout if initial)]
        y, *made = self.recurrence(DType(str(x.dtype))).forward(xp, z, recurrent, *inner, *first, *mask)
        return y, *made[len(made) - self.states - self.has_dropout :][: self.states]

    def flops(self, x: TensorType, kernel: TensorType, recurrent: TensorType, *rest: TensorType) -> int:
        one = x.with_shape(*x.shape[:2], recurrent.shape[0])
        body = _body(self, x.dtype)
        return 2 * x.shape[0] * x.shape[1] * (kernel.size + recurrent.size) + body.flops(*(one,) * body.arity)


@cache
def _body(cell: RecurrentOp, dtype: DType) -> Fused:
    """The cell's equations as one elementwise op; with dropout, the state behind it is a state more."""
    kind = TensorType((1,), dtype)

    def operands(count: int) -> list[Value]:
        return [Input("", kind)() for _ in range(count)]

    x, kept, r, states = map(operands, (cell.gates, cell.has_dropout, cell.gates, cell.states))
    new = cell.equations(x, r, states)
    return fuse_between([*x, *kept, *r, *states, *operands(cell.has_dropout)], [*new, *(new[0] * one for one in kept)])


def _sequence_to_onnx(
    g: Emitter, y: Value, op_type: str, operands: Sequence[str], initial: Sequence[str]
) -> tuple[str, ...]:
    """The ONNX node of a cell: X, W, R, B, lengths, states → Y, whose first axis is the step, and states."""
    op, units = y.op, y.shape[2]
    assert isinstance(op, RecurrentOp)
    axis = g.constant([0], "int64")
    none = ("",) * (5 - len(operands))  # lengths, and a bias where there is none
    made = g.node(
        op_type,
        g.node("Transpose", operands[0], perm=[1, 0, 2]),
        *operands[1:],
        *((*none, *(g.node("Unsqueeze", one, axis) for one in initial)) if initial else ()),
        outputs=1 + op.states,
        hidden_size=units,
        direction="reverse" if op.reverse else "forward",
        activations=[_onnx_activation(function) for function in op.activations()],
        **({"linear_before_reset": 1} if isinstance(op, GRU) and op.reset_after else {}),
    )
    steps_first = g.node("Squeeze", made, g.constant([1], "int64"))
    states = (g.node("Squeeze", f"{made}:{k}", axis) for k in range(1, 1 + op.states))
    return g.node("Transpose", steps_first, perm=[1, 0, 2]), *states


def _weights_to_onnx(g: Emitter, cell: RecurrentOp, name: str, units: int, order: Sequence[int]) -> str:
    """A kernel (in, gates · H) as ONNX has it: (1, gates · H, in), its gates in another order."""
    turned = g.node("Transpose", name, perm=[1, 0])
    if list(order) != sorted(order):
        by_gate = g.node("Reshape", turned, g.constant([len(order), units, -1], "int64"))
        sorted_ = g.node("Gather", by_gate, g.constant(list(order), "int64"), axis=0)
        return g.node("Reshape", sorted_, g.constant([1, len(order) * units, -1], "int64"))
    return g.node("Unsqueeze", turned, g.constant([0], "int64"))


def _writer(op_type: str, order: Sequence[int]) -> OnnxExpansion:
    """The ONNX form of a cell whose gates there are those numbers of ours."""

    def write(g: Emitter, y: Value, x: str, kernel: str, recurrent: str, *rest: str) -> tuple[str, ...]:
        op, units, gates = y.op, y.shape[2], len(order)
        assert isinstance(op, RecurrentOp)
        bias, _, initial, _ = op.split_operands(rest)
        weights = [_weights_to_onnx(g, op, one, units, order) for one in (kernel, recurrent)]
        for one in bias:  # one for the inputs' product, one for the recurrent product
            if y.inputs[3].shape == (gates * units,):
                by_gate = g.node("Reshape", one, g.constant([gates, units], "int64"))
                sorted_ = g.node("Gather", by_gate, g.constant(list(order), "int64"), axis=0)
                flat = g.node("Reshape", sorted_, g.constant([1, gates * units], "int64"))
                zeros = g.constant([[0.0] * gates * units], str(y.dtype))
                weights.append(g.node("Concat", flat, zeros, axis=1))
            else:
                weights.append(g.node("Reshape", one, g.constant([1, 2 * gates * units], "int64")))
        return _sequence_to_onnx(g, y, op_type, [x, *weights], initial)

    def takes(op: RecurrentOp) -> bool:
        return not (op.has_dropout or op.has_mask) and None not in map(_onnx_activation, op.activations())

    return OnnxExpansion(write, takes)


class RNN(RecurrentOp):
    """h' = activation(x + r)"""

    gates: ClassVar[int] = 1
    onnx = _writer("RNN", (0,))

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        return (activate(self.activation, x[0] + r[0]),)


@dataclass(frozen=True)
class GatedRecurrentOp(RecurrentOp):
    """Base of cells whose gates have an activation of their own."""

    recurrent_activation: Activation | None = field(kw_only=True)

    def activations(self) -> list[Activation | None]:
        """In ONNX's order."""
        return [self.recurrent_activation, self.activation]

    def gate(self, x: Value) -> Value:
        """The recurrent activation."""
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
        i, f, g, o = (one + other for one, other in zip(x, r, strict=True))
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
        rows = [[_row(one, k) for one in bias] for k in range(2)]
        return rows[0], rows[1]

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        update, reset = self.gate(x[0] + r[0]), self.gate(x[1] + r[1])
        candidate = activate(self.activation, x[2] + reset * r[2])
        return (self.interpolate(update, states[0], candidate),)

    @staticmethod
    def interpolate(update: Any, h: Any, candidate: Any) -> Any:
        """u · h + (1 - u) · g, so written that its gradient needs nothing else."""
        return update * h + candidate - update * candidate

    def expand(self, apply: Apply, x: Value, kernel: Value, recurrent: Value, *rest: Value) -> tuple[Value, ...]:
        if self.reset_after:
            return super().expand(apply, x, kernel, recurrent, *rest)
        # Step by step: there are two products in each, with elementwise ops between them.
        bias, dropout, initial, mask = self.split_operands(rest)
        units = recurrent.shape[0]
        z = apply(MatMul(), x, kernel)
        for one in bias:
            z = apply(Add(), z, one)
        gates, candidates = Slice(1, 0, 2 * units)(recurrent), Slice(1, 2 * units, 3 * units)(recurrent)
        (h,), found = initial or [Fill(0.0, x.type.with_shape(1, units))()], {}
        for t in time_steps(x.shape[1], self.reverse):
            parts = split_columns(time_step(z, t), units)
            fed = h
            for one in dropout:
                fed = fed * one
            update, reset = (
                self.gate(a + b) for a, b in zip(parts, split_columns(MatMul()(fed, gates), units), strict=False)
            )
            candidate = activate(self.activation, parts[2] + MatMul()(reset * fed, candidates))
            new = self.interpolate(update, h, candidate)
            for one in mask:
                new = Where()(Slice(1, t, t + 1)(one), new, h)
            h = found[t] = new
        return stack_steps([found[t] for t in range(x.shape[1])]), h

    def forward(self, xp: Xp, x: Array, kernel: Array, recurrent: Array, *rest: Array) -> tuple[Array, ...]:
        if self.reset_after:
            return super().forward(xp, x, kernel, recurrent, *rest)
        bias, dropout, initial, mask = self.split_operands(rest)
        units, dtype = recurrent.shape[0], DType(str(x.dtype))
        z = xp.matmul(x, kernel)
        for one in bias:
            z = z + one
        gate, candidate = _function(self.recurrent_activation, dtype), _function(self.activation, dtype)
        h, y = xp.zeros((x.shape[0], units), x.dtype), xp.empty((*x.shape[:2], units), x.dtype)
        for one in initial:
            h = one
        for t in time_steps(x.shape[1], self.reverse):
            fed = h
            for one in dropout:
                fed = fed * one
            (gates,) = gate.evaluate(xp, [z[:, t, : 2 * units] + xp.matmul(fed, recurrent[:, : 2 * units])])
            product = xp.matmul(gates[:, units:] * fed, recurrent[:, 2 * units :])
            (made,) = candidate.evaluate(xp, [z[:, t, 2 * units :] + product])
            new = self.interpolate(gates[:, :units], h, made)
            for one in mask:
                new = xp.where(one[:, t : t + 1], new, h)
            y[:, t] = h = new
        return y, h


@cache
def _function(activation: Activation | None, dtype: DType) -> Fused:
    """An activation as an op."""
    x = Input("", TensorType((1,), dtype))()
    return fuse_between([x], [activate(activation, x)])


def _row(matrix: Any, number: int) -> Any:
    """A row of a matrix, of an array or of a value."""
    if isinstance(matrix, Value):
        return reshape_to(Slice(0, number, number + 1)(matrix), matrix.shape[1:])
    return matrix[number]
