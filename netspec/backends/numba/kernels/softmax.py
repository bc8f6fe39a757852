"""Ops along one axis: softmax, its gradient and logarithm, sparsemax, cross-entropy, argmax, one-hot.

Each vector along the axis is processed by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from netspec.backends.common.axis_loops import AxisKernel, AxisLoops, without_axis
from netspec.backends.numba import native
from netspec.backends.numba.native import CompiledFunction, ConstArg, Literal, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.cross_entropy import SoftmaxCrossEntropyLoss
from netspec.graph.ops.reduce import ArgMax
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.softmax import LogSoftmax, Softmax, SoftmaxGrad, Sparsemax
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

WORK = 8
"""Loads and stores that take as long as an exponential."""


def softmax(
    first: int, last: int, x: Any, y: Any, maximum: Any, add: Any, exp: Any, zero: float, one: float,
    xc: int, yc: int, count: int, inner: int, x0: int, x1: int, y0: int, y1: int,
) -> None:  # fmt: skip
    """y = eˣ / Σ eˣ. A NaN makes its whole vector NaN, through the sum."""
    for unit in range(first, last):
        a, b = unit // inner * x0 + unit % inner * x1, unit // inner * y0 + unit % inner * y1
        most = x[a]
        for c in range(count):  # from 0: the remainder of a vector is processed one by one
            most = maximum(most, x[a + c * xc])
        total = zero
        for c in range(count):
            e = exp(x[a + c * xc] - most)
            y[b + c * yc] = e
            total = add(total, e)
        scale = one / total
        for c in range(count):
            y[b + c * yc] *= scale


def softmax_grad(
    first: int, last: int, y: Any, dy: Any, dx: Any, add: Any, zero: float,
    yc: int, dc: int, xc: int, count: int, inner: int, y0: int, y1: int, d0: int, d1: int, x0: int, x1: int,
) -> None:  # fmt: skip
    """dx = y · (dy - Σ y · dy)"""
    for unit in range(first, last):
        i, j = unit // inner, unit % inner
        a, b, to = i * y0 + j * y1, i * d0 + j * d1, i * x0 + j * x1
        total = zero
        for c in range(count):
            total = add(total, y[a + c * yc] * dy[b + c * dc])
        for c in range(count):
            dx[to + c * xc] = y[a + c * yc] * (dy[b + c * dc] - total)


def log_softmax(
    first: int, last: int, x: Any, y: Any, maximum: Any, add: Any, exp: Any, log: Any, zero: float,
    xc: int, yc: int, count: int, inner: int, x0: int, x1: int, y0: int, y1: int,
) -> None:  # fmt: skip
    """y = x - ln Σ eˣ. The maximum is subtracted first: differences of similar large scores are exact."""
    for unit in range(first, last):
        a, b = unit // inner * x0 + unit % inner * x1, unit // inner * y0 + unit % inner * y1
        most = x[a]
        for c in range(count):  # from 0: the remainder of a vector is processed one by one
            most = maximum(most, x[a + c * xc])
        total = zero
        for c in range(count):
            total = add(total, exp(x[a + c * xc] - most))
        log_total = log(total)
        for c in range(count):
            y[b + c * yc] = (x[a + c * xc] - most) - log_total


def sparsemax(
    first: int, last: int, x: Any, y: Any, maximum: Any, add: Any, zero: float, one: float,
    xc: int, yc: int, count: int, inner: int, x0: int, x1: int, y0: int, y1: int,
) -> None:  # fmt: skip
    """y = max(x - τ, 0) with Σ y = 1. Michelot 1986: τ of all elements above the last τ, until it does not change.

    With the maximum subtracted first, τ is between -1 and 0. A NaN makes the whole vector NaN.
    """
    for unit in range(first, last):
        a, b = unit // inner * x0 + unit % inner * x1, unit // inner * y0 + unit % inner * y1
        most = x[a]
        for c in range(count):
            most = maximum(most, x[a + c * xc])
        threshold, above, before = zero - one, zero, zero
        while True:
            total, above = zero, zero
            for c in range(count):
                v = x[a + c * xc] - most
                total = add(total, v if v > threshold else zero)
                above = add(above, one if v > threshold else zero)
            if above == zero or (before != zero and above >= before):
                break
            threshold, before = (total - one) / above, above
        for c in range(count):
            v = x[a + c * xc] - most
            y[b + c * yc] = zero if v <= threshold else v - threshold


def cross_entropy(
    first: int, last: int, x: Any, label: Any, loss: Any, y: Any, maximum: Any, add: Any, exp: Any, log: Any,
    zero: float, keep: int,
    xc: int, yc: int, count: int, inner: int, x0: int, x1: int, l0: int, l1: int, s0: int, s1: int, y0: int, y1: int,
) -> None:  # fmt: skip
    """loss = ln Σ eˣ - x[label], or 0 if there is no class `label`; y = x - ln Σ eˣ if `keep`."""
    for unit in range(first, last):
        i, j = unit // inner, unit % inner
        a, b = i * x0 + j * x1, i * y0 + j * y1
        most = x[a]
        for c in range(count):  # from 0: the remainder of a vector is processed one by one
            most = maximum(most, x[a + c * xc])
        total = zero
        for c in range(count):
            total = add(total, exp(x[a + c * xc] - most))
        log_total = log(total)
        if keep:
            for c in range(count):
                y[b + c * yc] = (x[a + c * xc] - most) - log_total
        right = label[i * l0 + j * l1]
        loss[i * s0 + j * s1] = log_total - (x[a + right * xc] - most) if 0 <= right < count else zero


def arg_max(
    first: int, last: int, x: Any, y: Any, xc: int, count: int, inner: int, x0: int, x1: int, y0: int, y1: int
) -> None:
    """Index of the first maximum, or of the first NaN."""
    for unit in range(first, last):
        a = unit // inner * x0 + unit % inner * x1
        best, position = x[a], 0
        for c in range(1, count):
            v = x[a + c * xc]
            if v > best or (v != v and best == best):  # noqa: PLR0124  NaN is greater than all
                best, position = v, c
        y[unit // inner * y0 + unit % inner * y1] = position


def one_hot(
    first: int, last: int, index: Any, y: Any, zero: float, one: float,
    yc: int, count: int, inner: int, x0: int, x1: int, y0: int, y1: int,
) -> None:  # fmt: skip
    """1 at the index, 0 elsewhere."""
    for unit in range(first, last):
        right = index[unit // inner * x0 + unit % inner * x1]
        to = unit // inner * y0 + unit % inner * y1
        for c in range(count):
            y[to + c * yc] = one if c == right else zero


def bound(
    body: Callable[..., None], axis: int, arrays: Sequence[tuple[Any, DType]], fixed: Sequence[Any],
    flags: frozenset[str],
) -> Thunk:  # fmt: skip
    """A call that runs a body on the vectors along `axis` of the first array and of arrays with its shape."""
    shape = max((array.shape for array, _ in arrays if array is not None), key=len)
    long = [array is not None and array.ndim == len(shape) for array, _ in arrays]
    outer_shape = shape[:axis] + shape[axis + 1 :]
    arrays_present = [array for array, _ in arrays if array is not None]
    loops = AxisLoops.of(
        outer_shape, [without_axis(array, axis) if array.ndim == len(shape) else array for array in arrays_present]
    )
    assert loops is not None
    steps = dict(zip(map(id, arrays_present), loops.steps, strict=True))
    inner = [
        array.strides[axis] // array.itemsize for (array, _), is_vector in zip(arrays, long, strict=True) if is_vector
    ]
    if arrays[-1][0] is None:
        inner.append(1)
    arguments = (
        *(Pointer(dtype) for _, dtype in arrays), *fixed, *(Literal(1) if step == 1 else Size() for step in inner),
        *(Size(),) * (2 + 2 * len(arrays)),
    )  # fmt: skip
    outer = [step for array, _ in arrays for step in (steps[id(array)] if array is not None else (0, 0))]
    values = [*(array for array, _ in arrays), *(step for step in inner if step != 1), shape[axis], loops.inner, *outer]
    return native.of_function(body, arguments, flags).bind(loops.count, WORK * prod(shape), *values)


def _functions(dtype: DType, *names: str) -> list[CompiledFunction]:
    return [CompiledFunction(name, dtype) for name in ("maximum", "add", *names)]


@kernel(Softmax, LogSoftmax, backend="numba", rank=5)
class SoftmaxKernel(AxisKernel):
    """eˣ / Σ eˣ, or its logarithm."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        dtype, zero = node.inputs[0].dtype, ConstArg(0.0, node.inputs[0].dtype)
        arrays = [(buffers.inputs[0], dtype), (buffers.outputs[0], dtype)]
        body: Callable[..., None] = softmax
        fixed = [*_functions(dtype, "exp"), zero, ConstArg(1.0, dtype)]
        if isinstance(node.op, LogSoftmax):
            body = log_softmax
            fixed = [*_functions(dtype, "exp", "log"), zero]
        return bound(body, self.axis(node), arrays, fixed, native.FAST)


