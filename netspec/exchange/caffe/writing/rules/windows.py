"""Convolutions: Caffe pads both sides alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from netspec.exchange.caffe.writing.functions import finish
from netspec.exchange.caffe.writing.rules.shapes import trimmed
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes
from netspec.layers.window import Window

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Array

AXES = ("h", "w")
Cuts: TypeAlias = Sequence[tuple[int, int]]
"""Of each axis, how many rows at either side."""


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
    window, blobs, cuts = _window(w, link, "depthwise_kernel", "depthwise_initializer")
    filters = channels * fields.depth_multiplier
    param = {"num_output": filters, "bias_term": False, "group": channels} | sizes_of(window)
    w.layer(between, "Convolution", w.bottoms(link), [_uncut(between, cuts)], blobs[0], of=link,
            params={"convolution_param": param | _filled(w, blobs[:1])})  # fmt: skip
    _cut(w, between, (1, filters, *w.shape(link.name)[2:]), cuts)
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
    param = {"num_output": fields.filters, "bias_term": fields.use_bias, "group": fields.groups} | sizes_of(window)
    w.layer(link.name, "Deconvolution", w.bottoms(link), [_uncut(link.name, cuts)], *blobs, of=link,
            params={"convolution_param": param | _filled(w, blobs)})  # fmt: skip
    _cut(w, link.name, made, cuts)
    finish(w, link, fields.activation, 1)


@writes("UpSampling1D", "UpSampling2D", "UpSampling3D")
def upsampling(w: Writer, link: Layer) -> None:
    """Each number spread over a window of ones, channel by channel."""
    if getattr(link.fields, "interpolation", "nearest") != "nearest":
        raise NoForm("Caffe's Deconvolution repeats, and does not interpolate as here")
    channels, size = w.shape(link.sources[0])[1], _each(link.fields.size)
    param = sizes_of(Window(size, size, ((0, 0),) * len(size), (1,) * len(size)))
    param |= {"num_output": channels, "group": channels, "bias_term": False}
    w.layer(link.name, "Deconvolution", w.bottoms(link), [link.name], Blob(np.ones((channels, 1, *size), np.float32)),
            params={"convolution_param": param})  # fmt: skip


def _convolve(
    w: Writer, link: Layer, name: str, initializer: str, fields: Any, bottom: str, filters: int,
    groups: int | None = None,
) -> None:  # fmt: skip
    window, blobs, cuts = _window(w, link, name, initializer)
    blobs += _bias(w, link)
    groups = fields.groups if groups is None else groups
    param = {"num_output": filters, "bias_term": fields.use_bias, "group": groups} | sizes_of(window)
    w.layer(link.name, "Convolution", [bottom], [_uncut(link.name, cuts)], *blobs, of=link,
            params={"convolution_param": param | _filled(w, blobs)})  # fmt: skip
    _cut(w, link.name, w.shape(link.name), cuts)
    finish(w, link, fields.activation, 1)


def _uncut(name: str, cuts: Cuts) -> str:
    """The blob that a layer makes of which rows are cut off, if any are."""
    return f"{name}_whole" if any(map(any, cuts)) else name


def _cut(w: Writer, name: str, shape: Sequence[int], cuts: Cuts) -> None:
    """A blob of this shape out of the one that `_uncut` names, without the rows that are too many."""
    if any(map(any, cuts)):
        whole = [size + before + after for size, (before, after) in zip(shape[2:], cuts, strict=True)]
        trimmed(w, name, f"{name}_cut", _uncut(name, cuts), (*shape[:2], *whole), cuts)


def _window(w: Writer, link: Layer, name: str, initializer: str) -> tuple[Window, list[Blob], Cuts]:
    """The window with as much padding at both sides, the kernel, and what that makes too much.

    The kernel may have zeros at one side for that.
    """
    fields = link.fields
    window = Window.of(w.shape(link.sources[0])[2:], fields.kernel_size, fields.strides, fields.padding,
                       fields.dilation_rate)  # fmt: skip
    even, zeros, cuts = _evened(w.shape(link.sources[0])[2:], window)
    return even, [w.array(link, name, _with_zeros(w, link, zeros), getattr(fields, initializer))], cuts


def _with_zeros(w: Writer, link: Layer, zeros: Sequence[tuple[int, int]]) -> Callable[[Array], Array] | None:
    """A kernel with zeros before and after, where any are asked for."""
    if not any(map(any, zeros)):
        return None
    w.note(f"{link.name}: its kernel is written with zeros at one side, since Caffe pads both sides alike")

    def widened(kernel: Array) -> Array:
        return np.pad(kernel, ((0, 0), (0, 0), *zeros))

    return widened


def _evened(spatial: Sequence[int], window: Window) -> tuple[Window, Cuts, Cuts]:
    """A window that pads both sides alike, zeros that its kernel needs to give the same, and what is cut off for it.

    With the padding before at both sides, if what is behind is not read; else with zeros in the kernel against the
    padding that is too much; of kernels with gaps with results that are cut off, whole strides of them before.
    """
    wanted, zeros, sizes, pads, cuts = window.out(tuple(spatial)), [], [], [], []
    for axis, (before, after) in enumerate(window.pads):
        size, stride, dilation = window.size[axis], window.strides[axis], window.dilation[axis]
        reach = (size - 1) * dilation + 1
        if (spatial[axis] + 2 * before - reach) // stride + 1 == wanted[axis]:
            zeros.append((0, 0))
            sizes.append(size)
            pads.append((before, before))
            cuts.append((0, 0))
            continue
        more = abs(after - before)
        if dilation == 1:
            zeros.append((more, 0) if after > before else (0, more))
            sizes.append(size + more)
            pads.append((max(before, after),) * 2)
            cuts.append((0, 0))
            continue
        first = -(-max(0, after - before) // stride)
        pad = before + first * stride
        zeros.append((0, 0))
        sizes.append(size)
        pads.append((pad, pad))
        cuts.append((first, (spatial[axis] + 2 * pad - reach) // stride + 1 - wanted[axis] - first))
    return Window(tuple(sizes), window.strides, tuple(pads), window.dilation), zeros, cuts


def sizes_of(window: Window) -> dict[str, Any]:
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


def _each(size: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of all axes: layers of one axis may have a bare number."""
    return (size,) if isinstance(size, int) else tuple(size)


def _bias(w: Writer, link: Layer) -> list[Blob]:
    return [w.array(link, "bias", first=link.fields.bias_initializer)] if link.fields.use_bias else []


def _filled(w: Writer, blobs: Sequence[Blob]) -> dict[str, Any]:
    """The fillers of a kernel and a bias."""
    names = ("weight_filler", "bias_filler")
    return {name: w.filler(blob) for name, blob in zip(names, blobs, strict=False)}
