"""A net as a Keras model: who reads whom, and how what is read lies there.

Images are channels-last in Keras, as its users have them, and channels-first here. So each tensor of the model knows
which of the net's axes lies where; a layer says how it wants its inputs, and a Permute is put before it only where they
lie otherwise. What is flattened as it lies in Keras is remembered: a Dense behind it has its rows in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem
from netspec.exchange.keras_export.laying import channels_last, clean, in_order, renamed
from netspec.exchange.keras_export.model import LAYERS, KerasLayer, KerasModel, Tensor
from netspec.exchange.keras_export.survey import channels, needed, states_by_layer
from netspec.exchange.keras_export.values import Unwritable, configured
from netspec.exchange.keras_names import class_name, variables
from netspec.exchange.keras_names import to_keras as kernel_to_keras
from netspec.exchange.masks import lost_masks
from netspec.graph.graph import Graph
from netspec.graph.types import TensorType
from netspec.schema.kinds import LayerFields
from netspec.schema.links import LayerLink, resolve_names
from netspec.schema.net import NetSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


LEAST_OF_IMAGES = 4
"""Axes of an input of which no layer says how it wants it, and which is taken for images."""
KERNELS = ("kernel", "embeddings")
"""What SpectralNormalization makes smaller."""


@dataclass(frozen=True)
class Rule:
    """How a kind of layer is written."""

    write: Callable[[Writer, LayerLink, list[Tensor]], Sequence[Tensor]]
    channel: Callable[[LayerFields], int | None] = lambda _: None
    """The axis that it wants to be last in Keras, if any."""
    passes: bool = False
    """Whether its output lies as its input does."""
    neutral: bool = False
    """Whether it takes what it reads in any order, and makes something else of it."""


@dataclass
class Writer:
    """Writes a net layer by layer, with the rules for its layers."""

    net: NetSpec
    graph_for: Callable[[int], Graph]
    """The inference graph for a batch of this size."""
    arrays: Mapping[str, NDArray[Any]]
    """Values of all states; none where only what can be said is asked for."""
    rules: Mapping[str, Rule]
    otherwise: Callable[[Writer, LayerLink, Sequence[Tensor]], Sequence[Tensor]]
    """Writes a layer of which there is no rule, or one that its rule can't write."""
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = KerasModel(self.net.name)
        self.graph_for = cache(self.graph_for)
        self.graph = self.graph_for(1)
        self.types: dict[str, TensorType] = {name: value.type for name, value in self.graph.named.items()}
        self._tensors: dict[str, Tensor] = {}
        self._turned: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}
        self._owners: dict[str, KerasLayer] = {}
        self._operations: set[str] = set()  # layers that are operations, whose weights are constants
        self.maskless: set[str] = set()  # others that hand no mask on
        self.links = needed(self.net)
        self._wanted = channels(self.links, self.rules)
        self._states = states_by_layer(self.graph, self.arrays, self.links)

    def write(self) -> KerasModel:
        """Write all layers that the outputs need. Raises `InputError` with every layer that Keras has not."""
        for name, one in self.net.inputs.items():
            if name in self.graph.inputs():
                self._input(name)
            else:  # of which no number counts: a layer may look at its shape
                self._tensors[name] = Tensor("", 0, 0, tuple(one.shape), str(one.dtype), in_order(len(one.shape) + 1))
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
            f"{link.fields.share or link.name}/{one.state}": self.shapes(link)[one.state]
            for link in self.links
            if link.fields.trainable and link.name not in self._operations
            for one in variables(link.fields, self.shapes(link))
            if one.trainable
        }

    # What rules use

    def config(self, link: LayerLink, *without: str, **more: Any) -> dict[str, Any]:
        """The configuration of the layer in Keras; fields `without` are not written, `more` are."""
        return {**configured(link.fields, clean(link.name), self.shapes(link), *without), **more}

    def shapes(self, link: LayerLink) -> dict[str, tuple[int, ...]]:
        """The shapes of the layer's states by their names within it."""
        return self._states.get(link.fields.share or link.name, {})

    def state(self, link: LayerLink, name: str) -> NDArray[Any] | None:
        """The value of a state of the layer; None where no weights are written."""
        return self.arrays.get(f"{link.fields.share or link.name}/{name}")

    def weights(self, link: LayerLink, x: Tensor) -> dict[str, NDArray[Any]]:
        """The layer's states as Keras has them, by their paths; `x` is what it reads."""
        found = {}
        for one in variables(link.fields, self.shapes(link)):
            array = self.state(link, one.state)
            if array is not None:
                if one.kind == "sample":
                    lead = len(x.order) - array.ndim
                    array = array.transpose([axis - lead for axis in x.order[lead:]])
                found[one.path] = kernel_to_keras(array, one)
            if one.name == "vector_u":  # the kernel that it belongs to is a variable of the wrapper too
                first = next(other for other in variables(link.fields, self.shapes(link)) if other.name in KERNELS)
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
    ) -> tuple[Tensor, ...]:
        """The layer itself, called with these arguments: its outputs, which lie in `orders` (default: as in the net).

        `kind` is its class in Keras, where that is not the one of its name.
        """
        types = [self.types[name] for name in link.outputs]
        given = orders or [in_order(one.rank) for one in types]
        kind = kind or str(getattr(link.fields, "type", ""))
        called = self._owner(link, kind, dict(config or {}), module, dict(arrays or {}))
        called.calls.append((args, dict(kwargs or {})))
        return tuple(
            Tensor(
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
        rows: Tensor | None = None,
        kwargs: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        **config: Any,
    ) -> Tensor:
        """A layer or operation that the net has not: `shape` and `order` are those of its output."""
        made = KerasLayer(self.free(called), kind, {}, module, arrays=dict(arrays or {}))
        made.config = {**config, "name": made.name}
        made.calls.append((args, dict(kwargs or {})))
        self.model.layers[made.name] = made
        return Tensor(made.name, 0, 0, shape, element, order, rows)

    def note(self, text: str) -> None:
        """Tell the user something of what was written."""
        self.notes.setdefault(text)

    def ordered(self, x: Tensor, order: tuple[int, ...]) -> Tensor:
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

    def plain(self, x: Tensor) -> Tensor:
        """The tensor with its axes as in the net."""
        return self.ordered(x, in_order(len(x.order)))

    def last(self, x: Tensor, channel: int = 1) -> Tensor:
        """The tensor with its channels last."""
        return self.ordered(x, channels_last(len(x.order), channel))

    def straight(self, x: Tensor) -> Tensor:
        """The tensor with the numbers of a row in the net's order, where they were laid out in Keras's."""
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
        """The order of axes that who reads the output of this name wants."""
        rank, channel = self.types[name].rank, self._wanted.get(name)
        if channel is None and name in self.net.inputs and rank >= LEAST_OF_IMAGES:
            channel = 1
        return channels_last(rank, channel) if channel is not None and 0 < channel < rank else in_order(rank)

    def free(self, name: str) -> str:
        """The name as Keras takes it on every backend, and as no other layer has it."""
        found, count = clean(name), 0
        while found in self.model.layers:
            count += 1
            found = f"{clean(name)}_{count}"
        return found

    # Inside

    def _output(self, name: str) -> Tensor:
        """An output: as in the net, or with channels last."""
        x = self.straight(self._tensors[name])
        known = x.plain or x.order in [channels_last(len(x.order), channel) for channel in (1, 2)]
        return x if known else self.plain(x)

    def _input(self, name: str) -> None:
        type_, order = self.types[name], self.wanted(name)
        readers = [link for link in self.links if name in link.sources]
        whole = not type_.dtype.is_float and any(
            self._takes_whole_numbers(one.fields) or self.types[one.outputs[0]].dtype == type_.dtype for one in readers
        )
        dtype = str(type_.dtype) if whole else "float32"
        shape = tuple(type_.shape[axis] for axis in order[1:])
        called = self.free(name)
        config = {"batch_shape": [None, *shape], "dtype": dtype, "sparse": False, "name": called}
        self.model.layers[called] = KerasLayer(called, "InputLayer", config)
        made = Tensor(called, 0, 0, shape, dtype, order)
        self.model.inputs.append(made)
        self._tensors[name] = made

    def _takes_whole_numbers(self, fields: Any) -> bool:
        """Whether a layer is to be given whole numbers as such.

        An Embedding in a SpectralNormalization takes them as floats: of whole numbers that makes whole numbers.
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
            except Unwritable as reason:
                self._problem(link, str(reason))
            else:
                self._tensors |= dict(zip(link.outputs, made, strict=True))
                self._tensors[link.name] = made[0]
                called = self._owners[link.name].name
                if called != link.name:
                    self.note(f"the layer `{link.name}` is called `{called}` in Keras")
                return
        for output in (link.name, *link.outputs):  # for those that read it to be judged too
            kind = self.types[output]
            self._tensors[output] = Tensor("", 0, 0, kind.shape[1:], _dtype(kind), in_order(kind.rank))

    def _written(self, link: LayerLink, rule: Rule | None) -> Sequence[Tensor]:
        """The outputs of a layer: by its rule, or as operations where Keras has no layer like that."""
        inputs = [self._tensors[source] for source in link.sources]
        before, turned, owners = dict(self.model.layers), dict(self._turned), dict(self._owners)
        calls = {name: len(layer.calls) for name, layer in before.items()}
        reason = None
        for write in (rule.write if rule is not None else None, self.otherwise):
            try:
                if write is not None:
                    made = write(self, link, inputs)
                    return made if write is not self.otherwise else self._named(link, made, before)
            except Unwritable as found:
                reason = reason or found
                self.model.layers, self._turned, self._owners = dict(before), dict(turned), dict(owners)
                for name, count in calls.items():
                    del before[name].calls[count:]
        assert reason is not None
        raise reason

    def _named(self, link: LayerLink, made: Sequence[Tensor], before: Mapping[str, KerasLayer]) -> Sequence[Tensor]:
        """Operations, of which that of the first output gets the layer's name."""
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
            self.note(f"the weights of `{link.name}` are constants in Keras, which are not trained there")
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
        """The layer in Keras: a new one, or that of the layer whose parameters this one shares."""
        share = link.fields.share
        if share is not None and share in self._owners:
            owner = self._owners[share]
            same = {key: value for key, value in owner.config.items() if key != "name"}
            if owner.class_name != kind or same != {key: value for key, value in config.items() if key != "name"}:
                raise Unwritable(f"it shares the parameters of `{share}` and computes otherwise: there it is one layer")
            self._owners[link.name] = owner
            return owner
        name = self.free(link.name)
        made = KerasLayer(name, kind, {**config, "name": name}, module, class_name(kind), arrays=arrays)
        self.model.layers[name] = self._owners[link.name] = made
        return made


def _dtype(kind: TensorType) -> str:
    return str(kind.dtype)
