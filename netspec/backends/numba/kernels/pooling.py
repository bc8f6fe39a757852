"""Pooling with one to three spatial axes; missing axes have size 1.

Operands and results are stored channels-last, or with the batch innermost; then the two axes are exchanged, since
pooling treats batch and channels alike. Each thread processes rows of windows, or full images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

from netspec.backends.common.loops import empty_array_like
from netspec.backends.numba import native
from netspec.backends.numba.native import Argument, ConstArg, Literal, Size, Type, pointer_to
from netspec.backends.numba.pooling_loops import (
    average_pool,
    average_pool_grad,
    max_pool,
    max_pool_gather,
    max_pool_grad,
    max_pool_grad_apart,
    max_pool_large,
)
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

MAX_LANES = 16
"""float32 values in the widest vector registers."""
UNROLLED = 32
"""Maximum size of windows that are compared in registers."""
AXES = 3
"""Maximum number of spatial axes."""


class Pooling(Kernel):
    """Base class: arrays are channels-last or batch-last. Reordering plain images costs less than reading them."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        if not types[0].dtype.is_float:
            return f"no windows of {types[0].dtype}"
        return None if len(op.window.size) <= AXES else f"{len(op.window.size)} spatial axes"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        batch_last = Layout((*range(1, node.inputs[0].type.rank), 0))
        turned = offered[0].with_dtype(None) == batch_last
        chosen = batch_last if turned else Layout.channels_last(node.inputs[0].type.rank)
        return LayoutSignature((chosen,) * len(offered), (chosen,) * len(node.outputs))

    def adds_up(self, node: Node) -> bool:
        """Whether results accumulate in memory, so that they must not be rounded."""
        return False

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature:
        return preferred.with_unrounded_outputs() if self.adds_up(node) else preferred

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        order = buffers.layouts.inputs[0].order
        return self.pooled(node, _batch_swapped(buffers) if order is not None and order[-1] == 0 else buffers)

    def pooled(self, node: Node, buffers: Buffers) -> Thunk:
        """A call on arrays whose second axis is innermost."""
        raise NotImplementedError  # abstract


def _batch_swapped(buffers: Buffers) -> Buffers:
    """Return the arrays with batch and channels exchanged."""
    inputs = tuple(operand.swapaxes(0, 1) for operand in buffers.inputs)
    outputs = tuple(None if result is None else result.swapaxes(0, 1) for result in buffers.outputs)
    return replace(buffers, inputs=inputs, outputs=outputs)


def bound(
    body: Callable[..., None], arrays: Sequence[tuple[Any, DType]], fixed: Sequence[Argument], large: Any, small: Any,
    window: Window, units: int = 0, extra_values: Sequence[int] = (),
) -> Thunk:  # fmt: skip
    """A call of a pooling body; `large` is an array over input positions, `small` one over windows.

    `units` defaults to the rows of windows. `extra_values` are values for arguments that `fixed` leaves open.
    """
    missing = AXES - len(window.size)
    geometry = [[1] * missing + list(values) for values in (window.size, window.strides, window.dilation)]
    pads = [0] * missing + [begin for begin, _ in window.pads]
    spatial, windows = ([1] * missing + list(array.shape[2:]) for array in (large, small))
    arguments = (
        *(pointer_to(array, dtype) for array, dtype in arrays), *fixed,
        *(Literal(number) for values in geometry for number in values),
        *(Size(),) * (len(pads) + 1 + len(spatial) + len(windows)),
    )  # fmt: skip
    n, channels = large.shape[:2]
    work = max(small.size * prod(window.size), large.size)
    values = [*(array for array, _ in arrays), *extra_values, *pads, channels, *spatial, *windows]
    return native.of_function(body, arguments).bind(units or n * prod(windows[:-1]), work, *values)


def _window(node: Node) -> Window:
    window: Window = node.op.window  # type: ignore[attr-defined]  # all of these ops have one
    return window


def _lanes(array: Any) -> tuple[Argument, tuple[int, ...]]:
    """Number of channels processed together, and the value of that argument if it is not compiled in.

    All of them if they fill vector registers; else a full register, or a part of one.
    """
    channels = int(array.shape[1])
    if channels % MAX_LANES == 0:
        return Size(), (channels,)
    return Literal(min(MAX_LANES, 1 << (channels.bit_length() - 1))), ()


