"""Layers → the draft of a net file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.exchange.drafting import Draft, DraftLayer, clean
from netspec.exchange.onnx_import.model import Model, ModelInput
from netspec.exchange.onnx_import.translate import Layer


def drafted(
    model: Model, inputs: Mapping[str, ModelInput], layers: Sequence[Layer], outputs: Sequence[str], source: str
) -> Draft:
    """The net that the layers make."""
    origin = f"opset {model.opset}" + (f", made by {model.producer}" if model.producer else "")
    draft = Draft(model.name, f"{source} ({origin})", outputs=list(outputs))
    for one in inputs.values():
        fields: dict[str, Any] = {"shape": list(one.dims or ())}
        if one.dtype != "float32":
            fields["dtype"] = one.dtype
        draft.inputs[clean(one.name)] = fields
    draft.layers = [DraftLayer(layer.name, layer.type, layer.fields, layer.sources, layer.arrays) for layer in layers]
    return draft
