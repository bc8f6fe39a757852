"""LSTM and RNN, over sequences that are (T, N, …) in Caffe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.functions import power, run
from netspec.exchange.caffe.writing.rules.shapes import part
from netspec.exchange.caffe.writing.rules.unrolled import unrolled
from netspec.exchange.caffe.writing.writer import Blob, Layer, Writer, writes

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Array


@writes("LSTM", steps=True)
def lstm(w: Writer, link: Layer) -> None:
    """Caffe's gates are in the order i, f, o, g, one below another."""
    if not w.is_sequence(link):
        unrolled(w, link)
        return
    one = link.fields
    kernel, bias, recurrent = _parameters(w, link, _gates, 4 * one.units)
    _recurrent(w, link, link, [kernel, bias, recurrent])


@writes("SimpleRNN", steps=True)
def plain(w: Writer, link: Layer) -> None:
    """Half of Caffe's RNN, which has a Dense with tanh behind: that one writes both."""
    if w.is_sequence(link):
        w.held[link.name] = link
    else:
        unrolled(w, link)


def with_dense(w: Writer, link: Layer, before: Layer) -> None:
    """A SimpleRNN and the Dense that reads it: Caffe's RNN."""
    one, units = link.fields, before.fields.units
    blobs = _parameters(w, before, np.transpose, units)
    blobs.append(w.array(link, "kernel", np.transpose, one.kernel_initializer))
    blobs.append(_bias(w, link, one.units, None))
    _recurrent(w, link, before, blobs)


def _parameters(w: Writer, link: Layer, turn: Any, size: int) -> list[Blob]:
    """Kernel, bias and recurrent kernel, (out, in) each."""
    one = link.fields
    kernel = w.array(link, "kernel", turn, one.kernel_initializer)
    return [kernel, _bias(w, link, size, turn), w.array(link, "recurrent_kernel", turn, one.recurrent_initializer)]


def _bias(w: Writer, link: Layer, size: int, turn: Any) -> Blob:
    """Caffe's recurrent layers always have one."""
    if not link.fields.use_bias:
        return Blob(np.zeros(size, np.float32))
    return w.array(link, "bias", turn, link.fields.bias_initializer)


def _gates(array: Array) -> Array:
    """Gates beside each other, in the order i, f, g, o → one below another, in the order i, f, o, g."""
    i, f, g, o = np.split(array, 4, axis=-1)
    return np.concatenate([i, f, o, g], axis=-1).T


def _recurrent(w: Writer, link: Layer, first: Layer, blobs: list[Blob]) -> None:
    """The layer with the blobs, which writes what `link` is called; `first` reads the sequence."""
    source, every = first.sources[0], first.fields.return_sequences
    kind = "LSTM" if link is first else "RNN"
    top = link.name if every else f"{link.name}_steps"
    param: dict[str, Any] = {"num_output": first.fields.units}
    fillers = [w.filler(blob) for blob in blobs[:2]]
    param |= dict(zip(("weight_filler", "bias_filler"), fillers, strict=True))
    bottoms = [w.blob(source), _marks(w, source)]
    made = w.layer(top, kind, bottoms, [top], *blobs, of=first, params={"recurrent_param": param})
    made["propagate_down"] = [True, False]
    if every:
        return
    steps, last = w.shape(source)[0], f"{link.name}_last"
    part(w, last, top, last, 0, steps, steps - 1, steps)
    without = {"shape": Message("BlobShape"), "axis": 0, "num_axes": 1}
    w.layer(link.name, "Reshape", [last], [link.name], params={"reshape_param": without})


def _marks(w: Writer, source: str) -> str:
    """A blob (T, N) that says where sequences go on: 0 at the first step, 1 at the others; made of the sequence."""
    shape, bottom = w.shape(source), w.blob(source)
    name = f"{bottom}_goes_on"
    if any(made.message["name"] == name for made in w.layers):
        return name
    whole, first, rest = f"{name}_places", f"{name}_first", f"{name}_rest"
    w.layer(whole, "Reduction", [bottom], [whole], params={"reduction_param": {"axis": 2}})
    if shape[0] == 1:
        run(w, name, name, whole, [power(0.0, 0.0)])
        return name
    w.layer(f"{name}_cut", "Slice", [whole], [first, rest], params={"slice_param": {"axis": 0, "slice_point": [1]}})
    zeros, ones = f"{name}_zeros", f"{name}_ones"
    run(w, zeros, zeros, first, [power(0.0, 0.0)])
    run(w, ones, ones, rest, [power(0.0, 1.0)])
    w.layer(name, "Concat", [zeros, ones], [name], params={"concat_param": {"axis": 0}})
    return name
