"""GroupNormalization as PyTorch exports it: Reshape to groups, a normalization, Reshape back, and a scale."""

from __future__ import annotations

from typing import Any

from netspec.exchange.lift.layer_fusion.fusion import Chains, Joint, joining
from netspec.exchange.net_yaml_writer import DraftLayer
from netspec.schema.specs.kinds import LAYERS

PLAIN = {"center": False, "scale": False}


@joining
def grouped(chains: Chains, layer: DraftLayer) -> Joint | None:
    """Reshape → a normalization for each index of the first axis → Reshape back."""
    if layer.type != "Reshape":
        return None
    norm = chains.layers.get(layer.sources[0])
    if norm is None or chains.layer(norm.name, norm.type) is None or not _of_first_axis(norm, chains.ranks[norm.name]):
        return None
    split = chains.layer(norm.sources[0], "Reshape")
    shape = [*chains.shapes[split.sources[0]][1:]] if split is not None else []
    if split is None or [*layer.fields["target_shape"]] != shape or len(shape) < 2:
        return None
    groups = split.fields["target_shape"][0]
    if shape[0] % groups:
        return None
    epsilon = norm.fields.get("epsilon", LAYERS[norm.type].model_fields["epsilon"].default)
    fields = {"groups": groups, "epsilon": epsilon, **PLAIN}
    return DraftLayer(layer.name, "GroupNormalization", fields, split.sources), [split, norm]


@joining
def scaled(chains: Chains, layer: DraftLayer) -> Joint | None:
    """A normalization without a factor and an offset → Scale or Bias of each channel."""
    if layer.fields.keys() - {"use_bias"} or layer.type not in ("Scale", "Bias"):
        return None
    norm = chains.layers.get(layer.sources[0])
    if norm is None or norm.type not in ("GroupNormalization", "InstanceNormalization") or "axis" in norm.fields:
        return None
    if chains.layer(norm.name, norm.type) is None or not norm.fields.items() >= PLAIN.items():
        return None
    scales = {"gamma": layer.arrays.get("scale"), "beta": layer.arrays.get("bias")}
    arrays = {name: array for name, array in scales.items() if array is not None}
    left_out = {field: False for field, name in (("scale", "gamma"), ("center", "beta")) if name not in arrays}
    fields = {name: value for name, value in norm.fields.items() if name not in PLAIN} | left_out
    return DraftLayer(layer.name, norm.type, fields, norm.sources, arrays), [norm]


def _of_first_axis(norm: DraftLayer, rank: int) -> bool:
    """Whether it takes the mean of all but the first axis of a sample, and scales nothing."""
    scales = any((array != neutral).any() for array, neutral in _arrays(norm))
    if norm.type == "InstanceNormalization":
        return "axis" not in norm.fields and not scales
    axes = norm.fields.get("axis", rank - 1)
    return norm.type == "LayerNormalization" and not scales and [*_several(axes)] == [*range(2, rank)]


def _arrays(norm: DraftLayer) -> list[tuple[Any, float]]:
    return [(norm.arrays[name], neutral) for name, neutral in (("gamma", 1.0), ("beta", 0.0)) if name in norm.arrays]


def _several(axes: int | list[int]) -> list[int]:
    return [axes] if isinstance(axes, int) else axes
