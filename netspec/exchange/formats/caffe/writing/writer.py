"""The net as Caffe's `NetParameter`: collects Caffe's layers one by one, for deployment or for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from netspec.errors import InputError, Problem, by_place
from netspec.exchange.formats.caffe.blobs import array_blob
from netspec.exchange.formats.caffe.fillers import filler_message
from netspec.exchange.formats.caffe.proto.fields import MessageField, kinds, own_param
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.lower.masks import reads_a_mask
from netspec.exchange.names import UniqueNames
from netspec.exchange.notes import Notes
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.links import LayerLink, Links, LossLink, MetricLink, resolve_names
from netspec.schema.specs.patterns import matches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.graph.types import TensorType

    Array: TypeAlias = NDArray[Any]

ALWAYS_WRITTEN = ("pool", "pad_h", "pad_w", "norm_region", "local_size", "alpha", "beta", "k", "normalization")
"""Fields that are written even if they equal the default, which OpenCV's reader, or a type of layer, does not share."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Weight:
    """An array of a Caffe layer, with the name of the state it comes from and its initializer."""

    values: Array
    state: str = ""
    """Empty for constants, which are not trained."""
    initializer: Any = None


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
    solver: Any = None
    """The solver that trains the net; None for deployment."""
    sharing: frozenset[str] = frozenset()
    """Layers whose states other layers use too."""
    prefix: str = ""
    """Prefix of the names of further files."""
    layers: list[WrittenLayer] = field(default_factory=list)
    blobs: dict[str, str] = field(default_factory=dict)
    """Blob of each value whose name is not that of the value."""
    unique: UniqueNames = field(default_factory=partial(UniqueNames, first=2))
    problems: list[Problem] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    files: dict[str, Message] = field(default_factory=dict)
    """Further files that layers name."""

    @property
    def training(self) -> bool:
        """Whether the net for training is written, with fillers and learning rates."""
        return self.solver is not None

    def write(self, link: LayerLink) -> None:
        """Add a layer of the net; record a problem if Caffe has none."""
        kind = str(getattr(link.fields, "type", ""))
        try:
            if kind not in rules():
                raise UnsupportedFeature(f"Caffe has no layer of type {kind}", hint=HINTS.get(kind))
            rules()[kind](self, link, link.fields)
        except UnsupportedFeature as reason:
            what = f"`{link.name}` ({kind}) cannot be written for Caffe: {reason}"
            hint = reason.hint or "export to ONNX instead: `--output NAME.onnx`"
            self.problems.append(Problem(what, link.fields.where("type"), hint=hint))

    def blob(self, value: str) -> str:
        """Name of the blob that holds a value."""
        return self.blobs.get(value, value)

    def bottoms(self, link: LayerLink | LossLink | MetricLink) -> list[str]:
        """The blobs that a layer reads."""
        return [self.blob(source) for source in link.sources]

    def shape(self, value: str) -> tuple[int, ...]:
        """Shape of a value for a batch of one."""
        return self.types[value].shape

    def axis(self, link: LayerLink, axis: int) -> int:
        """An axis of a layer's first input, counted from the front."""
        return axis % len(self.shape(link.sources[0]))

    def weight(
        self, link: LayerLink, name: str, initializer: Any = None, convert: Callable[[Array], Array] | None = None
    ) -> Weight:
        """A state of a layer, in Caffe's layout by `convert`."""
        state = f"{link.fields.share or link.name}/{name}"
        values = self.arrays[state] if convert is None else convert(self.arrays[state])
        return Weight(np.asarray(values, np.float32, order="C"), state, initializer)

    def fillers(self, weights: Sequence[Weight], *names: str) -> dict[str, Message]:
        """The fillers of a layer's arrays by the names of their fields; empty for deployment."""
        if not self.training:
            return {}
        return {
            name: filler_message(weight.initializer, weight.values, weight.state, self.notes)
            for name, weight in zip(names, weights, strict=False)
        }

    def add(
        self, link: LayerLink, type_: str, param: Mapping[str, Any] = _NOTHING, weights: Sequence[Weight] = ()
    ) -> None:
        """Add the Caffe layer that computes a layer's value from its inputs."""
        self.layer(link.name, type_, self.bottoms(link), [link.name], param, weights, link)

    def layer(
        self,
        name: str,
        type_: str,
        bottoms: Sequence[str],
        tops: Sequence[str],
        param: Mapping[str, Any] = _NOTHING,
        weights: Sequence[Weight] = (),
        of: LayerLink | None = None,
        others: Mapping[str, Mapping[str, Any]] = _NOTHING,
    ) -> Message:
        """Add a layer of Caffe with its own parameters, and `others` by field; `of` is the owner of the weights."""
        message = Message("LayerParameter", name=self.unique(name), type=type_)
        for side, blobs in (("bottom", bottoms), ("top", tops)):
            for blob in blobs:
                message.add(side, blob)
        self._add_param_specs(message, weights, of)
        for key, fields in {**({own_param(type_): param} if param else {}), **others}.items():
            kind = kinds()[message.field(key).type]
            for inner, value in fields.items():
                if _differs_from_default(kind.fields[inner], value):
                    message.edit(key)[inner] = value
        self.layers.append(WrittenLayer(message, tuple(weights)))
        return message

    def _add_param_specs(self, message: Message, weights: Sequence[Weight], of: LayerLink | None) -> None:
        """`param`: names of shared arrays, and for training rates and decays other than 1."""
        specs = []
        for weight in weights:
            rate, decay, spec = 0.0, 0.0, Message("ParamSpec")
            if weight.state and of is not None:
                rate, decay = self._multipliers(of, weight.state)
                if weight.state.rpartition("/")[0] in self.sharing:
                    spec["name"] = weight.state
            if self.training:
                spec["lr_mult"] = rate
                if decay != 1:
                    spec["decay_mult"] = decay
            specs.append(spec)
        if any([*spec] != ["lr_mult"] or spec["lr_mult"] != 1 for spec in specs if [*spec]):
            message["param"] = specs

    def _multipliers(self, link: LayerLink, state: str) -> tuple[float, float]:
        """Multipliers of a parameter's learning rate and weight decay, by its layer and the solver's groups."""
        name, groups = state.rpartition("/")[2], self.solver.groups if self.training else ()
        of_layer = (link.fields.learning_rate_multiplier, link.fields.weight_decay_multiplier)
        rate, decay = (value.get(name, 1.0) if isinstance(value, Mapping) else value for value in of_layer)
        if group := next((group for group in groups if matches(group.match, state)), None):
            rate *= group.learning_rate_multiplier
            if group.weight_decay is not None:
                decay *= group.weight_decay / (self.solver.weight_decay or 1.0)
        return float(rate) if link.fields.trainable else 0.0, float(decay)

    def parameters(self) -> Iterator[tuple[str, int, Weight]]:
        """Layer, index and array of all parameters in the order of Caffe's solvers, which count shared arrays once."""
        seen: set[str] = set()
        for layer in self.layers:
            for index, weight in enumerate(layer.weights):
                if not weight.state or weight.state not in seen:
                    yield layer.message["name"], index, weight
                seen.add(weight.state)

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
            raise InputError(sorted(self.problems, key=by_place))


