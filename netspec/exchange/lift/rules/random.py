"""Random tensors, drawn once at import because a net computes the same each time; and Dropout."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.constant_folding import element_type
from netspec.exchange.operator_graph.evaluate import MAX_ELEMENTS
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature


@rule("RandomNormal", "RandomUniform")
def of_shape(ctx: LiftContext, node: OperatorNode) -> None:
    """A constant in the shape that the attribute `shape` gives."""
    ctx.tensors.constants[node.outputs[0]] = _drawn(ctx, node, tuple(node.attributes["shape"]), "float32")


@rule("RandomNormalLike", "RandomUniformLike")
def like(ctx: LiftContext, node: OperatorNode) -> None:
    """A constant of the operand's shape."""
    x = node.inputs[0]
    if not ctx.tensors.single_sample and ctx.tensors.is_computed(x):
        raise MixesSamples("it draws different random numbers for each sample")
    ctx.tensors.constants[node.outputs[0]] = _drawn(ctx, node, ctx.tensors.shape(x), ctx.tensors.dtype_name(x))


@rule("Bernoulli")
def bernoulli(ctx: LiftContext, node: OperatorNode) -> None:
    """Draw 1 with probability x, else 0.

    The function body in ONNX's specification has the comparison reversed.
    """
    steps, x = Expansion(ctx, node), node.inputs[0]
    seed = {key: node.attributes[key] for key in ("seed",) if key in node.attributes}
    drawn = steps.node("RandomUniformLike", x, low=0.0, high=1.0, **seed)
    is_one, dtype = steps.node("Less", drawn, x), node.attributes.get("dtype")
    if dtype:
        steps.node("Cast", is_one, to=dtype)
    else:
        steps.node("CastLike", is_one, x)
    steps.lift()


@rule("Multinomial")
def multinomial(ctx: LiftContext, node: OperatorNode) -> None:
    """Draw classes (N, samples) by logits (N, classes): count the cumulative probabilities ≤ a uniform number."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("it draws different random numbers for each sample")
    rows, classes = ctx.tensors.shape(node.inputs[0])
    uniform = replace(node, attributes={**node.attributes, "low": 0.0, "high": 1.0, "dtype": 0})
    drawn = _drawn(ctx, uniform, (rows, node.attributes["sample_size"], 1), "float32")
    steps = Expansion(ctx, node)
    zero, step, last = (steps.integers([number]) for number in (0, 1, classes - 1))
    sums = steps.node("CumSum", steps.node("Softmax", node.inputs[0], axis=-1), step)
    sums = steps.node("Slice", sums, zero, last, step)  # without the last one, which is 1 except for rounding
    past = steps.node("GreaterOrEqual", steps.constant(drawn), steps.node("Unsqueeze", sums, axes=[1]))
    steps.node("ReduceSum", steps.node("Cast", past, to=node.attributes["dtype"]), axes=[2], keepdims=0)
    steps.lift()


def _drawn(ctx: LiftContext, node: OperatorNode, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Random numbers by the node's attributes. They depend only on its seed, or without one on its name."""
    if prod(shape) > MAX_ELEMENTS:
        raise UnsupportedFeature(f"it draws more than {MAX_ELEMENTS:,} random numbers")
    ctx.report.remarks.add(
        f"the random numbers of {node.describe()} were drawn once and are constants of the net",
        "the random numbers of {count} nodes were drawn once and are constants of the net", f"`{node.label}`",
    )  # fmt: skip
    seed, type_code = node.attributes.get("seed"), node.attributes.get("dtype")
    random = np.random.default_rng(crc32(repr(node.label if seed is None else seed).encode()))
    if "mean" in node.attributes:
        numbers = random.normal(node.attributes["mean"], node.attributes["scale"], shape)
    else:
        numbers = random.uniform(node.attributes["low"], node.attributes["high"], shape)
    return np.asarray(numbers, element_type(type_code) if type_code else dtype)


@rule("Dropout", uses_all_results=True)
def dropout(ctx: LiftContext, node: OperatorNode) -> None:
    """Import as the layer Dropout, which acts only in training. The mask, if it is read, is all ones."""
    mask = (*node.outputs, "")[1]
    if mask and ctx.tensors.is_read(mask):
        if not ctx.tensors.single_sample:
            raise MixesSamples("its output `mask` is used, which has the batch axis")
        ctx.tensors.constants[mask] = np.broadcast_to(np.ones((), bool), ctx.tensors.shape(node.inputs[0]))
    training = node.operand(2)
    if training and (ctx.tensors.is_computed(training) or bool(ctx.tensors.constants[training].reshape(()))):
        ctx.report.remarks.add(
            f"{node.describe()} drops elements in inference too; in netspec it does not",
            "{count} nodes drop elements in inference too; in netspec they do not", f"`{node.label}`",
        )  # fmt: skip
    ctx.layers.add_elementwise(node, "Dropout", node.inputs[:1], {"rate": _rate(ctx, node)})


@rule("Dropout", domain=DOMAIN)
def dropout_with_noise_shape(ctx: LiftContext, node: OperatorNode) -> None:
    """Dropout of whole channels → SpatialDropout2D (or 1D, 3D), else Dropout with `noise_shape`."""
    shape, noise = ctx.tensors.shape(node.inputs[0]), node.attributes["noise_shape"]
    if len(noise) != len(shape):
        raise UnsupportedFeature(f"its `noise_shape` {noise} does not have the rank of its input, {list(shape)}")
    has_own_noise = [size is None or size == have != 1 for size, have in zip(noise, shape, strict=True)]
    fields: dict[str, Any] = {"rate": _rate(ctx, node)}
    if (
        has_own_noise == [True, True, *[False] * (len(shape) - 2)]
        and len(shape) in (3, 4, 5)
        and not ctx.tensors.single_sample
    ):
        ctx.layers.add(node, f"SpatialDropout{len(shape) - 2}D", node.inputs[:1], fields)
    else:
        fields["noise_shape"] = [*[None] * ctx.tensors.axis_offset, *(None if free else 1 for free in has_own_noise)]
        ctx.layers.add(node, "Dropout", node.inputs[:1], fields)


def _rate(ctx: LiftContext, node: OperatorNode) -> float:
    if node.operand(1):
        return float(str(ctx.tensors.constant(node.operand(1), "ratio").reshape(())))
    return float(node.attributes.get("ratio", 0.5))