def _always_inside(window: Window) -> bool:
    """Whether every window is certain to contain an input position."""
    axes = zip(window.size, window.pads, window.dilation, strict=True)
    return all(max(pads) < size and (dilation == 1 or not any(pads)) for size, pads, dilation in axes)


def _is_apart(window: Window, spatial: Sequence[int], out: Sequence[int]) -> bool:
    """Whether the windows are small and cover the input exactly, without overlap."""
    tiles = all(size == stride * count for size, stride, count in zip(spatial, window.strides, out, strict=True))
    few = prod(window.size) <= UNROLLED
    return (
        few
        and tiles
        and window.size == window.strides
        and not any(map(any, window.pads))
        and set(window.dilation) <= {1}
    )


@kernel(MaxPool, backend="numba", rank=5)
class MaxPoolKernel(Pooling):
    """Maxima and their indices. (oneDNN's kernel ignores NaN, which the guard must see.)"""

    def pooled(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y, index), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        window = _window(node)
        if y is None:  # only the indices are read: no net does that, so the values are not in the memory plan
            y = empty_array_like(index, dtype)
        arrays, keep = [(x, dtype), (y, dtype), (index, DType.INT32)], Literal(int(index is not None))
        if prod(window.size) <= UNROLLED and _always_inside(window):
            lanes, extra = _lanes(x)
            return bound(max_pool, arrays, [keep, lanes, Type(str(dtype))], x, y, window, extra_values=extra)
        return bound(max_pool_large, arrays, [keep, ConstArg(-inf, dtype)], x, y, window)


@kernel(MaxPoolGrad, backend="numba", rank=5)
class MaxPoolGradKernel(Pooling):
    """Gradients added at the positions of the maxima."""

    def adds_up(self, node: Node) -> bool:
        return not _is_apart(_window(node), node.types[0].shape[2:], node.inputs[0].shape[2:])

    def pooled(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, index), (dx,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        window = _window(node)
        assert dx is not None
        zero = ConstArg(0.0, dtype)
        arrays = [(dy, dtype), (index, DType.INT32), (dx, dtype)]
        if self.adds_up(node):
            return bound(max_pool_grad, arrays, [zero], dx, dy, window, len(dx))
        lanes, extra = _lanes(dx)
        fixed = zero, lanes, Type(str(dtype))
        return bound(max_pool_grad_apart, arrays, fixed, dx, dy, window, extra_values=extra)


@kernel(MaxPoolGather, backend="numba", rank=5)
class MaxPoolGatherKernel(Pooling):
    """Elements at the positions of the maxima."""

    def pooled(self, node: Node, buffers: Buffers) -> Thunk:
        (x, index), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        arrays = [(x, dtype), (index, DType.INT32), (y, dtype)]
        return bound(max_pool_gather, arrays, [ConstArg(0.0, dtype)], x, y, _window(node))


def _counted(op: Any) -> tuple[int, ...]:
    """Padding that counts: at the start of each axis, then at the end of each."""
    sides = ((0, 0),) * (AXES - len(op.counted_pads)) + op.counted_pads
    return (*(begin for begin, _ in sides), *(end for _, end in sides))


@kernel(AveragePool, backend="numba", rank=5)
class AveragePoolKernel(Pooling):
    """Means of windows."""

    def adds_up(self, node: Node) -> bool:
        return True

    def pooled(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,), dtype, window = buffers.inputs, buffers.outputs, node.inputs[0].dtype, _window(node)
        unrolled = Literal(int(prod(window.size) <= UNROLLED))
        lanes, extra = _lanes(x)
        counted: list[Argument] = [Size()] * (2 * AXES)
        fixed = ConstArg(0.0, dtype), ConstArg(1.0, dtype), unrolled, lanes, *counted
        extra = (*extra, *_counted(node.op))
        return bound(average_pool, [(x, dtype), (y, dtype)], fixed, x, y, window, extra_values=extra)


@kernel(AveragePoolGrad, backend="numba", rank=5)
class AveragePoolGradKernel(Pooling):
    """Gradients divided among the positions of windows."""

    def adds_up(self, node: Node) -> bool:
        return True

    def pooled(self, node: Node, buffers: Buffers) -> Thunk:
        (dy,), (dx,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        assert dx is not None
        counted: list[Argument] = [Size()] * (2 * AXES)
        fixed = ConstArg(0.0, dtype), ConstArg(1.0, dtype), *counted
        arrays = [(dy, dtype), (dx, dtype)]
        return bound(average_pool_grad, arrays, fixed, dx, dy, _window(node), len(dx), _counted(node.op))
