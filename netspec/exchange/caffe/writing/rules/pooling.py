"""Poolings: Caffe's are of images, pad both sides alike, and round the number of windows up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from netspec.exchange.caffe.writing.rules.shapes import reshaped, resized, trimmed
from netspec.exchange.caffe.writing.rules.windows import sizes_of
from netspec.exchange.caffe.writing.writer import Layer, NoForm, Writer, writes
from netspec.layers.window import Window

OF_IMAGES = {1: ((0,),), 2: ((0, 1),), 3: ((1, 2), (0,))}
"""Which spatial axes are pooled together, one after the other: maxima of volumes are those of planes, means too."""


@writes("MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "StochasticPooling2D")
def max_pooling(w: Writer, link: Layer) -> None:
    """Padding never wins: where windows begin and how many there are is all that counts."""
    _pool(w, link, "STOCHASTIC" if link.fields.type == "StochasticPooling2D" else "MAX")


@writes("AveragePooling1D", "AveragePooling2D", "AveragePooling3D")
def average_pooling(w: Writer, link: Layer) -> None:
    """Caffe's averages count padding, but nothing beyond it."""
    _pool(w, link, "AVE")


@dataclass(frozen=True)
class Pooling:
    """A pooling of images: what it makes of which sizes."""

    kind: str
    window: Window
    source: tuple[int, ...]
    """The shape that is read, (1, C, H, W)."""
    made: tuple[int, ...]
    """The sizes that come out, (H, W)."""
    counts_pads: bool


def _pool(w: Writer, link: Layer, kind: str) -> None:
    """Images as they are; sequences as images one place wide, volumes plane by plane and then through the planes."""
    fields = link.fields
    if any(one != 1 for one in getattr(fields, "dilation_rate", ())):
        raise NoForm("Caffe's windows of poolings have no gaps")
    shape = w.shape(link.sources[0])
    window = Window.of(shape[2:], fields.pool_size, fields.strides or fields.pool_size, fields.padding)
    _windows(w, link, kind, window, counts_pads=getattr(fields, "count_include_pad", False))


