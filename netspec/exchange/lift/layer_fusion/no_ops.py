"""Reshapes and Permutes that are not needed: of several behind each other one is enough."""

from __future__ import annotations

from dataclasses import replace

from netspec.exchange.lift.layer_fusion.fusion import Chains, Joint, joining
from netspec.exchange.net_yaml_writer import DraftLayer

RESHAPES = ("Flatten", "Reshape")
ELEMENTWISE = ("Abs", "Clip", "Dropout", "ELU", "Exp", "LeakyReLU", "Log", "Power", "ReLU", "Swish")
"""Layers of one input that ignore its axes; so does Activation without an axis."""


@joining
def through_functions(chains: Chains, layer: DraftLayer) -> Joint | None:
    """Reshape → function → Reshape back: an elementwise function does not need the Reshapes."""
    if not _takes_no_notice(layer) or not _is_reshape(chains.reader(layer.name)):
        return None
    before = _before(chains, layer)
    if not before:
        return None
    chains.shapes[layer.name] = chains.shapes[before[-1].sources[0]]
    return replace(layer, sources=before[-1].sources), before


@joining
def in_a_row(chains: Chains, layer: DraftLayer) -> Joint | None:
    """Reshape → Reshape."""
    if not _is_reshape(layer) or _is_reshape(chains.reader(layer.name)):
        return None
    before = _before(chains, layer)
    return (replace(layer, sources=before[-1].sources), before) if before else None


@joining
def turned_twice(chains: Chains, layer: DraftLayer) -> Joint | None:
    """Permute → Permute."""
    before = chains.layer(layer.sources[0], "Permute") if layer.type == "Permute" else None
    if before is None:
        return None
    dims = [before.fields["dims"][axis - 1] for axis in layer.fields["dims"]]
    return replace(layer, fields={"dims": dims}, sources=before.sources), [before]


def _before(chains: Chains, layer: DraftLayer) -> list[DraftLayer]:
    """The Reshapes that a layer's input went through, for this layer alone, the last one first."""
    functions: list[DraftLayer] = []
    while len(layer.sources) == 1:
        producer = chains.layers.get(layer.sources[0])
        if not _is_reshape(producer) or chains.reader(layer.sources[0]) is None:
            break
        assert producer is not None
        functions.append(producer)
        layer = producer
    return functions


def _is_reshape(layer: DraftLayer | None) -> bool:
    return layer is not None and layer.type in RESHAPES


def _takes_no_notice(layer: DraftLayer) -> bool:
    if layer.type == "Activation":
        function = layer.fields.get("activation")
        return isinstance(function, str) and function not in ("softmax", "log_softmax", "sparsemax", "glu")
    return layer.type in ELEMENTWISE
