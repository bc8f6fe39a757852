"""Elementwise ops and groups of them: generated kernels, in any layout, in place where the plan says so.

Arrays that lie alike are one row, of which each thread takes four elements at a time; else each thread finds where its
element lies in each array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.cuda import launch
from netspec.backends.cuda.launch import Launch, Parameter, pointer, sizes
from netspec.backends.cuda.scalar import WRITER, c_number, c_type, scalar_code
from netspec.backends.elementwise import ElementwiseKernel
from netspec.backends.loops import Loops, collapsed
from netspec.backends.trace import Code
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.op import Op
from netspec.graph.types import DType
from netspec.graph.value import Node

AT_ONCE = 4
"""Elements of a row that a thread reads and writes with one instruction."""


@kernel(Op, backend="cuda", rank=10)
class Elementwise(ElementwiseKernel):
    """Every op with the trait `elementwise`, and `Broadcast`, by its own `forward`, compiled."""

    writer = WRITER

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        code = scalar_code(node.op, *(value.dtype for value in node.inputs))
        return bound(code, buffers.inputs, buffers.outputs)


def bound(code: Code, inputs: Sequence[Any], outputs: Sequence[Any | None]) -> Thunk:
    """A call of scalar code over arrays; inputs broadcast to the shape of the outputs."""
    lines, names = code
    read = [(names[index], array) for index, array in enumerate(outputs) if array is not None]
    first = read[0][1]
    arrays = [*inputs, *(array for _, array in read)]
    loops = collapsed(first.shape, [first, *arrays])
    loops = Loops(loops.sizes, loops.steps[1:])  # the first decided the order only
    pointers = [pointer(f"p{k}", array, written=k >= len(inputs)) for k, array in enumerate(arrays)]
    results = [name for name, _ in read]
    if _are_rows(loops, arrays):
        return _of_rows(lines, results, arrays, pointers, loops)
    return _of_places(lines, results, arrays, pointers, loops)


def copy(source: Any, target: Any) -> Thunk:
    """A call that copies an array, which may broadcast, into another of the same element type; floats are rounded."""
    return bound(((), ("a0",)), [source], [target])


def fill(value: float, target: Any) -> Thunk:
    """A call that writes one number into all places of an array."""
    dtype = DType(str(target.dtype)).computed
    text = str(bool(value)).lower() if dtype == DType.BOOL else c_number(value, dtype)
    return bound(((), (text,)), [], [target])


def stored_type(array: Any) -> str:
    """What an element of an array is in memory."""
    return c_type(DType(str(array.dtype)))


def value_type(array: Any) -> str:
    """What an element of an array is to the scalar code."""
    dtype = DType(str(array.dtype)).computed
    return "bool" if dtype == DType.BOOL else str(dtype)


def _are_rows(loops: Loops, arrays: Sequence[Any]) -> bool:
    """Whether all arrays are one row, or one element, whose elements can be read four at a time."""
    steps = [one[0] for one in loops.steps]
    return len(loops.sizes) == 1 and all(
        step == 0 or (step == 1 and launch.engine.address(array) % (AT_ONCE * array.itemsize) == 0)
        for step, array in zip(steps, arrays, strict=True)
    )


def _of_rows(
    lines: Sequence[str], results: Sequence[str], arrays: Sequence[Any], pointers: list[Parameter], loops: Loops
) -> Thunk:
    """Four elements a thread, and the last few one by one."""
    operands = len(arrays) - len(results)
    same = [loops.steps[k][0] == 0 for k in range(len(arrays))]
    once = [f"const {value_type(arrays[k])} a{k} = load(*p{k});" for k in range(operands) if same[k]]

    def element(places: Sequence[str]) -> list[str]:
        loads = [f"const {value_type(arrays[k])} a{k} = load({places[k]});" for k in range(operands) if not same[k]]
        stores = [f"store({places[operands + k]}, {name});" for k, name in enumerate(results)]
        return ["    " + line for line in (*loads, *lines, *stores)]

    kinds = [f"Four<{stored_type(array)}>" for array in arrays]
    fours = [f"const {kinds[k]} f{k} = ((const {kinds[k]} *)p{k})[unit];" for k in range(operands) if not same[k]]
    made = [f"{kinds[k]} f{k};" for k in range(operands, len(arrays))]
    kept = [f"(({kinds[k]} *)p{k})[unit] = f{k};" for k in range(operands, len(arrays))]
    body = [
        *once,
        "UNITS(unit, count / 4) {",
        *("    " + line for line in (*fours, *made)),
        "    for (int i = 0; i < 4; ++i) {",
        *("    " + line for line in element([f"f{k}.at[i]" for k in range(len(arrays))])),
        "    }",
        *("    " + line for line in kept),
        "}",
        "UNITS(unit, count % 4) {",
        "    const Index i = count / 4 * 4 + unit;",
        *element([f"p{k}[i]" for k in range(len(arrays))]),
        "}",
    ]
    count = loops.size
    parameters = [*pointers, *sizes(count, count=count)]
    return Launch(parameters, "\n".join(body), -(-count // AT_ONCE)).bind()


def _of_places(
    lines: Sequence[str], results: Sequence[str], arrays: Sequence[Any], pointers: list[Parameter], loops: Loops
) -> Thunk:
    """One element a thread, wherever it lies in each array."""
    operands, depth = len(arrays) - len(results), len(loops.sizes)
    reach = [sum((size - 1) * abs(step) for size, step in zip(loops.sizes, own, strict=True)) for own in loops.steps]
    extents = {f"n{axis}": loops.sizes[axis] for axis in range(1, depth)}
    steps = {(k, axis): loops.steps[k][axis] for k in range(len(arrays)) for axis in range(depth)}
    factors = {(k, axis): "" if step == 1 else f" * s{k}_{axis}" for (k, axis), step in steps.items() if step}
    body = ["UNITS(unit, count) {", "    Index rest = unit;"]
    for axis in range(depth - 1, 0, -1):
        body += [f"    const Index i{axis} = rest % n{axis};", f"    rest /= n{axis};"]
    body.append("    const Index i0 = rest;")
    terms = [
        [f"i{axis}{factors[k, axis]}" for axis in range(depth) if (k, axis) in factors] for k in range(len(arrays))
    ]
    places = [f"p{k}[{' + '.join(own) or '0'}]" for k, own in enumerate(terms)]
    body += [f"    const {value_type(arrays[k])} a{k} = load({places[k]});" for k in range(operands)]
    body += [f"    {line}" for line in lines]
    body += [f"    store({places[operands + k]}, {name});" for k, name in enumerate(results)]
    body.append("}")
    far = {f"s{k}_{axis}": steps[k, axis] for (k, axis), text in factors.items() if text}
    parameters = [*pointers, *sizes(max(loops.size, *reach), count=loops.size, **extents, **far)]
    return Launch(parameters, "\n".join(body), loops.size).bind()
