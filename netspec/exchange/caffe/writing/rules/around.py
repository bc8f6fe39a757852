"""TimeDistributed: the layer inside on all steps at once, where Caffe's takes them, or on one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from netspec.exchange.caffe.writing.rules.shapes import cut, resized
from netspec.exchange.caffe.writing.rules.unrolled import MOST_STEPS
from netspec.exchange.caffe.writing.writer import Layer, NoForm, Writer, rules, writes
from netspec.layers.wrappers import called

if TYPE_CHECKING:
    from netspec.graph.types import TensorType

OF_ALL = ("Dense", "ReLU", "LeakyReLU", "ELU", "Dropout", "Identity")
"""Layers that do the same to further axes in front: they are of the last one, or of each number."""


@writes("TimeDistributed", steps=True)
def of_steps(w: Writer, link: Layer) -> None:
    """(N, T, …): the layer inside, whose arrays all steps share."""
    inner, kind = link.fields.layer, str(link.fields.layer.type)
    if kind not in rules():
        raise NoForm(f"Caffe has no layer for {kind}, which is inside")
    states = f"{link.fields.share or link.name}/{called(inner)}"
    inside = inner.model_copy(update={"share": states, "trainable": inner.trainable and link.fields.trainable})
    if kind in OF_ALL:
        rules()[kind](w, replace(link, fields=inside))
        return
    if w.is_sequence(link):
        raise NoForm("beside recurrent layers, of sequences (T, N, …), Caffe needs layers of single steps")
    if len(link.outputs) > 1:
        raise NoForm("the layer inside has several outputs")
    (source, *more), (given, made) = link.sources, (w.types[link.sources[0]], w.types[link.name])
    count = made.shape[1]
    if more or count > MOST_STEPS:
        raise NoForm(f"steps are written one by one, and these are {count}" if not more else "it has several inputs")
    w.sharing |= {states} if count > 1 else set()
    names = [f"{link.name}_step_{step}" for step in range(count)]
    parts = [f"{name}_part" for name in names]
    cut(w, f"{link.name}_steps", w.blob(source), 1, [1] * count, parts)
    tops = []
    for name, part in zip(names, parts, strict=True):
        w.types = {**w.types, f"{name}_input": _of_step(given), name: _of_step(made)}
        resized(w, f"{name}_input", part, f"{name}_input", _of_step(given).shape)
        rules()[kind](w, Layer(name, inside, (f"{name}_input",), (name,)))
        tops.append(f"{name}_output")
        resized(w, tops[-1], w.blob(name), tops[-1], (1, 1, *made.shape[2:]))
    w.layer(link.name, "Concat", tops, [link.name], params={"concat_param": {"axis": 1}})


def _of_step(kind: TensorType) -> TensorType:
    """The type of one step of a sequence."""
    return kind.with_shape(kind.shape[0], *kind.shape[2:])
