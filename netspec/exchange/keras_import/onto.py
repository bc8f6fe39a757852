"""Weights of Keras onto a net: layers are found by their names, else by their classes in the order of the layers.

The net's layers are built (shapes only) to know how what they read lies: behind a Flatten of an image the rows of a
Dense are in another order in Keras, whose images are channels-last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError
from netspec.exchange.drafting import DraftLayer, clean
from netspec.exchange.hdf5_foreign import Hdf5
from netspec.exchange.imported import Target
from netspec.exchange.keras_import.archive import KerasFile, open_keras
from netspec.exchange.keras_import.axes import (
    KEEPS,
    PASSES_ROWS,
    Held,
    Order,
    channels_first,
    identity,
    moves_nothing,
    turned_rows,
)
from netspec.exchange.keras_import.config import KerasLayer
from netspec.exchange.keras_import.translate import BATCH, Wanted
from netspec.exchange.keras_import.vocabulary import conversion
from netspec.exchange.keras_import.weights import Tree, fitted, flat_order, is_tree, stored_in_order
from netspec.exchange.keras_names import (
    DATA_FORMAT,
    SPATIAL_WITHOUT_FORMAT,
    Variable,
    class_name,
    keras_snake,
    numbered,
    variables,
)
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, in_scope
from netspec.layers.base import Builder
from netspec.schema.kinds import LayerFields
from netspec.schema.links import LayerLink, resolve_names

if TYPE_CHECKING:
    from numpy.typing import NDArray


def weights_of(path: str | Path, target: Target) -> dict[str, NDArray[Any]]:
    """The weights in a file of Keras by the names of a net's states; what belongs to none goes by the file's names."""
    with open_keras(Path(path)) as file:
        if file.weights is None:
            raise InputError(f"{path} holds no weights", expected="a model that was saved with its weights")
        wanted = _wanted(target)
        if is_tree(file.weights):
            found = _from_tree(file, Tree(file.weights), wanted)
        else:
            found = _in_order(file, file.weights, stored_in_order(file.weights), wanted)
    return target.renamed(found)


def _wanted(target: Target) -> list[Wanted]:
    """The layers of the net that have states of their own, with what is done to each weight."""
    spec = target.net
    links = resolve_names(spec).layers
    readers: dict[str, list[LayerLink]] = {}
    for link in links:
        for source in link.sources:
            readers.setdefault(source, []).append(link)
    held: dict[str, Held] = {}
    builder = Builder(training=False, dtype=DType.FLOAT32)
    for name, one in spec.inputs.items():
        kind = TensorType((BATCH, *one.shape), DType(one.dtype))
        image = len(kind.shape) > 3 or any(_is_spatial(link.fields) for link in readers.get(name, []))
        order = channels_first(len(kind.shape)) if image else identity(len(kind.shape))
        held[name] = Held(name, Input(name, kind)(), order)
    found = []
    for link in links:
        inputs = [held[source] for source in link.sources]
        with in_scope(builder.enter(link.fields, link.name)):
            layer: Any = link.fields
            made = layer.call(builder, *(one.value for one in inputs))
        values = made if isinstance(made, tuple) else (made,)
        order, rows = _behind(link, inputs[0], values[0], readers)
        for output, value in zip((*link.outputs, link.name), (*values, values[0]), strict=False):
            held[output] = Held(
                output, value, order if len(order) == len(value.shape) else identity(len(value.shape)), rows
            )
        own = {name.removeprefix(f"{link.name}/"): info.value.shape for name, info in builder.states.items()
               if name.startswith(f"{link.name}/")}  # fmt: skip
        if own and link.fields.share is None:
            found.append(_of_layer(link, own, inputs[0]))
    return found


def _of_layer(link: LayerLink, states: dict[str, tuple[int, ...]], given: Held) -> Wanted:
    path = tuple(link.name.split("/"))
    layer = KerasLayer(path, str(getattr(link.fields, "type", "")), {}, "", "", "", not link.fields.trainable)
    wanted = Wanted(layer, DraftLayer(link.name, layer.class_name), variables(link.fields, states), states)
    fields = {name: list(one) if isinstance(one, tuple) else one for name, one in link.fields}
    for one in wanted.variables:
        if layer.class_name == "Dense" and one.state != "kernel":
            continue
        told = conversion(one, given, fields)
        if told is not None:
            wanted.convert[one.state] = told[1]
    return wanted


def _is_spatial(fields: LayerFields) -> bool:
    type_ = str(getattr(fields, "type", ""))
    return type_ in SPATIAL_WITHOUT_FORMAT or (type_ != "Flatten" and DATA_FORMAT.fullmatch(type_) is not None)


def _behind(
    link: LayerLink, given: Held, value: Value, readers: Mapping[str, Sequence[LayerLink]]
) -> tuple[Order, Any]:
    """How the output of a layer lies in Keras, and the order of its features where it is a flattened image."""
    type_, rank = str(getattr(link.fields, "type", "")), len(value.shape)
    if type_ == "Flatten":
        axes = tuple(axis - 1 for axis in given.order[1:])
        shape = given.value.shape[1:]
        rows = None if moves_nothing(shape, axes) else turned_rows(shape, axes)
        return identity(rank), rows
    rows = given.rows if type_ in PASSES_ROWS else None
    if _is_spatial(link.fields):
        lead = 2 if type_.startswith("ConvLSTM") and rank == len(given.order) else 1
        return (channels_first(rank, lead) if rank > lead + 1 else identity(rank)), None
    return (given.order if type_ in KEEPS and rank == len(given.order) else identity(rank)), rows


@dataclass
class _Group:
    """A layer in a `.weights.h5`: its place, the name that the file has for it, and that of its class."""

    path: str
    name: str
    snake: str


def _groups(tree: Tree) -> list[_Group]:
    """The layers of a file, those of models within it too."""
    found: dict[str, _Group] = {}
    for path in tree.paths:
        parts = path.split("/")
        if parts[:1] != ["layers"] or "vars" not in parts:
            continue
        depth = 2
        while len(parts) > depth + 1 and parts[depth] == "layers":  # a model within
            depth += 2
        place = "/".join(parts[:depth])
        names = [tree.name("/".join(parts[:end])) for end in range(2, depth + 1, 2)]
        snake = (
            parts[depth - 1].rstrip("0123456789").rstrip("_") if parts[depth - 1][-1:].isdigit() else parts[depth - 1]
        )
        found.setdefault(place, _Group(place, "/".join(map(clean, names)) if all(names) else "", snake))
    return list(found.values())


def _from_tree(file: KerasFile, tree: Tree, wanted: Sequence[Wanted]) -> dict[str, NDArray[Any]]:
    groups = _groups(tree)
    by_name = {group.name: group.path for group in groups if group.name}
    snakes = list(numbered(keras_snake(class_name(one.layer.class_name)) for one in wanted))
    in_turn = {one.draft.name: f"layers/{snake}" for one, snake in zip(wanted, snakes, strict=True)}
    named = {one.draft.name: by_name[one.draft.name] for one in wanted if one.draft.name in by_name}
    # Keras itself goes by classes, numbered in their order; names are surer where all are known.
    by_turn = len(named) < len(wanted) and {group.path for group in groups} == set(in_turn.values())
    places = in_turn if by_turn or not named else named
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
    file: KerasFile, weights: Hdf5, stored: Mapping[str, list[str]], wanted: Sequence[Wanted]
) -> dict[str, NDArray[Any]]:
    filled = {clean(name): paths for name, paths in stored.items() if paths}
    tops: dict[str, list[Wanted]] = {}
    for one in wanted:
        tops.setdefault(one.layer.path[0], []).append(one)
    if not tops.keys() <= filled.keys() and [len(one) for one in filled.values()] == [
        len(flat_order(ones)) for ones in tops.values()
    ]:
        filled = dict(zip(tops, filled.values(), strict=True))  # Keras itself goes by the order
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


def _fitted(file: KerasFile, one: Wanted, variable: Variable, array: NDArray[Any]) -> NDArray[Any]:
    """The array as the state; as it is in the file where it cannot be that."""
    made = fitted(array, variable, one, flipped=file.backend == "theano")
    return array if made is None else made
