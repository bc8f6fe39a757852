"""CTC loss and gradient: each sample is handled by one thread, whose scratch memory holds one or all rows.

Values that the loader has not checked are clamped: no memory outside of the arrays is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import CompiledFunction, ConstArg, Literal, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.ctc import LOG_ZERO, LOG_ZERO_BOUND, CTCBase, CTCLoss, CTCLossGrad
from netspec.graph.value import Node

WORK = 40
"""Loads and stores that take as long as three exponentials and a logarithm."""


def loss(
    first: int, last: int, x: Any, label: Any, frames: Any, lengths: Any, y: Any, rows: Any, exp: Any, log: Any,
    never: float, impossible: float, infinite: float, blank: int, steps: int, count: int, size: int,
) -> None:  # fmt: skip
    """y[n] = -ln Σ of the probabilities of all alignments; only the previous row is stored."""
    width = 2 * size + 1
    for n in range(first, last):
        end, positions = max(min(frames[n], steps), 1), 2 * max(min(lengths[n], size), 0) + 1
        old, new = 2 * n * width, (2 * n + 1) * width
        for s in range(positions):
            k = blank if s % 2 == 0 else max(min(label[n * size + s // 2], count - 1), 0)
            rows[old + s] = x[n * steps * count + k] if s < 2 else never
        for t in range(1, end):
            for s in range(positions):
                k = blank if s % 2 == 0 else max(min(label[n * size + s // 2], count - 1), 0)
                a, b, c = rows[old + s], never, never
                if s > 0:
                    b = rows[old + s - 1]
                if s > 1 and s % 2 == 1 and label[n * size + s // 2] != label[n * size + s // 2 - 1]:
                    c = rows[old + s - 2]
                most = max(a, b)
                most = max(most, c)
                total = log(exp(a - most) + exp(b - most) + exp(c - most))
                rows[new + s] = most + total + x[(n * steps + t) * count + k]
            old, new = new, old
        a, b = rows[old + positions - 1], never
        if positions > 1:
            b = rows[old + positions - 2]
        most = max(a, b)
        total = most + log(exp(a - most) + exp(b - most))
        y[n] = infinite if total < impossible else -total


def gradient(
    first: int, last: int, x: Any, label: Any, frames: Any, lengths: Any, dy: Any, dx: Any, rows: Any, exp: Any,
    log: Any, zero: float, never: float, impossible: float, blank: int, steps: int, count: int, size: int,
) -> None:  # fmt: skip
    """dx[n, t, k] = -dy[n] · probability that k is at t, from forward and backward probabilities."""
    width = 2 * size + 1
    for n in range(first, last):
        end, positions = max(min(frames[n], steps), 1), 2 * max(min(lengths[n], size), 0) + 1
        alpha = n * (steps + 2) * width
        old, new = alpha + steps * width, alpha + (steps + 1) * width
        for index in range(n * steps * count, (n + 1) * steps * count):
            dx[index] = zero
        for t in range(end):
            for s in range(positions):
                k = blank if s % 2 == 0 else max(min(label[n * size + s // 2], count - 1), 0)
                if t == 0:
                    rows[alpha + s] = x[n * steps * count + k] if s < 2 else never
                    continue
                at = alpha + (t - 1) * width + s
                a, b, c = rows[at], never, never
                if s > 0:
                    b = rows[at - 1]
                if s > 1 and s % 2 == 1 and label[n * size + s // 2] != label[n * size + s // 2 - 1]:
                    c = rows[at - 2]
                most = max(a, b)
                most = max(most, c)
                total = log(exp(a - most) + exp(b - most) + exp(c - most))
                rows[alpha + t * width + s] = most + total + x[(n * steps + t) * count + k]
        at = alpha + (end - 1) * width + positions
        a, b = rows[at - 1], never
        if positions > 1:
            b = rows[at - 2]
        most = max(a, b)
        whole = most + log(exp(a - most) + exp(b - most))
        if whole < impossible:
            continue
        for t in range(end - 1, -1, -1):
            for s in range(positions):
                k = blank if s % 2 == 0 else max(min(label[n * size + s // 2], count - 1), 0)
                emitted = x[(n * steps + t) * count + k]
                if t == end - 1:
                    rows[new + s] = emitted if s + 2 >= positions else never
                else:
                    a, b, c = rows[old + s], never, never
                    if s + 1 < positions:
                        b = rows[old + s + 1]
                    if s + 2 < positions and s % 2 == 1 and label[n * size + s // 2] != label[n * size + s // 2 + 1]:
                        c = rows[old + s + 2]
                    most = max(a, b)
                    most = max(most, c)
                    rows[new + s] = most + log(exp(a - most) + exp(b - most) + exp(c - most)) + emitted
                share = exp(rows[alpha + t * width + s] + rows[new + s] - emitted - whole)
                dx[(n * steps + t) * count + k] -= dy[n] * share
            old, new = new, old


class CTCKernel(Kernel):
    """Base class."""

    def rows(self, steps: int) -> int:
        """Rows of probabilities that are stored for a sample."""
        raise NotImplementedError  # abstract

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        (batch, steps, _), size = node.inputs[0].shape, node.inputs[1].shape[1]
        return batch * self.rows(steps) * (2 * size + 1) * node.inputs[0].dtype.itemsize

    def bound(self, body: Any, node: Node, buffers: Buffers, fixed: Sequence[native.Argument]) -> Thunk:
        """The call of a body; the `fixed` arguments come after the functions."""
        (y,), dtype = buffers.outputs, node.inputs[0].dtype
        assert y is not None
        assert buffers.workspace is not None
        assert isinstance(node.op, CTCBase)
        (batch, steps, count), size = node.inputs[0].shape, node.inputs[1].shape[1]
        arrays = [*buffers.inputs, y, buffers.workspace.view(str(dtype))]
        kinds = [Pointer(value.dtype) for value in node.inputs]
        functions = [CompiledFunction("exp", dtype), CompiledFunction("log", dtype)]
        arguments = (
            *kinds, Pointer(dtype), Pointer(dtype), *functions, *fixed, Literal(node.op.blank), Size(), Size(), Size()
        )  # fmt: skip
        work = WORK * batch * steps * (2 * size + 1) * ((self.rows(steps) > 2 and 2) or 1)
        return native.of_function(body, arguments).bind(batch, work, *arrays, steps, count, size)


@kernel(CTCLoss, backend="numba", rank=5)
class CTCLossKernel(CTCKernel):
    """The losses, with two rows."""

    def rows(self, steps: int) -> int:
        return 2

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        dtype = node.inputs[0].dtype
        fixed = [ConstArg(value, dtype) for value in (LOG_ZERO, LOG_ZERO_BOUND, float("inf"))]
        return self.bound(loss, node, buffers, fixed)


@kernel(CTCLossGrad, backend="numba", rank=5)
class CTCLossGradKernel(CTCKernel):
    """The gradients, with a row for each frame and two more."""

    def rows(self, steps: int) -> int:
        return steps + 2

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        dtype = node.inputs[0].dtype
        fixed = [ConstArg(value, dtype) for value in (0.0, LOG_ZERO, LOG_ZERO_BOUND)]
        return self.bound(gradient, node, buffers, fixed)
