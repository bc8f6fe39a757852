"""Import layers that reshape, permute or join, and Dense, whose input may have its features in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.formats.keras.importing.axes import (
    TensorView,
    channels_first,
    data_format,
    feature_indices,
    keeps_element_order,
    keras_order,
)
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall
from netspec.exchange.formats.keras.importing.fields import fields_of, plain_value
from netspec.exchange.formats.keras.importing.importer import (
    Convert,
    KerasImporter,
    convert_axes,
    import_by_fields,
    operands,
    rule,
    time_distributed,
    weight_conversion,
)
from netspec.exchange.formats.keras.names import KerasVariable, layer_type
from netspec.exchange.unsupported import UnsupportedFeature


@rule("Dense")
def dense(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Dense; if the features of a flattened image are reordered, so are the rows of its kernel."""
    (tensor,) = operands(call)[:1]
    view = importer.get(tensor)
    if view.feature_order is None:
        return import_by_fields(importer, call)
    fields = fields_of("Dense", call.layer.config, importer.reading)

    def convert(variable: KerasVariable) -> tuple[str, Convert] | None:
        return weight_conversion(variable, view, fields) if variable.state == "kernel" else None

    return importer.weighted(call, "Dense", fields, [view], lambda _: [], convert)


@rule("Flatten")
def flatten(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Flatten: the next Dense reorders its rows, or the axes are transposed before."""
    (tensor,) = operands(call)
    view = importer.get(tensor)
    lead, rank = 1 + call.layer.wrapped, len(view.order)
    sequence = list(range(lead, rank))
    if data_format(call.layer.config) == "channels_first" and rank > lead + 2:
        sequence = [*range(lead + 1, rank), lead]  # Keras moves the channels last before it flattens
    axes = tuple(view.order[axis] - lead for axis in sequence)
    shape = view.value.shape[lead:]
    feature_order = None
    if not keeps_element_order(shape, axes) or view.order[:lead] != keras_order(lead):
        if lead == 1 and importer.readers.takes_feature_order(call):
            feature_order = feature_indices(shape, axes)
        else:
            order = list(range(rank))
            for offset, axis in enumerate(sequence):
                order[axis] = lead + offset
            view = importer.permuted(view, tuple(order))
    type_, fields = time_distributed(call, "Flatten", {}, 1)
    return importer.add(call, type_, fields, [view], feature_order=feature_order)


@rule("Reshape")
def reshape(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Reshape in Keras's order; images of one pixel or one channel become channels-first directly."""
    (tensor,) = operands(call)
    view = importer.in_keras_order(tensor)
    return reshaped(
        importer, call, view, plain_value(call.layer.config.get("target_shape") or call.layer.config.get("dims") or [])
    )


def reshaped(importer: KerasImporter, call: LayerCall, view: TensorView, target: Sequence[Any]) -> list[TensorView]:
    """Add a Reshape of a tensor whose axes have Keras's order."""
    if call.layer.wrapped:
        type_, fields = time_distributed(call, "Reshape", {"target_shape": list(target)}, 1)
        return importer.add(call, type_, fields, [view])
    sizes = [int(size) for size in target]
    total = 1
    for size in view.value.shape[1:]:
        total *= size
    known_size = 1
    for size in sizes:
        known_size *= size if size != -1 else 1
    full_shape = [size if size != -1 else total // max(known_size, 1) for size in sizes]
    lead = importer.readers.leading_axes_of_images(call)
    order = keras_order(len(full_shape) + 1) if lead is None else channels_first(len(full_shape) + 1, lead)
    inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
    if order != keras_order(len(order)) and keeps_element_order((1, *full_shape), inverse):
        permuted_shape = [full_shape[axis - 1] for axis in inverse[1:]]
        return importer.add(call, "Reshape", {"target_shape": permuted_shape}, [view], order)
    return importer.add(call, "Reshape", {"target_shape": sizes}, [view])


@rule("Permute")
def permute(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Permute, combined with the order of the tensor's axes."""
    (tensor,) = operands(call)
    view = importer.get(tensor)
    return permuted(importer, call, view, [0, *plain_value(call.layer.config.get("dims") or [])])


def permuted(importer: KerasImporter, call: LayerCall, view: TensorView, axes: Sequence[int]) -> list[TensorView]:
    """Add a Permute: axis k of the result is axis `axes[k]` of the tensor, both in Keras's order."""
    rank = len(view.order)
    if sorted(axis % rank for axis in axes) != list(range(rank)) or axes[0] % rank != 0:
        raise UnsupportedFeature(f"{list(axes)} is not a permutation that keeps the batch axis first")
    if view.feature_order is not None or call.layer.wrapped:
        raise UnsupportedFeature("its axes are ambiguous")
    dims = [view.order[axis % rank] for axis in axes[1:]]
    return importer.add(call, "Permute", {"dims": dims}, [view])


@rule("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
def merge(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A layer that merges tensors in one order of axes."""
    type_ = layer_type(call.layer.class_name)
    return merged(importer, call, type_, fields_of(type_, call.layer.config, importer.reading), operands(call))


def merged(
    importer: KerasImporter,
    call: LayerCall,
    type_: str,
    fields: dict[str, Any],
    tensors: Sequence[CallOutput | TensorView],
) -> list[TensorView]:
    """Add a layer that merges tensors; those with fewer axes get more after the batch, as in Keras."""
    views = aligned(
        importer, [tensor if isinstance(tensor, TensorView) else importer.get(tensor) for tensor in tensors], call
    )
    if len(views) == 1 and type_ != "Subtract":
        return importer.add(call, "Identity", {}, views, views[0].order)
    order = views[0].order
    if call.layer.wrapped and isinstance(fields.get("axis"), int) and fields["axis"] > 0:
        fields["axis"] += call.layer.wrapped
    convert_axes(type_, fields, order)
    return importer.add(call, type_, fields, views, order)


def aligned(importer: KerasImporter, views: Sequence[TensorView], call: LayerCall) -> list[TensorView]:
    """The tensors with equal ranks and one order of axes: the first order that is not Keras's, if any."""
    rank = max(len(view.order) for view in views)
    expanded = []
    for view in views:
        if view.feature_order is not None:
            raise UnsupportedFeature(
                "it needs the features of a flattened image in Keras's order (channels last), unlike netspec's"
            )
        while len(view.order) < rank:
            view = importer.add(
                call, "ExpandDims", {}, [importer.in_keras_order(view)], name=f"{importer.name_of(call)}/expand"
            )[0]
        expanded.append(view)
    # Tensors that are broadcast (size 1) do not determine the order of axes.
    order = next((view.order for view in expanded if view.order != keras_order(rank)), keras_order(rank))
    return [importer.permuted(view, order) for view in expanded]
