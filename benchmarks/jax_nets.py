"""Three nets of `nets/` in plain JAX. Parameters are in the order of the net file; images are (N, H, W, C)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import jax
from jax import Array, lax
from jax import numpy as jnp

Shapes: TypeAlias = list[tuple[str, tuple[int, ...]]]
"""Kind and shape of each parameter, in netspec's terms."""
Apply: TypeAlias = Callable[[Sequence[Array], Array], tuple[Array, list[Array]]]
"""(parameters, images) → (logits, mean and variance of every batch normalization)."""

STAGES = tuple((filters, stride) for filters, first in ((16, 1), (32, 2), (64, 2)) for stride in (first, 1, 1))


def build(name: str) -> tuple[Shapes, Apply]:
    """Return the parameters and the function of the net called `name`."""
    return {"mlp": (_mlp_shapes(), _mlp), "lenet": (_lenet_shapes(), _lenet), "resnet20": _resnet20()}[name]


def _dense_shapes(*sizes: int) -> Shapes:
    sizes_in_and_out = pairwise(sizes)
    return [shape for rows, units in sizes_in_and_out for shape in (("kernel", (rows, units)), ("bias", (units,)))]


def _dense(take: Iterator[Array], x: Array) -> Array:
    return x @ next(take) + next(take)


def _conv(take: Iterator[Array], x: Array, stride: int = 1, pad: int = 0) -> Array:
    padding = [(pad, pad)] * 2
    return lax.conv_general_dilated(
        x, next(take), (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pool(x: Array) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _mlp_shapes() -> Shapes:
    return _dense_shapes(784, 256, 128, 10)


def _mlp(parameters: Sequence[Array], x: Array) -> tuple[Array, list[Array]]:
    """MLP with 784-256-128-10 units."""
    take = iter(parameters)
    return _dense(take, jax.nn.relu(_dense(take, jax.nn.relu(_dense(take, x))))), []


def _lenet_shapes() -> Shapes:
    convs: Shapes = [("kernel", (20, 1, 5, 5)), ("bias", (20,)), ("kernel", (50, 20, 5, 5)), ("bias", (50,))]
    return convs + _dense_shapes(800, 500, 10)


def _lenet(parameters: Sequence[Array], x: Array) -> tuple[Array, list[Array]]:
    """Caffe's LeNet."""
    take = iter(parameters)
    for _ in range(2):
        x = _pool(_conv(take, x) + next(take))
    flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # the rows of the kernel are in the order (C, H, W)
    return _dense(take, jax.nn.relu(_dense(take, flat))), []


def _resnet20() -> tuple[Shapes, Apply]:
    """ResNet-20 with projection shortcuts."""
    shapes: Shapes = []

    def declare(filters: int, channels: int, size: int) -> None:
        shapes.extend([("kernel", (filters, channels, size, size)), ("gamma", (filters,)), ("beta", (filters,))])

    declare(16, 3, 3)
    channels = 16
    for filters, _ in STAGES:
        declare(filters, channels, 3)
        declare(filters, filters, 3)
        if filters != channels:
            declare(filters, channels, 1)
        channels = filters
    return shapes + _dense_shapes(64, 10), _apply_resnet20


def _apply_resnet20(parameters: Sequence[Array], x: Array) -> tuple[Array, list[Array]]:
    take, statistics = iter(parameters), []

    def normed(x: Array, stride: int = 1, pad: int = 1) -> Array:
        y = _conv(take, x, stride, pad)
        mean, variance = y.mean((0, 1, 2)), y.var((0, 1, 2))
        statistics.extend([mean, variance])
        scale = next(take) * lax.rsqrt(variance + 1e-5)
        return y * scale + (next(take) - mean * scale)

    x = jax.nn.relu(normed(x))
    for filters, stride in STAGES:
        body = normed(jax.nn.relu(normed(x, stride)))
        x = jax.nn.relu(body + (x if filters == x.shape[3] else normed(x, stride, 0)))
    return _dense(take, x.mean((1, 2))), statistics


def laid_out(values: Any) -> Any:
    """Convert a parameter from netspec's shape: kernels of convolutions are (H, W, I, O) here."""
    return values.transpose(2, 3, 1, 0) if values.ndim == 4 else values


def netspec_shaped(values: Any) -> Any:
    """Convert a parameter to netspec's shape."""
    return values.transpose(3, 2, 0, 1) if values.ndim == 4 else values
