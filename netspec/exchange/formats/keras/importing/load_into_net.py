"""Load weights of Keras into a net: find its layers by their names, else by their classes in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError
from netspec.exchange.axis_view import axes_of_order
from netspec.exchange.containers.hdf5 import Hdf5Reader
from netspec.exchange.formats.keras.importing.archive import KerasFile, open_keras
from netspec.exchange.formats.keras.importing.axes import (
    KEEPS,
    PASSES_ROWS,
    LayoutPreference,
    Order,
    TensorView,
    channels_first,
    identity,
    moves_nothing,
    order_of_input,
    turned_rows,
    wish_of,
)
from netspec.exchange.formats.keras.importing.config import ConfiguredLayer
from netspec.exchange.formats.keras.importing.importer import LayerWeights, conversion
from netspec.exchange.formats.keras.importing.weights import WeightTree, fitted, flat_order, is_tree, stored_in_order
from netspec.exchange.formats.keras.names import (
    KerasVariable,
    builtin,
    class_name,
    keras_snake,
    unique_names,
    variables,
)
from netspec.exchange.interface import Target
from netspec.exchange.lift.inputs import OPEN_BATCH
from netspec.exchange.net_yaml_writer import DraftLayer, clean
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, in_scope
from netspec.layers.base import Builder
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink, resolve_names

if TYPE_CHECKING:
    from numpy.typing import NDArray


def weights_of(path: str | Path, target: Target) -> dict[str, NDArray[Any]]:
    """The weights in a file of Keras by the names of a net's states; others keep their names in the file."""
    file = open_keras(Path(path))
    if file.weights is None:
        raise InputError(f"{path} has no weights", expected="a model that was saved with its weights")
    wanted = _wanted(target)
    if is_tree(file.weights):
        found = _from_tree(file, WeightTree(file.weights), wanted)
    else:
        found = _in_order(file, file.weights, stored_in_order(file.weights), wanted)
    return target.renamed(found)


def _wanted(target: Target) -> list[LayerWeights]:
    """The layers of the net that have states of their own, with the conversions of their weights."""
    spec = target.net
    links = resolve_names(spec).layers
    readers: dict[str, list[LayerLink]] = {}
    for link in links:
        for source in link.sources:
            readers.setdefault(source, []).append(link)
    held: dict[str, TensorView] = {}
    builder = Builder(training=False, dtype=DType.FLOAT32)
    for name, one in spec.inputs.items():
        kind = TensorType((OPEN_BATCH, *one.shape), DType(one.dtype))
        order = order_of_input(_wishes(name, readers), len(kind.shape))
        held[name] = TensorView(source=name, axes=axes_of_order(order), value=Input(name, kind)())
    found = []
    for link in links:
        inputs = [held[source] for source in link.sources]
        with in_scope(builder.enter(link.fields, link.name)):
            layer: Any = link.fields
            made = layer.call(builder, *(tensor.value for tensor in inputs))
        values = made if isinstance(made, tuple) else (made,)
        order, rows = _behind(link, inputs[0], values[0], readers)
        for output, value in zip((*link.outputs, link.name), (*values, values[0]), strict=False):
            axes = axes_of_order(order if len(order) == len(value.shape) else range(len(value.shape)))
            held[output] = TensorView(source=output, axes=axes, value=value, rows=rows)
        own = {name.removeprefix(f"{link.name}/"): info.value.shape for name, info in builder.states.items()
               if name.startswith(f"{link.name}/")}  # fmt: skip
        if own and link.fields.share is None:
            found.append(_of_layer(link, own, inputs[0]))
    return found


def _of_layer(link: LayerLink, states: dict[str, tuple[int, ...]], given: TensorView) -> LayerWeights:
    path = tuple(link.name.split("/"))
    layer = ConfiguredLayer(path, str(getattr(link.fields, "type", "")), {}, "", "", "", not link.fields.trainable)
    wanted = LayerWeights(layer, DraftLayer(link.name, layer.class_name), variables(link.fields, states), states)
    fields = {name: list(one) if isinstance(one, tuple) else one for name, one in link.fields}
    for one in wanted.variables:
        if layer.class_name == "Dense" and one.state != "kernel":
            continue
        told = conversion(one, given, fields)
        if told is not None:
            wanted.convert[one.state] = told[1]
    return wanted


def _wishes(name: str, readers: Mapping[str, Sequence[LayerLink]]) -> list[LayoutPreference]:
    """The axis orders that the readers of a tensor expect; for a reader that takes any order, those of its readers."""
    found, waiting, seen = [], [name], {name}
    while waiting:
        for link in readers.get(waiting.pop(0), []):
            wish = _wish(link.fields)
            if wish.kind == "any":
                waiting += [one for one in (link.name, *link.outputs) if one not in seen]
                seen.update((link.name, *link.outputs))
            elif wish.kind != "none":
                found.append(wish)
    return found


def _wish(fields: LayerFields) -> LayoutPreference:
    """The axis order that a layer's class in Keras expects of its input."""
    type_ = str(getattr(fields, "type", ""))
    if type_ in _OF_ELEMENTS:
        return LayoutPreference("any")
    if builtin("layer", type_) is None:
        return LayoutPreference("none")
    return wish_of(type_, _configured(fields))


