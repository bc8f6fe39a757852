"""Recurrences: at each step one matrix product, and the cell, element by element.

The state that is multiplied, and the product, lie dense in scratch memory, whatever the step's place in a sequence.
A backend says how it computes cells (`Arithmetic`); products are a class of their own, so that a backend that has
better ones derives from these kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar, Protocol

from netspec.backends.moves import in_turn
from netspec.backends.trace import Code
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.layout import Signature
from netspec.graph.op import Op
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad, in_order
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

Cell = Callable[[Sequence[Any], Sequence[Any | None]], Thunk]
"""The call of a cell for the operands and the results of a step; those of all steps lie alike."""


class Product(Protocol):
    """The product of a step: dense rows with a matrix that stays the same in all steps of a call."""

    nbytes: int
    """Scratch memory that it needs."""

    def bind(self, rows: Any, matrix: Any, bias: Any | None, made: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """made = rows @ matrix + bias: what is to be done once a call, and at each step."""
        ...


class Arithmetic(Protocol):
    """How a backend computes elementwise."""

    def why_untraceable(self, op: Op, types: Sequence[TensorType]) -> str | None:
        """Why there is no scalar code of an op; None if there is."""
        ...

    def scalar_code(self, op: Op, *dtypes: DType) -> Code:
        """Of an op."""
        ...

    def cell(self, code: Code) -> Cell:
        """What scalar code does to arrays."""
        ...

    def copy(self, source: Any, target: Any) -> Thunk:
        """A call that copies an array, which may broadcast."""
        ...

    def fill(self, value: float, target: Any) -> Thunk:
        """A call that writes one number everywhere."""
        ...

    def sum(self, one: Any, other: Any, target: Any) -> Thunk:
        """A call that adds two arrays."""
        ...


class Recurrent(Kernel):
    """Base of both kernels."""

    product: ClassVar[Callable[..., Product]]
    by: ClassVar[Arithmetic]

    def multiplier(self, node: Node) -> Product:
        """The product of each step."""
        raise NotImplementedError  # abstract: subclasses say

    def held(self, node: Node) -> list[tuple[int, ...]]:
        """Shapes of the scratch arrays beside the product's own memory."""
        raise NotImplementedError  # abstract: subclasses say

    def workspace(self, node: Node, layouts: Signature) -> int:
        dtype = node.inputs[0].dtype
        arrays = sum(aligned(prod(shape) * dtype.itemsize) for shape in self.held(node))
        return arrays + aligned(self.multiplier(node).nbytes)

    def scratch(self, node: Node, buffers: Buffers) -> tuple[list[Any], Any]:
        """The scratch arrays, and the product's memory."""
        dtype, made = node.inputs[0].dtype, []
        rest: Any = buffers.workspace
        for shape in self.held(node):
            size = prod(shape) * dtype.itemsize
            made.append(rest[:size].view(str(dtype)).reshape(shape))
            rest = rest[aligned(size) :]
        return made, rest


class RecurrenceKernel(Recurrent):
    """The cell of each step, with the product before it."""

    def _first(self, product: Any, bias: Any | None) -> Thunk:
        """The product of the first step, whose state is 0."""
        return self.by.fill(0, product) if bias is None else self.by.copy(bias, product)

    def why_not(self, op: Recurrence, *types: TensorType) -> str | None:
        return self.by.why_untraceable(
            op.step(types[0].dtype), [types[0].with_dtype(one) for one in op.operands(types[0].dtype)]
        )

    def multiplier(self, node: Node) -> Product:
        op, u = node.op, node.inputs[1].type
        assert isinstance(op, Recurrence)
        biased = bool(op.apart(node.inputs[2:])[0])
        return self.product(node.inputs[0].shape[0], u, transposed=False, biased=biased)

    def held(self, node: Node) -> list[tuple[int, ...]]:
        op, batch, (units, wide) = node.op, node.inputs[0].shape[0], node.inputs[1].shape
        assert isinstance(op, Recurrence)
        return [*[(batch, units)] * op.states, (batch, wide)]

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (z, u, *rest) = node.op, buffers.inputs
        assert isinstance(op, Recurrence)
        (*states, product), own = self.scratch(node, buffers)
        biases, initial, mask = op.apart(rest)
        bias, units, dtype = biases[0] if biases else None, len(u), node.inputs[0].dtype
        step = op.step(dtype)
        lines, names = self.by.scalar_code(step, *op.operands(dtype))
        first = op.gates + op.products
        before = [f"a{first + index}" for index in range(op.states)]
        cell = self.by.cell((lines, (*names[: op.states], names[0], *before, *names[op.states :])))
        once, multiply = self.multiplier(node).bind(states[op.fed], u, bias, product, own)
        calls = (
            [*once, *map(self.by.copy, initial, states)] if initial else [self.by.fill(0, state) for state in states]
        )
        sequences, last = buffers.outputs[: -op.states], buffers.outputs[-op.states :]
        for number, t in enumerate(in_order(z.shape[1], op.reverse)):
            calls += once if number == 1 and not initial else ()
            calls.append(multiply if number or initial else self._first(product, bias))
            counts = [one[:, t : t + 1] for one in mask]
            inputs = [*_parts(z[:, t], units), *_parts(product, units), *states, *counts]
            results = [None if one is None else one[:, t] for one in sequences]
            calls.append(cell(inputs, [*states, *results]))
        return in_turn(
            [*calls, *(self.by.copy(state, one) for state, one in zip(states, last, strict=True) if one is not None)]
        )


