"""The net for inference as Caffe's `NetParameter`: collects Caffe's layers one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem, by_location
from netspec.exchange.formats.caffe.blobs import array_blob
from netspec.exchange.formats.caffe.proto.fields import MessageField, kinds, own_param
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.lower.masks import reads_a_mask
from netspec.exchange.names import UniqueNames
from netspec.exchange.notes import Notes
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.types import TensorType
from netspec.schema.specs.links import LayerLink, resolve_names

Array: TypeAlias = NDArray[Any]

ALWAYS_WRITTEN = ("pool", "pad_h", "pad_w", "norm_region", "local_size", "alpha", "beta", "k")
"""Fields that are written even if they equal the default, which OpenCV's reader, or a type of layer, does not share."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Weight:
    """An array of a Caffe layer, and the name of the state it comes from."""

    values: Array
    state: str = ""
    """Empty for constants."""


@dataclass
class WrittenLayer:
    """A layer of Caffe with its arrays."""

    message: Message
    weights: tuple[Weight, ...] = ()


CaffeWriteRule: TypeAlias = "Callable[[CaffeWriter, LayerLink, Any], None]"
_RULES: RuleTable[CaffeWriteRule] = RuleTable("netspec.exchange.formats.caffe.writing.layers")
writes, rules = _RULES.register, _RULES.all
"""`@writes(*types)` registers a function that writes layers of these types; it takes the layer and its fields."""
HINTS: dict[str, str] = {}
"""Alternatives to types that Caffe has no layer for."""


@dataclass
class CaffeWriter:
    """A net in Caffe's form, whose layers are added one by one."""

    name: str
    types: Mapping[str, TensorType]
    """Type of each value by name, for a batch of one."""
    arrays: Mapping[str, Array]
    readers: Mapping[str, Sequence[str]]
    """Types of the layers that read each value; `output` for the outputs of the net."""
    sharing: frozenset[str] = frozenset()
    """Layers whose states other layers use too."""
    layers: list[WrittenLayer] = field(default_factory=list)
    blobs: dict[str, str] = field(default_factory=dict)
    """Blob of each value whose name is not that of the value."""
    unique: UniqueNames = field(default_factory=partial(UniqueNames, first=2))
    problems: list[Problem] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def write(self, link: LayerLink) -> None:
        """Add a layer of the net; record a problem if Caffe has none."""
        kind = str(getattr(link.fields, "type", ""))
        try:
            if kind not in rules():
                raise UnsupportedFeature(f"Caffe has no layer of type {kind}", hint=HINTS.get(kind))
            rules()[kind](self, link, link.fields)
        except UnsupportedFeature as reason:
            message = f"`{link.name}` ({kind}) cannot be written for Caffe: {reason}"
            hint = reason.hint or "export to ONNX instead: `--output NAME.onnx`"
            self.problems.append(Problem(message, link.fields.where("type"), hint=hint))

    def blob(self, value: str) -> str:
        """Name of the blob that holds a value."""
        return self.blobs.get(value, value)

    def bottoms(self, link: LayerLink) -> list[str]:
        """The blobs that a layer reads."""
        return [self.blob(source) for source in link.sources]

    def shape(self, value: str) -> tuple[int, ...]:
        """Shape of a value for a batch of one."""
        return self.types[value].shape

    def axis(self, link: LayerLink, axis: int) -> int:
        """An axis of a layer's first input, counted from the front."""
        return axis % len(self.shape(link.sources[0]))

    def weight(self, link: LayerLink, name: str) -> Weight:
        """A state of a layer."""
        state = f"{link.fields.share or link.name}/{name}"
        return Weight(np.asarray(self.arrays[state], np.float32, order="C"), state)

    def add(
        self, link: LayerLink, type_: str, param: Mapping[str, Any] = _NOTHING, weights: Sequence[Weight] = ()
    ) -> None:
        """Add the Caffe layer that computes a layer's value from its inputs."""
        self.layer(link.name, type_, self.bottoms(link), [link.name], param, weights)

    def layer(
        self,
        name: str,
        type_: str,
        bottoms: Sequence[str],
        tops: Sequence[str],
        param: Mapping[str, Any] = _NOTHING,
        weights: Sequence[Weight] = (),
    ) -> None:
        """Add a layer of Caffe with its own parameters; `param` names arrays that layers share."""
        message = Message("LayerParameter", name=self.unique(name), type=type_)
        for side, blobs in (("bottom", bottoms), ("top", tops)):
            for blob in blobs:
                message.add(side, blob)
        names = [weight.state if weight.state.rpartition("/")[0] in self.sharing else "" for weight in weights]
        if any(names):
            message["param"] = [
                Message("ParamSpec", name=shared) if shared else Message("ParamSpec") for shared in names
            ]
        if param:
            key = own_param(type_)
            kind = kinds()[message.field(key).type]
            for field_name, value in param.items():
                if _differs_from_default(kind.fields[field_name], value):
                    message.edit(key)[field_name] = value
        self.layers.append(WrittenLayer(message, tuple(weights)))

    def parameters(self) -> Iterator[tuple[str, int, Weight]]:
        """Layer, index and array of all parameters; shared arrays only once."""
        written_states: set[str] = set()
        for layer in self.layers:
            for index, weight in enumerate(layer.weights):
                if not weight.state or weight.state not in written_states:
                    yield layer.message["name"], index, weight
                written_states.add(weight.state)

    def message(self, *, with_arrays: bool = False) -> Message:
        """The net; with the arrays of its layers for a `.caffemodel` file."""
        net = Message("NetParameter", name=self.name)
        for layer in self.layers:
            message = layer.message.copy()
            for weight in layer.weights if with_arrays else ():
                message.add("blobs", array_blob(weight.values))
            net.add("layer", message)
        return net

    def check(self) -> None:
        """Raise `InputError` with all problems, if there are any."""
        if self.problems:
            raise InputError(sorted(self.problems, key=by_location))


