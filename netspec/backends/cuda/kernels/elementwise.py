"""Elementwise ops and fused groups: generated kernels, in any layout, in place if the plan says so.

If the innermost elements of all arrays are adjacent, each thread handles four of them at a time; otherwise each thread
computes the offset of its element in each array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netspec.backends.common.elementwise import BaseElementwiseKernel
from netspec.backends.common.loops import Loops, collapse_loops
from netspec.backends.common.trace import Code
from netspec.backends.cuda import launch
from netspec.backends.cuda.launch import KernelParameter, Launch, pointer, sizes
from netspec.backends.cuda.scalar_code import WRITER, c_number, c_type, scalar_code
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.op import Op
from netspec.graph.types import DType
from netspec.graph.value import Node

AT_ONCE = 4
"""Adjacent elements that a thread reads and writes with one instruction."""


@kernel(Op, backend="cuda", rank=10)
class ElementwiseKernel(BaseElementwiseKernel):
    """Every op with the trait `elementwise`, and `Broadcast`, generated from its own `forward`."""

    writer = WRITER

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        code = scalar_code(node.op, *(value.dtype for value in node.inputs))
        return bound(code, buffers.inputs, buffers.outputs)


def bound(code: Code, inputs: Sequence[Any], outputs: Sequence[Any | None]) -> Thunk:
    """A call that runs scalar code on arrays; inputs broadcast to the shape of the outputs."""
    lines, names = code
    read = [(names[index], array) for index, array in enumerate(outputs) if array is not None]
    first = read[0][1]
    arrays = [*inputs, *(array for _, array in read)]
    loops = collapse_loops(first.shape, [first, *arrays])
    loops = Loops(loops.sizes, loops.steps[1:])  # the first array only determined the order
    pointers = [pointer(f"p{k}", array, written=k >= len(inputs)) for k, array in enumerate(arrays)]
    results = [name for name, _ in read]
    return (_by_fours if _in_fours(loops, arrays) else _one_by_one)(lines, results, arrays, pointers, loops)


def copy(source: Any, target: Any) -> Thunk:
    """A call that copies an array, which may broadcast, into another of the same element type; floats are rounded."""
    return bound(((), ("a0",)), [source], [target])


def fill(value: float, target: Any) -> Thunk:
    """A call that writes one value into all elements of an array."""
    dtype = DType(str(target.dtype)).compute_dtype
    text = str(bool(value)).lower() if dtype == DType.BOOL else c_number(value, dtype)
    return bound(((), (text,)), [], [target])


def add(left: Any, right: Any, target: Any) -> Thunk:
    """A call that adds two arrays; the target may be one of them."""
    return bound(((), ("a0 + a1",)), [left, right], [target])


def stored_type(array: Any) -> str:
    """The C++ type of an element in memory."""
    return c_type(DType(str(array.dtype)))


def value_type(array: Any) -> str:
    """The C++ type of an element in scalar code."""
    dtype = DType(str(array.dtype)).compute_dtype
    return "bool" if dtype == DType.BOOL else str(dtype)


def _in_fours(loops: Loops, arrays: Sequence[Any]) -> bool:
    """Whether each array allows reading four elements of the innermost loop at once, or repeats a single element."""
    if loops.size < AT_ONCE:  # all threads would read the single element while one of them overwrites it
        return False
    if len(loops.sizes) > 1 and loops.sizes[-1] % AT_ONCE:
        return False
    return all(
        steps[-1] == 0
        or (
            steps[-1] == 1
            and not any(step % AT_ONCE for step in steps[:-1])
            and launch.engine.address(array) % (AT_ONCE * array.itemsize) == 0
        )
        for steps, array in zip(loops.steps, arrays, strict=True)
    )


@dataclass(frozen=True)
class ElementOffsets:
    """C++ expressions of each array's element offset; arrays with equal strides share one."""

    lines: list[str]
    at: list[str]
    """Offset of each array."""
    numbers: dict[str, int]
    """Sizes and strides that the lines use."""

    @classmethod
    def of(cls, loops: Loops, together: int) -> ElementOffsets:
        """Offsets of unit `unit`, which is `together` elements of the innermost loop."""
        depth = len(loops.sizes)
        sizes = [*loops.sizes[:-1], loops.sizes[-1] // together]
        lines, numbers, at = ["Index rest = unit;"] if depth > 1 else [], dict[str, int](), dict[tuple[int, ...], str]()
        for axis in range(depth - 1, 0, -1):
            numbers[f"n{axis}"] = sizes[axis]
            lines += [f"const Index i{axis} = rest % n{axis};", f"rest /= n{axis};"]
        lines.append(f"const Index i0 = {'rest' if depth > 1 else 'unit'};")
        for steps in loops.steps:
            if steps not in at:
                at[steps] = f"at{len(at)}"
                terms = []
                for axis, step in enumerate(steps):
                    if step in (0, 1):
                        terms += [f"i{axis}"] * step
                    else:
                        name = f"s{len(at)}_{axis}"
                        numbers[name] = step
                        terms.append(f"i{axis} * {name}")
                last_offset = f" + i{depth - 1} * {together - 1}" if together > 1 and steps[-1] else ""
                lines.append(f"const Index {at[steps]} = {' + '.join(terms) or '0'}{last_offset};")
        return cls(lines, [at[steps] for steps in loops.steps], numbers)


def _reach(loops: Loops) -> int:
    """The largest index: the number of elements, or the largest offset in an array."""
    distances = (
        sum((size - 1) * abs(step) for size, step in zip(loops.sizes, steps, strict=True)) for steps in loops.steps
    )
    return max(loops.size, *distances)


def _by_fours(
    lines: Sequence[str], results: Sequence[str], arrays: Sequence[Any], pointers: list[KernelParameter], loops: Loops
) -> Thunk:
    """Four elements a thread; the last few of a single row one by one."""
    operands, kinds = len(arrays) - len(results), [f"Four<{stored_type(array)}>" for array in arrays]
    read = {k: "once" if not any(loops.steps[k]) else "four" if loops.steps[k][-1] else "one" for k in range(operands)}
    offsets = ElementOffsets.of(loops, AT_ONCE)

    def loads(access: str, text: str) -> list[str]:
        named = (k for k in range(operands) if read[k] == access)
        return [text.format(value=value_type(arrays[k]), four=kinds[k], k=k, at=offsets.at[k]) for k in named]

    body = [
        *loads("once", "const {value} a{k} = load(*p{k});"),
        f"UNITS(unit, count / {AT_ONCE}) {{",
        *("    " + line for line in offsets.lines),
        *loads("one", "    const {value} a{k} = load(p{k}[{at}]);"),
        *loads("four", "    const {four} f{k} = *(const {four} *)(p{k} + {at});"),
        *(f"    {kinds[k]} f{k};" for k in range(operands, len(arrays))),
        f"    for (int i = 0; i < {AT_ONCE}; ++i) {{",
        *loads("four", "        const {value} a{k} = load(f{k}.at[i]);"),
        *(f"        {line}" for line in lines),
        *(f"        store(f{operands + k}.at[i], {name});" for k, name in enumerate(results)),
        "    }",
        *(f"    *({kinds[k]} *)(p{k} + {offsets.at[k]}) = f{k};" for k in range(operands, len(arrays))),
        "}",
    ]
    if len(loops.sizes) == 1:
        body += [
            f"UNITS(unit, count % {AT_ONCE}) {{",
            f"    const Index i = count / {AT_ONCE} * {AT_ONCE} + unit;",
            *loads("four", "    const {value} a{k} = load(p{k}[i]);"),
            *(f"    {line}" for line in lines),
            *(f"    store(p{operands + k}[i], {name});" for k, name in enumerate(results)),
            "}",
        ]
    parameters = [*pointers, *sizes(_reach(loops), count=loops.size, **offsets.numbers)]
    return Launch(parameters, "\n".join(body), -(-loops.size // AT_ONCE)).bind()


def _one_by_one(
    lines: Sequence[str], results: Sequence[str], arrays: Sequence[Any], pointers: list[KernelParameter], loops: Loops
) -> Thunk:
    """One element a thread, at any stride."""
    operands, offsets = len(arrays) - len(results), ElementOffsets.of(loops, 1)
    indices = [f"p{k}[{at}]" for k, at in enumerate(offsets.at)]
    body = [
        "UNITS(unit, count) {",
        *("    " + line for line in offsets.lines),
        *(f"    const {value_type(arrays[k])} a{k} = load({indices[k]});" for k in range(operands)),
        *(f"    {line}" for line in lines),
        *(f"    store({indices[operands + k]}, {name});" for k, name in enumerate(results)),
        "}",
    ]
    parameters = [*pointers, *sizes(_reach(loops), count=loops.size, **offsets.numbers)]
    return Launch(parameters, "\n".join(body), loops.size).bind()
