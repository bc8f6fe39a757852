"""The source of a kernel for an elementwise computation: its scalar code inside loops.

One source serves all sizes: sizes and outer steps are arguments. The code depends on the number of loops, the step of
each array in the innermost loop (1, 0, or other), and which results overwrite which operands: both then use the same
pointer, so that the compiler sees that no iteration reads what another one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from netspec.backends.common.loops import Loops
from netspec.graph.types import DType


@dataclass(frozen=True)
class Result:
    """A result that is read: its index, its type, and the operand that it overwrites."""

    number: int
    dtype: DType
    over: int | None = None


@dataclass(frozen=True)
class ElementwiseSource:
    """Source of a kernel body, and its arguments."""

    lines: tuple[str, ...]
    names: tuple[str, ...]
    """Code for one element, and the names of the results in it, from `scalar_code`."""
    operands: tuple[DType, ...]
    results: tuple[Result, ...]
    loops: Loops
    """Strides of the operands, then of the results."""

    @property
    def depth(self) -> int:
        """Number of loops."""
        return len(self.loops.sizes)

    @cached_property
    def pointers(self) -> list[int]:
        """For each operand and result, the index of the first array with the same memory."""
        count = len(self.operands)
        return [
            *range(count),
            *(count + k if result.over is None else result.over for k, result in enumerate(self.results)),
        ]

    @cached_property
    def arrays(self) -> list[int]:
        """Indices of the arrays that are arguments: one for each memory."""
        return sorted(set(self.pointers))

    def inner(self, array: int) -> int:
        """Stride of an array in the innermost loop."""
        return self.loops.steps[array][-1]

    def numbers(self) -> dict[str, int]:
        """The arguments that are not pointers, by name: sizes, inner strides other than 0 and 1, outer strides."""
        variables = {f"n{axis}": self.loops.sizes[axis] for axis in range(1, self.depth)}
        variables |= {f"s{k}": self.inner(k) for k in self.arrays if self.inner(k) not in (0, 1)}
        outer = range(self.depth - 1)
        return variables | {f"s{k}_{axis}": self.loops.steps[k][axis] for k in self.arrays for axis in outer}

    def text(self) -> str:
        """Source of the function `body`."""
        arguments = [*(f"p{k}" for k in self.arrays), *self.numbers()]
        text = [f"def body(first, last, {', '.join(arguments)}):"]
        indent, span = "    ", "first, last"
        if self.depth > 1:
            text += [f"{indent}for row in range(first, last):", *(f"{indent}    {line}" for line in self._row())]
            indent, span = indent + "    ", f"n{self.depth - 1}"
        loads = [
            f"a{k} = {self._element(k)}{' != 0' if dtype == DType.BOOL else ''}"
            for k, dtype in enumerate(self.operands)
        ]
        repeated = [self.inner(k) == 0 for k in range(len(loads))]
        text += [indent + load for load, same in zip(loads, repeated, strict=True) if same]
        text.append(f"{indent}for i in range({span}):")
        body = [load for load, same in zip(loads, repeated, strict=True) if not same] + [*self.lines]
        for k, result in enumerate(self.results, len(self.operands)):
            name = self.names[result.number]
            body.append(
                f"{self._element(k)} = " + (f"uint8(1) if {name} else uint8(0)" if result.dtype == DType.BOOL else name)
            )
        return "\n".join(text + [f"{indent}    {line}" for line in body])

    def _row(self) -> list[str]:
        """Lines that compute where row number `row` begins in each array."""
        lines = ["rest = row"]
        for axis in range(self.depth - 2, 0, -1):
            lines += [f"i{axis} = rest % n{axis}", f"rest = rest // n{axis}"]
        lines.append("i0 = rest")
        for k in self.arrays:
            lines.append(f"o{k} = " + " + ".join(f"i{axis} * s{k}_{axis}" for axis in range(self.depth - 1)))
        return lines

    def _element(self, array: int) -> str:
        """An array's element in the innermost loop."""
        k = self.pointers[array]
        move = {0: "0", 1: "i"}.get(self.inner(k), f"i * s{k}")
        return f"p{k}[{move}]" if self.depth == 1 else f"p{k}[o{k} + {move}]"
