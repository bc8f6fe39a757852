"""Masks of attention as exporters write them: added terms, or a selection between scores and a constant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.layer_fusion.fusion import DraftGraph
from netspec.exchange.net_yaml_writer import DraftLayer

FORBIDDEN = -1e4
"""Softmax is 0 for mask values of at most this number."""
LETTERS = "xyzw"
"""Names of the operands of an Expression."""


@dataclass(frozen=True)
class Masked:
    """Scores (…, T, S) with a mask: the scores before it, whether the mask is causal, and the layers of the mask."""

    scores: str
    causal: bool
    parts: list[DraftLayer]


def masked(graph: DraftGraph, name: str) -> Masked | None:
    """The scores before the masks that end in `name`; None if one of the masks is not causal."""
    masked = Masked(name, False, [])
    while True:
        mask, layer = None, graph.layers.get(masked.scores)
        if layer is not None and graph.layer(masked.scores, layer.type) is not None:
            mask = _added(graph, layer) or _chosen(graph, layer)
        if mask is None or layer is None:
            return masked
        scores, array = mask
        causal = _is_causal(array)
        if not causal and array.any():
            return None
        masked = Masked(scores, masked.causal or causal, [*masked.parts, layer])


def without_nan_guard(graph: DraftGraph, name: str) -> tuple[str, list[DraftLayer]]:
    """The tensor before its NaN are replaced by 0, as PyTorch does after a softmax that may have all keys masked."""
    guard = graph.layer(name, "Expression")
    if guard is None or guard.fields.get("expr") != "where(x, 0.0, y)" or len(guard.sources) != 2:
        return name, []
    test = graph.layer(guard.sources[0], "Expression")
    if test is None or test.fields.get("expr") != "isnan(x)" or test.sources != guard.sources[1:]:
        return name, []
    return guard.sources[1], [guard, test]


def _added(graph: DraftGraph, layer: DraftLayer) -> tuple[str, NDArray[Any]] | None:
    if layer.type != "Bias" or layer.fields != {"axis": graph.ranks[layer.name] - 2, "num_axes": 2}:
        return None
    return layer.sources[0], layer.arrays["bias"]


def _chosen(graph: DraftGraph, layer: DraftLayer) -> tuple[str, NDArray[Any]] | None:
    """where(mask, scores, -inf), or with exchanged branches: the scores, and the equivalent added mask."""
    parts = re.fullmatch(r"where\((\w), ([^,()]+), ([^,()]+)\)", str(layer.fields.get("expr")))
    if layer.type != "Expression" or parts is None or parts[1] not in LETTERS:
        return None
    sources = dict(zip(LETTERS, layer.sources, strict=False))
    condition, *both = (_constant(graph, sources.get(text, ""), text) for text in parts.groups())
    if condition is None or condition.ndim < 2 or condition.size != condition.shape[-2] * condition.shape[-1]:
        return None
    for index, scores in ((0, parts[3]), (1, parts[2])):
        away = both[index]
        if away is not None and (away <= FORBIDDEN).all() and both[1 - index] is None and scores in sources:
            forbidden = condition if index == 0 else ~condition
            return sources[scores], np.where(forbidden.reshape(forbidden.shape[-2:]), -np.inf, 0.0)
    return None


def _constant(graph: DraftGraph, name: str, text: str) -> NDArray[Any] | None:
    """The array of the Parameter `name`; without a name, the number in the `text` of an Expression."""
    layer = graph.layers.get(name)
    if layer is not None and layer.type == "Parameter":
        return np.asarray(layer.arrays["value"]).astype(layer.fields.get("dtype", "float32"))
    try:
        return None if name else np.asarray(float(text))
    except ValueError:
        return None


def _is_causal(mask: NDArray[Any]) -> bool:
    """Whether an added square mask is causal."""
    behind = np.triu(np.ones(mask.shape, bool), 1)
    return mask.shape[0] == mask.shape[1] and bool((mask[behind] <= FORBIDDEN).all() and (mask[~behind] == 0).all())