@writes(*(f"Adaptive{kind}Pooling{rank}D" for kind in ("Average", "Max") for rank in (1, 2, 3)))
def adaptive(w: Writer, link: Layer) -> None:
    """So many windows beside each other, where all are of one size."""
    sizes, made = w.shape(link.sources[0])[2:], w.shape(link.name)[2:]
    if any(size % count for size, count in zip(sizes, made, strict=True)):
        raise NoForm(f"Caffe's windows of poolings are all of one size: {list(sizes)} is no multiple of {list(made)}")
    reach = tuple(size // count for size, count in zip(sizes, made, strict=True))
    window = Window(reach, reach, ((0, 0),) * len(reach), (1,) * len(reach))
    _windows(w, link, "AVE" if "Average" in link.fields.type else "MAX", window, counts_pads=False)


def _windows(w: Writer, link: Layer, kind: str, window: Window, *, counts_pads: bool) -> None:
    shape, bottom, made = w.shape(link.sources[0]), w.bottoms(link)[0], w.shape(link.name)[2:]
    of_images = len(made) == 2
    for axes in OF_IMAGES[len(made)]:
        before = shape
        after = tuple(made[axis] if axis in axes else size for axis, size in enumerate(shape[2:]))
        pooling = _of_images(shape, after, window, axes, kind, counts_pads=counts_pads)
        if not of_images:
            view = f"{link.name}_{'planes' if len(axes) > 1 else 'line'}"
            resized(w, view, bottom, view, pooling.source)
            bottom = view
        shape = (*before[:2], *after)
        is_last = shape[2:] == made
        top = link.name if of_images else f"{bottom}_pooled"
        _images(w, top, bottom, pooling)
        bottom = top
        if is_last and not of_images:
            reshaped(w, link, bottom)
            return


def _of_images(
    shape: tuple[int, ...], after: tuple[int, ...], window: Window, axes: tuple[int, ...], kind: str, *,
    counts_pads: bool,
) -> Pooling:  # fmt: skip
    """The pooling along some axes alone: axes before them are channels, those behind them one that is not pooled."""
    first, rest = axes[0] + 2, shape[axes[-1] + 3 :]
    parts = [[getattr(window, name)[axis] for axis in axes] for name in ("size", "strides", "pads", "dilation")]
    sizes, made = list(shape[first : axes[-1] + 3]), [after[axis] for axis in axes]
    if len(axes) == 1:
        for part, one in zip((*parts, sizes, made), (1, 1, (0, 0), 1, prod(rest), prod(rest)), strict=True):
            part.append(one)
    flat = Window(*(tuple(part) for part in parts))
    return Pooling(kind, flat, (shape[0], prod(shape[1:first]), *sizes), tuple(made), counts_pads)


def _images(w: Writer, top: str, bottom: str, one: Pooling) -> None:
    """The layer; rows that no window reads are cut off before it where Caffe would add one for them."""
    window, made = one.window, one.made
    places = list(one.source[2:])
    rounds = [_rounding(places[axis], made[axis], window, axis) for axis in range(2)]
    if one.kind == "AVE" and any(
        _counts(places[axis], made[axis], window, axis, window.pads if one.counts_pads else None)
        != _of_caffe(places, made, window, axis)
        for axis in range(2)
    ):
        raise NoForm("Caffe's averages count the padding at both sides alike")
    # What is left over behind the last window would be in one more: it is cut off, or older Caffes round up.
    for axis, rounded in enumerate(rounds):
        if rounded == "FLOOR" and not window.pads[axis][0]:
            places[axis] = (made[axis] - 1) * window.strides[axis] + window.size[axis]
            rounds[axis] = "either"
    if places != list(one.source[2:]):
        cuts = [(0, size - kept) for size, kept in zip(one.source[2:], places, strict=True)]
        trimmed(w, f"{top}_cut", f"{top}_cut", bottom, one.source, cuts)
        bottom = f"{top}_cut"
    if {"CEIL", "FLOOR"} <= set(rounds):
        raise NoForm("its sizes are rounded up along one axis, down along the other")
    param: dict[str, Any] = {"pool": one.kind}
    param |= {name: one[0] if isinstance(one, list) else one for name, one in sizes_of(window).items()}
    if "FLOOR" in rounds:
        param["round_mode"] = "FLOOR"
        w.note(f"{top}: `round_mode: FLOOR` needs a Caffe of 2018 or later")
    w.layer(top, "Pooling", [bottom], [top], params={"pooling_param": param})


def _rounding(size: int, wanted: int, window: Window, axis: int) -> str:
    """How Caffe must round to get so many windows: CEIL, FLOOR, or either."""
    pad, kernel, stride = window.pads[axis][0], window.size[axis], window.strides[axis]
    if pad >= kernel:
        raise NoForm("Caffe wants less padding than the window is long")
    found = {}
    for name, rounded in (("CEIL", ceil((size + 2 * pad - kernel) / stride)),
                          ("FLOOR", (size + 2 * pad - kernel) // stride)):  # fmt: skip
        count = rounded + 1
        if pad and (count - 1) * stride >= size + pad:
            count -= 1
        found[name] = count
    fits = [name for name, count in found.items() if count == wanted]
    if not fits:
        raise NoForm(f"Caffe's sizes would be {found['CEIL']}, not {wanted}: it pads both sides alike")
    return fits[0] if len(fits) == 1 else "either"


def _counts(
    size: int, wanted: int, window: Window, axis: int, counted: Sequence[tuple[int, int]] | None
) -> list[int]:  # fmt: skip
    """How many places each window's mean is over."""
    before, after = counted[axis] if counted else (0, 0)
    starts = [index * window.strides[axis] - window.pads[axis][0] for index in range(wanted)]
    return [min(start + window.size[axis], size + after) - max(start, -before) for start in starts]


def _of_caffe(places: Sequence[int], made: Sequence[int], window: Window, axis: int) -> list[int]:
    """The same in Caffe: min(start + kernel, size + pad) - start."""
    pad = window.pads[axis][0]
    starts = [index * window.strides[axis] - pad for index in range(made[axis])]
    return [min(start + window.size[axis], places[axis] + pad) - start for start in starts]


@writes("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D", "GlobalAveragePooling2D")
def global_pooling(w: Writer, link: Layer) -> None:
    """(N, C, 1, 1) in Caffe; without these axes a Flatten comes behind. Sequences and volumes are images in a line."""
    kind = "AVE" if link.fields.type == "GlobalAveragePooling2D" else "MAX"
    bottom, source, made = w.bottoms(link)[0], w.shape(link.sources[0]), w.shape(link.name)
    if len(source) != 4:
        line = f"{link.name}_line"
        resized(w, line, bottom, line, (*source[:2], prod(source[2:]), 1))
        bottom = line
    top = link.name if len(made) == 4 else f"{link.name}_pooled"
    w.layer(top, "Pooling", [bottom], [top], params={"pooling_param": {"pool": kind, "global_pooling": True}})
    if len(made) == 2:
        w.layer(link.name, "Flatten", [top], [link.name])
    elif len(made) != 4:
        reshaped(w, link, top)


@writes("SpatialPyramidPooling")
def pyramid(w: Writer, link: Layer) -> None:
    """Levels of 1, 2, 4 … bins."""
    levels = link.fields.levels
    if not isinstance(levels, int):
        if list(levels) != [2**level for level in range(len(levels))]:
            raise NoForm("Caffe's levels have 1, 2, 4 … bins")
        levels = len(levels)
    pool = "MAX" if link.fields.pool == "max" else "AVE"
    w.layer(
        link.name, "SPP", w.bottoms(link), [link.name], params={"spp_param": {"pyramid_height": levels, "pool": pool}}
    )