def _differs_from_default(field: MessageField, value: Any) -> bool:
    if field.name in ALWAYS_WRITTEN:
        return True
    if value is None or (field.repeated and not len(value)):
        return False
    return field.repeated or field.is_message or value != field.default


def writer_for(exported: Exportable, links: Links, ends: Sequence[str], **fields: Any) -> CaffeWriter:
    """A writer for the layers that compute the values `ends`."""
    types = {name: value.type for name, value in exported.graph_for(1).named.items()}
    readers: dict[str, list[str]] = {name: ["output"] for name in ends}
    for link in links.layers:
        for source in link.sources:
            readers.setdefault(source, []).append(str(getattr(link.fields, "type", "")))
    sharing = frozenset(link.fields.share for link in links.layers if link.fields.share)
    return CaffeWriter(exported.net.name, types, exported.arrays, readers, sharing=sharing, **fields)


def needed_inputs(exported: Exportable, links: Links, ends: Iterable[str]) -> list[str]:
    """The inputs of the net that these values depend on."""
    ends = set(ends)
    needed = {source for link in links.computing(ends) for source in link.sources} | ends
    return [name for name in exported.net.inputs if name in needed]


def deployed(exported: Exportable) -> CaffeWriter:
    """The net for inference. Raises `InputError` with every layer that Caffe has no layer for, and why."""
    links = resolve_names(exported.net)
    writer = writer_for(exported, links, links.outputs)
    for name in needed_inputs(exported, links, links.outputs):
        shape = Message("BlobShape", dim=list(writer.shape(name)))
        writer.layer(name, "Input", [], [name], {"shape": [shape]})
    for link in links.computing(links.outputs):
        if reads_a_mask(exported.graph_for(1), link.sources, link.outputs):
            what = "it computes with a mask of an earlier layer"
            writer.problems.append(Problem(f"`{link.name}` cannot be written for Caffe: {what}", link.fields.where()))
        writer.write(link)
    writer.check()
    _separate_outputs(writer, links.outputs)
    return writer


def _separate_outputs(writer: CaffeWriter, outputs: Iterable[str]) -> None:
    """Give each output a blob that no layer reads: only such blobs are outputs of a net in Caffe.

    A Split copies a blob that is also read, whose first name changes, or that is the blob of two outputs.
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
