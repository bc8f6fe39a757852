"""Group normalization and its gradient: each group of each sample is read once, and stays in the cache.

Sums over samples are computed for each sample first, then added in order, for any number of threads.
"""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.numba import native
from netspec.backends.numba.kernels.layer_normalization import BACKWARD_WORK, FORWARD_WORK, OverRowsKernel, together
from netspec.backends.numba.native import (
    Argument,
    CompiledFunction,
    ConstArg,
    Literal,
    Number,
    Pointer,
    Size,
    pointer_to,
)
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.group_normalization import GroupNormalization, GroupNormalizationGrad, GroupwiseOp
from netspec.graph.value import Node


def normalize(
    first: int, last: int, x: Any, gamma: Any, beta: Any, y: Any, mean: Any, variance: Any, sqrt: Any, zero: float,
    one: float, write: int, keep_mean: int, keep_variance: int, share: float, epsilon: float, groups: int, width: int,
    inner: int,
) -> None:  # fmt: skip
    """Groups of y, with means and variances if they are read."""
    for row in range(first, last):
        a, stop = row * width * inner, (row + 1) * width * inner
        total, spread = zero, zero
        for i in range(a, stop):
            total += x[i]
        middle = total * share
        for i in range(a, stop):
            centered = x[i] - middle
            spread += centered * centered
        if keep_mean:
            mean[row] = middle
        if keep_variance:
            variance[row] = spread * share
        if write:
            r, c = one / sqrt(spread * share + epsilon), row % groups * width
            for k in range(width):
                factor, offset = gamma[c + k] * r, beta[c + k]
                for i in range(a + k * inner, a + (k + 1) * inner):
                    y[i] = (x[i] - middle) * factor + offset


def gradients(
    first: int, last: int, x: Any, gamma: Any, mean: Any, variance: Any, dy: Any, dx: Any, slopes: Any, offsets: Any,
    sqrt: Any, zero: float, one: float, write: int, share: float, epsilon: float, groups: int, width: int, inner: int,
) -> None:  # fmt: skip
    """Groups of dx if `write`, and Σ dy · x̂ and Σ dy of each channel of each sample."""
    for row in range(first, last):
        to, c, middle = row * width, row % groups * width, mean[row]
        r = one / sqrt(variance[row] + epsilon)
        level, tilt = zero, zero
        for k in range(width):
            offset, slope = zero, zero
            for i in range((to + k) * inner, (to + k + 1) * inner):
                offset += dy[i]
                slope += dy[i] * (x[i] - middle)
            offsets[to + k] = offset
            slopes[to + k] = slope * r
            level += gamma[c + k] * offset
            tilt += gamma[c + k] * slope
        if write:
            level, tilt = level * share * r, tilt * share * r * r * r
            for k in range(width):
                factor = gamma[c + k] * r
                for i in range((to + k) * inner, (to + k + 1) * inner):
                    dx[i] = dy[i] * factor - level - (x[i] - middle) * tilt


def _sizes(node: Node) -> tuple[int, int, int]:
    """Groups of a sample, channels of a group, elements of a channel."""
    op, shape = node.op, node.inputs[0].shape
    assert isinstance(op, GroupwiseOp)
    return op.groups, shape[1] // op.groups, prod(shape[2:])


@kernel(GroupNormalization, backend="numba", rank=5)
class GroupNormalizationKernel(OverRowsKernel):
    """One group after another."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, beta), dtype = buffers.inputs, node.inputs[0].dtype
        groups, width, inner = _sizes(node)
        kinds: tuple[Argument, ...] = (
            *(pointer_to(array, dtype) for array in (*buffers.inputs, *buffers.outputs)),
            CompiledFunction("sqrt", dtype), ConstArg(0.0, dtype), ConstArg(1.0, dtype),
            *(Literal(int(result is not None)) for result in buffers.outputs), *(Number(dtype),) * 2, *(Size(),) * 3,
        )  # fmt: skip
        epsilon = node.op.epsilon  # type: ignore[attr-defined]  # both ops have it
        return native.of_function(normalize, kinds, native.REASSOCIATE).bind(
            len(x) * groups, FORWARD_WORK * x.size, x, gamma, beta, *buffers.outputs, 1 / (width * inner), epsilon,
            groups, width, inner,
        )  # fmt: skip


@kernel(GroupNormalizationGrad, backend="numba", rank=5)
class GroupNormalizationGradKernel(OverRowsKernel):
    """One group after another, then the sums over all samples."""

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        x = node.inputs[0]
        return 2 * align_up(prod(x.shape[:2]) * x.dtype.itemsize)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, mean, variance, dy), (dx, dgamma, dbeta) = buffers.inputs, buffers.outputs
        (groups, width, inner), dtype = _sizes(node), node.inputs[0].dtype
        assert buffers.workspace is not None
        half, element = len(buffers.workspace) // 2, Pointer(dtype)
        slopes, offsets = (part.view(str(dtype)) for part in (buffers.workspace[:half], buffers.workspace[half:]))
        kinds: tuple[Argument, ...] = (
            *(pointer_to(array, dtype) for array in (*buffers.inputs, dx)), *(element,) * 2,
            CompiledFunction("sqrt", dtype), ConstArg(0.0, dtype), ConstArg(1.0, dtype), Literal(int(dx is not None)),
            *(Number(dtype),) * 2, *(Size(),) * 3,
        )  # fmt: skip
        epsilon = node.op.epsilon  # type: ignore[attr-defined]  # both ops have it
        calls = [
            native.of_function(gradients, kinds, native.REASSOCIATE).bind(
                len(x) * groups, BACKWARD_WORK * x.size, x, gamma, mean, variance, dy, dx, slopes, offsets,
                1 / (width * inner), epsilon, groups, width, inner,
            )
        ]  # fmt: skip
        if dgamma is not None or dbeta is not None:
            written_flags = [Literal(int(array is not None)) for array in (dgamma, dbeta)]
            sizes = groups * width, 2 * len(x) * groups * width
            arrays = [pointer_to(array, dtype) for array in (slopes, offsets, dgamma, dbeta)]
            summed = native.of_function(together, (*arrays, *written_flags, *(Size(),) * 2))
            calls.append(summed.bind(*sizes, slopes, offsets, dgamma, dbeta, len(x), groups * width))
        return chain(calls)