class RecurrenceGradKernel(Recurrent):
    """The cell's gradient of each step, with the product before it."""

    def _sum(self, arrays: Sequence[Any], target: Any) -> Thunk:
        """Writes the sum of one or two arrays."""
        if len(arrays) == 1:
            return self.by.copy(arrays[0], target)
        one, other = arrays
        return self.by.sum(one, other, target)

    def why_not(self, op: RecurrenceGrad, *types: TensorType) -> str | None:
        dtype = types[0].dtype
        derivative = op.recurrence.derivative(dtype)
        return self.by.why_untraceable(
            derivative.body, [types[0].with_dtype(one) for one in derivative.operands(dtype)]
        )

    def multiplier(self, node: Node) -> Product:
        return self.product(node.inputs[0].shape[0], node.inputs[1].type, transposed=True, biased=False)

    def held(self, node: Node) -> list[tuple[int, ...]]:
        op, batch, (units, wide) = node.op, node.inputs[0].shape[0], node.inputs[1].shape
        assert isinstance(op, RecurrenceGrad)
        carried = op.recurrence.derivative(node.inputs[0].dtype).carried
        return [(batch, wide), (batch, units), *[(batch, units)] * len(carried)]

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy, u, *rest) = node.op, buffers.inputs
        assert isinstance(op, RecurrenceGrad)
        (flowing, *flows), own = self.scratch(node, buffers)
        units, dtype = len(u), node.inputs[0].dtype
        derivative, (kept, mask, last) = op.recurrence.derivative(dtype), op.apart(rest)
        lines, names = self.by.scalar_code(derivative.body, *derivative.operands(dtype))
        ranges = op.parts(derivative)
        first, end = ranges[-1]
        cell = self.by.cell((lines, (*names, *names[first:end])))
        once, multiply = self.multiplier(node).bind(flowing, u, None, flows[0], own)
        sequences, by_first = buffers.outputs[: len(ranges)], buffers.outputs[len(ranges) :]
        calls = [*once, *(self.by.fill(0, one) for one in flows)]
        calls += [
            self.by.copy(one, flows[derivative.places[state][0]]) for state, one in zip(op.last, last, strict=True)
        ]
        for number, t in enumerate(reversed(in_order(dy.shape[1], op.recurrence.reverse))):
            calls += [multiply] if number else ()
            counts = [one[:, t : t + 1] for one in mask]
            inputs = [*(one[:, t] for one in kept), *counts, dy[:, t], *flows]
            gradients: list[Any] = []
            for (start, stop), one in zip(ranges, sequences, strict=True):
                gradients += [None] * (stop - start) if one is None else _parts(one[:, t], units)
            calls.append(cell(inputs, [*gradients, *flows[1:], *_parts(flowing, units)]))
        wanted = [(state, one) for state, one in zip(op.first(dtype), by_first, strict=True) if one is not None]
        calls += [multiply] if any(0 in derivative.places[state] for state, _ in wanted) else ()
        return in_turn(
            [*calls, *(self._sum([flows[k] for k in derivative.places[state]], one) for state, one in wanted)]
        )


def _parts(array: Any, units: int) -> list[Any]:
    """The parts of a matrix, `units` columns each."""
    return [array[:, start : start + units] for start in range(0, array.shape[1], units)]
