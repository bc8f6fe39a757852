"""Layers that move, join, cut and count elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.functions import Chain, power, run
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes


@writes("Flatten")
def flatten(w: Writer, link: Layer) -> None:
    """(N, …) → (N, all); left out where nothing but Dense layers reads it, since InnerProduct flattens."""
    if len(w.shape(link.sources[0])) < 2:
        reshaped(w, link, w.bottoms(link)[0])
        return
    if set(w.readers.get(link.name, ())) == {"Dense"}:
        w.blobs[link.name] = w.bottoms(link)[0]
        return
    w.layer(link.name, "Flatten", w.bottoms(link), [link.name])


@writes("Reshape", "ExpandDims", "Squeeze")
def reshape(w: Writer, link: Layer) -> None:
    """To the sizes of the result; the batch stays."""
    reshaped(w, link, w.bottoms(link)[0])


def reshaped(w: Writer, link: Layer, bottom: str) -> None:
    """The layer's value out of a blob with as many numbers."""
    resized(w, link.name, bottom, link.name, w.shape(link.name))


def resized(w: Writer, name: str, bottom: str, top: str, shape: Sequence[int]) -> None:
    """A blob as one of another shape with as many numbers; the batch stays."""
    sizes = Message("BlobShape", dim=[0, *shape[1:]])
    w.layer(name, "Reshape", [bottom], [top], params={"reshape_param": {"shape": sizes}})


@writes("RepeatVector")
def repeat(w: Writer, link: Layer) -> None:
    """(N, F) → (N, 1, F) → (N, n, F)"""
    features = w.shape(link.name)[-1]
    one = f"{link.name}_once"
    resized(w, one, w.bottoms(link)[0], one, (1, 1, features))
    w.layer(link.name, "Tile", [one], [link.name], params={"tile_param": {"axis": 1, "tiles": link.fields.n}})


@writes("Tile")
def tile(w: Writer, link: Layer) -> None:
    """Copies along an axis."""
    param = {"axis": link.fields.axis % len(w.shape(link.name)), "tiles": link.fields.tiles}
    w.layer(link.name, "Tile", w.bottoms(link), [link.name], params={"tile_param": param})


@writes("Concatenate", steps=True)
def concatenate(w: Writer, link: Layer) -> None:
    """Behind one another."""
    param = {"axis": w.axis(link, link.fields.axis)}
    w.layer(link.name, "Concat", w.bottoms(link), [link.name], params={"concat_param": param})


@writes("Split", steps=True)
def split(w: Writer, link: Layer) -> None:
    """Caffe's Slice: the places where parts begin."""
    axis = w.axis(link, link.fields.axis)
    sizes = [w.shape(name)[axis] for name in link.outputs]
    w.blobs |= {link.name: link.outputs[0]}
    cut(w, link.name, w.bottoms(link)[0], axis, sizes, list(link.outputs))
    read = {w.blob(name) for name in w.readers}
    silenced(w, f"{link.name}_rest", [name for name in link.outputs if name not in read])


def cut(w: Writer, name: str, bottom: str, axis: int, sizes: Sequence[int], tops: Sequence[str]) -> None:
    """Parts of these sizes along an axis."""
    if len(sizes) == 1:
        w.layer(name, "Split", [bottom], tops)
        return
    param = {"axis": axis, "slice_point": list(accumulate(sizes))[:-1]}
    w.layer(name, "Slice", [bottom], tops, params={"slice_param": param})


def part(w: Writer, name: str, bottom: str, top: str, axis: int, size: int, start: int, stop: int) -> None:
    """What lies between two places along an axis; the rest goes into a layer Silence."""
    pieces = [(start, f"{name}_before"), (stop - start, top), (size - stop, f"{name}_after")]
    kept = [(length, blob) for length, blob in pieces if length]
    cut(w, name, bottom, axis, [length for length, _ in kept], [blob for _, blob in kept])
    silenced(w, f"{name}_rest", [blob for _, blob in kept if blob != top])


