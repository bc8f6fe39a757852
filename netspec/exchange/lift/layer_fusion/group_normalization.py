"""GroupNormalization as PyTorch exports it: Reshape to groups, a normalization, Reshape back, and a scale."""

from __future__ import annotations

from typing import Any

from netspec.exchange.lift.layer_fusion.fusion import DraftGraph, Fusion, fusion_rule
from netspec.exchange.net_yaml_writer import DraftLayer
from netspec.schema.specs.kinds import LAYERS

PLAIN = {"center": False, "scale": False}


@fusion_rule
def reshaped_groups(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """Reshape to groups → a normalization of each group → Reshape back: GroupNormalization."""
    if layer.type != "Reshape":
        return None
    norm = graph.layers.get(layer.sources[0])
    if (
        norm is None
        or graph.layer(norm.name, norm.type) is None
        or not _normalizes_groups(norm, graph.ranks[norm.name])
    ):
        return None
    split = graph.layer(norm.sources[0], "Reshape")
    shape = [*graph.shapes[split.sources[0]][1:]] if split is not None else []
    if split is None or [*layer.fields["target_shape"]] != shape or len(shape) < 2:
        return None
    groups = split.fields["target_shape"][0]
    if shape[0] % groups:
        return None
    epsilon = norm.fields.get("epsilon", LAYERS[norm.type].model_fields["epsilon"].default)
    fields = {"groups": groups, "epsilon": epsilon, **PLAIN}
    return DraftLayer(layer.name, "GroupNormalization", fields, split.sources), [split, norm]


@fusion_rule
def scaled(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """A normalization without gamma and beta → Scale or Bias per channel: the normalization with them."""
    if layer.fields.keys() - {"use_bias"} or layer.type not in ("Scale", "Bias"):
        return None
    norm = graph.layers.get(layer.sources[0])
    if norm is None or norm.type not in ("GroupNormalization", "InstanceNormalization") or "axis" in norm.fields:
        return None
    if graph.layer(norm.name, norm.type) is None or not norm.fields.items() >= PLAIN.items():
        return None
    scales = {"gamma": layer.arrays.get("scale"), "beta": layer.arrays.get("bias")}
    arrays = {name: array for name, array in scales.items() if array is not None}
    left_out = {field: False for field, name in (("scale", "gamma"), ("center", "beta")) if name not in arrays}
    fields = {name: value for name, value in norm.fields.items() if name not in PLAIN} | left_out
    return DraftLayer(layer.name, norm.type, fields, norm.sources, arrays), [norm]


def _normalizes_groups(norm: DraftLayer, rank: int) -> bool:
    """Whether it normalizes each index of a sample's first axis on its own, with gamma 1 and beta 0."""
    scales = any((array != neutral).any() for array, neutral in _arrays(norm))
    if norm.type == "InstanceNormalization":
        return "axis" not in norm.fields and not scales
    axes = norm.fields.get("axis", rank - 1)
    return norm.type == "LayerNormalization" and not scales and [*_several(axes)] == [*range(2, rank)]


def _arrays(norm: DraftLayer) -> list[tuple[Any, float]]:
    return [(norm.arrays[name], neutral) for name, neutral in (("gamma", 1.0), ("beta", 0.0)) if name in norm.arrays]


def _several(axes: int | list[int]) -> list[int]:
    return [axes] if isinstance(axes, int) else axes
