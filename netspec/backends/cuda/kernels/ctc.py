"""CTC loss and gradient: a block handles a sample, its threads the positions between blanks and labels of a frame.

Values that the loader has not checked are clamped: no memory outside of the arrays is read.
"""

from __future__ import annotations

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.scalar_code import c_number
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.ctc import LOG_ZERO, LOG_ZERO_BOUND, CTCBase, CTCLoss, CTCLossGrad
from netspec.graph.value import Node

EACH = "for (Index s = threadIdx.x; s < positions; s += blockDim.x)"
# Only `kept` rows are stored, in rotation: the gradient reads all rows, the loss only the previous one.
FORWARD = f"""
const NUMBER never = NEVER;
const auto sum = [](NUMBER a, NUMBER b, NUMBER c) {{
    const Greater<NUMBER> greater;
    const NUMBER most = greater(greater(a, b), c);
    return most + log_NUMBER(exp_NUMBER(a - most) + exp_NUMBER(b - most) + exp_NUMBER(c - most));
}};
BLOCKS(n, batch) {{
    const Index end = frames[n] < 1 ? 1 : frames[n] < steps ? frames[n] : steps;
    const Index positions = 2 * (lengths[n] < 0 ? 0 : lengths[n] < size ? lengths[n] : size) + 1;
    const NUMBER *const x = log_prob + n * steps * count;
    const auto *const right = label + n * size;
    NUMBER *const rows = space + n * of_sample;
    const auto symbol = [&](Index s) -> Index {{
        if (s % 2 == 0) return blank;
        return right[s / 2] < 0 ? 0 : right[s / 2] < count ? right[s / 2] : count - 1;
    }};
    for (Index t = 0; t < end; ++t) {{
        NUMBER *const now = rows + t % kept * width;
        const NUMBER *const before = rows + (t + kept - 1) % kept * width;
        {EACH} {{
            const NUMBER emitted = x[t * count + symbol(s)];
            const bool skips = s > 1 && s % 2 == 1 && right[s / 2] != right[s / 2 - 1];
            if (t == 0) now[s] = s < 2 ? emitted : never;
            else now[s] = sum(before[s], s > 0 ? before[s - 1] : never, skips ? before[s - 2] : never) + emitted;
        }}
        __syncthreads();
    }}
    const NUMBER *const last = rows + (end - 1) % kept * width;
    const NUMBER whole = sum(last[positions - 1], positions > 1 ? last[positions - 2] : never, never);
    REST
}}
"""
LOSS = """if (threadIdx.x == 0) y[n] = whole < IMPOSSIBLE ? (NUMBER)INFINITY : -whole;"""
# The probability of each position replaces the forward value; a symbol's first position sums over its positions.
GRADIENT = f"""
NUMBER *const dx = y + n * steps * count;
for (Index i = threadIdx.x; i < steps * count; i += blockDim.x) dx[i] = 0;
__syncthreads();
if (whole < IMPOSSIBLE) continue;
for (Index t = end - 1; t >= 0; --t) {{
    NUMBER *const share = rows + t * width, *const now = rows + (steps + t % 2) * width;
    const NUMBER *const after = rows + (steps + (t + 1) % 2) * width;
    {EACH} {{
        const NUMBER emitted = x[t * count + symbol(s)];
        const bool skips = s + 2 < positions && s % 2 == 1 && right[s / 2] != right[s / 2 + 1];
        if (t == end - 1) now[s] = s + 2 >= positions ? emitted : never;
        else now[s] = sum(after[s], s + 1 < positions ? after[s + 1] : never, skips ? after[s + 2] : never) + emitted;
        share[s] = exp_NUMBER(share[s] + now[s] - emitted - whole);
    }}
    __syncthreads();
    {EACH} {{
        bool first = true;
        for (Index o = 0; o < s && first; ++o) first = symbol(o) != symbol(s);
        if (!first) continue;
        NUMBER total = 0;
        for (Index o = s; o < positions; ++o) total += symbol(o) == symbol(s) ? share[o] : 0;
        dx[t * count + symbol(s)] = -dy[n] * total;
    }}
}}
"""


class CTCKernel(Kernel):
    """Base class."""

    def rows(self, steps: int) -> tuple[int, int]:
        """Number of rows of forward probabilities to keep, and of other rows."""
        raise NotImplementedError  # abstract

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        (batch, steps, _), size = node.inputs[0].shape, node.inputs[1].shape[1]
        return batch * sum(self.rows(steps)) * (2 * size + 1) * node.inputs[0].dtype.itemsize

    def bound(self, rest_of_source: str, node: Node, buffers: Buffers) -> Thunk:
        """The call that runs the forward pass, or both passes."""
        op, dtype, (y,) = node.op, node.inputs[0].dtype, buffers.outputs
        assert isinstance(op, CTCBase)
        assert buffers.workspace is not None
        (batch, steps, count), size = node.inputs[0].shape, node.inputs[1].shape[1]
        rows, more = self.rows(steps)
        width = 2 * size + 1
        space = buffers.workspace[: self.workspace(node, buffers.layouts)].view(str(dtype))
        names = ("log_prob", "label", "frames", "lengths", "dy")[: len(buffers.inputs)]
        parameters = [
            *(pointer(*name_and_array) for name_and_array in zip(names, buffers.inputs, strict=True)),
            pointer("space", space, written=True), pointer("y", y, written=True),
            *sizes(
                max(space.size, batch * steps * count), batch=batch, steps=steps, count=count, size=size, width=width,
                kept=rows, of_sample=(rows + more) * width, blank=op.blank,
            ),
        ]  # fmt: skip
        replacements = {
            "REST": rest_of_source, "NUMBER": dtype, "NEVER": c_number(LOG_ZERO, dtype),
            "IMPOSSIBLE": c_number(LOG_ZERO_BOUND, dtype),
        }  # fmt: skip
        return Launch(parameters, FORWARD, batch, of_blocks=True, replacements=replacements).bind()


@kernel(CTCLoss, backend="cuda", rank=5)
class CTCLossKernel(CTCKernel):
    """The losses."""

    def rows(self, steps: int) -> tuple[int, int]:
        return 2, 0

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return self.bound(LOSS, node, buffers)


@kernel(CTCLossGrad, backend="cuda", rank=5)
class CTCLossGradKernel(CTCKernel):
    """The gradients."""

    def rows(self, steps: int) -> tuple[int, int]:
        return steps, 2

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        return self.bound(GRADIENT, node, buffers)
