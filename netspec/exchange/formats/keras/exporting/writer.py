"""Write a net as a Keras model layer by layer, with an order of axes for each value that suits its readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from numpy.typing import NDArray

from netspec.errors import InputError, Problem
from netspec.exchange.formats.keras.exporting.axes import channels_last, clean, net_order, with_renamed_layer
from netspec.exchange.formats.keras.exporting.config import layer_config
from netspec.exchange.formats.keras.exporting.model import LAYERS, KerasLayer, KerasModel, KerasTensor
from netspec.exchange.formats.keras.names import class_name, variables
from netspec.exchange.formats.keras.names import to_keras as kernel_to_keras
from netspec.exchange.lower.masks import lost_masks
from netspec.exchange.names import layer_of_state
from netspec.exchange.notes import Notes
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.graph import Graph
from netspec.graph.types import TensorType
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink, resolve_names
from netspec.schema.specs.net import NetSpec


def channel_axes(links: Sequence[LayerLink], rules: Mapping[str, LayerRule]) -> dict[str, int]:
    """For each value, the axis that its readers need last; 0 if none is needed."""
    channel_axes: dict[str, int] = {}
    for link in reversed(links):
        rule = rules.get(str(getattr(link.fields, "type", "")))
        if rule is None:
            continue
        channel = rule.channel(link.fields)
        if channel is None and rule.keeps_order:
            channel = channel_axes.get(link.outputs[0])
        elif channel is None and not rule.changes_order:
            channel = 0
        if channel is not None:
            for source in link.sources:
                channel_axes[source] = channel_axes.get(source) or channel
    return channel_axes


def states_by_layer(
    graph: Graph, arrays: Mapping[str, NDArray[Any]], links: Sequence[LayerLink]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """The shapes of the states, by layer and name within it."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    shapes = {name: value.shape for name, value in graph.states().items()} | shapes
    layers = {link.name for link in links} | {link.fields.share or "" for link in links}
    by_layer: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        if layer := layer_of_state(name, layers):
            by_layer.setdefault(layer, {})[name.removeprefix(f"{layer}/")] = shape
    return by_layer


MIN_IMAGE_RANK = 4
"""Rank of an input that is taken for images if no layer needs an order."""
NORMALIZED_STATES = ("kernel", "embeddings")
"""The states that SpectralNormalization divides."""


@dataclass(frozen=True)
class LayerRule:
    """The rule for a type of layer."""

    write: Callable[[KerasWriter, LayerLink, list[KerasTensor]], Sequence[KerasTensor]]
    channel: Callable[[LayerFields], int | None] = lambda _: None
    """The axis of the input that Keras's layer needs last, if any."""
    keeps_order: bool = False
    """Whether the layer takes any order of axes, and its output has the same order."""
    changes_order: bool = False
    """Whether the layer takes any order of axes, and its output has another one."""


