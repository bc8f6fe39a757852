"""Generated code of Winograd convolutions: loops over tiles around the functions of `transforms`.

A worker is a thread's share of the units of work, with separate scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.common.loops import broadcast_strides
from netspec.backends.numba import native
from netspec.backends.numba.native import Pointer, Size
from netspec.backends.numba.winograd.matrices import MinimalFilter
from netspec.graph.types import DType

MODULES = tuple(f"netspec.backends.numba.{name}" for name in ("winograd.transforms", "winograd.matrices", "tiles"))
"""Modules that the generated code calls."""
TRANSFORM = """
from netspec.backends.numba.winograd.transforms import transform

tile = transform({outputs}, {taps}, {operand!r})


def body(
    first, last, x, v, edge, zero, begin, count, workers, down, across, top, left, height, width, channels,
    xn, xh, xw, step,
):
    for worker in range(first, last):
        own = worker * {side} * {side} * channels
        for unit in range(count * worker // workers, count * (worker + 1) // workers):
            index = begin + unit
            h, w = index // across % down * {outputs} - top, index % across * {outputs} - left
            at = index // across // down * xn + h * xh + w * xw
            if h >= 0 and w >= 0 and h + {side} <= height and w + {side} <= width:
                for c in range(0, channels, 16):
                    tile(x, at + c, xh, xw, 1, v, unit * channels + c, {size} * step, step, 1)
                continue
            for i in range({side}):
                for j in range({side}):
                    to, source = own + (i * {side} + j) * channels, at + i * xh + j * xw
                    if 0 <= h + i < height and 0 <= w + j < width:
                        for c in range(channels):
                            edge[to + c] = x[source + c]
                    else:
                        for c in range(channels):
                            edge[to + c] = zero[0]
            for c in range(0, channels, 16):
                tile(
                    edge, own + c, {side} * channels, channels, 1,
                    v, unit * channels + c, {size} * step, step, 1,
                )
"""
"""Transform tiles from `begin` on of images (batch, height, width, channels), zero-padded, to (points, tiles,
channels).
"""

PRODUCT = """
from netspec.backends.numba.winograd.transforms import expect, multiply, read, transform, write

tile, back = multiply({rows}, {vectors}), transform({outputs}, {taps}, 'result')


def body(
    first, last, v, u, z, made, y, {extras}begin, count, workers, parts, part, groups, down, across, height, width,
    channels, side_by_side, v_step, u_step, z_step, yn, yh, yw, {steps}
):
    for worker in range(first, last):
        own, room = worker * {points} * z_step, worker * {outputs} * {outputs} * {wide}
        for unit in range(groups * parts * worker // workers, groups * parts * (worker + 1) // workers):
            group, start = unit // parts, unit % parts * part
            stop = min(start + part, count)
            for k in range({points}):
                for t in range(start, stop, {rows}):
                    tile(
                        v, k * v_step + t * channels, channels, 1,
                        u, k * u_step + group * channels * {wide}, {wide},
                        z, own + k * z_step + (t - start) * {wide}, {wide}, channels, 0,
                    )
            for t in range(start, stop):
                for c in range(0, {wide}, 16):
                    back(
                        z, own + (t - start) * {wide} + c, {size} * z_step, z_step, 1,
                        made, room + c, {outputs} * {wide}, {wide}, 1,
                    )
                index, m = begin + t, group * {wide}
                h, w, n = index // across % down * {outputs}, index % across * {outputs}, index // across // down
                for i in range(min({outputs}, height - h)):
                    for j in range(min({outputs}, width - w)):
                        source = room + (i * {outputs} + j) * {wide}
                        to = n * yn + (h + i) * yh + (w + j) * yw + m
                        for c in range(0, {wide}, 16):
                            expect(y, to + {outputs} * yw + c)
{offsets}
                        for c in range(side_by_side):
                            a0 = read(made, source + c)
{lines}
                            write(y, to + c, {name})
"""
"""Multiply transformed tiles with a transformed kernel, transform back, and apply the epilogue."""

KERNEL = """
from netspec.backends.numba.winograd.transforms import transform

tile = transform({outputs}, {taps}, 'kernel', gathered=True)


def body(first, last, w, u, start, channels, wc, wm, wi, wj, step):
    for unit in range(first, last):
        m = unit * 16
        at, to = start + m * wm, m // {wide} * channels * {wide} + m % {wide}
        for c in range(channels):
            tile(w, at + c * wc, wi, wj, wm, u, to + c * {wide}, {size} * step, step, 1)
"""
"""Transform a kernel to (points, groups of filters, channels, filters of a group)."""

WEIGHTS = """
from netspec.backends.numba.winograd.transforms import multiply

tile = multiply({rows}, {vectors})


def body(first, last, v, w, z, count, blocks, groups, channels, filters, v_step, w_step, z_step, more):
    for unit in range(first, last):
        c, rest = unit % blocks * {rows}, unit // blocks
        group, k = rest % groups, rest // groups
        for t in range(0, count, {few}):
            tile(
                v, k * v_step + t * channels + c, 1, channels, w, k * w_step + t * filters + group * {wide}, filters,
                z, k * z_step + (group * channels + c) * {wide}, {wide}, min({few}, count - t), more + t,
            )
"""
"""Products of transformed inputs and gradients, summed over tiles, in the layout of a transformed kernel.

They are added to the previous sums if `more`. Sums of few tiles are added up to limit rounding errors.
"""

INVERSE_KERNEL = """
from netspec.backends.numba.winograd.transforms import transform

tile = transform({outputs}, {taps}, 'kernel_gradient', scattered=True)


def body(first, last, z, w, channels, wc, wm, wi, wj, step):
    for unit in range(first, last):
        m = unit * 16
        at = m // {wide} * channels * {wide} + m % {wide}
        for c in range(channels):
            tile(z, at + c * {wide}, {size} * step, step, 1, w, m * wm + c * wc, wi, wj, wm)
"""
"""Transform the gradient of a transformed kernel back."""


def code(source: str, pointers: int, sizes: int, filtering: MinimalFilter, **numbers: Any) -> native.CompiledKernel:
    """Compile a body with these numbers of array and integer arguments."""
    text = source.format(
        outputs=filtering.outputs, taps=filtering.taps, size=filtering.size, points=filtering.points, **numbers
    )
    arguments = (*(Pointer(DType.FLOAT32),) * pointers, *(Size(),) * sizes)
    return native.of_source(text, arguments, modules=MODULES)


def epilogue_placeholders(
    lines: Sequence[str], name: str, extras: Sequence[Any], y: Any
) -> tuple[dict[str, str], list[int]]:
    """Placeholders of `PRODUCT` for the epilogue, and the strides of the arrays that it reads.

    `lines` compute `name` from the result `a0` and from `a1`, …, elements of `extras`, which broadcast to `y`.
    """
    steps, offsets, loads = [], [], []
    for k, extra in enumerate(extras, 1):
        n, m, h, w = broadcast_strides(extra, y.shape)
        assert m in (0, 1), "channels lie side by side"
        steps += [n, h, w]
        offsets.append(f"p{k} = n * e{k}n + (h + i) * e{k}h + (w + j) * e{k}w{' + m' if m else ''}")
        loads.append(f"a{k} = read(e{k}, p{k}{' + c' if m else ''})")
    numbers = range(1, len(extras) + 1)
    text = {
        "extras": "".join(f"e{k}, " for k in numbers),
        "steps": ", ".join(f"e{k}{axis}" for k in numbers for axis in "nhw"),
        "offsets": "\n".join(" " * 24 + line for line in offsets),
        "lines": "\n".join(" " * 28 + line for line in (*loads, *lines)),
        "name": name,
    }
    return text, steps
