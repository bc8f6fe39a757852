"""Layers → the text of a net file, as a person would write it: one line a layer, nothing that is the default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from netspec.exchange.onnx_import.model import Model, ModelInput
from netspec.exchange.onnx_import.naming import clean
from netspec.exchange.onnx_import.translate import Layer
from netspec.schema.flow import flow, item, plain
from netspec.schema.kinds import LAYERS

WIDTH = 118


def write_net(
    model: Model, inputs: Mapping[str, ModelInput], layers: Sequence[Layer], outputs: Sequence[str], source: str
) -> str:
    """The net's YAML."""
    origin = f"opset {model.opset}" + (f", made by {model.producer}" if model.producer else "")
    lines = [f"# Imported from {_comment(source)} ({_comment(origin)})", "netspec: 1"]
    name = re.sub(r"[^A-Za-z0-9_.\-]+", "_", model.name).strip("_.-")
    lines.append(f"name: {plain(name or 'imported')}")
    lines.append("inputs:")
    for one in inputs.values():
        fields: dict[str, Any] = {"shape": list(one.dims or ())}
        if one.dtype != "float32":
            fields["dtype"] = one.dtype
        lines.append(f"  {plain(clean(one.name))}: {flow(fields)}")
    lines.append("layers:")
    above = clean(next(iter(inputs)))
    for layer in layers:
        fields = {"name": layer.name, "type": layer.type}
        if layer.sources != (above,):
            fields["from"] = layer.sources[0] if len(layer.sources) == 1 else list(layer.sources)
        declared = (name for name in LAYERS[layer.type].model_fields if name in layer.fields)
        lines += item(fields | {name: layer.fields[name] for name in declared}, 2, WIDTH)
        above = layer.name
    lines.append(f"outputs: {flow(list(outputs))}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)[:100]
