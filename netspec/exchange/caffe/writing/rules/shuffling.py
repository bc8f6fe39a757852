"""Layers that move whole channels and places: convolutions by ones and zeros, since Caffe turns no axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.exchange.caffe.writing.rules.shapes import reshaped, resized
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Array

MOST_ONES = 1 << 24
"""Numbers of such a kernel."""


@writes("ChannelShuffle")
def channels_dealt_out(w: Writer, link: Layer) -> None:
    """(N, C, …): channel i · groups + g is channel g · C / groups + i."""
    shape, groups = w.shape(link.name), link.fields.groups
    channels, view = shape[1], f"{link.name}_places"
    kernel = _zeros(channels, channels, 1, 1)
    kernel[np.arange(channels), np.arange(channels).reshape(groups, -1).T.ravel()] = 1
    resized(w, view, w.bottoms(link)[0], view, (1, channels, prod(shape[2:]), 1))
    _moved(w, "Convolution", f"{link.name}_dealt_out", view, kernel, 1)
    reshaped(w, link, f"{link.name}_dealt_out")


@writes("SpaceToDepth")
def places_to_channels(w: Writer, link: Layer) -> None:
    """Each place of a block is a channel of its own."""
    size, channels = link.fields.block_size, w.shape(link.sources[0])[1]
    _moved(w, "Convolution", link.name, w.bottoms(link)[0], _blocks(channels, size, link.fields.mode), size)


@writes("DepthToSpace")
def channels_to_places(w: Writer, link: Layer) -> None:
    """The other way round, by the same kernel: Caffe's Deconvolution has it as (in, out, …)."""
    size, channels = link.fields.block_size, w.shape(link.name)[1]
    _moved(w, "Deconvolution", link.name, w.bottoms(link)[0], _blocks(channels, size, link.fields.mode), size)


def _blocks(channels: int, size: int, mode: str) -> Array:
    """(channels · size², channels, size, size): 1 where a channel of small images is a place of a block."""
    kernel = _zeros(channels * size**2, channels, size, size)
    channel, row, column = np.indices((channels, size, size))
    place = row * size + column
    narrow = channel * size**2 + place if mode == "CRD" else place * channels + channel
    kernel[narrow, channel, row, column] = 1
    return kernel


def _zeros(*shape: int) -> Array:
    if prod(shape) > MOST_ONES:
        raise NoForm(f"Caffe moves channels by a kernel of ones and zeros, which would be {prod(shape):,} numbers")
    return np.zeros(shape, np.float32)


def _moved(w: Writer, kind: str, name: str, bottom: str, kernel: Array, stride: int) -> None:
    """A layer with a kernel that is not trained."""
    count = kernel.shape[0 if kind == "Convolution" else 1]
    param: dict[str, Any] = {"num_output": count, "bias_term": False, "kernel_size": [kernel.shape[2]]}
    param |= {"stride": [stride]} if stride > 1 else {}
    w.layer(name, kind, [bottom], [name], Blob(kernel), params={"convolution_param": param})
