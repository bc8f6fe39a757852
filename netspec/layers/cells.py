"""The recurrent ops of whole sequences, by ONNX's names: LSTM, GRU and RNN.

Each is one node for export. To the compiler it is a matrix product of all inputs at once and a `Recurrence`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

from netspec.graph.fused import Fused, fused
from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Op, Xp, simplest
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.recurrence import Recurrence, at_step, columns, in_order, sequence_of
from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.ops.shape import Concat, Slice
from netspec.graph.ops.source import Fill, Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.activations import ActivationSpec, activate
from netspec.layers.piecewise_activations import Relu
from netspec.layers.smooth_activations import Sigmoid, Tanh

Apply: TypeAlias = Callable[..., Value]
"""Applies an op to operands."""

TANH, SIGMOID = Tanh(), Sigmoid()
ONNX_ACTIVATIONS: dict[ActivationSpec | None, str] = {TANH: "Tanh", SIGMOID: "Sigmoid", Relu(): "Relu"}


@dataclass(frozen=True)
class Cell(Op, ABC):
    """Base of these ops: operands are x, kernel, recurrent kernel, with `use_bias` the bias, with `masked` the mask.

    The mask (N, H) is multiplied with the state before each recurrent product: dropout.
    """

    activation: ActivationSpec | None = TANH
    use_bias: bool = True
    masked: bool = False
    reverse: bool = False
    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def infer(self, x: TensorType, kernel: TensorType, recurrent: TensorType, *rest: TensorType) -> TensorType:
        """x: (N, T, C), kernel: (C, gates · H), recurrent kernel: (H, gates · H), bias, mask: (N, H) → (N, T, H)."""
        units = recurrent.shape[0]
        self.check(x.rank == 3, "the input is no sequence", expected="(batch, steps, features)", got=x)
        wide = self.gates * units
        self.check(recurrent.shape == (units, wide), f"the recurrent kernel is not that of {self.name}", got=recurrent)
        self.check(kernel.shape == (x.shape[2], wide), "the kernel does not fit", expected=f"{x.shape[2]}, {wide}")
        expected = [self.bias_shape(units)] * self.use_bias + [(x.shape[0], units)] * self.masked
        self.check([one.shape for one in rest] == expected, "bias or mask do not fit", expected=f"{expected}", got=rest)
        return x.with_shape(*x.shape[:2], units)

    def bias_shape(self, units: int) -> tuple[int, ...]:
        """The shape of the bias."""
        return (self.gates * units,)

    @abstractmethod
    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        """The new states, from the gates' parts of the inputs' product and of the states', and the states before."""

    def activations(self) -> list[ActivationSpec | None]:
        """The activations, in ONNX's order."""
        return [self.activation]

    def recurrence(self, dtype: DType) -> Recurrence:
        """What is left when the inputs' product is taken out; a mask is one more part of it."""
        fed = self.states if self.masked else 0
        return Recurrence(_body(self, dtype), self.gates + self.masked, self.gates, self.reverse, fed)

    def biases(self, bias: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """That of the inputs' product, and that of the recurrent one; empty where there is none."""
        return list(bias), []

    def decompose(self, *operands: Value) -> Value:
        return self.made_of(Op.__call__, *operands)

    def simplified(self, *operands: Value) -> Value:
        # Each op as the pass `simplify` has it. The gradient decomposes this op too: both become one computation.
        return self.made_of(simplest, *operands)

    def made_of(self, apply: Apply, x: Value, kernel: Value, recurrent: Value, *rest: Value) -> Value:
        """What it decomposes into; `apply` makes the product of the inputs."""
        bias, mask = rest[: self.use_bias], rest[self.use_bias :]
        outer, inner = self.biases(bias)
        z = apply(MatMul(), x, kernel)
        for one in outer:
            z = apply(Add(), z, one)
        if mask:
            wide = Broadcast((*x.shape[:2], recurrent.shape[0]))
            z = Concat(2)(z, *(wide(reshape_to(one, (x.shape[0], 1, one.shape[1]))) for one in mask))
        return self.recurrence(x.dtype).many(z, recurrent, *inner)[0]

    def forward(self, xp: Xp, x: Array, kernel: Array, recurrent: Array, *rest: Array) -> Array:
        bias, mask = rest[: self.use_bias], rest[self.use_bias :]
        outer, inner = self.biases(bias)
        z = xp.matmul(x, kernel)
        for one in outer:
            z = z + one
        for one in mask:
            z = xp.concatenate([z, xp.broadcast_to(one[:, None], (*x.shape[:2], one.shape[1]))], axis=2)
        return self.recurrence(DType(str(x.dtype))).forward(xp, z, recurrent, *inner)[0]

    def flops(self, x: TensorType, kernel: TensorType, recurrent: TensorType, *rest: TensorType) -> int:
        one = x.with_shape(*x.shape[:2], recurrent.shape[0])
        body = _body(self, x.dtype)
        return 2 * x.shape[0] * x.shape[1] * (kernel.size + recurrent.size) + body.flops(*(one,) * body.arity)


@cache
def _body(cell: Cell, dtype: DType) -> Fused:
    """The cell's equations as one elementwise op; with a mask, the masked state is a state more."""
    kind = TensorType((1,), dtype)

    def operands(count: int) -> list[Value]:
        return [Input("", kind)() for _ in range(count)]

    x, mask, r, states = map(operands, (cell.gates, cell.masked, cell.gates, cell.states))
    new = cell.equations(x, r, states)
    return fused([*x, *mask, *r, *states, *operands(cell.masked)], [*new, *(new[0] * one for one in mask)])


def _sequence_to_onnx(g: Emitter, y: Value, op_type: str, operands: Sequence[str]) -> str:
    """The ONNX node of a cell: X, W, R, B → Y, whose first axis is the step."""
    op, units = y.op, y.shape[2]
    assert isinstance(op, Cell)
    made = g.node(
        op_type,
        g.node("Transpose", operands[0], perm=[1, 0, 2]),
        *operands[1:],
        hidden_size=units,
        direction="reverse" if op.reverse else "forward",
        activations=[ONNX_ACTIVATIONS[function] for function in op.activations()],
        **({"linear_before_reset": 1} if isinstance(op, GRU) and op.reset_after else {}),
    )
    steps_first = g.node("Squeeze", made, g.constant([1], "int64"))
    return g.node("Transpose", steps_first, perm=[1, 0, 2])


def _weights_to_onnx(g: Emitter, cell: Cell, name: str, units: int, order: Sequence[int]) -> str:
    """A kernel (in, gates · H) as ONNX has it: (1, gates · H, in), its gates in another order."""
    turned = g.node("Transpose", name, perm=[1, 0])
    if list(order) != sorted(order):
        by_gate = g.node("Reshape", turned, g.constant([len(order), units, -1], "int64"))
        sorted_ = g.node("Gather", by_gate, g.constant(list(order), "int64"), axis=0)
        return g.node("Reshape", sorted_, g.constant([1, len(order) * units, -1], "int64"))
    return g.node("Unsqueeze", turned, g.constant([0], "int64"))


def _writer(op_type: str, order: Sequence[int]) -> OnnxExpansion:
    """The ONNX form of a cell whose gates there are those numbers of ours."""

    def write(g: Emitter, y: Value, x: str, kernel: str, recurrent: str, *bias: str) -> str:
        op, units, gates = y.op, y.shape[2], len(order)
        assert isinstance(op, Cell)
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
        return _sequence_to_onnx(g, y, op_type, [x, *weights])

    def takes(op: Cell) -> bool:
        return not op.masked and all(function in ONNX_ACTIVATIONS for function in op.activations())

    return OnnxExpansion(write, takes)


@dataclass(frozen=True)
class RNN(Cell):
    """h' = activation(x + r)"""

    gates: ClassVar[int] = 1
    onnx = _writer("RNN", (0,))

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        return (activate(self.activation, x[0] + r[0]),)


@dataclass(frozen=True)
class GatedCell(Cell):
    """Base of cells whose gates have an activation of their own."""

    recurrent_activation: ActivationSpec | None = SIGMOID

    def activations(self) -> list[ActivationSpec | None]:
        """In ONNX's order."""
        return [self.recurrent_activation, self.activation]

    def gate(self, x: Value) -> Value:
        """The recurrent activation."""
        return activate(self.recurrent_activation, x)


@dataclass(frozen=True)
class LSTM(GatedCell):
    """i, f, o = gate(x + r), g = activation(x + r); c' = f · c + i · g, h' = o · activation(c'); parts i, f, g, o.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """

    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    onnx = _writer("LSTM", (0, 3, 1, 2))  # ONNX: i, o, f, c

    def activations(self) -> list[ActivationSpec | None]:
        return [self.recurrent_activation, self.activation, self.activation]

    def equations(self, x: Sequence[Value], r: Sequence[Value], states: Sequence[Value]) -> tuple[Value, ...]:
        i, f, g, o = (one + other for one, other in zip(x, r, strict=True))
        c = self.gate(f) * states[1] + self.gate(i) * activate(self.activation, g)
        return self.gate(o) * activate(self.activation, c), c


@dataclass(frozen=True)
class GRU(GatedCell):
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
        return (self.mixed(update, states[0], candidate),)

    @staticmethod
    def mixed(update: Any, h: Any, candidate: Any) -> Any:
        """u · h + (1 - u) · g, so written that its gradient needs nothing else."""
        return update * h + candidate - update * candidate

    def made_of(self, apply: Apply, x: Value, kernel: Value, recurrent: Value, *rest: Value) -> Value:
        if self.reset_after:
            return super().made_of(apply, x, kernel, recurrent, *rest)
        # Step by step: there are two products in each, with elementwise ops between them.
        bias, mask = rest[: self.use_bias], rest[self.use_bias :]
        units = recurrent.shape[0]
        z = apply(MatMul(), x, kernel)
        for one in bias:
            z = apply(Add(), z, one)
        gates, candidates = Slice(1, 0, 2 * units)(recurrent), Slice(1, 2 * units, 3 * units)(recurrent)
        h, found = Fill(0.0, x.type.with_shape(1, units))(), {}
        for t in in_order(x.shape[1], self.reverse):
            parts = columns(at_step(z, t), units)
            fed = h
            for one in mask:
                fed = fed * one
            update, reset = (
                self.gate(a + b) for a, b in zip(parts, columns(MatMul()(fed, gates), units), strict=False)
            )
            candidate = activate(self.activation, parts[2] + MatMul()(reset * fed, candidates))
            h = found[t] = self.mixed(update, h, candidate)
        return sequence_of([found[t] for t in range(x.shape[1])])

    def forward(self, xp: Xp, x: Array, kernel: Array, recurrent: Array, *rest: Array) -> Array:
        if self.reset_after:
            return super().forward(xp, x, kernel, recurrent, *rest)
        bias, mask = rest[: self.use_bias], rest[self.use_bias :]
        units, dtype = recurrent.shape[0], DType(str(x.dtype))
        z = xp.matmul(x, kernel)
        for one in bias:
            z = z + one
        gate, candidate = _function(self.recurrent_activation, dtype), _function(self.activation, dtype)
        h, y = xp.zeros((x.shape[0], units), x.dtype), xp.empty((*x.shape[:2], units), x.dtype)
        for t in in_order(x.shape[1], self.reverse):
            fed = h
            for one in mask:
                fed = fed * one
            (gates,) = gate.evaluate(xp, [z[:, t, : 2 * units] + xp.matmul(fed, recurrent[:, : 2 * units])])
            product = xp.matmul(gates[:, units:] * fed, recurrent[:, 2 * units :])
            (made,) = candidate.evaluate(xp, [z[:, t, 2 * units :] + product])
            y[:, t] = h = self.mixed(gates[:, :units], h, made)
        return y


@cache
def _function(activation: ActivationSpec | None, dtype: DType) -> Fused:
    """An activation as an op."""
    x = Input("", TensorType((1,), dtype))()
    return fused([x], [activate(activation, x)])


def _row(matrix: Any, number: int) -> Any:
    """A row of a matrix, of an array or of a value."""
    if isinstance(matrix, Value):
        return reshape_to(Slice(0, number, number + 1)(matrix), matrix.shape[1:])
    return matrix[number]
