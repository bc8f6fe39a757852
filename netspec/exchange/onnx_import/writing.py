"""Layers → the text of a net file, as a person would write it: one line a layer, nothing that is the default."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from netspec.exchange.onnx_import.model import Model, ModelInput
from netspec.exchange.onnx_import.naming import clean
from netspec.exchange.onnx_import.translate import Layer
from netspec.schema.kinds import LAYERS
from netspec.schema.scalars import looks_quoted

WIDTH = 118
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+(:[A-Za-z0-9_./-]+)*\Z")
_OTHER_PARSERS = {"yes", "no", "on", "off"}  # truth values to YAML 1.1


def write_net(
    model: Model, inputs: Mapping[str, ModelInput], layers: Sequence[Layer], outputs: Sequence[str], source: str
) -> str:
    """The net's YAML."""
    origin = f"opset {model.opset}" + (f", made by {model.producer}" if model.producer else "")
    lines = [f"# Imported from {_comment(source)} ({_comment(origin)})", "netspec: 1"]
    name = re.sub(r"[^A-Za-z0-9_.\-]+", "_", model.name).strip("_.-")
    lines.append(f"name: {_text(name or 'imported')}")
    lines.append("inputs:")
    for one in inputs.values():
        fields: dict[str, Any] = {"shape": list(one.dims or ())}
        if one.dtype != "float32":
            fields["dtype"] = one.dtype
        lines.append(f"  {_text(clean(one.name))}: {_flow(fields)}")
    lines.append("layers:")
    above = clean(next(iter(inputs)))
    for layer in layers:
        fields = {"name": layer.name, "type": layer.type}
        if layer.sources != (above,):
            fields["from"] = layer.sources[0] if len(layer.sources) == 1 else list(layer.sources)
        declared = (name for name in LAYERS[layer.type].model_fields if name in layer.fields)
        lines += _item(fields | {name: layer.fields[name] for name in declared})
        above = layer.name
    lines.append(f"outputs: {_flow(list(outputs))}")
    return "\n".join(lines) + "\n"


def _item(fields: Mapping[str, Any]) -> list[str]:
    line = f"  - {_flow(fields)}"
    if len(line) <= WIDTH:
        return [line]
    first, *rest = (f"{key}: {_flow(value)}" for key, value in fields.items())
    return [f"  - {first}", *(f"    {text}" for text in rest)]


def _flow(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
    return _text(str(value))


def _text(text: str) -> str:
    plain = _PLAIN.match(text) and text[0] != "-" and not looks_quoted(text) and text.lower() not in _OTHER_PARSERS
    return text if plain else json.dumps(text)


def _comment(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)[:100]
