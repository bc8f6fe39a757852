"""Sums per channel, piece by piece: means and variances, and the sums of the gradient of batch normalization.

Pieces do not depend on the number of threads, and are combined in order. The mean of a piece is computed first, then
its squared deviations, while the piece is still in the cache. T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating
formulae and a pairwise algorithm for computing sample variances", 1979.
"""

from __future__ import annotations

from typing import Any


def moments_of_planes(
    first: int, last: int, x: Any, means: Any, squares: Any, zero: float, rows: int, channels: int, inner: int,
    piece: int, part: float,
) -> None:  # fmt: skip
    """Mean and Σ (x - mean)² of each (row, channel), whose `inner` elements are contiguous."""
    for unit in range(first, last):
        total = zero
        for i in range(inner):
            total += x[unit * inner + i]
        mean, spread = total / part, zero
        for i in range(inner):
            centered = x[unit * inner + i] - mean
            spread += centered * centered
        means[unit] = mean
        squares[unit] = spread


def moments_of_rows(
    first: int, last: int, x: Any, means: Any, squares: Any, zero: float, rows: int, channels: int, inner: int,
    piece: int, part: float,
) -> None:  # fmt: skip
    """Means and Σ (x - mean)² of each part of rows, with contiguous channels."""
    for unit in range(first, last):
        start, stop, to = unit * piece, min((unit + 1) * piece, rows), unit * channels
        count = part if stop - start == piece else part * (stop - start) / piece
        for c in range(channels):
            means[to + c] = zero
            squares[to + c] = zero
        even = stop - (stop - start) % 4  # four rows at a time, to write sums to memory a quarter as often
        for r in range(start, even, 4):
            a = r * channels
            b = a + 2 * channels
            for c in range(channels):
                means[to + c] += (x[a + c] + x[a + channels + c]) + (x[b + c] + x[b + channels + c])
        for r in range(even, stop):
            for c in range(channels):
                means[to + c] += x[r * channels + c]
        for c in range(channels):
            means[to + c] /= count
        for r in range(start, even, 4):
            a = r * channels
            b = a + 2 * channels
            for c in range(channels):
                mean = means[to + c]
                c0, c1, c2, c3 = (
                    x[a + c] - mean,
                    x[a + channels + c] - mean,
                    x[b + c] - mean,
                    x[b + channels + c] - mean,
                )
                squares[to + c] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
        for r in range(even, stop):
            for c in range(channels):
                centered = x[r * channels + c] - means[to + c]
                squares[to + c] += centered * centered


def moments(
    first: int, last: int, means: Any, squares: Any, gamma: Any, mean: Any, variance: Any, scale: Any, sqrt: Any,
    number: Any, zero: float, epsilon: float, parts: int, channels: int, length: int, piece: int, fold: int,
) -> None:  # fmt: skip
    """Mean and variance of each channel from all parts, and gamma / √(variance + ε).

    `fold` parts belong to one piece; the last piece is shorter.
    """
    for c in range(first, last):
        mean[c] = zero
        variance[c] = zero
    total = zero
    for p in range(parts):
        count = number(min(piece, length - p // fold * piece))
        share, at = count / (total + count), p * channels
        weight = total * share
        for c in range(first, last):
            delta = means[at + c] - mean[c]
            mean[c] += delta * share
            variance[c] += squares[at + c] + delta * delta * weight
        total += count
    for c in range(first, last):
        spread = variance[c] / total
        variance[c] = spread
        scale[c] = gamma[c] / sqrt(spread + epsilon)


def flows_of_planes(
    first: int, last: int, x: Any, mean: Any, offsets: Any, slopes: Any, flow: Any, arrays: Any, zero: float,
    rows: int, channels: int, inner: int, piece: int,
) -> None:  # fmt: skip
    """Σ dy and Σ dy · (x - mean) of each (row, channel), where dy is `flow(arrays, position, channel)`."""
    for unit in range(first, last):
        offset, slope, c = zero, zero, unit % channels
        middle = mean[c]
        for i in range(unit * inner, (unit + 1) * inner):
            dy = flow(arrays, i, c)
            offset += dy
            slope += dy * (x[i] - middle)
        offsets[unit] = offset
        slopes[unit] = slope


def flows_of_rows(
    first: int, last: int, x: Any, mean: Any, offsets: Any, slopes: Any, flow: Any, arrays: Any, zero: float,
    rows: int, channels: int, inner: int, piece: int,
) -> None:  # fmt: skip
    """Σ dy and Σ dy · (x - mean) of each part of rows."""
    for unit in range(first, last):
        to = unit * channels
        for c in range(channels):
            offsets[to + c] = zero
            slopes[to + c] = zero
        start, stop = unit * piece, min((unit + 1) * piece, rows)
        even = stop - (stop - start) % 2
        for r in range(start, even, 2):
            a = r * channels
            b = a + channels
            for c in range(channels):
                dy, other, middle = flow(arrays, a + c, c), flow(arrays, b + c, c), mean[c]
                offsets[to + c] += dy + other
                slopes[to + c] += dy * (x[a + c] - middle) + other * (x[b + c] - middle)
        for r in range(even, stop):
            a = r * channels
            for c in range(channels):
                dy = flow(arrays, a + c, c)
                offsets[to + c] += dy
                slopes[to + c] += dy * (x[a + c] - mean[c])


def flows(
    first: int, last: int, offsets: Any, slopes: Any, gamma: Any, variance: Any, dgamma: Any, dbeta: Any, direct: Any,
    level: Any, tilt: Any, sqrt: Any, zero: float, one: float, epsilon: float, share: float, parts: int, channels: int,
) -> None:  # fmt: skip
    """dgamma, dbeta and the three factors of dx = direct · dy - level - tilt · (x - mean) of each channel."""
    for c in range(first, last):
        dgamma[c] = zero
        dbeta[c] = zero
    for p in range(parts):
        at = p * channels
        for c in range(first, last):
            dgamma[c] += slopes[at + c]
            dbeta[c] += offsets[at + c]
    for c in range(first, last):
        offset, slope, r = dbeta[c], dgamma[c], one / sqrt(variance[c] + epsilon)
        dgamma[c] = slope * r
        direct[c] = gamma[c] * r
        level[c] = gamma[c] * r * offset * share
        tilt[c] = gamma[c] * r * r * r * slope * share
