"""Fuse matrix products and a softmax into MultiHeadAttention with its projections, or into Attention without."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.layer_fusion.fusion import DraftGraph, Fusion, fusion_rule
from netspec.exchange.lift.layer_fusion.masks import masked, without_nan_guard
from netspec.exchange.net_yaml_writer import DraftLayer


@dataclass
class ScaledDotProduct:
    """Scaled dot-product attention: softmax(scale · query · keyᵀ + mask) · value."""

    query: str
    key: str
    value: str
    scale: float
    causal: bool = False
    key_transposed: bool = False
    """Whether `key` has its positions along its last axis, not its features."""
    parts: list[DraftLayer] = field(default_factory=list)


@dataclass
class HeadProjection:
    """A projection of a sequence into heads: Dense, Reshape, Permute."""

    dense: DraftLayer
    scale: float
    shape: tuple[int, int]
    """Number of heads, and the size of each."""
    parts: list[DraftLayer]


@fusion_rule
def multi_head_attention(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """Attention of projected heads → Permute and Reshape, which concatenate the heads → Dense."""
    joined = graph.layer(layer.sources[0], "Reshape") if _is_linear(layer) else None
    permuted = graph.only(joined.sources[0], "Permute", dims=[2, 1, 3]) if joined is not None else None
    product = graph.layer(permuted.sources[0], "MatMul") if permuted is not None else None
    attended = _scaled_dot_product(graph, product) if product is not None else None
    if attended is None or joined is None or permuted is None or product is None:
        return None
    query = _head_projection(graph, attended.query, [2, 1, 3])
    key = _head_projection(graph, attended.key, [2, 3, 1] if attended.key_transposed else [2, 1, 3])
    value = _head_projection(graph, attended.value, [2, 1, 3])
    if query is None or key is None or value is None or query.shape != key.shape or value.scale != 1:
        return None
    count, size = query.shape
    scale = attended.scale * query.scale * key.scale
    if value.shape[0] != count or not isclose(scale, 1 / sqrt(size), rel_tol=1e-4):
        return None
    if joined.fields["target_shape"][1:] != [count * value.shape[1]]:
        return None
    fields: dict[str, Any] = {"num_heads": count, "key_dim": size, "value_dim": value.shape[1]}
    if value.shape[1] == size:
        del fields["value_dim"]
    if layer.fields["units"] != query.dense.arrays["kernel"].shape[0]:
        fields["output_shape"] = layer.fields["units"]
    if attended.causal:
        fields["use_causal_mask"] = True
    projections = {"query": query, "key": key, "value": value}
    arrays = _weights(
        {name: projection.dense for name, projection in projections.items()} | {"attention_output": layer}
    )
    for name, projection in projections.items():
        for kind in ("kernel", "bias"):
            array = arrays.get(f"{name}/{kind}")
            if array is not None:
                arrays[f"{name}/{kind}"] = array.reshape((*array.shape[:-1], *projection.shape))
    kernel = arrays["attention_output/kernel"]
    arrays["attention_output/kernel"] = kernel.reshape(*value.shape, kernel.shape[1])
    if "query/bias" not in arrays:
        fields["use_bias"] = False
    sources = [query.dense.sources[0], value.dense.sources[0], key.dense.sources[0]]
    while len(sources) > 1 and sources[-1] == sources[-2]:
        sources.pop()
    parts = [*query.parts, *key.parts, *value.parts, *attended.parts, product, permuted, joined]
    if not graph.alone([*parts, layer], layer):
        return None
    return DraftLayer(layer.name, "MultiHeadAttention", fields, tuple(sources), arrays), parts


@fusion_rule
def attention(graph: DraftGraph, layer: DraftLayer) -> Fusion | None:
    """softmax(query · keyᵀ) · value over sequences → Attention."""
    attended = _scaled_dot_product(graph, layer) if layer.type == "MatMul" else None
    if attended is None or attended.key_transposed or not isclose(attended.scale, 1.0, rel_tol=1e-6):
        return None
    if not graph.alone([*attended.parts, layer], layer):
        return None
    sources = [attended.query, attended.value, attended.key]
    if any(graph.ranks[name] != 3 for name in sources):
        return None
    if attended.key == attended.value:
        sources.pop()
    fields = {"use_causal_mask": True} if attended.causal else {}
    return DraftLayer(layer.name, "Attention", fields, tuple(sources)), attended.parts


def _is_linear(layer: DraftLayer) -> bool:
    return layer.type == "Dense" and not layer.fields.keys() - {"units", "use_bias"}


def _scaled_dot_product(graph: DraftGraph, product: DraftLayer) -> ScaledDotProduct | None:
    """The attention that ends in the MatMul `product`, if its first operand is a softmax."""
    if product.fields:
        return None
    name, guards = without_nan_guard(graph, product.sources[0])
    weights = graph.layers.get(name)
    if weights is None or weights.type != "Activation" or weights.fields != {"activation": "softmax"}:
        return None
    mask = masked(graph, weights.sources[0])
    if mask is None:
        return None
    attended = ScaledDotProduct("", "", product.sources[1], 1.0, mask.causal, parts=[*guards, weights, *mask.parts])
    name, attended.scale = _skip_scalings(graph, mask.scores, attended.parts)
    scores = graph.layer(name, "MatMul")
    if scores is None or scores.fields.keys() - {"transpose_b"}:
        return None
    attended.query, attended.key = scores.sources
    attended.key_transposed = not scores.fields.get("transpose_b")
    attended.parts.append(scores)
    return attended


def _skip_scalings(graph: DraftGraph, name: str, parts: list[DraftLayer]) -> tuple[str, float]:
    """The tensor before the scalings that end in `name`, and the product of their factors."""
    factor = 1.0
    while True:
        layer = graph.layer(name, "Power")
        if layer is None or layer.fields.keys() - {"scale"}:
            return name, factor
        factor *= layer.fields.get("scale", 1.0)
        parts.append(layer)
        (name,) = layer.sources


def _head_projection(graph: DraftGraph, name: str, dims: list[int]) -> HeadProjection | None:
    """The projection into heads that ends in `name`, with a Permute of these `dims`."""
    parts: list[DraftLayer] = []
    name, first = _skip_scalings(graph, name, parts)
    permuted = graph.only(name, "Permute", dims=dims)
    if permuted is None:
        return None
    name, second = _skip_scalings(graph, permuted.sources[0], parts)
    split = graph.layer(name, "Reshape")
    shape = split.fields["target_shape"] if split is not None else []
    projection, third = None, 1.0
    if split is not None and len(shape) == 3:
        name, third = _skip_scalings(graph, split.sources[0], parts)
        projection = _projection(graph, name)
        parts.append(split)
    else:  # one Dense for query, key and value, whose output is split into heads first
        projection = _gathered_third(graph, name, 4)
        shape = (
            projection[1][0].fields["target_shape"][:1] + projection[1][0].fields["target_shape"][2:]
            if projection
            else []
        )
    if projection is None or projection[0].fields["units"] != shape[1] * shape[2]:
        return None
    return HeadProjection(
        projection[0], first * second * third, (shape[1], shape[2]), [*parts, permuted, *projection[1]]
    )


Part: TypeAlias = "tuple[DraftLayer, list[DraftLayer]]"
"""A Dense, and the layers that it replaces: itself, or a packed projection and the layers that select a third of it."""


def _projection(graph: DraftGraph, name: str) -> Part | None:
    """The Dense that computes `name`, alone or as a third of a packed projection of query, key and value."""
    dense = graph.layer(name, "Dense")
    if dense is not None:
        return (dense, [dense]) if _is_linear(dense) else None
    split = graph.layers.get(name.rpartition(".")[0])
    if split is None or split.type != "Split":
        return _gathered_third(graph, name, 3)
    wide, sections = graph.layers.get(split.sources[0]), split.fields.get("sections")
    number = name.rpartition(".")[2]
    if wide is None or split.fields.get("axis") not in (2, -1) or sections != 3 or not number.isdecimal():
        return None
    return _third(wide, int(number), [split])


def _gathered_third(graph: DraftGraph, name: str, rank: int) -> Part | None:
    """The third of a packed projection that a Reshape (to `rank` axes), a Gather and a Squeeze select, if any."""
    squeezed = graph.only(name, "Squeeze", axis=2)
    picked = graph.layer(squeezed.sources[0], "Gather") if squeezed is not None else None
    apart = graph.layers.get(picked.sources[0]) if picked is not None and len(picked.sources) == 1 else None
    wide = graph.layers.get(apart.sources[0]) if apart is not None and apart.type == "Reshape" else None
    if squeezed is None or picked is None or apart is None or wide is None:
        return None
    shape, indices = apart.fields["target_shape"], picked.fields.get("indices", [])
    if picked.fields.get("axis") != 2 or len(indices) != 1 or len(shape) != rank or shape[1] != 3:
        return None
    return _third(wide, indices[0], [apart, squeezed, picked])


def _third(wide: DraftLayer, number: int, parts: list[DraftLayer]) -> Part | None:
    """A Dense that computes one third of the output of the Dense `wide`."""
    if not _is_linear(wide) or wide.fields["units"] % 3 or not 0 <= number < 3:
        return None
    units = wide.fields["units"] // 3
    arrays = {name: array[..., number * units : (number + 1) * units] for name, array in wide.arrays.items()}
    return DraftLayer(wide.name, "Dense", {**wide.fields, "units": units}, wide.sources, arrays), [*parts, wide]


def _weights(layers: dict[str, DraftLayer]) -> dict[str, NDArray[Any]]:
    """Kernels and biases; if only some layers have a bias, the others get zeros."""
    arrays = {}
    any_bias = any("bias" in layer.arrays for layer in layers.values())
    for name, layer in layers.items():
        kernel = layer.arrays["kernel"]
        arrays[f"{name}/kernel"] = kernel
        if any_bias:
            arrays[f"{name}/bias"] = layer.arrays.get("bias", np.zeros(kernel.shape[1], kernel.dtype))
    return arrays