@dataclass
class KerasWriter:
    """Writes a net layer by layer, with the rules for its layers."""

    net: NetSpec
    graph_for: Callable[[int], Graph]
    """The inference graph for a batch of this size."""
    arrays: Mapping[str, NDArray[Any]]
    """Values of all states; empty for a preflight check."""
    rules: Mapping[str, LayerRule]
    fallback: Callable[[KerasWriter, LayerLink, Sequence[KerasTensor]], Sequence[KerasTensor]]
    """Writes a layer without a rule, or one that its rule cannot write."""
    problems: list[Problem] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        self.model = KerasModel(self.net.name)
        self.graph_for = cache(self.graph_for)
        self.graph = self.graph_for(1)
        self.types: dict[str, TensorType] = {name: value.type for name, value in self.graph.named.items()}
        self._tensors: dict[str, KerasTensor] = {}
        self._permuted: dict[tuple[KerasTensor, tuple[int, ...]], KerasTensor] = {}
        self._keras_layers: dict[str, KerasLayer] = {}
        self._operations: set[str] = set()
        """Layers that are written as operations, with weights as constants."""
        self.drops_mask: set[str] = set()
        """Other layers that do not pass a mask on in Keras."""
        links = resolve_names(self.net)
        self.links = links.computing(links.outputs)
        self._channel_axes = channel_axes(self.links, self.rules)
        self._states = states_by_layer(self.graph, self.arrays, self.links)

    def write(self) -> KerasModel:
        """Write all layers that the outputs need. Raises `InputError` with every layer that Keras does not have."""
        for name, source in self.net.inputs.items():
            if name in self.graph.inputs():
                self._input(name)
            else:  # a layer may read its shape, but none reads its values
                self._tensors[name] = KerasTensor(
                    "", 0, 0, tuple(source.shape), str(source.dtype), net_order(len(source.shape) + 1)
                )
        for link in self.links:
            self._layer(link)
        for link, name in lost_masks(self.graph, self.links, self._operations | self.drops_mask):
            self._problem(link, f"it uses a mask, which `{name}` does not pass on in Keras")
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

    # Used by rules.

    def config(self, link: LayerLink, *left_out: str, **extra: Any) -> dict[str, Any]:
        """The configuration of the layer in Keras, without the fields `left_out`, with those in `extra`."""
        return {**layer_config(link.fields, clean(link.name), self.shapes(link), *left_out), **extra}

    def shapes(self, link: LayerLink) -> dict[str, tuple[int, ...]]:
        """The shapes of the layer's states by their names within it."""
        return self._states.get(link.fields.share or link.name, {})

    def state(self, link: LayerLink, name: str) -> NDArray[Any] | None:
        """The value of a state of the layer; None if no weights are written."""
        return self.arrays.get(f"{link.fields.share or link.name}/{name}")

    def weights(self, link: LayerLink, x: KerasTensor) -> dict[str, NDArray[Any]]:
        """The layer's states in Keras's layout, by their paths; `x` is its input."""
        arrays = {}
        for variable in variables(link.fields, self.shapes(link)):
            array = self.state(link, variable.state)
            if array is not None:
                if variable.kind == "sample":
                    lead = len(x.order) - array.ndim
                    array = array.transpose([axis - lead for axis in x.order[lead:]])
                arrays[variable.path] = kernel_to_keras(array, variable)
            if variable.name == "vector_u":  # the kernel that it belongs to is a variable of the wrapper too
                first = next(
                    variable
                    for variable in variables(link.fields, self.shapes(link))
                    if variable.name in NORMALIZED_STATES
                )
                if first.path in arrays:
                    arrays["vars/0"] = arrays[first.path]
        return arrays

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

        `kind` is its class in Keras, if that has another name; `config` is by default that of `config(link)`.
        """
        types = [self.types[name] for name in link.outputs]
        output_orders = orders or [net_order(type_.rank) for type_ in types]
        kind = kind or str(getattr(link.fields, "type", ""))
        config = self.config(link) if config is None else dict(config)
        keras_layer = self._keras_layer(link, kind, config, module, dict(arrays or {}))
        keras_layer.calls.append((args, dict(kwargs or {})))
        return tuple(
            KerasTensor(
                keras_layer.name, len(keras_layer.calls) - 1, index, tuple(type_.shape[axis] for axis in order[1:]),
                _dtype(type_), order,
            )
            for index, (type_, order) in enumerate(zip(types, output_orders, strict=True))
        )  # fmt: skip

    def elementwise_layer(
        self, link: LayerLink, x: KerasTensor, *left_out: str, kind: str = "", **extra: Any
    ) -> list[KerasTensor]:
        """Add a layer whose output has the input's order of axes and features; for the config see `config`."""
        outputs = self.layer(link, [x], orders=[x.order], kind=kind, config=self.config(link, *left_out, **extra))
        return [replace(output, flattened_from=x.flattened_from) for output in outputs]

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
        flattened_from: KerasTensor | None = None,
        kwargs: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        **config: Any,
    ) -> KerasTensor:
        """Add a layer or operation that the net does not have: `shape` and `order` are those of its output."""
        keras_layer = KerasLayer(self.unique_name(called), kind, {}, module, arrays=dict(arrays or {}))
        keras_layer.config = {**config, "name": keras_layer.name}
        keras_layer.calls.append((args, dict(kwargs or {})))
        self.model.layers[keras_layer.name] = keras_layer
        return KerasTensor(keras_layer.name, 0, 0, shape, element, order, flattened_from)

    def helper_like(self, x: KerasTensor, called: str, kind: str, args: list[Any], **options: Any) -> KerasTensor:
        """Add a layer or operation as `helper` does, whose output has the shape, axes and features of `x`."""
        return self.helper(called, kind, args, x.shape, x.order, flattened_from=x.flattened_from, **options)

    def permuted(self, x: KerasTensor, order: tuple[int, ...]) -> KerasTensor:
        """The tensor with its axes in this order."""
        x = self.with_net_features(x)
        if x.order == order:
            return x
        if (x, order) not in self._permuted:
            positions = [x.order.index(axis) for axis in order]
            layout = "channels_first" if order == net_order(len(order)) else "channels_last"
            shape = tuple(x.shape[position - 1] for position in positions[1:])
            self._permuted[x, order] = self.helper(
                f"{x.layer}_{layout}", "Permute", [x], shape, order, element=x.dtype, dims=positions[1:]
            )
        return self._permuted[x, order]

    def plain(self, x: KerasTensor) -> KerasTensor:
        """The tensor with its axes as in the net."""
        return self.permuted(x, net_order(len(x.order)))

    def last(self, x: KerasTensor, channel: int = 1) -> KerasTensor:
        """The tensor with its channels last."""
        return self.permuted(x, channels_last(len(x.order), channel))

    def with_net_features(self, x: KerasTensor) -> KerasTensor:
        """The tensor with its features in the net's order, even if it was flattened in Keras's order."""
        if x.flattened_from is None:
            return x
        order = net_order(len(x.order))
        if (x, order) not in self._permuted:
            image, flattened_from = x.flattened_from, x.shape
            unflattened = self.helper(
                f"{x.layer}_unflattened", "Reshape", [x], image.shape, image.order, target_shape=list(image.shape)
            )
            in_net_order = self.plain(unflattened)
            self._permuted[x, order] = self.helper(
                f"{x.layer}_rows", "Reshape", [in_net_order], flattened_from, order, target_shape=list(flattened_from)
            )
        return self._permuted[x, order]

    def preferred_order(self, name: str) -> tuple[int, ...]:
        """The order of axes that the readers of this value need."""
        rank, channel = self.types[name].rank, self._channel_axes.get(name)
        if channel is None and name in self.net.inputs and rank >= MIN_IMAGE_RANK:
            channel = 1
        return channels_last(rank, channel) if channel is not None and 0 < channel < rank else net_order(rank)

    def unique_name(self, name: str) -> str:
        """A unique name that all of Keras's backends accept."""
        unique, count = clean(name), 0
        while unique in self.model.layers:
            count += 1
            unique = f"{clean(name)}_{count}"
        return unique

    # Internal.

    def _output(self, name: str) -> KerasTensor:
        """An output: as in the net, or with channels last."""
        x = self.with_net_features(self._tensors[name])
        is_documented = x.plain or x.order in [channels_last(len(x.order), channel) for channel in (1, 2)]
        return x if is_documented else self.plain(x)

    def _input(self, name: str) -> None:
        type_, order = self.types[name], self.preferred_order(name)
        readers = [link for link in self.links if name in link.sources]
        needs_integers = not type_.dtype.is_float and any(
            self._takes_integers(reader.fields) or self.types[reader.outputs[0]].dtype == type_.dtype
            for reader in readers
        )
        dtype = str(type_.dtype) if needs_integers else "float32"
        shape = tuple(type_.shape[axis] for axis in order[1:])
        keras_name = self.unique_name(name)
        config = {"batch_shape": [None, *shape], "dtype": dtype, "sparse": False, "name": keras_name}
        self.model.layers[keras_name] = KerasLayer(keras_name, "InputLayer", config)
        tensor = KerasTensor(keras_name, 0, 0, shape, dtype, order)
        self.model.inputs.append(tensor)
        self._tensors[name] = tensor

    def _takes_integers(self, fields: Any) -> bool:
        """Whether a layer needs integers as integers.

        An Embedding in a SpectralNormalization takes floats: with integers, its result would be integers.
        """
        kind = str(fields.type)
        inner = kind == "TimeDistributed" and self._takes_integers(fields.layer)
        return inner or kind in ("Embedding", "ReversibleEmbedding") or kind not in self.rules

    def _layer(self, link: LayerLink) -> None:
        fields = link.fields
        type_ = str(getattr(fields, "type", ""))
        if all(source in self._tensors for source in link.sources):
            try:
                outputs = self._write_layer(link, self.rules.get(type_))
            except UnsupportedFeature as reason:
                self._problem(link, str(reason))
            else:
                self._tensors |= dict(zip(link.outputs, outputs, strict=True))
                self._tensors[link.name] = outputs[0]
                keras_name = self._keras_layers[link.name].name
                if keras_name != link.name:
                    self.notes.add(
                        f"the layer `{link.name}` is called `{keras_name}` in Keras",
                        "{count} layers have other names in Keras", f"`{link.name}` → `{keras_name}`",
                    )  # fmt: skip
                return
        for output in (link.name, *link.outputs):  # lets its readers be checked too
            tensor_type = self.types[output]
            shape, order = tensor_type.shape[1:], net_order(tensor_type.rank)
            self._tensors[output] = KerasTensor("", 0, 0, shape, _dtype(tensor_type), order)

    def _write_layer(self, link: LayerLink, rule: LayerRule | None) -> Sequence[KerasTensor]:
        """The outputs of a layer: by its rule, or as operations if Keras does not have it."""
        inputs = [self._tensors[source] for source in link.sources]
        layers_before, permuted_before, owners_before = (
            dict(self.model.layers),
            dict(self._permuted),
            dict(self._keras_layers),
        )
        calls_before = {name: len(layer.calls) for name, layer in layers_before.items()}
        reason = None
        for write in (rule.write if rule is not None else None, self.fallback):
            try:
                if write is not None:
                    outputs = write(self, link, inputs)
                    return outputs if write is not self.fallback else self._name_operation(link, outputs, layers_before)
            except UnsupportedFeature as unsupported:
                reason = reason or unsupported
                self.model.layers, self._permuted, self._keras_layers = (
                    dict(layers_before),
                    dict(permuted_before),
                    dict(owners_before),
                )
                for name, count in calls_before.items():
                    del layers_before[name].calls[count:]
        assert reason is not None
        raise reason

    def _name_operation(
        self, link: LayerLink, outputs: Sequence[KerasTensor], layers_before: Mapping[str, KerasLayer]
    ) -> Sequence[KerasTensor]:
        """Give the operation that computes the layer's first output the layer's name."""
        self._operations.add(link.name)
        old_name = outputs[0].layer
        if old_name in layers_before:  # nothing is computed
            return [
                *self.layer(link, [outputs[0]], kind="Identity", orders=[outputs[0].order], config={}),
                *outputs[1:],
            ]
        added_layers = {name: layer for name, layer in self.model.layers.items() if name not in layers_before}
        name = clean(link.name) if clean(link.name) in added_layers else self.unique_name(link.name)
        if name in added_layers and name != old_name:
            raise AssertionError(f"an operation of `{link.name}` has its name")
        for layer in added_layers.values():
            layer.calls = [with_renamed_layer(call, old_name, name) for call in layer.calls]
        last_operation = added_layers[old_name]
        last_operation.name = last_operation.config["name"] = name
        self.model.layers = {layer.name: layer for layer in self.model.layers.values()}
        self._permuted = {
            with_renamed_layer(key, old_name, name): with_renamed_layer(tensor, old_name, name)
            for key, tensor in self._permuted.items()
        }
        self._keras_layers[link.name] = last_operation
        if self.shapes(link):
            self.notes.add(
                f"the weights of `{link.name}` are constants in Keras, which are not trained there",
                "the weights of {count} layers are constants in Keras, which are not trained there", f"`{link.name}`",
            )  # fmt: skip
        return [with_renamed_layer(tensor, old_name, name) for tensor in outputs]

    def _problem(self, link: LayerLink, reason: str) -> None:
        type_ = getattr(link.fields, "type", "")
        self.problems.append(
            Problem(f"layer `{link.name}` ({type_}) can't be written for Keras", link.fields.where(),
                    f"layers.{link.name}", got=reason)
        )  # fmt: skip

    def _keras_layer(
        self, link: LayerLink, kind: str, config: dict[str, Any], module: str, arrays: dict[str, NDArray[Any]]
    ) -> KerasLayer:
        """The layer in Keras: a new one, or the one whose parameters this layer shares."""
        share = link.fields.share
        if share is not None and share in self._keras_layers:
            owner = self._keras_layers[share]
            owner_config = {key: value for key, value in owner.config.items() if key != "name"}
            if owner.class_name != kind or owner_config != {
                key: value for key, value in config.items() if key != "name"
            }:
                raise UnsupportedFeature(
                    f"it shares the parameters of `{share}` but has other fields, and in Keras both would be one layer"
                )
            self._keras_layers[link.name] = owner
            return owner
        name = self.unique_name(link.name)
        keras_layer = KerasLayer(name, kind, {**config, "name": name}, module, class_name(kind), arrays=arrays)
        self.model.layers[name] = self._keras_layers[link.name] = keras_layer
        return keras_layer


def _dtype(kind: TensorType) -> str:
    return str(kind.dtype)
