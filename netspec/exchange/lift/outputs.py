"""The draft of a net from lifted layers: outputs of the model, names of the layers, and notes for the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from numpy.typing import NDArray

from netspec.errors import Problem
from netspec.exchange.interface import notes_of_not_finite
from netspec.exchange.lift.context import LiftContext, LiftedOutput
from netspec.exchange.lift.inputs import OPEN_BATCH, OTHER_BATCH, samples_moved
from netspec.exchange.lift.layers import LiftedLayer
from netspec.exchange.names import UniqueNames
from netspec.exchange.net_yaml_writer import Draft, DraftLayer, clean
from netspec.exchange.notes import Note
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature


def add_outputs(ctx: LiftContext) -> None:
    """Give each output of the model a layer of its own; outputs that cannot have one are reported."""
    named_tensors: set[str] = set()
    for name in ctx.model.outputs:
        node = OperatorNode("Identity", "", (name,), (name,), {}, ctx.model.opset)
        try:
            tensor, batch = _output_tensor(ctx, name)
            if tensor in named_tensors or not ctx.layers.is_made_by_layer(tensor):
                tensor_name = ctx.tensors.fresh_name(name)
                ctx.layers.add(node, "Activation", [tensor], {"activation": "linear"}, outputs=[tensor_name])
                tensor = tensor_name
        except UnsupportedFeature as reason:
            problems = ctx.report.mixed if isinstance(reason, MixesSamples) else ctx.report.problems
            problems.append(Problem(f"the output `{name}` can't be imported: {reason}"))
            continue
        named_tensors.add(tensor)
        ctx.outputs[name] = LiftedOutput(tensor, batch)


def _output_tensor(ctx: LiftContext, name: str) -> tuple[str, int | None]:
    """The tensor of the net for an output, and the axis of the output that holds the samples (None: no batch)."""
    tensors = ctx.tensors
    front = None if tensors.single_sample else 0
    if name in tensors.sequences:
        raise UnsupportedFeature("it is a sequence of tensors, and outputs of a net are single tensors")
    if not ctx.nodes.is_known(name):
        raise UnsupportedFeature("its operator does not define this output")
    if name in tensors.constants:
        ctx.layers.value(name)
        if not tensors.single_sample and tensors.batch_size != 1 and tensors.shape(name)[0] == 1:
            if tensors.batch_size not in (OPEN_BATCH, OTHER_BATCH):
                raise MixesSamples("it is a constant without a batch axis")
            ctx.report.remarks.add(
                f"the output `{name}` is a constant, which the net repeats for each sample",
                "{count} outputs are constants, which the net repeats for each sample", f"`{name}`",
            )  # fmt: skip
        return ctx.layers.parameter(name, tensors.rank(name)), front
    view = tensors.view(name)
    if not tensors.single_sample and (0,) in view.axes[1:]:
        axis = view.axes.index((0,))
        ctx.report.remarks.add(*samples_moved("output", name, axis))
        return tensors.resolve(ctx.reshaping.samples_first(name, axis)), axis
    ctx.layers.value(name)
    return tensors.resolve(name), front


def name_layers(ctx: LiftContext) -> list[LiftedLayer]:
    """Give each layer its name, and the names of what it reads.

    A layer that computes an output has the output's name. Others have the name of their tensor if it is a prefix of the
    node's (`conv1` of `conv1/Conv`), else the name of the node or its module, else that of the tensor.
    """
    names = {tensor: clean(feed.name) for tensor, feed in ctx.inputs.items()}
    unique = UniqueNames(names.values())
    outputs = {output.tensor: ctx.model.output_names.get(name, name) for name, output in ctx.outputs.items()}
    for layer in sorted(ctx.layers.written, key=lambda layer: layer.output not in outputs):
        node = layer.node.layer_name
        tensor = ctx.tensors.stands_for.get(layer.output, layer.output)
        of_tensor = not node or node.startswith(f"{tensor}/")
        preferred = outputs.get(layer.output) or (tensor if of_tensor else node)
        if layer.outputs:
            preferred = ctx.tensors.stands_for.get(layer.stem, layer.stem)
        layer.name = unique(clean(preferred), [f".{name}" for _, name in layer.outputs])
        names |= tensor_names(layer)
    for layer in ctx.layers.written:
        layer.sources = tuple(names[ctx.tensors.resolve(tensor)] for tensor in layer.inputs)
    return ctx.layers.written


def tensor_names(layer: LiftedLayer) -> dict[str, str]:
    """Map the tensors that a layer computes to the names by which other layers read them."""
    return {tensor: f"{layer.name}.{name}" for tensor, name in layer.outputs} or {layer.output: layer.name}


def output_names(ctx: LiftContext) -> dict[str, str]:
    """For each output of the model, in order, the name of the layer that makes it."""
    names = {tensor: name for layer in ctx.layers.written for tensor, name in tensor_names(layer).items()}
    return {name: names[output.tensor] for name, output in ctx.outputs.items()}


def draft_of(ctx: LiftContext, source: str) -> Draft:
    """The net of the lifted and named layers. `source` is the file that the draft's comment mentions."""
    model = ctx.model
    origin = f"opset {model.opset}" + (f", made by {model.producer}" if model.producer else "")
    draft = Draft(model.name, f"{source} ({origin})", outputs=list(output_names(ctx).values()))
    for feed in ctx.inputs.values():
        fields: dict[str, Any] = {"shape": list(feed.shape)}
        if feed.dtype != "float32":
            fields["dtype"] = feed.dtype
        draft.inputs[clean(feed.name)] = fields
    draft.layers = [
        DraftLayer(layer.name, layer.type, layer.fields, layer.sources, layer.arrays) for layer in ctx.layers.written
    ]
    return draft


def notes(ctx: LiftContext, arrays: Mapping[str, NDArray[Any]], outputs: Collection[str]) -> tuple[str, ...]:
    """Notes for the user on the import; `outputs` are the names of the net's outputs."""
    texts = [*ctx.report.remarks, *notes_of_not_finite(arrays)]
    if ctx.batch_size not in (OPEN_BATCH, 1):
        texts.append(f"the model is for batches of {ctx.batch_size}; the net takes any batch size")
    types = ctx.tensors.types()
    for name, output in ctx.outputs.items():
        declared, have = ctx.model.output_types.get(name), str(types[output.tensor].dtype)
        if declared not in (None, have):
            texts.append(
                Note(
                    f"the output `{name}` of {declared} becomes {have}",
                    "{count} outputs have another element type here", f"`{name}` {declared} → {have}",
                )
            )  # fmt: skip
    inputs = [feed.name for feed in ctx.inputs.values()]
    for old, new in [(name, clean(name)) for name in (*inputs, *ctx.model.outputs)]:
        if old != new and (new in outputs or old in inputs):
            kind = "{count} inputs and outputs have other names here"
            texts.append(Note(f"`{old}` becomes `{new}`", kind, f"`{old}` → `{new}`"))
    texts += [
        f"the output `{name}` is called `{new}` here, since an input has its name"
        for name, new in output_names(ctx).items()
        if name in inputs
    ]
    return tuple(dict.fromkeys(text if isinstance(text, Note) else Note(text) for text in texts))
