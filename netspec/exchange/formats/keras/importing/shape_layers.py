"""Layers that reshape, permute or join, and Dense, whose input may have its features in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.formats.keras.importing.axes import (
    TensorView,
    channels_first,
    data_format,
    identity,
    moves_nothing,
    turned_rows,
)
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall
from netspec.exchange.formats.keras.importing.fields import fields_of, plain
from netspec.exchange.formats.keras.importing.importer import (
    Convert,
    KerasImporter,
    conversion,
    operands,
    rule,
    turn_fields,
    usual,
    wrapped,
)
from netspec.exchange.formats.keras.names import KerasVariable, layer_type
from netspec.exchange.unsupported import UnsupportedFeature


@rule("Dense")
def dense(importer: KerasImporter, call: LayerCall) -> None:
    """A Dense; if the features of a flattened image are reordered, so are the rows of its kernel."""
    (tensor,) = operands(importer, call)[:1]
    held = importer.get(tensor)
    if held.rows is None:
        usual(importer, call)
        return
    fields = fields_of("Dense", call.layer.config, importer.reading)

    def convert(one: KerasVariable) -> tuple[str, Convert] | None:
        return conversion(one, held, fields) if one.state == "kernel" else None

    importer.put(call, *importer.weighted(call, "Dense", fields, [held], lambda _: [], convert))


@rule("Flatten")
def flatten(importer: KerasImporter, call: LayerCall) -> None:
    """A Flatten: the next Dense reorders its rows, or the axes are transposed before."""
    (tensor,) = operands(importer, call)
    held = importer.get(tensor)
    lead, rank = 1 + call.layer.wrapped, len(held.order)
    sequence = list(range(lead, rank))
    if data_format(call.layer.config) == "channels_first" and rank > lead + 2:
        sequence = [*range(lead + 1, rank), lead]  # Keras moves the channels last before it flattens
    axes = tuple(held.order[axis] - lead for axis in sequence)
    shape = held.value.shape[lead:]
    rows = None
    if not moves_nothing(shape, axes) or held.order[:lead] != identity(lead):
        if lead == 1 and importer.readers.absorbs_rows(call):
            rows = turned_rows(shape, axes)
        else:
            order = list(range(rank))
            for place, axis in enumerate(sequence):
                order[axis] = lead + place
            held = importer.turned(held, tuple(order))
    type_, fields = wrapped(importer, call, "Flatten", {}, 1)
    importer.put(call, *importer.add(call, type_, fields, [held], rows=rows))


@rule("Reshape")
def reshape(importer: KerasImporter, call: LayerCall) -> None:
    """A Reshape in Keras's order; images of one pixel or one channel become channels-first directly."""
    (tensor,) = operands(importer, call)
    held = importer.plain(tensor)
    reshaped(importer, call, held, plain(call.layer.config.get("target_shape") or call.layer.config.get("dims") or []))


def reshaped(importer: KerasImporter, call: LayerCall, held: TensorView, target: Sequence[Any]) -> None:
    """Add a Reshape of a tensor whose axes have Keras's order."""
    if call.layer.wrapped:
        type_, fields = wrapped(importer, call, "Reshape", {"target_shape": list(target)}, 1)
        importer.put(call, *importer.add(call, type_, fields, [held]))
        return
    sizes = [int(size) for size in target]
    total = 1
    for size in held.value.shape[1:]:
        total *= size
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    full = [size if size != -1 else total // max(known, 1) for size in sizes]
    lead = importer.readers.wants_first(call)
    order = identity(len(full) + 1) if lead is None else channels_first(len(full) + 1, lead)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    if order != identity(len(order)) and moves_nothing((1, *full), back):
        turned = [full[axis - 1] for axis in back[1:]]
        importer.put(call, *importer.add(call, "Reshape", {"target_shape": turned}, [held], order))
    else:
        importer.put(call, *importer.add(call, "Reshape", {"target_shape": sizes}, [held]))


@rule("Permute")
def permute(importer: KerasImporter, call: LayerCall) -> None:
    """A Permute, combined with the order of the tensor's axes."""
    (tensor,) = operands(importer, call)
    held = importer.get(tensor)
    permuted(importer, call, held, [0, *plain(call.layer.config.get("dims") or [])])


def permuted(importer: KerasImporter, call: LayerCall, held: TensorView, axes: Sequence[int]) -> None:
    """Add a Permute: axis k of the result is axis `axes[k]` of the tensor, both in Keras's order."""
    rank = len(held.order)
    if sorted(axis % rank for axis in axes) != list(range(rank)) or axes[0] % rank != 0:
        raise UnsupportedFeature(f"{list(axes)} is not a permutation that keeps the batch first")
    if held.rows is not None or call.layer.wrapped:
        raise UnsupportedFeature("its axes are ambiguous")
    dims = [held.order[axis % rank] for axis in axes[1:]]
    importer.put(call, *importer.add(call, "Permute", {"dims": dims}, [held]))


@rule("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
def merge(importer: KerasImporter, call: LayerCall) -> None:
    """A layer that merges tensors in one order of axes."""
    type_ = layer_type(call.layer.class_name)
    merged(importer, call, type_, fields_of(type_, call.layer.config, importer.reading), operands(importer, call))


def merged(
    importer: KerasImporter,
    call: LayerCall,
    type_: str,
    fields: dict[str, Any],
    tensors: Sequence[CallOutput | TensorView],
) -> None:
    """Add a layer that merges tensors; those with fewer axes get more after the batch, as in Keras."""
    given = aligned(
        importer, [tensor if isinstance(tensor, TensorView) else importer.get(tensor) for tensor in tensors], call
    )
    if len(given) == 1 and type_ != "Subtract":
        importer.put(call, *importer.add(call, "Identity", {}, given, given[0].order))
        return
    order = given[0].order
    if call.layer.wrapped and isinstance(fields.get("axis"), int) and fields["axis"] > 0:
        fields["axis"] += call.layer.wrapped
    turn_fields(type_, fields, order)
    importer.put(call, *importer.add(call, type_, fields, given, order))


def aligned(importer: KerasImporter, given: Sequence[TensorView], call: LayerCall) -> list[TensorView]:
    """The tensors with equal ranks and one order of axes: that of the first that is not Keras's."""
    rank = max(len(one.order) for one in given)
    found = []
    for one in given:
        if one.rows is not None:
            raise UnsupportedFeature("the features of a flattened image come in another order")
        while len(one.order) < rank:
            one = importer.add(call, "ExpandDims", {}, [importer.plain(one)], name=f"{importer.name_of(call)}/expand")[
                0
            ]
        found.append(one)
    # Tensors that are broadcast (size 1) do not determine the order of axes.
    order = next((one.order for one in found if one.order != identity(rank)), identity(rank))
    return [importer.turned(one, order) for one in found]
