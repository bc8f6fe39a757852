"""Remove redundant Reshapes and Permutes: of several in a row, one is enough."""

from __future__ import annotations

from dataclasses import replace

from netspec.exchange.lift.layer_fusion.fusion import DraftGraph, Fusion, fusion_rule
from netspec.exchange.net_yaml_writer import DraftLayer

RESHAPES = ("Flatten", "Reshape")
ELEMENTWISE = ("Abs", "Clip", "Dropout", "ELU", "Exp", "LeakyReLU", "Log", "Power", "ReLU", "Swish")
"""Elementwise layers of one input; an Activation is elementwise too, unless its function is along an axis."""


@fusion_rule
def through_functions(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """Reshape → function → Reshape back: an elementwise function does not need the Reshapes."""
    if not _is_elementwise(layer) or not _is_reshape(graph.reader(layer.name)):
        return None
    before = _reshapes_before(graph, layer)
    if not before:
        return None
    graph.shapes[layer.name] = graph.shapes[before[-1].sources[0]]
    return replace(layer, sources=before[-1].sources), before


@fusion_rule
def consecutive_reshapes(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """Reshape → Reshape."""
    if not _is_reshape(layer) or _is_reshape(graph.reader(layer.name)):
        return None
    before = _reshapes_before(graph, layer)
    return (replace(layer, sources=before[-1].sources), before) if before else None


@fusion_rule
def consecutive_permutes(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """Permute → Permute."""
    before = graph.layer(layer.sources[0], "Permute") if layer.type == "Permute" else None
    if before is None:
        return None
    dims = [before.fields["dims"][axis - 1] for axis in layer.fields["dims"]]
    return replace(layer, fields={"dims": dims}, sources=before.sources), [before]


def _reshapes_before(graph: DraftGraph, layer: DraftLayer) -> list[DraftLayer]:
    """The Reshapes right before a layer that have no other readers, the last one first."""
    reshapes: list[DraftLayer] = []
    while len(layer.sources) == 1:
        producer = graph.layers.get(layer.sources[0])
        if not _is_reshape(producer) or graph.reader(layer.sources[0]) is None:
            break
        assert producer is not None
        reshapes.append(producer)
        layer = producer
    return reshapes


def _is_reshape(layer: DraftLayer | None) -> bool:
    return layer is not None and layer.type in RESHAPES


def _is_elementwise(layer: DraftLayer) -> bool:
    if layer.type == "Activation":
        function = layer.fields.get("activation")
        return isinstance(function, str) and function not in ("softmax", "log_softmax", "sparsemax", "glu")
    return layer.type in ELEMENTWISE
