"""Layers → the draft of a net file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from netspec.exchange.drafting import Draft, DraftLayer, clean
from netspec.exchange.onnx_import.inputs import Feed
from netspec.exchange.onnx_import.model import Model
from netspec.exchange.onnx_import.translate import Layer


def drafted(
    model: Model, inputs: Iterable[Feed], layers: Sequence[Layer], outputs: Iterable[str], source: str
) -> Draft:
    """The net that the layers make."""
    origin = f"opset {model.opset}" + (f", made by {model.producer}" if model.producer else "")
    draft = Draft(model.name, f"{source} ({origin})", outputs=list(outputs))
    for one in inputs:
        fields: dict[str, Any] = {"shape": list(one.shape)}
        if one.dtype != "float32":
            fields["dtype"] = one.dtype
        draft.inputs[clean(one.name)] = fields
    draft.layers = [DraftLayer(layer.name, layer.type, layer.fields, layer.sources, layer.arrays) for layer in layers]
    return draft
