"""Write a net as a Keras model: the readers of each value, and the order of its axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem
from netspec.exchange.formats.keras.exporting.axes import channels_last, clean, in_order, renamed
from netspec.exchange.formats.keras.exporting.config import configured
from netspec.exchange.formats.keras.exporting.model import LAYERS, KerasLayer, KerasModel, KerasTensor
from netspec.exchange.formats.keras.names import class_name, variables
from netspec.exchange.formats.keras.names import to_keras as kernel_to_keras
from netspec.exchange.lower.masks import lost_masks
from netspec.exchange.notes import Notes
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.graph import Graph
from netspec.graph.types import TensorType
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink, resolve_names
from netspec.schema.specs.net import NetSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


def channels(links: Sequence[LayerLink], rules: Mapping[str, LayerRule]) -> dict[str, int]:
    """For each value, the axis that its readers need last; 0 if none is needed."""
    wanted: dict[str, int] = {}
    for link in reversed(links):
        rule = rules.get(str(getattr(link.fields, "type", "")))
        if rule is None:
            continue
        channel = rule.channel(link.fields)
        if channel is None and rule.passes:
            channel = wanted.get(link.outputs[0])
        elif channel is None and not rule.neutral:
            channel = 0
        if channel is not None:
            for source in link.sources:
                wanted[source] = wanted.get(source) or channel
    return wanted


def states_by_layer(
    graph: Graph, arrays: Mapping[str, NDArray[Any]], links: Sequence[LayerLink]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """The shapes of the states, by layer and name within it."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    shapes = {name: value.shape for name, value in graph.states().items()} | shapes
    layers = {link.name for link in links} | {link.fields.share or "" for link in links}
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        parts = name.split("/")
        for end in range(len(parts) - 1, 0, -1):  # names of layers may have a slash too
            if "/".join(parts[:end]) in layers:
                found.setdefault("/".join(parts[:end]), {})["/".join(parts[end:])] = shape
                break
    return found


LEAST_OF_IMAGES = 4
"""Rank of an input that is taken for images if no layer needs an order."""
KERNELS = ("kernel", "embeddings")
"""The states that SpectralNormalization divides."""


@dataclass(frozen=True)
class LayerRule:
    """The rule for a type of layer."""

    write: Callable[[KerasWriter, LayerLink, list[KerasTensor]], Sequence[KerasTensor]]
    channel: Callable[[LayerFields], int | None] = lambda _: None
    """The axis that it needs last in Keras, if any."""
    passes: bool = False
    """Whether its output has the input's order of axes."""
    neutral: bool = False
    """Whether it takes any order of axes, and changes it."""