@kernel(Sparsemax, backend="numba", rank=5)
class SparsemaxKernel(AxisKernel):
    """Several passes over each vector, without sorting."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        dtype = node.inputs[0].dtype
        arrays = [(buffers.inputs[0], dtype), (buffers.outputs[0], dtype)]
        fixed = [*_functions(dtype), ConstArg(0.0, dtype), ConstArg(1.0, dtype)]
        return bound(sparsemax, self.axis(node), arrays, fixed, native.FAST)


@kernel(SoftmaxGrad, backend="numba", rank=5)
class SoftmaxGradKernel(AxisKernel):
    """Two passes over each vector."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        dtype = node.inputs[0].dtype
        arrays = [(array, dtype) for array in (*buffers.inputs, *buffers.outputs)]
        fixed = [CompiledFunction("add", dtype), ConstArg(0.0, dtype)]
        return bound(softmax_grad, self.axis(node), arrays, fixed, native.FAST)


@kernel(SoftmaxCrossEntropyLoss, backend="numba", rank=5)
class CrossEntropyKernel(AxisKernel):
    """The loss of each vector, and the log-probabilities."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, label), (loss, log_prob) = buffers.inputs, buffers.outputs
        dtype = node.inputs[0].dtype
        if loss is None:
            return bound(
                log_softmax, self.axis(node), [(x, dtype), (log_prob, dtype)],
                [*_functions(dtype, "exp", "log"), ConstArg(0.0, dtype)], native.FAST,
            )  # fmt: skip
        fixed = [
            *_functions(dtype, "exp", "log"),
            ConstArg(0.0, dtype),
            Literal(int(log_prob is not None)),
        ]
        arrays = [(x, dtype), (label, node.inputs[1].dtype), (loss, dtype), (log_prob, dtype)]
        return bound(cross_entropy, self.axis(node), arrays, fixed, native.FAST)


@kernel(ArgMax, backend="numba", rank=5)
class ArgMaxKernel(AxisKernel):
    """Index of the first maximum."""

    def reject_reason(self, op: ArgMax, *types: TensorType) -> str | None:
        return "the last index of equal maxima is requested" if op.last else super().reject_reason(op, *types)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = [(buffers.inputs[0], node.inputs[0].dtype), (buffers.outputs[0], DType.INT64)]
        return bound(arg_max, self.axis(node), arrays, [], native.FAST)


@kernel(OneHot, backend="numba", rank=5)
class OneHotKernel(Kernel):
    """One-hot vectors."""

    def reject_reason(self, op: OneHot, *types: TensorType) -> str | None:
        return None if op.dtype != DType.BOOL else "no vectors of bool"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, dtype = node.op, node.types[0].dtype
        assert isinstance(op, OneHot)
        arrays = [(buffers.inputs[0], node.inputs[0].dtype), (buffers.outputs[0], dtype)]
        fixed = [ConstArg(0.0, dtype), ConstArg(1.0, dtype)]
        return bound(one_hot, op.axis % len(node.types[0].shape), arrays, fixed, native.FAST)
