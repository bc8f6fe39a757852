"""Base classes of recurrence kernels: one matrix product and one elementwise cell per step.

The state that is multiplied and the product are dense arrays in scratch memory, for all steps. A backend provides
`CellArithmetic`. Products are computed by a separate class, so that a backend with faster products can derive from
these kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from netspec.backends.common.copy_kernels import ArrayArithmetic, chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.common.trace import Code
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Kernel, Thunk
from netspec.graph.layout import LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.recurrence import Recurrence, RecurrenceGrad, time_steps
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

Cell = Callable[[Sequence[Any], Sequence[Any | None]], Thunk]
"""Makes the call of a cell from a step's operands and results, which have the same layout in all steps."""


class StepProduct(Protocol):
    """The product of a step: dense rows times a matrix that is the same in all steps of a call."""

    nbytes: int
    """Bytes of scratch memory."""

    def bind(self, rows: Any, matrix: Any, bias: Any | None, result: Any, scratch: Any) -> tuple[list[Thunk], Thunk]:
        """result = rows @ matrix + bias. Returns calls to run once before all steps, and the call of each step."""
        ...


class CellArithmetic(ArrayArithmetic, Protocol):
    """Elementwise arithmetic of a backend."""

    def why_untraceable(self, op: Op, types: Sequence[TensorType]) -> str | None:
        """Return why an op has no scalar code; None if it has."""
        ...

    def scalar_code(self, op: Op, *dtypes: DType) -> Code:
        """Generate the scalar code of an op."""
        ...

    def cell(self, code: Code) -> Cell:
        """Make a call that applies scalar code to arrays."""
        ...


class SequenceKernel(Kernel):
    """Base class of the forward and the gradient kernel."""

    product: ClassVar[Callable[..., StepProduct]]
    by: ClassVar[CellArithmetic]

    def multiplier(self, node: Node) -> StepProduct:
        """The product of each step."""
        raise NotImplementedError  # abstract

    def scratch_shapes(self, node: Node) -> list[tuple[int, ...]]:
        """Shapes of the scratch arrays; the product's scratch memory is separate."""
        raise NotImplementedError  # abstract

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        scratch = ScratchMemory(None, node.inputs[0].dtype)
        for shape in self.scratch_shapes(node):
            scratch.take(*shape)
        return scratch.used + align_up(self.multiplier(node).nbytes)

    def scratch(self, node: Node, buffers: Buffers) -> tuple[list[Any], Any]:
        """The scratch arrays and the product's memory."""
        scratch, workspace = ScratchMemory(buffers.workspace, node.inputs[0].dtype), buffers.workspace
        assert workspace is not None
        return [scratch.take(*shape) for shape in self.scratch_shapes(node)], workspace[scratch.used :]


class BaseRecurrenceKernel(SequenceKernel):
    """Forward kernel: the product, then the cell, at each step."""

    def _first(self, product: Any, bias: Any | None) -> Thunk:
        """A call that writes the product of the first step, whose state is 0: the bias, or 0."""
        return self.by.fill(0, product) if bias is None else self.by.copy(bias, product)

    def reject_reason(self, op: Recurrence, *types: TensorType) -> str | None:
        return self.by.why_untraceable(
            op.saving_cell(types[0].dtype), [types[0].with_dtype(dtype) for dtype in op.operand_dtypes(types[0].dtype)]
        )

    def multiplier(self, node: Node) -> StepProduct:
        op, u = node.op, node.inputs[1].type
        assert isinstance(op, Recurrence)
        biased = bool(op.split_operands(node.inputs[2:])[0])
        return self.product(node.inputs[0].shape[0], u, transposed=False, biased=biased)

    def scratch_shapes(self, node: Node) -> list[tuple[int, ...]]:
        op, batch, (units, wide) = node.op, node.inputs[0].shape[0], node.inputs[1].shape
        assert isinstance(op, Recurrence)
        return [*[(batch, units)] * op.states, (batch, wide)]

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (z, u, *rest) = node.op, buffers.inputs
        assert isinstance(op, Recurrence)
        (*states, product), product_memory = self.scratch(node, buffers)
        biases, initial, mask = op.split_operands(rest)
        bias, units, dtype = biases[0] if biases else None, len(u), node.inputs[0].dtype
        step = op.saving_cell(dtype)
        lines, names = self.by.scalar_code(step, *op.operand_dtypes(dtype))
        first = op.gates + op.products
        before = [f"a{first + index}" for index in range(op.states)]
        cell = self.by.cell((lines, (*names[: op.states], names[0], *before, *names[op.states :])))
        once, multiply = self.multiplier(node).bind(states[op.product_state], u, bias, product, product_memory)
        calls = (
            [*once, *map(self.by.copy, initial, states)] if initial else [self.by.fill(0, state) for state in states]
        )
        sequences, last = buffers.outputs[: -op.states], buffers.outputs[-op.states :]
        for number, t in enumerate(time_steps(z.shape[1], op.reverse)):
            calls += once if number == 1 and not initial else ()
            calls.append(multiply if number or initial else self._first(product, bias))
            counts = [column[:, t : t + 1] for column in mask]
            inputs = [*_parts(z[:, t], units), *_parts(product, units), *states, *counts]
            results = [None if sequence is None else sequence[:, t] for sequence in sequences]
            calls.append(cell(inputs, [*states, *results]))
        return chain(
            [
                *calls,
                *(
                    self.by.copy(state, target)
                    for state, target in zip(states, last, strict=True)
                    if target is not None
                ),
            ]
        )


