"""Load weights of Keras into a net: find its layers by their names, else by their classes in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.axis_view import axes_of_order
from netspec.exchange.containers.hdf5 import Hdf5Reader
from netspec.exchange.formats.keras.importing.archive import KerasFile, open_keras
from netspec.exchange.formats.keras.importing.axes import (
    KEEPS_FEATURE_ORDER,
    KEEPS_ORDER,
    LayoutPreference,
    Order,
    TensorView,
    channels_first,
    feature_indices,
    keeps_element_order,
    keras_order,
    layout_preference,
    order_of_input,
    preferences_of_readers,
)
from netspec.exchange.formats.keras.importing.config import ConfiguredLayer
from netspec.exchange.formats.keras.importing.importer import WeightedLayer, weight_conversion
from netspec.exchange.formats.keras.importing.weights import (
    WeightTree,
    convert_array,
    file_order,
    is_tree,
    stored_in_order,
)
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


def weights_of(path: str | Path, target: Target) -> dict[str, NDArray[Any]]:
    """The weights in a file of Keras by the names of a net's states; arrays that fit no state keep their names."""
    file = open_keras(Path(path))
    if file.weights is None:
        raise InputError(f"{path} has no weights", expected="a model that was saved with its weights")
    layers = _layers_with_states(target)
    if is_tree(file.weights):
        arrays = _from_tree(file, WeightTree(file.weights), layers)
    else:
        arrays = _in_order(file, file.weights, stored_in_order(file.weights), layers)
    return target.renamed(arrays)


def _layers_with_states(target: Target) -> list[WeightedLayer]:
    """The layers of the net that have states of their own, with the conversions of their weights."""
    spec = target.net
    links = resolve_names(spec).layers
    readers: dict[str, list[LayerLink]] = {}
    for link in links:
        for source in link.sources:
            readers.setdefault(source, []).append(link)
    views: dict[str, TensorView] = {}
    builder = Builder(training=False, dtype=DType.FLOAT32)
    for name, declared in spec.inputs.items():
        tensor_type = TensorType((OPEN_BATCH, *declared.shape), DType(declared.dtype))
        order = order_of_input(_preferences(name, readers), tensor_type.rank)
        views[name] = TensorView(source=name, axes=axes_of_order(order), value=Input(name, tensor_type)())
    layers = []
    for link in links:
        inputs = [views[source] for source in link.sources]
        with in_scope(builder.enter(link.fields, link.name)):
            layer: Any = link.fields
            outputs = layer.call(builder, *(tensor.value for tensor in inputs))
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        order, feature_order = _output_layout(link, inputs[0], values[0])
        for output, value in zip((*link.outputs, link.name), (*values, values[0]), strict=False):
            axes = axes_of_order(order if len(order) == len(value.shape) else range(len(value.shape)))
            views[output] = TensorView(source=output, axes=axes, value=value, feature_order=feature_order)
        states = {name.removeprefix(f"{link.name}/"): info.value.shape for name, info in builder.states.items()
               if name.startswith(f"{link.name}/")}  # fmt: skip
        if states and link.fields.share is None:
            layers.append(_layer_weights(link, states, inputs[0]))
    return layers


def _layer_weights(link: LayerLink, states: dict[str, tuple[int, ...]], first_input: TensorView) -> WeightedLayer:
    path = tuple(link.name.split("/"))
    layer = ConfiguredLayer(path, str(getattr(link.fields, "type", "")), {}, "", "", "", not link.fields.trainable)
    weights = WeightedLayer(layer, DraftLayer(link.name, layer.class_name), variables(link.fields, states), states)
    fields = {name: list(variable) if isinstance(variable, tuple) else variable for name, variable in link.fields}
    for variable in weights.variables:
        if layer.class_name == "Dense" and variable.state != "kernel":
            continue
        converter = weight_conversion(variable, first_input, fields)
        if converter is not None:
            weights.convert[variable.state] = converter[1]
    return weights


def _preferences(name: str, readers: Mapping[str, Sequence[LayerLink]]) -> list[LayoutPreference]:
    """The axis orders that the readers of a tensor expect."""
    return preferences_of_readers(
        name,
        lambda tensor: ((_preference(link.fields), (link.name, *link.outputs)) for link in readers.get(tensor, [])),
    )


def _preference(fields: LayerFields) -> LayoutPreference:
    """The axis order that a layer's class in Keras expects of its input."""
    type_ = str(getattr(fields, "type", ""))
    if type_ in _ELEMENTWISE_HERE:
        return LayoutPreference("any")
    if builtin("layer", type_) is None:
        return LayoutPreference("none")
    return layout_preference(type_, _configured(fields))


def _configured(fields: LayerFields) -> dict[str, Any]:
    """Keras's configuration of the layer that a wrapper contains."""
    inner = getattr(fields, "layer", None)
    if inner is None:
        return {}
    return {"layer": {"class_name": str(getattr(inner, "type", "")), "config": _configured(inner)}}


_ELEMENTWISE_HERE = ("Abs", "Bias", "Cast", "Clip", "Exp", "Expression", "Log", "Power", "Scale", "Swish", "Threshold")
"""Layers that Keras does not have, whose output has the same axes as their input."""