@dataclass
class KerasWriter:
    """Writes a net layer by layer, with the rules for its layers."""

    net: NetSpec
    graph_for: Callable[[int], Graph]
    """The inference graph for a batch of this size."""
    arrays: Mapping[str, NDArray[Any]]
    """Values of all states; empty for a preflight check."""
    rules: Mapping[str, LayerRule]
    otherwise: Callable[[KerasWriter, LayerLink, Sequence[KerasTensor]], Sequence[KerasTensor]]
    """Writes a layer without a rule, or one that its rule cannot write."""
    problems: list[Problem] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        self.model = KerasModel(self.net.name)
        self.graph_for = cache(self.graph_for)
        self.graph = self.graph_for(1)
        self.types: dict[str, TensorType] = {name: value.type for name, value in self.graph.named.items()}
        self._tensors: dict[str, KerasTensor] = {}
        self._turned: dict[tuple[KerasTensor, tuple[int, ...]], KerasTensor] = {}
        self._owners: dict[str, KerasLayer] = {}
        self._operations: set[str] = set()  # layers that are operations, whose weights are constants
        self.maskless: set[str] = set()  # others that do not pass a mask on
        links = resolve_names(self.net)
        self.links = links.computing(links.outputs)
        self._wanted = channels(self.links, self.rules)
        self._states = states_by_layer(self.graph, self.arrays, self.links)

    def write(self) -> KerasModel:
        """Write all layers that the outputs need. Raises `InputError` with every layer that Keras does not have."""
        for name, source in self.net.inputs.items():
            if name in self.graph.inputs():
                self._input(name)
            else:  # whose values do not matter: a layer may read its shape
                self._tensors[name] = KerasTensor(
                    "", 0, 0, tuple(source.shape), str(source.dtype), in_order(len(source.shape) + 1)
                )
        for link in self.links:
            self._layer(link)
        for link, name in lost_masks(self.graph, self.links, self._operations | self.maskless):
            self._problem(link, f"it computes with a mask, which `{name}` does not hand on there")
        if self.problems:
            raise InputError(self.problems)
        self.model.outputs = [self._output(name) for name in resolve_names(self.net).outputs]
        return self.model

    def trained(self) -> dict[str, tuple[int, ...]]:
        """The parameters that Keras trains, with their shapes."""
        return {
            f"{link.fields.share or link.name}/{variable.state}": self.shapes(link)[variable.state]
            for link in self.links
            if link.fields.trainable and link.name not in self._operations
            for variable in variables(link.fields, self.shapes(link))
            if variable.trainable
        }

    # Used by rules

    def config(self, link: LayerLink, *without: str, **more: Any) -> dict[str, Any]:
        """The configuration of the layer in Keras, without the fields `without`, with those in `more`."""
        return {**configured(link.fields, clean(link.name), self.shapes(link), *without), **more}

    def shapes(self, link: LayerLink) -> dict[str, tuple[int, ...]]:
        """The shapes of the layer's states by their names within it."""
        return self._states.get(link.fields.share or link.name, {})

    def state(self, link: LayerLink, name: str) -> NDArray[Any] | None:
        """The value of a state of the layer; None if no weights are written."""
        return self.arrays.get(f"{link.fields.share or link.name}/{name}")

    def weights(self, link: LayerLink, x: KerasTensor) -> dict[str, NDArray[Any]]:
        """The layer's states in Keras's layout, by their paths; `x` is its input."""
        found = {}
        for variable in variables(link.fields, self.shapes(link)):
            array = self.state(link, variable.state)
            if array is not None:
                if variable.kind == "sample":
                    lead = len(x.order) - array.ndim
                    array = array.transpose([axis - lead for axis in x.order[lead:]])
                found[variable.path] = kernel_to_keras(array, variable)
            if variable.name == "vector_u":  # the kernel that it belongs to is a variable of the wrapper too
                first = next(
                    variable for variable in variables(link.fields, self.shapes(link)) if variable.name in KERNELS
                )
                if first.path in found:
                    found["vars/0"] = found[first.path]
        return found

    def layer(
        self,
        link: LayerLink,
        args: list[Any],
        *,
        orders: Sequence[tuple[int, ...]] | None = None,
        kind: str = "",
        module: str = LAYERS,
        config: Mapping[str, Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> tuple[KerasTensor, ...]:
        """Add the layer with these arguments, and return its outputs, with axes in `orders` (default: the net's).

        `kind` is its class in Keras, if that has another name.
        """
        types = [self.types[name] for name in link.outputs]
        given = orders or [in_order(type_.rank) for type_ in types]
        kind = kind or str(getattr(link.fields, "type", ""))
        called = self._owner(link, kind, dict(config or {}), module, dict(arrays or {}))
        called.calls.append((args, dict(kwargs or {})))
        return tuple(
            KerasTensor(
                called.name, len(called.calls) - 1, index, tuple(type_.shape[axis] for axis in order[1:]),
                _dtype(type_), order,
            )
            for index, (type_, order) in enumerate(zip(types, given, strict=True))
        )  # fmt: skip

    def helper(
        self,
        called: str,
        kind: str,
        args: list[Any],
        shape: tuple[int, ...],
        order: tuple[int, ...],
        *,
        module: str = LAYERS,
        element: str = "float32",
        rows: KerasTensor | None = None,
        kwargs: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        **config: Any,
    ) -> KerasTensor:
        """Add a layer or operation that the net does not have: `shape` and `order` are those of its output."""
        made = KerasLayer(self.free(called), kind, {}, module, arrays=dict(arrays or {}))
        made.config = {**config, "name": made.name}
        made.calls.append((args, dict(kwargs or {})))
        self.model.layers[made.name] = made
        return KerasTensor(made.name, 0, 0, shape, element, order, rows)

    def note(self, text: str, kind: str = "", subject: str = "") -> None:
        """Add a note on the written file, once: see `Note`."""
        self.notes.add(text, kind, subject)

    def ordered(self, x: KerasTensor, order: tuple[int, ...]) -> KerasTensor:
        """The tensor with its axes in this order."""
        x = self.straight(x)
        if x.order == order:
            return x
        if (x, order) not in self._turned:
            places = [x.order.index(axis) for axis in order]
            word = "channels_first" if order == in_order(len(order)) else "channels_last"
            shape = tuple(x.shape[place - 1] for place in places[1:])
            self._turned[x, order] = self.helper(
                f"{x.layer}_{word}", "Permute", [x], shape, order, element=x.dtype, dims=places[1:]
            )
        return self._turned[x, order]

    def plain(self, x: KerasTensor) -> KerasTensor:
        """The tensor with its axes as in the net."""
        return self.ordered(x, in_order(len(x.order)))

    def last(self, x: KerasTensor, channel: int = 1) -> KerasTensor:
        """The tensor with its channels last."""
        return self.ordered(x, channels_last(len(x.order), channel))

    def straight(self, x: KerasTensor) -> KerasTensor:
        """The tensor with its features in the net's order, if it was flattened in Keras's."""
        if x.rows is None:
            return x
        order = in_order(len(x.order))
        if (x, order) not in self._turned:
            image, rows = x.rows, x.shape
            whole = self.helper(
                f"{x.layer}_unflattened", "Reshape", [x], image.shape, image.order, target_shape=list(image.shape)
            )
            turned = self.plain(whole)
            self._turned[x, order] = self.helper(
                f"{x.layer}_rows", "Reshape", [turned], rows, order, target_shape=list(rows)
            )
        return self._turned[x, order]

    def wanted(self, name: str) -> tuple[int, ...]:
        """The order of axes that the readers of this value need."""
        rank, channel = self.types[name].rank, self._wanted.get(name)
        if channel is None and name in self.net.inputs and rank >= LEAST_OF_IMAGES:
            channel = 1
        return channels_last(rank, channel) if channel is not None and 0 < channel < rank else in_order(rank)

    def free(self, name: str) -> str:
        """A unique name that all of Keras's backends accept."""
        found, count = clean(name), 0
        while found in self.model.layers:
            count += 1
            found = f"{clean(name)}_{count}"
        return found

    # Inside

    def _output(self, name: str) -> KerasTensor:
        """An output: as in the net, or with channels last."""
        x = self.straight(self._tensors[name])
        known = x.plain or x.order in [channels_last(len(x.order), channel) for channel in (1, 2)]
        return x if known else self.plain(x)

    def _input(self, name: str) -> None:
        type_, order = self.types[name], self.wanted(name)
        readers = [link for link in self.links if name in link.sources]
        whole = not type_.dtype.is_float and any(
            self._takes_whole_numbers(reader.fields) or self.types[reader.outputs[0]].dtype == type_.dtype
            for reader in readers
        )
        dtype = str(type_.dtype) if whole else "float32"
        shape = tuple(type_.shape[axis] for axis in order[1:])
        called = self.free(name)
        config = {"batch_shape": [None, *shape], "dtype": dtype, "sparse": False, "name": called}
        self.model.layers[called] = KerasLayer(called, "InputLayer", config)
        made = KerasTensor(called, 0, 0, shape, dtype, order)
        self.model.inputs.append(made)
        self._tensors[name] = made

    def _takes_whole_numbers(self, fields: Any) -> bool:
        """Whether a layer needs integers as integers.

        An Embedding in a SpectralNormalization takes floats: with integers, its result would be integers.
        """
        kind = str(fields.type)
        inner = kind == "TimeDistributed" and self._takes_whole_numbers(fields.layer)
        return inner or kind in ("Embedding", "ReversibleEmbedding") or kind not in self.rules

    def _layer(self, link: LayerLink) -> None:
        fields = link.fields
        type_ = str(getattr(fields, "type", ""))
        if all(source in self._tensors for source in link.sources):
            try:
                made = self._written(link, self.rules.get(type_))
            except UnsupportedFeature as reason:
                self._problem(link, str(reason))
            else:
                self._tensors |= dict(zip(link.outputs, made, strict=True))
                self._tensors[link.name] = made[0]
                called = self._owners[link.name].name
                if called != link.name:
                    self.note(
                        f"the layer `{link.name}` is called `{called}` in Keras",
                        "{count} layers have other names in Keras", f"`{link.name}` → `{called}`",
                    )  # fmt: skip
                return
        for output in (link.name, *link.outputs):  # so that its readers are checked too
            kind = self.types[output]
            self._tensors[output] = KerasTensor("", 0, 0, kind.shape[1:], _dtype(kind), in_order(kind.rank))

    def _written(self, link: LayerLink, rule: LayerRule | None) -> Sequence[KerasTensor]:
        """The outputs of a layer: by its rule, or as operations if Keras does not have it."""
        inputs = [self._tensors[source] for source in link.sources]
        before, turned, owners = dict(self.model.layers), dict(self._turned), dict(self._owners)
        calls = {name: len(layer.calls) for name, layer in before.items()}
        reason = None
        for write in (rule.write if rule is not None else None, self.otherwise):
            try:
                if write is not None:
                    made = write(self, link, inputs)
                    return made if write is not self.otherwise else self._named(link, made, before)
            except UnsupportedFeature as found:
                reason = reason or found
                self.model.layers, self._turned, self._owners = dict(before), dict(turned), dict(owners)
                for name, count in calls.items():
                    del before[name].calls[count:]
        assert reason is not None
        raise reason

    def _named(
        self, link: LayerLink, made: Sequence[KerasTensor], before: Mapping[str, KerasLayer]
    ) -> Sequence[KerasTensor]:
        """Operations; the one of the first output gets the layer's name."""
        self._operations.add(link.name)
        old = made[0].layer
        if old in before:  # nothing is computed
            return [*self.layer(link, [made[0]], kind="Identity", orders=[made[0].order]), *made[1:]]
        added = {name: layer for name, layer in self.model.layers.items() if name not in before}
        name = clean(link.name) if clean(link.name) in added else self.free(link.name)
        if name in added and name != old:
            raise AssertionError(f"an operation of `{link.name}` has its name")
        for layer in added.values():
            layer.calls = [renamed(call, old, name) for call in layer.calls]
        last = added[old]
        last.name = last.config["name"] = name
        self.model.layers = {layer.name: layer for layer in self.model.layers.values()}
        self._turned = {renamed(key, old, name): renamed(one, old, name) for key, one in self._turned.items()}
        self._owners[link.name] = last
        if self.shapes(link):
            self.note(
                f"the weights of `{link.name}` are constants in Keras, which are not trained there",
                "the weights of {count} layers are constants in Keras, which are not trained there", f"`{link.name}`",
            )  # fmt: skip
        return [renamed(one, old, name) for one in made]

    def _problem(self, link: LayerLink, why: str) -> None:
        type_ = getattr(link.fields, "type", "")
        self.problems.append(
            Problem(f"layer `{link.name}` ({type_}) can't be written for Keras", link.fields.where(),
                    f"layers.{link.name}", got=why)
        )  # fmt: skip

    def _owner(
        self, link: LayerLink, kind: str, config: dict[str, Any], module: str, arrays: dict[str, NDArray[Any]]
    ) -> KerasLayer:
        """The layer in Keras: a new one, or the one whose parameters this layer shares."""
        share = link.fields.share
        if share is not None and share in self._owners:
            owner = self._owners[share]
            same = {key: value for key, value in owner.config.items() if key != "name"}
            if owner.class_name != kind or same != {key: value for key, value in config.items() if key != "name"}:
                raise UnsupportedFeature(
                    f"it shares the parameters of `{share}` and computes otherwise: there it is one layer"
                )
            self._owners[link.name] = owner
            return owner
        name = self.free(link.name)
        made = KerasLayer(name, kind, {**config, "name": name}, module, class_name(kind), arrays=arrays)
        self.model.layers[name] = self._owners[link.name] = made
        return made


def _dtype(kind: TensorType) -> str:
    return str(kind.dtype)
