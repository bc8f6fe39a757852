"""Attention as products and a softmax: MultiHeadAttention with its projections, or Attention without."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.layer_fusion.fusion import Chains, Joint, joining
from netspec.exchange.lift.layer_fusion.masks import masked, unguarded
from netspec.exchange.net_yaml_writer import DraftLayer


@dataclass
class Looks:
    """A weighted mean of values: softmax(scale · query · keyᵀ + mask) · value."""

    query: str
    key: str
    value: str
    scale: float
    causal: bool = False
    key_turned: bool = False
    """Whether `key` has its positions along its last axis, not its features."""
    parts: list[DraftLayer] = field(default_factory=list)


@dataclass
class Heads:
    """A projection of a sequence into heads: Dense, Reshape, Permute."""

    dense: DraftLayer
    scale: float
    shape: tuple[int, int]
    """Heads, and the size of each."""
    parts: list[DraftLayer]


@joining
def multi_head_attention(chains: Chains, layer: DraftLayer) -> Joint | None:
    """Dense of the heads that were brought together of what each found in its projections."""
    joined = chains.layer(layer.sources[0], "Reshape") if _is_projection(layer) else None
    permuted = chains.only(joined.sources[0], "Permute", dims=[2, 1, 3]) if joined is not None else None
    product = chains.layer(permuted.sources[0], "MatMul") if permuted is not None else None
    looks = _looks(chains, product) if product is not None else None
    if looks is None or joined is None or permuted is None or product is None:
        return None
    query = _heads(chains, looks.query, [2, 1, 3])
    key = _heads(chains, looks.key, [2, 3, 1] if looks.key_turned else [2, 1, 3])
    value = _heads(chains, looks.value, [2, 1, 3])
    if query is None or key is None or value is None or query.shape != key.shape or value.scale != 1:
        return None
    count, size = query.shape
    scale = looks.scale * query.scale * key.scale
    if value.shape[0] != count or not isclose(scale, 1 / sqrt(size), rel_tol=1e-4):
        return None
    if joined.fields["target_shape"][1:] != [count * value.shape[1]]:
        return None
    fields: dict[str, Any] = {"num_heads": count, "key_dim": size, "value_dim": value.shape[1]}
    if value.shape[1] == size:
        del fields["value_dim"]
    if layer.fields["units"] != query.dense.arrays["kernel"].shape[0]:
        fields["output_shape"] = layer.fields["units"]
    if looks.causal:
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
    parts = [*query.parts, *key.parts, *value.parts, *looks.parts, product, permuted, joined]
    if not chains.alone([*parts, layer], layer):
        return None
    return DraftLayer(layer.name, "MultiHeadAttention", fields, tuple(sources), arrays), parts


@joining
def attention(chains: Chains, layer: DraftLayer) -> Joint | None:
    """softmax(query · keyᵀ) · value over sequences."""
    looks = _looks(chains, layer) if layer.type == "MatMul" else None
    if looks is None or looks.key_turned or not isclose(looks.scale, 1.0, rel_tol=1e-6):
        return None
    if not chains.alone([*looks.parts, layer], layer):
        return None
    sources = [looks.query, looks.value, looks.key]
    if any(chains.ranks[name] != 3 for name in sources):
        return None
    if looks.key == looks.value:
        sources.pop()
    fields = {"use_causal_mask": True} if looks.causal else {}
    return DraftLayer(layer.name, "Attention", fields, tuple(sources)), looks.parts


def _is_projection(layer: DraftLayer) -> bool:
    return layer.type == "Dense" and not layer.fields.keys() - {"units", "use_bias"}


def _looks(chains: Chains, product: DraftLayer) -> Looks | None:
    """The weighted mean that a product of matrices is, if its first operand is a softmax."""
    if product.fields:
        return None
    name, guards = unguarded(chains, product.sources[0])
    weights = chains.layers.get(name)
    if weights is None or weights.type != "Activation" or weights.fields != {"activation": "softmax"}:
        return None
    mask = masked(chains, weights.sources[0])
    if mask is None:
        return None
    looks = Looks("", "", product.sources[1], 1.0, mask.causal, parts=[*guards, weights, *mask.parts])
    name, looks.scale = _scaled(chains, mask.scores, looks.parts)
    scores = chains.layer(name, "MatMul")
    if scores is None or scores.fields.keys() - {"transpose_b"}:
        return None
    looks.query, looks.key = scores.sources
    looks.key_turned = not scores.fields.get("transpose_b")
    looks.parts.append(scores)
    return looks


def _scaled(chains: Chains, name: str, parts: list[DraftLayer]) -> tuple[str, float]:
    """The layer in front of scalings, and the product of their factors."""
    factor = 1.0
    while True:
        layer = chains.layer(name, "Power")
        if layer is None or layer.fields.keys() - {"scale"}:
            return name, factor
        factor *= layer.fields.get("scale", 1.0)
        parts.append(layer)
        (name,) = layer.sources


def _heads(chains: Chains, name: str, dims: list[int]) -> Heads | None:
    """The projection into heads that `name` is, its axes turned so."""
    parts: list[DraftLayer] = []
    name, first = _scaled(chains, name, parts)
    permuted = chains.only(name, "Permute", dims=dims)
    if permuted is None:
        return None
    name, second = _scaled(chains, permuted.sources[0], parts)
    split = chains.layer(name, "Reshape")
    shape = split.fields["target_shape"] if split is not None else []
    projection, third = None, 1.0
    if split is not None and len(shape) == 3:
        name, third = _scaled(chains, split.sources[0], parts)
        projection = _projection(chains, name)
        parts.append(split)
    else:  # one product for queries, keys and values, split into heads before it is taken apart
        projection = _picked(chains, name, 4)
        shape = (
            projection[1][0].fields["target_shape"][:1] + projection[1][0].fields["target_shape"][2:]
            if projection
            else []
        )
    if projection is None or projection[0].fields["units"] != shape[1] * shape[2]:
        return None
    return Heads(projection[0], first * second * third, (shape[1], shape[2]), [*parts, permuted, *projection[1]])


Part: TypeAlias = "tuple[DraftLayer, list[DraftLayer]]"
"""A Dense, and the layers that it stands for: itself, or those that make a part of what a wider one makes."""


def _projection(chains: Chains, name: str) -> Part | None:
    """The Dense that makes what `name` is, on its own or as a part of a wider one."""
    dense = chains.layer(name, "Dense")
    if dense is not None:
        return (dense, [dense]) if _is_projection(dense) else None
    split = chains.layers.get(name.rpartition(".")[0])
    if split is None or split.type != "Split":
        return _picked(chains, name, 3)
    wide, sections = chains.layers.get(split.sources[0]), split.fields.get("sections")
    number = name.rpartition(".")[2]
    if wide is None or split.fields.get("axis") not in (2, -1) or sections != 3 or not number.isdecimal():
        return None
    return _third(wide, int(number), [split])


def _picked(chains: Chains, name: str, rank: int) -> Part | None:
    """One of the three parts of a product that a Reshape to `rank` axes splits; None if the layer is not one."""
    squeezed = chains.only(name, "Squeeze", axis=2)
    picked = chains.layer(squeezed.sources[0], "Gather") if squeezed is not None else None
    apart = chains.layers.get(picked.sources[0]) if picked is not None and len(picked.sources) == 1 else None
    wide = chains.layers.get(apart.sources[0]) if apart is not None and apart.type == "Reshape" else None
    if squeezed is None or picked is None or apart is None or wide is None:
        return None
    shape, indices = apart.fields["target_shape"], picked.fields.get("indices", [])
    if picked.fields.get("axis") != 2 or len(indices) != 1 or len(shape) != rank or shape[1] != 3:
        return None
    return _third(wide, indices[0], [apart, squeezed, picked])


def _third(wide: DraftLayer, number: int, parts: list[DraftLayer]) -> Part | None:
    """A Dense of one of the three parts of what another makes."""
    if not _is_projection(wide) or wide.fields["units"] % 3 or not 0 <= number < 3:
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