def _output_layout(link: LayerLink, first_input: TensorView, value: Value) -> tuple[Order, Any]:
    """The order of the axes of a layer's output in Keras, and of its features if it is a flattened image."""
    type_, rank = str(getattr(link.fields, "type", "")), len(value.shape)
    if type_ == "Flatten":
        axes = tuple(axis - 1 for axis in first_input.order[1:])
        shape = first_input.value.shape[1:]
        feature_order = None if keeps_element_order(shape, axes) else feature_indices(shape, axes)
        return keras_order(rank), feature_order
    feature_order = first_input.feature_order if type_ in KEEPS_FEATURE_ORDER else None
    preference = _preference(link.fields)
    if preference.kind == "first":
        lead = preference.lead - (len(first_input.order) - rank if "ConvLSTM" in type_ else 0)
        return (channels_first(rank, lead) if rank > lead + 1 else keras_order(rank)), None
    keeps = type_ in KEEPS_ORDER or type_ in _ELEMENTWISE_HERE
    return (first_input.order if keeps and rank == len(first_input.order) else keras_order(rank)), feature_order


@dataclass
class _Group:
    """A layer in a `.weights.h5`: its path, its name in the file, and its class."""

    path: str
    name: str
    snake: str


def _groups(tree: WeightTree) -> list[_Group]:
    """The layers of a file, including those of nested models."""
    groups: dict[str, _Group] = {}
    for path in tree.paths:
        path_parts = path.split("/")
        if path_parts[:1] != ["layers"] or "vars" not in path_parts:
            continue
        depth = 2
        while len(path_parts) > depth + 1 and path_parts[depth] == "layers":  # a nested model
            depth += 2
        layer_path = "/".join(path_parts[:depth])
        names = [tree.name("/".join(path_parts[:end])) for end in range(2, depth + 1, 2)]
        snake = (
            path_parts[depth - 1].rstrip("0123456789").rstrip("_")
            if path_parts[depth - 1][-1:].isdigit()
            else path_parts[depth - 1]
        )
        groups.setdefault(layer_path, _Group(layer_path, "/".join(map(clean, names)) if all(names) else "", snake))
    return list(groups.values())


def _from_tree(file: KerasFile, tree: WeightTree, layers: Sequence[WeightedLayer]) -> dict[str, NDArray[Any]]:
    groups = _groups(tree)
    by_name = {group.name: group.path for group in groups if group.name}
    snakes = list(unique_names(keras_snake(class_name(layer.configured.class_name)) for layer in layers))
    in_turn = {layer.draft.name: f"layers/{snake}" for layer, snake in zip(layers, snakes, strict=True)}
    named = {layer.draft.name: by_name[layer.draft.name] for layer in layers if layer.draft.name in by_name}
    # Keras itself matches classes, numbered in their order; names are safer if all are known.
    by_turn = len(named) < len(layers) and {group.path for group in groups} == set(in_turn.values())
    paths = in_turn if by_turn else named
    arrays: dict[str, NDArray[Any]] = {}
    for layer in layers:
        for variable in layer.variables:
            path = f"{paths.get(layer.draft.name)}/{variable.path}"
            if path in tree:
                arrays[f"{layer.draft.name}/{variable.state}"] = _converted(file, layer, variable, tree.array(path))
    for group in groups:
        if group.path not in paths.values():
            own_paths = [path for path in tree.paths if path.startswith(f"{group.path}/")]
            name = group.name or group.path
            arrays |= {f"{name}/{path.removeprefix(f'{group.path}/')}": tree.array(path) for path in own_paths}
    return arrays


def _in_order(
    file: KerasFile, weights: Hdf5Reader, stored: Mapping[str, list[str]], layers: Sequence[WeightedLayer]
) -> dict[str, NDArray[Any]]:
    stored_paths = {clean(name): paths for name, paths in stored.items() if paths}
    by_top_layer: dict[str, list[WeightedLayer]] = {}
    for layer in layers:
        by_top_layer.setdefault(layer.configured.path[0], []).append(layer)
    if not by_top_layer.keys() <= stored_paths.keys() and [len(layer) for layer in stored_paths.values()] == [
        len(file_order(of_top_layer)) for of_top_layer in by_top_layer.values()
    ]:
        stored_paths = dict(zip(by_top_layer, stored_paths.values(), strict=True))  # Keras itself matches by order
    arrays: dict[str, NDArray[Any]] = {}
    for top, paths in stored_paths.items():
        expected = file_order(by_top_layer.get(top, []))
        if len(paths) != len(expected):
            expected = [pair for pair in expected if pair[1] is not None]
        if len(paths) != len(expected):
            arrays |= {f"{top}/{path.rpartition('/')[2]}": weights.array(path) for path in paths}
            continue
        for (layer, variable), path in zip(expected, paths, strict=True):
            if variable is not None:
                arrays[f"{layer.draft.name}/{variable.state}"] = _converted(file, layer, variable, weights.array(path))
    return arrays


def _converted(file: KerasFile, layer: WeightedLayer, variable: KerasVariable, array: NDArray[Any]) -> NDArray[Any]:
    """The array in the state's layout; unchanged if it does not fit."""
    converted = convert_array(array, variable, layer, flipped=file.backend == "theano")
    return array if converted is None else converted