def _configured(fields: LayerFields) -> dict[str, Any]:
    """Keras's configuration of the layer that a wrapper contains."""
    inner = getattr(fields, "layer", None)
    if inner is None:
        return {}
    return {"layer": {"class_name": str(getattr(inner, "type", "")), "config": _configured(inner)}}


_OF_ELEMENTS = ("Abs", "Bias", "Cast", "Clip", "Exp", "Expression", "Log", "Power", "Scale", "Swish", "Threshold")
"""Layers that Keras does not have, whose output has the same axes as their input."""


def _behind(
    link: LayerLink, given: TensorView, value: Value, readers: Mapping[str, Sequence[LayerLink]]
) -> tuple[Order, Any]:
    """The order of the axes of a layer's output in Keras, and of its features if it is a flattened image."""
    type_, rank = str(getattr(link.fields, "type", "")), len(value.shape)
    if type_ == "Flatten":
        axes = tuple(axis - 1 for axis in given.order[1:])
        shape = given.value.shape[1:]
        rows = None if moves_nothing(shape, axes) else turned_rows(shape, axes)
        return identity(rank), rows
    rows = given.rows if type_ in PASSES_ROWS else None
    wish = _wish(link.fields)
    if wish.kind == "first":
        lead = wish.lead - (len(given.order) - rank if "ConvLSTM" in type_ else 0)
        return (channels_first(rank, lead) if rank > lead + 1 else identity(rank)), None
    keeps = type_ in KEEPS or type_ in _OF_ELEMENTS
    return (given.order if keeps and rank == len(given.order) else identity(rank)), rows


@dataclass
class _Group:
    """A layer in a `.weights.h5`: its path, its name in the file, and its class."""

    path: str
    name: str
    snake: str


def _groups(tree: WeightTree) -> list[_Group]:
    """The layers of a file, including those of nested models."""
    found: dict[str, _Group] = {}
    for path in tree.paths:
        parts = path.split("/")
        if parts[:1] != ["layers"] or "vars" not in parts:
            continue
        depth = 2
        while len(parts) > depth + 1 and parts[depth] == "layers":  # a nested model
            depth += 2
        place = "/".join(parts[:depth])
        names = [tree.name("/".join(parts[:end])) for end in range(2, depth + 1, 2)]
        snake = (
            parts[depth - 1].rstrip("0123456789").rstrip("_") if parts[depth - 1][-1:].isdigit() else parts[depth - 1]
        )
        found.setdefault(place, _Group(place, "/".join(map(clean, names)) if all(names) else "", snake))
    return list(found.values())


def _from_tree(file: KerasFile, tree: WeightTree, wanted: Sequence[LayerWeights]) -> dict[str, NDArray[Any]]:
    groups = _groups(tree)
    by_name = {group.name: group.path for group in groups if group.name}
    snakes = list(unique_names(keras_snake(class_name(one.layer.class_name)) for one in wanted))
    in_turn = {one.draft.name: f"layers/{snake}" for one, snake in zip(wanted, snakes, strict=True)}
    named = {one.draft.name: by_name[one.draft.name] for one in wanted if one.draft.name in by_name}
    # Keras itself matches classes, numbered in their order; names are safer if all are known.
    by_turn = len(named) < len(wanted) and {group.path for group in groups} == set(in_turn.values())
    places = in_turn if by_turn else named
    found: dict[str, NDArray[Any]] = {}
    for one in wanted:
        for variable in one.variables:
            path = f"{places.get(one.draft.name)}/{variable.path}"
            if path in tree:
                found[f"{one.draft.name}/{variable.state}"] = _fitted(file, one, variable, tree.array(path))
    for group in groups:
        if group.path not in places.values():
            inside = [path for path in tree.paths if path.startswith(f"{group.path}/")]
            name = group.name or group.path
            found |= {f"{name}/{path.removeprefix(f'{group.path}/')}": tree.array(path) for path in inside}
    return found


def _in_order(
    file: KerasFile, weights: Hdf5Reader, stored: Mapping[str, list[str]], wanted: Sequence[LayerWeights]
) -> dict[str, NDArray[Any]]:
    filled = {clean(name): paths for name, paths in stored.items() if paths}
    tops: dict[str, list[LayerWeights]] = {}
    for one in wanted:
        tops.setdefault(one.layer.path[0], []).append(one)
    if not tops.keys() <= filled.keys() and [len(one) for one in filled.values()] == [
        len(flat_order(ones)) for ones in tops.values()
    ]:
        filled = dict(zip(tops, filled.values(), strict=True))  # Keras itself matches by order
    found: dict[str, NDArray[Any]] = {}
    for top, paths in filled.items():
        expected = flat_order(tops.get(top, []))
        if len(paths) != len(expected):
            expected = [pair for pair in expected if pair[1] is not None]
        if len(paths) != len(expected):
            found |= {f"{top}/{path.rpartition('/')[2]}": weights.array(path) for path in paths}
            continue
        for (one, variable), path in zip(expected, paths, strict=True):
            if variable is not None:
                found[f"{one.draft.name}/{variable.state}"] = _fitted(file, one, variable, weights.array(path))
    return found


def _fitted(file: KerasFile, one: LayerWeights, variable: KerasVariable, array: NDArray[Any]) -> NDArray[Any]:
    """The array in the state's layout; unchanged if it does not fit."""
    made = fitted(array, variable, one, flipped=file.backend == "theano")
    return array if made is None else made
