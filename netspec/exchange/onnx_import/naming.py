"""Names of the layers, and what the user should know of the conversion."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from netspec.exchange.drafting import clean
from netspec.exchange.imported import notes_of_not_finite
from netspec.exchange.names import Names
from netspec.exchange.onnx_import.translate import OPEN_BATCH, Layer, Translator

if TYPE_CHECKING:
    from numpy.typing import NDArray


def name_layers(net: Translator) -> list[Layer]:
    """The layers, each with its own name and the names of what it reads.

    A layer that makes an output has the output's name; others go by the tensor they make where their node lies below
    it (`conv1`, made by `conv1/Conv`), else by their node, or its module, else by their tensor.
    """
    names = {tensor: clean(feed.name) for tensor, feed in net.inputs.items()}
    unique = Names(names.values())
    outputs = {output.tensor: name for name, output in net.outputs.items()}
    for layer in sorted(net.layers, key=lambda layer: layer.output not in outputs):
        node = layer.node.called
        tensor = net.hidden.get(layer.output, layer.output)
        of_tensor = not node or node.startswith(f"{tensor}/")
        wanted = outputs.get(layer.output) or (tensor if of_tensor else node)
        parts = [f".{name}" for _, name in layer.outputs]
        layer.name = unique(clean(layer.stem if layer.outputs else wanted), parts)
        names |= tensor_names(layer)
    for layer in net.layers:
        layer.sources = tuple(names[net.resolve(tensor)] for tensor in layer.inputs)
    return net.layers


def tensor_names(layer: Layer) -> dict[str, str]:
    """The tensors that a layer makes, and by what names others read them."""
    return {tensor: f"{layer.name}.{name}" for tensor, name in layer.outputs} or {layer.output: layer.name}


def output_names(net: Translator) -> dict[str, str]:
    """For each output of the model, in its order, the name of the layer that makes it."""
    names = {tensor: name for layer in net.layers for tensor, name in tensor_names(layer).items()}
    return {name: names[output.tensor] for name, output in net.outputs.items()}


def notes(net: Translator, arrays: Mapping[str, NDArray[Any]], outputs: Collection[str]) -> tuple[str, ...]:
    """What the user should know of the conversion."""
    found = [*net.remarks, *notes_of_not_finite(arrays)]
    if net.size_of_batch not in (OPEN_BATCH, 1):
        found.append(f"the model is for batches of {net.size_of_batch}; the net takes any batch size")
    types = net.types()
    for name, output in net.outputs.items():
        said, have = net.model.output_types.get(name), str(types[output.tensor].dtype)
        if said not in (None, have):
            found.append(f"the output `{name}` of {said} became {have}")
    inputs = [feed.name for feed in net.inputs.values()]
    for old, new in [(name, clean(name)) for name in (*inputs, *net.model.outputs)]:
        if old != new and (new in outputs or old in inputs):
            found.append(f"`{old}` became `{new}`")
    found += [
        f"the output `{name}` is called `{new}` here, since an input has its name"
        for name, new in output_names(net).items()
        if name in inputs
    ]
    return tuple(dict.fromkeys(one.replace("\n", "\\n") for one in found))  # a name may have more than one line
