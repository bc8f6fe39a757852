"""Elementwise ops and fused groups: generated kernels, in any layout, in place if the plan says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netspec.backends.common.elementwise import BaseElementwiseKernel
from netspec.backends.common.loops import collapse_loops
from netspec.backends.common.trace import Code
from netspec.backends.numba import native
from netspec.backends.numba.codegen import ElementwiseSource, Result
from netspec.backends.numba.scalar_code import WRITER, scalar_code
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.op import Op
from netspec.graph.types import DType
from netspec.graph.value import Node

OPERATIONS_PER_ELEMENT = 8
"""Operations on an element that take about as long as loading and storing it."""


@kernel(Op, backend="numba", rank=10)
class ElementwiseKernel(BaseElementwiseKernel):
    """Every op with the trait `elementwise`, and `Broadcast`, generated from its own `forward`."""

    writer = WRITER

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        code = scalar_code(node.op, *(value.dtype for value in node.inputs))
        return bound(code, buffers.inputs, buffers.outputs)


def bound(code: Code, inputs: Sequence[Any], outputs: Sequence[Any | None]) -> Thunk:
    """A call that runs compiled scalar code on arrays; inputs broadcast to the shape of the outputs."""
    size = next(array.size for array in outputs if array is not None)
    return binder(code, inputs, outputs, size + size * len(code[0]) // OPERATIONS_PER_ELEMENT)(inputs, outputs)


def binder(
    code: Code, inputs: Sequence[Any], outputs: Sequence[Any | None], work: int
) -> Callable[[Sequence[Any], Sequence[Any | None]], Thunk]:
    """A factory of such calls for arrays with these layouts; `work` is the cost, in elements loaded and stored."""
    source, _ = source_of(code, inputs, outputs)
    loops, numbers = source.loops, source.numbers()
    dtypes = [*source.operands, *(result.dtype for result in source.results)]
    arguments = (*(native.Pointer(dtypes[k]) for k in source.arrays), *(native.Size() for _ in numbers))
    units = loops.size if source.depth == 1 else loops.size // loops.sizes[-1]
    compiled = native.of_source(source.text(), arguments)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any | None]) -> Thunk:
        arrays = [*inputs, *(array for array in outputs if array is not None)]
        return compiled.bind(units, work, *(arrays[k] for k in source.arrays), *numbers.values())

    return bind


def source_of(code: Code, inputs: Sequence[Any], outputs: Sequence[Any | None]) -> tuple[ElementwiseSource, list[Any]]:
    """The source for such arrays, and the arrays by their indices in it: inputs, then the outputs that are read."""
    lines, names = code
    read = [(number, array) for number, array in enumerate(outputs) if array is not None]
    shape = read[0][1].shape
    results = tuple(Result(number, dtype_of(array), _written_over(array, inputs)) for number, array in read)
    loops = collapse_loops(shape, [read[0][1], *inputs, *(array for _, array in read)])
    loops = type(loops)(loops.sizes, loops.steps[1:])  # the first array only determined the order
    source = ElementwiseSource(lines, names, tuple(map(dtype_of, inputs)), results, loops)
    return source, [*inputs, *(array for _, array in read)]


def copy(source: Any, target: Any) -> Thunk:
    """A call that copies an array, which may broadcast, into another of the same element type; floats are rounded."""
    return bound(((), ("a0",)), [source], [target])


def fill(value: float, target: Any) -> Thunk:
    """A call that writes one value into all elements of an array."""
    dtype = dtype_of(target).compute_dtype
    text = f"{native.STORED.get(dtype, dtype)}({value!r})" if dtype != DType.BOOL else repr(bool(value))
    return bound(((), (text,)), [], [target])


def add(left: Any, right: Any, target: Any) -> Thunk:
    """A call that adds two arrays; the target may be one of them."""
    return bound((("t = a0 + a1",), ("t",)), [left, right], [target])


def dtype_of(array: Any) -> DType:
    """The element type of an array."""
    return DType(str(array.dtype))


def _written_over(array: Any, inputs: Sequence[Any]) -> int | None:
    """Index of the operand that occupies the same memory as a result; None if there is none."""
    for index, operand in enumerate(inputs):
        alike = (operand.strides, operand.shape, operand.dtype) == (array.strides, array.shape, array.dtype)
        if alike and operand.__array_interface__["data"] == array.__array_interface__["data"]:
            return index
    return None
