"""Reshape → Permute → Reshape as one layer: ChannelShuffle, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from typing import Any

from netspec.exchange.lift.layer_fusion.fusion import DraftGraph, Fusion, fusion_rule
from netspec.exchange.net_yaml_writer import DraftLayer


@fusion_rule
def shuffled(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """Reshape, which splits axes → Permute → Reshape, which merges axes."""
    permuted = graph.layer(layer.sources[0], "Permute") if layer.type == "Reshape" else None
    split = graph.layer(permuted.sources[0], "Reshape") if permuted is not None else None
    if split is None or permuted is None:
        return None
    meaning = _meaning(split.fields["target_shape"], list(permuted.fields["dims"]), layer.fields["target_shape"])
    if meaning is None:
        return None
    type_, fields, shape = meaning
    if graph.shapes.get(split.sources[0], ())[1:] != shape:  # the first Reshape splits other axes
        return None
    return DraftLayer(layer.name, type_, fields, split.sources), [split, permuted]


def _meaning(
    split: list[int], dims: list[int], target: list[int]
) -> tuple[str, dict[str, Any], tuple[int, ...]] | None:
    """The layer that computes Reshape to `split`, Permute and Reshape to `target`: type, fields, and input shape."""
    match split, dims:
        case [groups, each, *spatial], [2, 1, *rest] if spatial and rest == list(range(3, len(split) + 1)):
            if target == [groups * each, *spatial]:
                return "ChannelShuffle", {"groups": groups}, (groups * each, *spatial)
        case [channels, down, right, height, width], [1, 4, 2, 5, 3] if down == right:
            if target == [channels, height * down, width * right]:
                return "DepthToSpace", {"block_size": down}, (channels * down * right, height, width)
        case [down, right, channels, height, width], [3, 4, 1, 5, 2] if down == right:
            if target == [channels, height * down, width * right]:
                return "DepthToSpace", {"block_size": down, "mode": "DCR"}, (channels * down * right, height, width)
        case [channels, height, down, width, right], [1, 3, 5, 2, 4] if down == right:
            if target == [channels * down * right, height, width]:
                return "SpaceToDepth", {"block_size": down}, (channels, height * down, width * right)
        case [channels, height, down, width, right], [3, 5, 1, 2, 4] if down == right:
            if target == [channels * down * right, height, width]:
                return "SpaceToDepth", {"block_size": down, "mode": "DCR"}, (channels, height * down, width * right)
    return None
