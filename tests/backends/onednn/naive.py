"""Formulas in float64, written for being right: windows by index, gradients as transposes of whole Jacobians."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from netspec.graph.op import Array
from netspec.graph.ops.window import Window


def taps(x: Array, window: Window, fill: float = 0.0) -> Array:
    """(N, C, spatial…) → (N, C, out…, window…): what each position of the window sees."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *window.pads], constant_values=fill)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(window.size, window.dilation, strict=True)]
    axes = tuple(range(2, x.ndim))
    windows = sliding_window_view(x, reach, axis=axes)
    steps = [slice(None, None, step) for step in (*window.strides, *window.dilation)]
    return windows[(slice(None), slice(None), *steps)]


def convolution(x: Array, w: Array, window: Window, groups: int = 1) -> Array:
    """x: (N, C, spatial…), w: (M, C/groups, kernel…) → (N, M, out…)."""
    windows = taps(x, window)
    rank = len(window.size)
    results = []
    for part, weights in zip(np.split(windows, groups, axis=1), np.split(w.astype(np.float64), groups), strict=True):
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        summed = np.tensordot(part, weights, axes=(axes, list(range(1, 2 + rank))))
        results.append(np.moveaxis(summed, -1, 1))
    return np.concatenate(results, axis=1)


def convolution_input_gradient(dy: Array, w: Array, shape: tuple[int, ...], window: Window, groups: int = 1) -> Array:
    """dy · J, where row i of J is the convolution of the i-th unit vector. Also a transposed convolution of dy."""
    size = int(np.prod(shape[1:]))
    jacobian = convolution(np.eye(size).reshape(size, *shape[1:]), w, window, groups).reshape(size, -1)
    return (dy.astype(np.float64).reshape(len(dy), -1) @ jacobian.T).reshape(shape)


def convolution_weight_gradient(x: Array, dy: Array, shape: tuple[int, ...], window: Window, groups: int = 1) -> Array:
    """Each weight sees one tap of its input channel at every position: the sum of tap · dy over batch and positions."""
    windows, axes = taps(x, window), [0, *range(2, dy.ndim)]
    by_group = zip(np.split(dy.astype(np.float64), groups, axis=1), np.split(windows, groups, axis=1), strict=True)
    return np.concatenate([np.tensordot(part, view, axes=(axes, axes)) for part, view in by_group]).reshape(shape)


def numerical_gradient(function, x: Array, dy: Array, step: float = 1e-5) -> Array:
    """d/dx of Σ dy · f(x), by central differences in float64; `function` must be smooth at x. Error about step²."""
    x = x.astype(np.float64)
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[index] += step
        low[index] -= step
        gradient[index] = np.sum((function(high) - function(low)) * dy) / (2 * step)
    return gradient
