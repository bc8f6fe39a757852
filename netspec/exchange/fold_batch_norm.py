"""Fold BatchNormalization into the layer before it: scale and shift become part of its kernel and bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.net_yaml_writer import Draft, DraftLayer
from netspec.schema.specs.kinds import LAYERS

Array: TypeAlias = NDArray[Any]

KERNELS: Mapping[str, str] = {
    **{f"Conv{rank}D": "kernel" for rank in (1, 2, 3)},
    **{f"Conv{rank}DTranspose": "kernel" for rank in (1, 2, 3)},
    **{f"DepthwiseConv{rank}D": "kernel" for rank in (1, 2)},
    **{f"SeparableConv{rank}D": "pointwise_kernel" for rank in (1, 2)},
    "Dense": "kernel",
}
"""Layers that BatchNormalization can be folded into, and the name of each one's kernel."""


@dataclass(frozen=True)
class Folded:
    """A net with folded BatchNormalization."""

    draft: Draft
    folded: int
    """Number of folded layers."""
    unfolded: tuple[str, ...]
    """Names of the layers that could not be folded."""


def fold_batch_norm(draft: Draft, shapes: Mapping[str, tuple[int, ...]]) -> Folded:
    """Fold every BatchNormalization that follows a convolution or a Dense into that layer.

    `shapes` are those of the layers' outputs, with the batch. A BatchNormalization stays if the layer before it has
    other readers or an activation, or if one of the two shares weights.
    """
    readers = Counter(name for layer in draft.layers for name in layer.sources)
    readers.update(name for entry in (*draft.losses, *draft.metrics) for name in entry["from"])
    readers.update(draft.outputs)
    sharing = {name for layer in draft.layers if (share := layer.fields.get("share")) for name in (share, layer.name)}
    layers = {layer.name: layer for layer in draft.layers}
    new_names: dict[str, str] = {}
    """New names of removed layers."""
    unfolded = []
    for norm in draft.layers:
        if norm.type != "BatchNormalization":
            continue
        before = layers.get(norm.sources[0]) if len(norm.sources) == 1 else None
        if before is None or readers[before.name] != 1 or sharing & {before.name, norm.name}:
            unfolded.append(norm.name)
        elif _takes(before, norm, len(shapes[before.name])):
            is_output = norm.name in draft.outputs
            layers[before.name] = _merged(before, norm, norm.name if is_output else before.name)
            new_names[before.name if is_output else norm.name] = norm.name if is_output else before.name
            del layers[norm.name]
        else:
            unfolded.append(norm.name)
    kept_layers = [layers[layer.name] for layer in draft.layers if layer.name in layers]
    for layer in kept_layers:
        layer.sources = tuple(new_names.get(name, name) for name in layer.sources)
    losses, metrics = ([_renamed(entry, new_names) for entry in entries] for entries in (draft.losses, draft.metrics))
    folded = replace(draft, layers=kept_layers, losses=losses, metrics=metrics)
    return Folded(folded, len(new_names), tuple(unfolded))


def _renamed(entry: dict[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    return {**entry, "from": [new_names.get(name, name) for name in entry["from"]]}


def _takes(before: DraftLayer, norm: DraftLayer, rank: int) -> bool:
    """Whether scale and shift can be folded into the weights of the layer before."""
    function = before.fields.get("activation")
    kernel = KERNELS.get(before.type)
    axis = _spec(norm).axis % rank
    channels = rank - 1 if before.type == "Dense" else 1
    has_arrays = kernel in before.arrays and {"moving_mean", "moving_variance"} <= norm.arrays.keys()
    return has_arrays and function in (None, "linear") and axis == channels


def _spec(layer: DraftLayer) -> Any:
    return LAYERS[layer.type].model_validate({"type": layer.type, **layer.fields})


def _merged(before: DraftLayer, norm: DraftLayer, name: str) -> DraftLayer:
    spec = _spec(norm)
    mean, variance = (norm.arrays[key].astype(np.float64) for key in ("moving_mean", "moving_variance"))
    scale = (
        norm.arrays["gamma"] / np.sqrt(variance + spec.epsilon) if spec.scale else 1 / np.sqrt(variance + spec.epsilon)
    )
    shift = (norm.arrays["beta"] if spec.center else 0.0) - mean * scale
    key = KERNELS[before.type]
    kernel = before.arrays[key]
    folded = _times(before)(kernel.astype(np.float64), scale)
    bias = before.arrays["bias"].astype(np.float64) * scale if "bias" in before.arrays else 0.0
    arrays = {**before.arrays, key: folded.astype(kernel.dtype), "bias": (bias + shift).astype(kernel.dtype)}
    fields = {field: value for field, value in before.fields.items() if field != "use_bias"}
    return DraftLayer(name, before.type, fields, before.sources, arrays)


def _times(layer: DraftLayer) -> Callable[[Array, Array], Array]:
    """The function that multiplies a kernel by one factor per output channel."""
    if layer.type == "Dense":
        return lambda kernel, scale: kernel * scale
    if layer.type.endswith("Transpose"):  # (in, out / groups, …): output channels are ordered by group
        groups = _spec(layer).groups

        def transposed(kernel: Array, scale: Array) -> Array:
            trailing_ones = [1] * (kernel.ndim - 2)
            parts = kernel.reshape(groups, -1, *kernel.shape[1:]) * scale.reshape(groups, 1, -1, *trailing_ones)
            return parts.reshape(kernel.shape)

        return transposed
    return lambda kernel, scale: kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1))
