"""Convolutions and poolings: Caffe pads both sides alike, and rounds the sizes of poolings up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.exchange.caffe.writing.functions import finish
from netspec.exchange.caffe.writing.rules.shapes import trimmed
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes
from netspec.layers.window import Window

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Array

AXES = ("h", "w")


@writes("Conv1D", "Conv2D", "Conv3D")
def convolution(w: Writer, link: Layer) -> None:
    """Caffe's kernel is (out, in / groups, sizes…), too."""
    _convolve(w, link, "kernel", "kernel_initializer", link.fields, w.bottoms(link)[0], link.fields.filters)


@writes("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise(w: Writer, link: Layer) -> None:
    """A convolution of as many groups as there are channels."""
    channels = w.shape(link.sources[0])[1]
    filters = channels * link.fields.depth_multiplier
    _convolve(w, link, "kernel", "depthwise_initializer", link.fields, w.bottoms(link)[0], filters, groups=channels)


@writes("SeparableConv1D", "SeparableConv2D")
def separable(w: Writer, link: Layer) -> None:
    """Two convolutions."""
    fields = link.fields
    channels = w.shape(link.sources[0])[1]
    between = f"{link.name}_depthwise"
    window, blobs, groups = _window(w, link, "depthwise_kernel", "depthwise_initializer", channels)
    param = {"num_output": channels * fields.depth_multiplier, "bias_term": False, "group": groups} | _sizes(window)
    w.layer(between, "Convolution", w.bottoms(link), [between], blobs[0], of=link,
            params={"convolution_param": param | _filled(w, blobs[:1])})  # fmt: skip
    mixed = [w.array(link, "pointwise_kernel", first=fields.pointwise_initializer), *_bias(w, link)]
    param = {"num_output": fields.filters, "kernel_size": [1], "bias_term": fields.use_bias}
    w.layer(link.name, "Convolution", [between], [link.name], *mixed, of=link,
            params={"convolution_param": param | _filled(w, mixed)})  # fmt: skip
    finish(w, link, fields.activation, 1)


@writes("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def transposed(w: Writer, link: Layer) -> None:
    """Deconvolution, whose result has (size - 1) · stride + reach - 2 · pad places; its kernel is (in, out / groups …).

    What is cut off at one side alone is cut off behind it; what is added at the end comes of zeros in the kernel.
    """
    fields = link.fields
    rank = len(fields.kernel_size)
    source, made = w.shape(link.sources[0]), w.shape(link.name)
    sizes, pads, cuts, zeros = [], [], [], []
    for axis in range(rank):
        stride, dilation = fields.strides[axis], fields.dilation_rate[axis]
        before = fields.axis_of(axis, source[2 + axis])[0][0]
        reach = (fields.kernel_size[axis] - 1) * dilation + 1
        after = (source[2 + axis] - 1) * stride + reach - before - made[2 + axis]
        if after < 0 and dilation != 1:
            raise NoForm("Caffe adds nothing at the end")
        zeros.append((0, max(0, -after)))
        sizes.append(fields.kernel_size[axis] + max(0, -after))
        pads.append((min(before, max(0, after)),) * 2)
        cuts.append((before - pads[-1][0], max(0, after) - pads[-1][0]))
    window = Window(tuple(sizes), tuple(fields.strides), tuple(pads), tuple(fields.dilation_rate))
    blobs = [w.array(link, "kernel", _with_zeros(w, link, zeros), fields.kernel_initializer), *_bias(w, link)]
    param = {"num_output": fields.filters, "bias_term": fields.use_bias, "group": fields.groups} | _sizes(window)
    top = f"{link.name}_whole" if any(map(any, cuts)) else link.name
    w.layer(link.name, "Deconvolution", w.bottoms(link), [top], *blobs, of=link,
            params={"convolution_param": param | _filled(w, blobs)})  # fmt: skip
    if top != link.name:
        whole = [size + before + after for size, (before, after) in zip(made[2:], cuts, strict=True)]
        trimmed(w, link.name, f"{link.name}_cut", top, (*made[:2], *whole), cuts)
    finish(w, link, fields.activation, 1)


@writes("UpSampling2D")
def upsampling(w: Writer, link: Layer) -> None:
    """Each number spread over a window of ones, channel by channel."""
    if link.fields.interpolation != "nearest":
        raise NoForm("Caffe's Deconvolution repeats, and does not interpolate as here")
    channels, size = w.shape(link.sources[0])[1], tuple(link.fields.size)
    param = _sizes(Window(size, size, ((0, 0),) * 2, (1, 1)))
    param |= {"num_output": channels, "group": channels, "bias_term": False}
    w.layer(link.name, "Deconvolution", w.bottoms(link), [link.name], Blob(np.ones((channels, 1, *size), np.float32)),
            params={"convolution_param": param})  # fmt: skip


def _convolve(
    w: Writer, link: Layer, name: str, initializer: str, fields: Any, bottom: str, filters: int,
    groups: int | None = None,
) -> None:  # fmt: skip
    window, blobs, groups = _window(w, link, name, initializer, fields.groups if groups is None else groups)
    blobs += _bias(w, link)
    param = {"num_output": filters, "bias_term": fields.use_bias, "group": groups} | _sizes(window)
    w.layer(link.name, "Convolution", [bottom], [link.name], *blobs, of=link,
            params={"convolution_param": param | _filled(w, blobs)})  # fmt: skip
    finish(w, link, fields.activation, 1)


def _window(
    w: Writer, link: Layer, name: str, initializer: str, groups: int
) -> tuple[Window, list[Blob], int]:  # fmt: skip
    """The window with as much padding at both sides, and the kernel, which may need zeros at one side for that."""
    fields = link.fields
    window = Window.of(w.shape(link.sources[0])[2:], fields.kernel_size, fields.strides, fields.padding,
                       fields.dilation_rate)  # fmt: skip
    even, zeros = _evened(w.shape(link.sources[0])[2:], window)
    return even, [w.array(link, name, _with_zeros(w, link, zeros), getattr(fields, initializer))], groups


def _with_zeros(w: Writer, link: Layer, zeros: Sequence[tuple[int, int]]) -> Callable[[Array], Array] | None:
    """A kernel with zeros before and after, where any are asked for."""
    if not any(map(any, zeros)):
        return None
    w.note(f"{link.name}: its kernel is written with zeros at one side, since Caffe pads both sides alike")

    def widened(kernel: Array) -> Array:
        return np.pad(kernel, ((0, 0), (0, 0), *zeros))

    return widened


def _evened(spatial: Sequence[int], window: Window) -> tuple[Window, list[tuple[int, int]]]:
    """A window that pads both sides alike and gives the same, and zeros that its kernel needs for that.

    With the padding before at both sides, if what is behind is not read; else with zeros in the kernel against the
    padding that is too much.
    """
    wanted, zeros, sizes, pads = window.out(tuple(spatial)), [], [], []
    for axis, (before, after) in enumerate(window.pads):
        size, stride, dilation = window.size[axis], window.strides[axis], window.dilation[axis]
        reach = (size - 1) * dilation + 1
        if (spatial[axis] + 2 * before - reach) // stride + 1 == wanted[axis]:
            zeros.append((0, 0))
            sizes.append(size)
            pads.append((before, before))
            continue
        if dilation != 1:
            raise NoForm("Caffe pads both sides alike")
        more = abs(after - before)
        zeros.append((more, 0) if after > before else (0, more))
        sizes.append(size + more)
        pads.append((max(before, after),) * 2)
    return Window(tuple(sizes), window.strides, tuple(pads), window.dilation), zeros


def _sizes(window: Window) -> dict[str, Any]:
    """The fields of a window: one number where it serves all axes, else by axis; of images height and width."""
    made: dict[str, Any] = {}
    pads = [before for before, _ in window.pads]
    for name, values, usual in (
        ("kernel", list(window.size), None), ("stride", list(window.strides), 1), ("pad", pads, 0),
    ):  # fmt: skip
        if all(one == usual for one in values):
            continue
        whole = "kernel_size" if name == "kernel" else name
        if len(set(values)) == 1 or len(values) != len(AXES):
            made[whole] = values[:1] if len(set(values)) == 1 else values
        else:
            made |= {f"{name}_{axis}": one for axis, one in zip(AXES, values, strict=True)}
    if any(one != 1 for one in window.dilation):
        made["dilation"] = list(window.dilation[:1] if len(set(window.dilation)) == 1 else window.dilation)
    return made


def _bias(w: Writer, link: Layer) -> list[Blob]:
    return [w.array(link, "bias", first=link.fields.bias_initializer)] if link.fields.use_bias else []


def _filled(w: Writer, blobs: Sequence[Blob]) -> dict[str, Any]:
    """The fillers of a kernel and a bias."""
    names = ("weight_filler", "bias_filler")
    return {name: w.filler(blob) for name, blob in zip(names, blobs, strict=False)}


@writes("MaxPooling2D", "StochasticPooling2D")
def max_pooling(w: Writer, link: Layer) -> None:
    """Padding never wins: where windows begin and how many there are is all that counts."""
    _pool(w, link, "MAX" if link.fields.type == "MaxPooling2D" else "STOCHASTIC")


@writes("AveragePooling2D")
def average_pooling(w: Writer, link: Layer) -> None:
    """Caffe's averages count padding, but nothing beyond it."""
    _pool(w, link, "AVE")


def _pool(w: Writer, link: Layer, kind: str) -> None:
    fields = link.fields
    source, made = w.shape(link.sources[0]), w.shape(link.name)
    places = list(source[2:])
    window = Window.of(source[2:], fields.pool_size, fields.strides or fields.pool_size, fields.padding)
    counted = window.pads if getattr(fields, "count_include_pad", False) else None
    rounds = [_rounding(places[axis], made[2 + axis], window, axis) for axis in range(2)]
    if kind == "AVE" and any(
        _counts(places[axis], made[2 + axis], window, axis, counted) != _of_caffe(places, made, window, axis)
        for axis in range(2)
    ):
        raise NoForm("Caffe's averages count the padding at both sides alike")
    # What is left over behind the last window would be in one more: it is cut off, or older Caffes round up.
    for axis, rounded in enumerate(rounds):
        if rounded == "FLOOR" and not window.pads[axis][0]:
            places[axis] = (made[2 + axis] - 1) * window.strides[axis] + window.size[axis]
            rounds[axis] = "either"
    bottom = w.bottoms(link)[0]
    if places != list(source[2:]):
        cuts = [(0, size - kept) for size, kept in zip(source[2:], places, strict=True)]
        trimmed(w, f"{link.name}_cut", f"{link.name}_cut", bottom, source, cuts)
        bottom = f"{link.name}_cut"
    if {"CEIL", "FLOOR"} <= set(rounds):
        raise NoForm("its sizes are rounded up along one axis, down along the other")
    param: dict[str, Any] = {"pool": kind}
    sizes = _sizes(Window(window.size, window.strides, window.pads, (1, 1)))
    param |= {name: one[0] if isinstance(one, list) else one for name, one in sizes.items()}
    if "FLOOR" in rounds:
        param["round_mode"] = "FLOOR"
        w.note(f"{link.name}: `round_mode: FLOOR` needs a Caffe of 2018 or later")
    w.layer(link.name, "Pooling", [bottom], [link.name], params={"pooling_param": param})


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
    starts = [index * window.strides[axis] - pad for index in range(made[2 + axis])]
    return [min(start + window.size[axis], places[axis] + pad) - start for start in starts]


@writes("GlobalMaxPooling2D", "GlobalAveragePooling2D")
def global_pooling(w: Writer, link: Layer) -> None:
    """(N, C, 1, 1) in Caffe; without these axes a Flatten comes behind."""
    kind = "MAX" if link.fields.type == "GlobalMaxPooling2D" else "AVE"
    flat = not link.fields.keepdims
    top = f"{link.name}_pooled" if flat else link.name
    w.layer(top, "Pooling", w.bottoms(link), [top], params={"pooling_param": {"pool": kind, "global_pooling": True}})
    if flat:
        w.layer(link.name, "Flatten", [top], [link.name])


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
