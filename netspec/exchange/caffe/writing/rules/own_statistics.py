"""Normalizations of each sample by its own mean and deviation.

Caffe's MVN adds epsilon beside the root, so that it only takes the mean off here. The deviation comes of a Reduction in
a view (N, rows, numbers, 1), or where the numbers are channels of a convolution that adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from netspec.exchange.caffe.writing.functions import power, run
from netspec.exchange.caffe.writing.rules.normalization import factors_of
from netspec.exchange.caffe.writing.rules.shapes import resized
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes
from netspec.layers.normalization import LEAST_SQUARE


@writes("LayerNormalization", "RMSNormalization", "UnitNormalization")
def along_axes(w: Writer, link: Layer) -> None:
    """Over the last axes, or over the channels alone."""
    one, shape = link.fields, w.shape(link.name)
    axes = [axis % len(shape) for axis in one.axis]
    centered, unit = one.type == "LayerNormalization", one.type == "UnitNormalization"
    epsilon, mean = (0.0, False) if unit else (one.epsilon, True)
    learned = [] if unit else [*["gamma" if centered else "scale"] * getattr(one, "scale", True)]
    learned += ["beta"] * (centered and one.center)
    top = f"{link.name}_normalized" if learned else link.name
    if axes == list(range(axes[0], len(shape))):
        _rows(w, top, w.bottoms(link)[0], shape, prod(shape[1 : axes[0]]), epsilon, centered=centered, mean=mean)
    elif axes == [1]:
        _channels(w, top, w.bottoms(link)[0], shape, epsilon, centered=centered, mean=mean)
    else:
        raise NoForm("Caffe turns no axes: it is over the last ones, or over the channels alone")
    _learned(w, link, top, learned, axes)


@writes("GroupNormalization", "InstanceNormalization")
def groups(w: Writer, link: Layer) -> None:
    """Groups of channels, with all their places."""
    one, shape = link.fields, w.shape(link.name)
    axis = one.axis % len(shape)
    if axis != 1:
        raise NoForm("Caffe turns no axes: its channels are axis 1")
    learned = [*["gamma"] * one.scale, *["beta"] * one.center]
    top = f"{link.name}_normalized" if learned else link.name
    _rows(w, top, w.bottoms(link)[0], shape, one.count(shape[axis]), one.epsilon, centered=True, mean=True)
    _learned(w, link, top, learned, [axis])


def _learned(w: Writer, link: Layer, bottom: str, names: Sequence[str], axes: Sequence[int]) -> None:
    """Factors and terms along axes that follow one another."""
    if not names:
        return
    one = link.fields
    blobs = [w.array(link, name, first=getattr(one, f"{name}_initializer")) for name in names]
    shift = "beta" in names
    factors_of(w, link, [bottom], blobs, scale=len(names) > shift, shift=shift, axis=axes[0], num_axes=len(axes))


def _rows(
    w: Writer, top: str, bottom: str, shape: Sequence[int], rows: int, epsilon: float, *, centered: bool, mean: bool
) -> None:  # fmt: skip
    """Each of so many rows of a sample by itself."""
    view, wide = f"{top}_rows", (1, rows, prod(shape[1:]) // rows, 1)
    resized(w, view, bottom, view, wide)
    if centered:
        w.layer(
            f"{top}_centered", "MVN", [view], [f"{top}_centered"], params={"mvn_param": {"normalize_variance": False}}
        )
        view = f"{top}_centered"
    squares, means, divided = f"{top}_squares", f"{top}_variance", f"{top}_divided"
    run(w, squares, squares, view, [power(1.0, power=2.0)])
    param = {"operation": "MEAN" if mean else "SUM", "axis": 2}
    w.layer(means, "Reduction", [squares], [means], params={"reduction_param": param})
    inverse = _inverse(w, top, means, epsilon)
    w.layer(divided, "Scale", [view, inverse], [divided], params={"scale_param": {"axis": 0}})
    resized(w, top, divided, top, shape)


def _channels(
    w: Writer, top: str, bottom: str, shape: Sequence[int], epsilon: float, *, centered: bool, mean: bool
) -> None:  # fmt: skip
    """The channels of each place by themselves: a convolution adds them up, and Tile gives the sum to each of them."""
    view, channels, places = f"{top}_places", shape[1], prod(shape[2:])
    resized(w, view, bottom, view, (1, channels, places, 1))

    def averaged(name: str, given: str) -> str:
        factors = Blob(np.full((1, channels, 1, 1), 1 / channels if mean else 1.0, np.float32))
        param = {"num_output": 1, "kernel_size": [1], "bias_term": False}
        w.layer(name, "Convolution", [given], [name], factors, params={"convolution_param": param})
        return name

    def for_each(name: str, given: str) -> str:
        w.layer(name, "Tile", [given], [name], params={"tile_param": {"axis": 1, "tiles": channels}})
        return name

    def joined(name: str, operation: str, *given: str, by: Sequence[float] | None = None) -> str:
        w.layer(name, "Eltwise", given, [name], params={"eltwise_param": {"operation": operation, "coeff": by}})
        return name

    if centered:
        means = for_each(f"{top}_means", averaged(f"{top}_mean", view))
        view = joined(f"{top}_centered", "SUM", view, means, by=(1.0, -1.0))
    run(w, f"{top}_squares", f"{top}_squares", view, [power(1.0, power=2.0)])
    inverse = _inverse(w, top, averaged(f"{top}_variance", f"{top}_squares"), epsilon)
    divided = joined(f"{top}_divided", "PROD", view, for_each(f"{top}_factors", inverse))
    resized(w, top, divided, top, shape)


def _inverse(w: Writer, top: str, squares: str, epsilon: float) -> str:
    """1 / √(x + epsilon); without one of x, or of the least square where x is less."""
    name = f"{top}_inverse"
    if epsilon:
        run(w, name, name, squares, [power(1.0, epsilon, -0.5)])
    else:
        chain = [power(1.0, -LEAST_SQUARE), ("ReLU", {}), power(1.0, LEAST_SQUARE, -0.5)]
        run(w, name, name, squares, chain)
    return name