def silenced(w: Writer, name: str, blobs: Sequence[str]) -> None:
    """Blobs that nothing reads, which would be outputs of the net."""
    if blobs:
        w.layer(name, "Silence", blobs, [])


@writes("Slice", steps=True)
def slice_(w: Writer, link: Layer) -> None:
    """A part along an axis."""
    one, shape = link.fields, w.shape(link.sources[0])
    if one.step != 1:
        raise NoForm("Caffe cuts without leaving elements out")
    axis = w.axis(link, one.axis)
    start = one.start + (shape[axis] if one.start < 0 else 0)
    part(w, link.name, w.bottoms(link)[0], link.name, axis, shape[axis], start, start + w.shape(link.name)[axis])


@writes("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(w: Writer, link: Layer) -> None:
    """One axis after the other."""
    trimmed(w, link.name, link.name, w.bottoms(link)[0], w.shape(link.sources[0]), link.fields.cropping)


@writes("CenterCrop")
def center(w: Writer, link: Layer) -> None:
    """The middle of an image."""
    shape, kept = w.shape(link.sources[0]), w.shape(link.name)
    sides = [
        ((size - some) // 2, size - some - (size - some) // 2) for size, some in zip(shape[2:], kept[2:], strict=True)
    ]
    trimmed(w, link.name, link.name, w.bottoms(link)[0], shape, sides)


def trimmed(
    w: Writer, value: str, name: str, bottom: str, shape: Sequence[int], sides: Sequence[tuple[int, int]]
) -> None:  # fmt: skip
    """A value out of a blob: rows cut off at both sides of each spatial axis, by layers that are called `name`."""
    axes = [(axis, one) for axis, one in enumerate(sides, 2) if any(one)]
    if not axes:
        w.layer(name, "Split", [bottom], [value])
    for number, (axis, (before, after)) in enumerate(axes):
        top = value if number == len(axes) - 1 else f"{name}_{number}"
        part(w, name if top == value else top, bottom, top, axis, shape[axis], before, shape[axis] - after)
        bottom = top


@writes("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def padding(w: Writer, link: Layer) -> None:
    """A convolution of each channel by a single one, which pads both sides alike; what is too much is cut off."""
    shape, sides = w.shape(link.sources[0]), link.fields.padding
    pads, channels = [max(one) for one in sides], shape[1]
    more = [(pad - before, pad - after) for pad, (before, after) in zip(pads, sides, strict=True)]
    top = link.name if not any(map(any, more)) else f"{link.name}_padded"
    param: dict[str, Any] = {"num_output": channels, "group": channels, "bias_term": False, "kernel_size": [1]}
    if len(set(pads)) == 1:
        param["pad"] = pads[:1]
    elif len(pads) == 2:
        param |= {"pad_h": pads[0], "pad_w": pads[1]}
    else:
        param["pad"] = pads
    ones = Blob(np.ones((channels, 1, *(1 for _ in pads)), np.float32))
    w.layer(top, "Convolution", w.bottoms(link), [top], ones, params={"convolution_param": param})
    if top != link.name:
        padded = (*shape[:2], *(size + 2 * pad for size, pad in zip(shape[2:], pads, strict=True)))
        trimmed(w, link.name, link.name, top, padded, more)


@writes("Crop")
def crop(w: Writer, link: Layer) -> None:
    """As large as a second input."""
    param = {"axis": link.fields.axis % len(w.shape(link.name)), "offset": list(link.fields.offset)}
    w.layer(link.name, "Crop", w.bottoms(link), [link.name], params={"crop_param": param})


@writes("BatchReindex")
def batch_reindex(w: Writer, link: Layer) -> None:
    """Samples by their numbers."""
    w.layer(link.name, "BatchReindex", w.bottoms(link), [link.name])


_REDUCTIONS: dict[str, tuple[str, Chain]] = {
    "sum": ("SUM", []), "asum": ("ASUM", []), "sumsq": ("SUMSQ", []), "mean": ("MEAN", []),
    "l2": ("SUMSQ", [power(1.0, power=0.5)]), "logsum": ("SUM", [("Log", {})]),
}  # fmt: skip
"""Caffe's operation, and what comes behind it."""


@writes("Reduction")
def reduction(w: Writer, link: Layer) -> None:
    """Caffe reduces all axes from one on; the greatest and the least are what its Pooling finds of them."""
    one, shape = link.fields, w.shape(link.sources[0])
    rank = len(shape)
    axes = sorted(range(1, rank) if one.axes is None else (axis % rank for axis in one.axes))
    if one.operation not in (*_REDUCTIONS, "max", "min"):
        raise NoForm(f"Caffe's Reduction has no `{one.operation}`")
    if axes != list(range(axes[0], rank)):
        raise NoForm("Caffe's Reduction is over all axes from one on")
    if one.operation in ("max", "min"):
        _extreme(
            w, link, (1, prod(shape[1 : axes[0]]), prod(shape[axes[0] :]), 1), -1.0 if one.operation == "min" else 1.0
        )
        return
    operation, behind = _REDUCTIONS[one.operation]
    same = w.shape(link.name) == shape[: axes[0]]
    last = link.name if same else f"{link.name}_reduced"
    top = f"{link.name}_sum" if behind else last
    param = {"operation": operation, "axis": axes[0]}
    w.layer(top, "Reduction", w.bottoms(link), [top], params={"reduction_param": param})
    run(w, last, last, top, behind)
    if not same:
        reshaped(w, link, last)


def _extreme(w: Writer, link: Layer, rows: Sequence[int], sign: float) -> None:
    """The greatest number of each row (1, rows, numbers, 1); with a sign of -1 the least."""
    view, pooled, chain = f"{link.name}_rows", f"{link.name}_pooled", [power(sign)] if sign < 0 else []
    resized(w, view, w.bottoms(link)[0], view, rows)
    run(w, f"{view}_negated", f"{view}_negated", view, chain)
    param = {"pooling_param": {"pool": "MAX", "global_pooling": True}}
    w.layer(pooled, "Pooling", [f"{view}_negated" if chain else view], [pooled], params=param)
    run(w, f"{pooled}_again", f"{pooled}_again", pooled, chain)
    reshaped(w, link, f"{pooled}_again" if chain else pooled)


@writes("GlobalAveragePooling1D", "GlobalAveragePooling3D")
def mean_of_sequence(w: Writer, link: Layer) -> None:
    """The mean along all axes behind the channels."""
    same = not link.fields.keepdims
    top = link.name if same else f"{link.name}_reduced"
    w.layer(top, "Reduction", w.bottoms(link), [top], params={"reduction_param": {"operation": "MEAN", "axis": 2}})
    if not same:
        reshaped(w, link, top)


@writes("ArgMax", "ArgMin")
def argmax(w: Writer, link: Layer) -> None:
    """The places along an axis, as floats in Caffe; the axis stays there. Of the least those of the negated."""
    one, shape = link.fields, w.shape(link.sources[0])
    if getattr(one, "out_max_val", False):
        raise NoForm("Caffe's ArgMax gives the places or the numbers, not both")
    if one.select_last_index:
        raise NoForm("of equal numbers Caffe's ArgMax finds the first")
    axis = one.axis % len(shape)
    if len(w.shape(link.name)) < 2:
        raise NoForm("Caffe's ArgMax keeps its axis, without which nothing but the batch would be left")
    most = getattr(one, "top_k", 1)
    kept = one.keepdims or most > 1
    top, (bottom,) = link.name if kept else f"{link.name}_kept", w.bottoms(link)
    if one.type == "ArgMin":
        run(w, f"{link.name}_negated", f"{link.name}_negated", bottom, [power(-1.0)])
        bottom = f"{link.name}_negated"
    w.layer(top, "ArgMax", [bottom], [top], params={"argmax_param": {"axis": axis, "top_k": most}})
    if not kept:
        reshaped(w, link, top)