class BaseRecurrenceGradKernel(SequenceKernel):
    """Gradient kernel: the product, then the cell's gradient, at each step."""

    def _sum(self, arrays: Sequence[Any], target: Any) -> Thunk:
        """A call that writes the sum of one or two arrays."""
        if len(arrays) == 1:
            return self.by.copy(arrays[0], target)
        first, other = arrays
        return self.by.sum(first, other, target)

    def reject_reason(self, op: RecurrenceGrad, *types: TensorType) -> str | None:
        dtype = types[0].dtype
        derivative = op.recurrence.gradient(dtype)
        return self.by.why_untraceable(
            derivative.body, [types[0].with_dtype(operand_dtype) for operand_dtype in derivative.operand_dtypes(dtype)]
        )

    def multiplier(self, node: Node) -> StepProduct:
        return self.product(node.inputs[0].shape[0], node.inputs[1].type, transposed=True, biased=False)

    def scratch_shapes(self, node: Node) -> list[tuple[int, ...]]:
        op, batch, (units, wide) = node.op, node.inputs[0].shape[0], node.inputs[1].shape
        assert isinstance(op, RecurrenceGrad)
        carried = op.recurrence.gradient(node.inputs[0].dtype).carried
        return [(batch, wide), (batch, units), *[(batch, units)] * len(carried)]

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy, u, *rest) = node.op, buffers.inputs
        assert isinstance(op, RecurrenceGrad)
        (flowing, *flows), product_memory = self.scratch(node, buffers)
        units, dtype = len(u), node.inputs[0].dtype
        derivative, (saved, mask, last) = op.recurrence.gradient(dtype), op.split_operands(rest)
        lines, names = self.by.scalar_code(derivative.body, *derivative.operand_dtypes(dtype))
        ranges = op.result_spans(derivative)
        first, end = ranges[-1]
        cell = self.by.cell((lines, (*names, *names[first:end])))
        once, multiply = self.multiplier(node).bind(flowing, u, None, flows[0], product_memory)
        sequences, by_first = buffers.outputs[: len(ranges)], buffers.outputs[len(ranges) :]
        calls = [*once, *(self.by.fill(0, flow) for flow in flows)]
        calls += [
            self.by.copy(gradient, flows[derivative.flow_indices[state][0]])
            for state, gradient in zip(op.final_states, last, strict=True)
        ]
        for number, t in enumerate(reversed(time_steps(dy.shape[1], op.recurrence.reverse))):
            calls += [multiply] if number else ()
            counts = [column[:, t : t + 1] for column in mask]
            inputs = [*(array[:, t] for array in saved), *counts, dy[:, t], *flows]
            gradients: list[Any] = []
            for (start, stop), sequence in zip(ranges, sequences, strict=True):
                gradients += [None] * (stop - start) if sequence is None else _parts(sequence[:, t], units)
            calls.append(cell(inputs, [*gradients, *flows[1:], *_parts(flowing, units)]))
        initial_gradients = [
            (state, gradient)
            for state, gradient in zip(op.initial_states(dtype), by_first, strict=True)
            if gradient is not None
        ]
        calls += [multiply] if any(0 in derivative.flow_indices[state] for state, _ in initial_gradients) else ()
        return chain(
            [
                *calls,
                *(
                    self._sum([flows[k] for k in derivative.flow_indices[state]], gradient)
                    for state, gradient in initial_gradients
                ),
            ]
        )


def _parts(array: Any, units: int) -> list[Any]:
    """Views of a matrix, of `units` columns each."""
    return [array[:, start : start + units] for start in range(0, array.shape[1], units)]
