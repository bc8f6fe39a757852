"""Pooling loops for three spatial axes, channels-last.

The innermost loop runs over the channels, and is vectorized.
"""

from __future__ import annotations

from typing import Any

Pixels = Any
"""A pointer to the first element of image `n`."""


def max_pool(
    first: int, last: int, x: Pixels, y: Pixels, index: Pixels, keep: int, lanes: int, number: Any,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Rows of output; `index` gets the indices of the maxima if `keep`. Ties go to the first index.

    For a window that reaches into the padding, its outermost elements inside the input are read again instead. Indices
    are floats like the elements, so that the same vector instructions select both.
    """
    blocks = (channels + lanes - 1) // lanes
    for row in range(first, last):
        i, planes = row % out_h, row // out_h
        o, n = planes % out_d, planes // out_d
        front, top = o * stride_d - pad_d, i * stride_h - pad_h
        e0, e1 = max(0, -front + dilation_d - 1) // dilation_d, min(kernel_d - 1, (depth - 1 - front) // dilation_d)
        k0, k1 = max(0, -top + dilation_h - 1) // dilation_h, min(kernel_h - 1, (height - 1 - top) // dilation_h)
        for j in range(out_w):
            left = j * stride_w - pad_w
            l0, l1 = max(0, -left + dilation_w - 1) // dilation_w, min(kernel_w - 1, (width - 1 - left) // dilation_w)
            a = (((n * depth + front) * height + top) * width + left) * channels
            b = (row * out_w + j) * channels
            if e1 - e0 + k1 - k0 + l1 - l0 == kernel_d + kernel_h + kernel_w - 3:
                for block in range(blocks):
                    start = min(block * lanes, channels - lanes)  # the last block overlaps: no loop for the rest
                    for lane in range(lanes):
                        c = start + lane
                        best, window_index = x[a + c], number(0)
                        for e in range(kernel_d):
                            for k in range(kernel_h):
                                for l in range(kernel_w):
                                    step = (e * dilation_d * height + k * dilation_h) * width + l * dilation_w
                                    v, current = x[a + step * channels + c], number((e * kernel_h + k) * kernel_w + l)
                                    window_index = current if v > best else window_index
                                    best = v if v > best or v != v else best  # noqa: PLR0124  a NaN wins
                        y[b + c] = best
                        if keep:
                            index[b + c] = window_index
                continue
            lowest = a + ((e0 * dilation_d * height + k0 * dilation_h) * width + l0 * dilation_w) * channels
            for block in range(blocks):
                start = min(block * lanes, channels - lanes)
                for lane in range(lanes):
                    c = start + lane
                    best, window_index = x[lowest + c], number((e0 * kernel_h + k0) * kernel_w + l0)
                    for e in range(kernel_d):
                        for k in range(kernel_h):
                            for l in range(kernel_w):
                                ee, kk, ll = min(max(e, e0), e1), min(max(k, k0), k1), min(max(l, l0), l1)
                                step = (ee * dilation_d * height + kk * dilation_h) * width + ll * dilation_w
                                v = x[a + step * channels + c]
                                window_index = (
                                    number((ee * kernel_h + kk) * kernel_w + ll) if v > best else window_index
                                )
                                best = v if v > best or v != v else best  # noqa: PLR0124  a NaN wins
                    y[b + c] = best
                    if keep:
                        index[b + c] = window_index


def max_pool_large(
    first: int, last: int, x: Pixels, y: Pixels, index: Pixels, keep: int, lowest: float,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Like `max_pool`, for windows too large for registers; the result accumulates in memory."""
    for row in range(first, last):
        i, planes = row % out_h, row // out_h
        o, n = planes % out_d, planes // out_d
        for j in range(out_w):
            b = (row * out_w + j) * channels
            for c in range(channels):
                y[b + c] = lowest
                if keep:
                    index[b + c] = 0
            for e in range(kernel_d):
                for k in range(kernel_h):
                    for l in range(kernel_w):
                        d, h = o * stride_d - pad_d + e * dilation_d, i * stride_h - pad_h + k * dilation_h
                        w = j * stride_w - pad_w + l * dilation_w
                        if d < 0 or h < 0 or w < 0 or d >= depth or h >= height or w >= width:
                            continue
                        window_index = (e * kernel_h + k) * kernel_w + l
                        a = (((n * depth + d) * height + h) * width + w) * channels
                        for c in range(channels):
                            v, best = x[a + c], y[b + c]
                            if keep:
                                index[b + c] = window_index if v > best else index[b + c]
                            y[b + c] = v if v > best or v != v else best  # noqa: PLR0124  NaN alone is not itself


def max_pool_grad(
    first: int, last: int, dy: Pixels, index: Pixels, dx: Pixels, zero: float,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Whole images."""
    size = depth * height * width * channels
    for n in range(first, last):
        for at in range(n * size, (n + 1) * size):
            dx[at] = zero
        for row in range(n * out_d * out_h, (n + 1) * out_d * out_h):
            i, o = row % out_h, row // out_h % out_d
            for j in range(out_w):
                b = (row * out_w + j) * channels
                for e in range(kernel_d):
                    for k in range(kernel_h):
                        for l in range(kernel_w):
                            d, h = o * stride_d - pad_d + e * dilation_d, i * stride_h - pad_h + k * dilation_h
                            w = j * stride_w - pad_w + l * dilation_w
                            if d < 0 or h < 0 or w < 0 or d >= depth or h >= height or w >= width:
                                continue
                            a = n * size + ((d * height + h) * width + w) * channels
                            window_index = (e * kernel_h + k) * kernel_w + l
                            for c in range(channels):
                                dx[a + c] += dy[b + c] if index[b + c] == window_index else zero


def max_pool_grad_apart(
    first: int, last: int, dy: Pixels, index: Pixels, dx: Pixels, zero: float, lanes: int, number: Any,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Rows of output, if each input position is in exactly one window, so that nothing is summed."""
    blocks = (channels + lanes - 1) // lanes
    for row in range(first, last):
        i, planes = row % out_h, row // out_h
        # `planes` counts the output planes of all images; the windows of an image cover its depth.
        corner = (planes * kernel_d * height + i * kernel_h) * width
        for j in range(out_w):
            a, b = (corner + j * kernel_w) * channels, (row * out_w + j) * channels
            for block in range(blocks):
                start = min(block * lanes, channels - lanes)
                for lane in range(lanes):
                    c = start + lane
                    flow, window_index = dy[b + c], number(index[b + c])
                    for e in range(kernel_d):
                        for k in range(kernel_h):
                            for l in range(kernel_w):
                                to = a + ((e * height + k) * width + l) * channels + c
                                dx[to] = flow if window_index == number((e * kernel_h + k) * kernel_w + l) else zero


def max_pool_gather(
    first: int, last: int, x: Pixels, index: Pixels, y: Pixels, zero: float,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Rows of output."""
    for row in range(first, last):
        i, planes = row % out_h, row // out_h
        o, n = planes % out_d, planes // out_d
        for j in range(out_w):
            b = (row * out_w + j) * channels
            for c in range(channels):
                window_index = index[b + c]
                d = o * stride_d - pad_d + window_index // (kernel_h * kernel_w) * dilation_d
                h = i * stride_h - pad_h + window_index // kernel_w % kernel_h * dilation_h
                w = j * stride_w - pad_w + window_index % kernel_w * dilation_w
                inside = d >= 0 and h >= 0 and w >= 0 and d < depth and h < height and w < width
                y[b + c] = x[(((n * depth + d) * height + h) * width + w) * channels + c] if inside else zero


def average_pool(  # noqa: PLR0912  all windows, and those that registers hold
    first: int, last: int, x: Pixels, y: Pixels, zero: float, one: float, unrolled: int, lanes: int,
    before_d: int, before_h: int, before_w: int, after_d: int, after_h: int, after_w: int,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Rows of output. The given amounts of padding count as zeros."""
    blocks = (channels + lanes - 1) // lanes
    for row in range(first, last):
        i, planes = row % out_h, row // out_h
        o, n = planes % out_d, planes // out_d
        front, top = o * stride_d - pad_d, i * stride_h - pad_h
        back, bottom = front + (kernel_d - 1) * dilation_d, top + (kernel_h - 1) * dilation_h
        for j in range(out_w):
            left = j * stride_w - pad_w
            right = left + (kernel_w - 1) * dilation_w
            a = (((n * depth + front) * height + top) * width + left) * channels
            b = (row * out_w + j) * channels
            begins, ends = front >= 0 and top >= 0 and left >= 0, back < depth and bottom < height and right < width
            if unrolled and begins and ends:
                count = zero
                for _ in range(kernel_d * kernel_h * kernel_w):
                    count += one
                for block in range(blocks):
                    start = min(block * lanes, channels - lanes)
                    for lane in range(lanes):
                        c, total = start + lane, zero
                        for e in range(kernel_d):
                            for k in range(kernel_h):
                                for l in range(kernel_w):
                                    step = (e * dilation_d * height + k * dilation_h) * width + l * dilation_w
                                    total += x[a + step * channels + c]
                        y[b + c] = total / count
                continue
            count = zero
            for c in range(channels):
                y[b + c] = zero
            for e in range(kernel_d):
                for k in range(kernel_h):
                    for l in range(kernel_w):
                        d, h, w = front + e * dilation_d, top + k * dilation_h, left + l * dilation_w
                        if d >= -before_d and h >= -before_h and w >= -before_w:
                            count += (
                                one if d < depth + after_d and h < height + after_h and w < width + after_w else zero
                            )
                        if d < 0 or h < 0 or w < 0 or d >= depth or h >= height or w >= width:
                            continue
                        to = (((n * depth + d) * height + h) * width + w) * channels
                        for c in range(channels):
                            y[b + c] += x[to + c]
            for c in range(channels):
                y[b + c] /= count


def average_pool_grad(
    first: int, last: int, dy: Pixels, dx: Pixels, zero: float, one: float,
    before_d: int, before_h: int, before_w: int, after_d: int, after_h: int, after_w: int,
    kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int,
    dilation_d: int, dilation_h: int, dilation_w: int, pad_d: int, pad_h: int, pad_w: int,
    channels: int, depth: int, height: int, width: int, out_d: int, out_h: int, out_w: int,
) -> None:  # fmt: skip
    """Whole images."""
    size = depth * height * width * channels
    for n in range(first, last):
        for at in range(n * size, (n + 1) * size):
            dx[at] = zero
        for row in range(n * out_d * out_h, (n + 1) * out_d * out_h):
            i, o = row % out_h, row // out_h % out_d
            front, top, slices, rows = o * stride_d - pad_d, i * stride_h - pad_h, zero, zero
            for e in range(kernel_d):
                slices += one if -before_d <= front + e * dilation_d < depth + after_d else zero
            for k in range(kernel_h):
                rows += one if -before_h <= top + k * dilation_h < height + after_h else zero
            for j in range(out_w):
                b, left, columns = (row * out_w + j) * channels, j * stride_w - pad_w, zero
                for l in range(kernel_w):
                    columns += one if -before_w <= left + l * dilation_w < width + after_w else zero
                count = slices * rows * columns
                for e in range(kernel_d):
                    for k in range(kernel_h):
                        for l in range(kernel_w):
                            d, h, w = front + e * dilation_d, top + k * dilation_h, left + l * dilation_w
                            if d < 0 or h < 0 or w < 0 or d >= depth or h >= height or w >= width:
                                continue
                            a = n * size + ((d * height + h) * width + w) * channels
                            for c in range(channels):
                                dx[a + c] += dy[b + c] / count
