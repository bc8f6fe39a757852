"""Layers that give numbers another shape or order, or join tensors; Dense, which may be told of another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.keras_import.axes import Held, channels_first, data_format, identity, moves_nothing, turned_rows
from netspec.exchange.keras_import.config import Call, Tensor
from netspec.exchange.keras_import.fields import Unsupported, fields_of, plain
from netspec.exchange.keras_import.translate import Convert, Translator
from netspec.exchange.keras_import.vocabulary import conversion, operands, rule, turn_fields, usual, wrapped
from netspec.exchange.keras_names import Variable, layer_type


@rule("Dense")
def dense(net: Translator, call: Call) -> None:
    """The features of a flattened image may come in another order: then so do the rows of the kernel."""
    (tensor,) = operands(net, call)[:1]
    held = net.get(tensor)
    if held.rows is None:
        usual(net, call)
        return
    fields = fields_of("Dense", call.layer.config, net.reading)

    def convert(one: Variable) -> tuple[str, Convert] | None:
        return conversion(one, held, fields) if one.state == "kernel" else None

    net.put(call, *net.weighted(call, "Dense", fields, [held], lambda _: [], convert))


@rule("Flatten")
def flatten(net: Translator, call: Call) -> None:
    """Channels come first here: the next Dense is told, or the axes are turned before."""
    (tensor,) = operands(net, call)
    held = net.get(tensor)
    lead, rank = 1 + call.layer.wrapped, len(held.order)
    sequence = list(range(lead, rank))
    if data_format(call.layer.config) == "channels_first" and rank > lead + 2:
        sequence = [*range(lead + 1, rank), lead]  # Keras puts the channels behind before it flattens
    axes = tuple(held.order[axis] - lead for axis in sequence)
    shape = held.value.shape[lead:]
    rows = None
    if not moves_nothing(shape, axes) or held.order[:lead] != identity(lead):
        if lead == 1 and net.readers.absorbs_rows(call):
            rows = turned_rows(shape, axes)
        else:
            order = list(range(rank))
            for place, axis in enumerate(sequence):
                order[axis] = lead + place
            held = net.turned(held, tuple(order))
    type_, fields = wrapped(net, call, "Flatten", {}, 1)
    net.put(call, *net.add(call, type_, fields, [held], rows=rows))


@rule("Reshape")
def reshape(net: Translator, call: Call) -> None:
    """In Keras's order of axes; images of one pixel, or one channel, are made channels-first at once."""
    (tensor,) = operands(net, call)
    held = net.plain(tensor)
    reshaped(net, call, held, plain(call.layer.config.get("target_shape") or call.layer.config.get("dims") or []))


def reshaped(net: Translator, call: Call, held: Held, target: Sequence[Any]) -> None:
    """Write down a Reshape of a tensor whose axes are as in Keras."""
    if call.layer.wrapped:
        type_, fields = wrapped(net, call, "Reshape", {"target_shape": list(target)}, 1)
        net.put(call, *net.add(call, type_, fields, [held]))
        return
    sizes = [int(size) for size in target]
    total = 1
    for size in held.value.shape[1:]:
        total *= size
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    full = [size if size != -1 else total // max(known, 1) for size in sizes]
    lead = net.readers.wants_first(call)
    order = identity(len(full) + 1) if lead is None else channels_first(len(full) + 1, lead)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    if order != identity(len(order)) and moves_nothing((1, *full), back):
        turned = [full[axis - 1] for axis in back[1:]]
        net.put(call, *net.add(call, "Reshape", {"target_shape": turned}, [held], order))
    else:
        net.put(call, *net.add(call, "Reshape", {"target_shape": sizes}, [held]))


@rule("Permute")
def permute(net: Translator, call: Call) -> None:
    """Straight from the order in which the axes lie."""
    (tensor,) = operands(net, call)
    held = net.get(tensor)
    permuted(net, call, held, [0, *plain(call.layer.config.get("dims") or [])])


def permuted(net: Translator, call: Call, held: Held, axes: Sequence[int]) -> None:
    """Write down a Permute: axis k of the result is axis `axes[k]` of the tensor, both in Keras's order."""
    rank = len(held.order)
    if sorted(axis % rank for axis in axes) != list(range(rank)) or axes[0] % rank != 0:
        raise Unsupported(f"{list(axes)} is no order of its axes that leaves the batch in front")
    if held.rows is not None or call.layer.wrapped:
        raise Unsupported("its axes cannot be told apart")
    dims = [held.order[axis % rank] for axis in axes[1:]]
    net.put(call, *net.add(call, "Permute", {"dims": dims}, [held]))


@rule("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
def merge(net: Translator, call: Call) -> None:
    """Several tensors, brought to one order of axes."""
    type_ = layer_type(call.layer.class_name)
    merged(net, call, type_, fields_of(type_, call.layer.config, net.reading), operands(net, call))


def merged(net: Translator, call: Call, type_: str, fields: dict[str, Any], tensors: Sequence[Tensor | Held]) -> None:
    """Write down a layer that merges tensors; those of fewer axes get more behind the batch, as in Keras."""
    given = aligned(net, [one if isinstance(one, Held) else net.get(one) for one in tensors], call)
    if len(given) == 1 and type_ != "Subtract":
        net.put(call, *net.add(call, "Identity", {}, given, given[0].order))
        return
    order = given[0].order
    if call.layer.wrapped and isinstance(fields.get("axis"), int) and fields["axis"] > 0:
        fields["axis"] += call.layer.wrapped
    turn_fields(type_, fields, order)
    net.put(call, *net.add(call, type_, fields, given, order))


def aligned(net: Translator, given: Sequence[Held], call: Call) -> list[Held]:
    """The tensors with as many axes, in one order: that of the first whose axes are turned."""
    rank = max(len(one.order) for one in given)
    found = []
    for one in given:
        if one.rows is not None:
            raise Unsupported("the features of a flattened image come in another order")
        while len(one.order) < rank:
            one = net.add(call, "ExpandDims", {}, [net.plain(one)], name=f"{net.name_of(call)}/expand")[0]
        found.append(one)
    # Of tensors that are repeated along axes (size 1) none says how the axes are best laid.
    order = next((one.order for one in found if one.order != identity(rank)), identity(rank))
    return [net.turned(one, order) for one in found]
