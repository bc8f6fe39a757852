"""Lists of the scatter operands for each target row, in the order of the operands.

One block sorts the operands by target, four bits at a time: each thread counts a contiguous part by digit and moves it
behind the parts of earlier threads. The order does not depend on scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.cuda.launch import KernelParameter, Launch, pointer, sizes
from netspec.graph.kernel import Thunk

DIGITS = 16
FEW, FEW_THREADS, MANY_THREADS = 4096, 256, 1024
"""Maximum number of operands sorted by few threads; more are sorted by more threads."""

SORT = """
__shared__ int32 scratch[THREADS];
const int me = threadIdx.x;
const Index share = (operand_count + THREADS - 1) / THREADS;
const Index begin = me * share < operand_count ? me * share : operand_count;
const Index end = begin + share < operand_count ? begin + share : operand_count;
int32 *from = first, *to = second, *own = counts + me, *mine = counts + me * DIGITS;
for (Index i = begin; i < end; ++i) from[i] = i;
for (int shift = 0; shift < bits; shift += 4) {
    for (int d = 0; d < DIGITS; ++d) own[d * THREADS] = 0;
    for (Index i = begin; i < end; ++i) own[(goes_to(from[i]) >> shift & DIGITS - 1) * THREADS] += 1;
    __syncthreads();
    int32 total = 0;
    for (int d = 0; d < DIGITS; ++d) total += mine[d];
    scratch[me] = total;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        const int32 before = me >= distance ? scratch[me - distance] : 0;
        __syncthreads();
        scratch[me] += before;
        __syncthreads();
    }
    int32 next = scratch[me] - total;
    for (int d = 0; d < DIGITS; ++d) {
        const int32 here = mine[d];
        mine[d] = next;
        next += here;
    }
    __syncthreads();
    for (Index i = begin; i < end; ++i) to[own[(goes_to(from[i]) >> shift & DIGITS - 1) * THREADS]++] = from[i];
    __syncthreads();
    int32 *const other = from;
    from = to;
    to = other;
}
"""
STARTS = """
UNITS(unit, targets + 1) {
    Index low = 0, high = operand_count;
    while (low < high) {
        const Index middle = low + (high - low) / 2;
        if (goes_to(order[middle]) < unit) low = middle + 1;
        else high = middle;
    }
    start[unit] = low;
}
"""
JOINED = """
UNITS(unit, count) {
    TYPE total = BEFORE;
    for (Index p = start[unit / width]; p < start[unit / width + 1]; ++p) {
        const TYPE update = updates[order[p] * width + unit % width];
        total = JOIN;
    }
    y[unit] = total;
}
"""
JOINS = {
    "none": "update", "add": "total + update", "mul": "total * update", "min": "Less<TYPE>()(total, update)",
    "max": "Greater<TYPE>()(total, update)",
}  # fmt: skip
"""Code that combines an existing element and an update."""


@dataclass(frozen=True)
class ScatterLists:
    """For each of `targets` targets, the list of operands that the code `goes_to` sends there."""

    operand_count: int
    targets: int

    @property
    def bits(self) -> int:
        """Bits of a target's index; the index after the last one means no target."""
        return max(4, -(-self.targets.bit_length() // 4) * 4)

    @property
    def threads(self) -> int:
        """Number of threads that sort."""
        return FEW_THREADS if self.operand_count <= FEW else MANY_THREADS

    @property
    def nbytes(self) -> int:
        """Bytes of scratch memory."""
        return 4 * (2 * self.operand_count + DIGITS * self.threads + self.targets + 1)

    def joined(
        self,
        operands: Sequence[KernelParameter],
        goes_to: str,
        x: Any | None,
        updates: Any,
        y: Any,
        reduction: str,
        workspace: Any,
    ) -> Thunk:
        """A call that combines the rows of `updates` in order into y, starting from x or from 0.

        `goes_to` is the body of a function of the index i of an update. It returns a target from 0 to `targets` - 1, or
        `targets` for none; it may use `operands`.
        """
        scratch, parts = workspace[: self.nbytes].view("int32"), list[Any]()
        for size in (self.operand_count, self.operand_count, DIGITS * self.threads, self.targets + 1):
            parts.append(scratch[:size])
            scratch = scratch[size:]
        order, other, counts, start = parts
        first, second = (order, other) if self.bits // 4 % 2 == 0 else (other, order)
        width = y.size // self.targets
        numbers = max(y.size, updates.size, self.operand_count + self.threads * DIGITS, self.targets + 1)
        function = f"const auto goes_to = [&](Index i) -> int64 {{\n{goes_to}\n}};\n"
        sort = [
            pointer("first", first, written=True), pointer("second", second, written=True),
            pointer("counts", counts, written=True),
            *sizes(numbers, operand_count=self.operand_count, targets=self.targets, bits=self.bits), *operands,
        ]  # fmt: skip
        starts = [
            pointer("order", order), pointer("start", start, written=True),
            *sizes(numbers, operand_count=self.operand_count, targets=self.targets), *operands,
        ]  # fmt: skip
        joined = [
            pointer("order", order), pointer("start", start), pointer("updates", updates),
            *([] if x is None else [pointer("x", x)]), pointer("y", y, written=True),
            *sizes(numbers, count=y.size, width=width),
        ]  # fmt: skip
        replacements = {
            "JOIN": JOINS[reduction], "TYPE": joined[2].kind.removeprefix("const ").removesuffix(" *"),
            "BEFORE": "0" if x is None else "x[unit]",
        }  # fmt: skip
        sorting = {"THREADS": self.threads, "DIGITS": DIGITS}
        return chain(
            [
                Launch(sort, function + SORT, 1, of_blocks=True, threads=self.threads, replacements=sorting).bind(),
                Launch(starts, function + STARTS, self.targets + 1).bind(),
                Launch(joined, JOINED, y.size, replacements=replacements).bind(),
            ]
        )