def _differs_from_default(field: MessageField, value: Any) -> bool:
    if field.name in ALWAYS_WRITTEN:
        return True
    if value is None or (field.repeated and not len(value)):
        return False
    return field.repeated or field.is_message or value != field.default


def deployed(exported: Exportable) -> CaffeWriter:
    """The net for inference. Raises `InputError` with every layer that Caffe has no layer for, and why."""
    links = resolve_names(exported.net)
    types = {name: value.type for name, value in exported.graph_for(1).named.items()}
    readers: dict[str, list[str]] = {name: ["output"] for name in links.outputs}
    for link in links.layers:
        for source in link.sources:
            readers.setdefault(source, []).append(str(getattr(link.fields, "type", "")))
    sharing = frozenset(link.fields.share for link in links.layers if link.fields.share)
    writer = CaffeWriter(exported.net.name, types, exported.arrays, readers, sharing)
    layers = links.computing(links.outputs)
    needed = {source for link in layers for source in link.sources} | set(links.outputs)
    for name in exported.net.inputs:
        if name in needed:
            shape = Message("BlobShape", dim=list(writer.shape(name)))
            writer.layer(name, "Input", [], [name], {"shape": [shape]})
    for link in layers:
        if reads_a_mask(exported.graph_for(1), link.sources, link.outputs):
            reason = "it uses a mask that an earlier layer computes"
            writer.problems.append(Problem(f"`{link.name}` cannot be written for Caffe: {reason}", link.fields.where()))
        writer.write(link)
    writer.check()
    _separate_outputs(writer, links.outputs)
    return writer


def _separate_outputs(writer: CaffeWriter, outputs: Iterable[str]) -> None:
    """Give each output a blob that no layer reads: only such blobs are outputs of a net in Caffe.

    A Split copies a blob that layers also read, or that two outputs share. If the blob that layers read has the name of
    the output, it is renamed.
    """
    separate: set[str] = set()
    for output in outputs:
        source = blob = writer.blob(output)
        messages = [layer.message for layer in writer.layers]
        is_read = any(blob in message["bottom"] and blob not in message["top"] for message in messages)
        if is_read and output == blob:
            used = {name for message in messages for side in ("bottom", "top") for name in message[side]}
            source = next(name for number in count() if (name := f"{blob}_{number}") not in used)
            for message, side in product(messages, ("bottom", "top")):
                if blob in message[side]:
                    message[side] = [source if name == blob else name for name in message[side]]
        if is_read or blob in separate:
            last = max(number for number, message in enumerate(messages) if source in message["top"])
            writer.layer(f"{output}_output", "Split", [source], [output])
            writer.layers.insert(last + 1, writer.layers.pop())
        separate.add(output)
