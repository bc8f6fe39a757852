"""onnxruntime's contrib operators (com.microsoft) that its optimizers write: several ONNX operators fused in one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

MICROSOFT = "com.microsoft"
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "": (), "Relu": (), "Sigmoid": (), "Tanh": (), "HardSwish": (), "Softplus": (), "Softsign": (), "Gelu": (),
    "LeakyRelu": ("alpha",), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}  # fmt: skip
"""Activations of fused operators, and the names of their parameters in the order of `activation_params`."""
SAME = {
    "Trilu": "Trilu", "Pad": "Pad", "GatherND": "GatherND", "ExpandDims": "Unsqueeze", "GridSample": "GridSample",
    "QuantizeLinear": "QuantizeLinear", "DequantizeLinear": "DequantizeLinear",
}  # fmt: skip
"""Operators that ONNX has adopted, and their names in ONNX."""


@rule(*SAME, domain=MICROSOFT, uses_all_results=True)
def same_as_onnx(ctx: LiftContext, node: OperatorNode) -> None:
    """Replace the node by ONNX's operator."""
    steps = Expansion(ctx, node)
    steps.lift(*steps.node_with_results(len(node.outputs), SAME[node.op_type], *node.inputs, **node.attributes))


@rule("FusedConv", domain=MICROSOFT)
def fused_convolution(ctx: LiftContext, node: OperatorNode) -> None:
    """Split into a convolution, the sum with an optional further tensor, and an activation."""
    steps, have = Expansion(ctx, node), dict(node.attributes)
    name, parameters = have.pop("activation", ""), have.pop("activation_params", [])
    x, kernel, bias, addend = (node.operand(index) for index in range(4))
    result = steps.node("Conv", x, kernel, *filter(None, [bias]), **have)
    if addend:
        result = steps.node("Add", result, addend)
    activated(steps, result, name, parameters)
    steps.lift()


@rule("FusedGemm", "FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_product(ctx: LiftContext, node: OperatorNode) -> None:
    """Split into a matrix product of operands that may be transposed, a factor, and an activation."""
    steps, have = Expansion(ctx, node), dict(node.attributes)
    name = have.pop("activation", "")
    keys = ("activation_alpha", "activation_beta", "activation_gamma")
    product_attributes = {key: have.pop(key) for key in keys if key in have}
    parameters = [
        product_attributes[key] for key in keys[: len(ACTIVATIONS.get(name, ()))] if key in product_attributes
    ]
    if node.op_type == "FusedGemm":
        result = steps.node("Gemm", *node.inputs, **have)
    else:
        operands = [_transposed(ctx, steps, node, index) for index in range(2)]
        result = steps.node("MatMul", *operands)
        if have.get("alpha", 1.0) != 1.0:
            result = steps.node("Mul", result, steps.number(have["alpha"]))
    activated(steps, result, name, parameters)
    steps.lift()


def _transposed(ctx: LiftContext, steps: Expansion, node: OperatorNode, index: int) -> str:
    """Transpose operand A or B: swap its last axes (`trans`), move its first axis before the last (`transBatch`)."""
    tensor, letter = node.inputs[index], "AB"[index]
    order = list(range(ctx.tensors.rank(tensor)))
    if node.attributes.get(f"transBatch{letter}"):
        order[:-1] = [*order[1:-1], 0]
    if node.attributes.get(f"trans{letter}") and len(order) > 1:
        order[-2:] = order[:-3:-1]
    return tensor if order == sorted(order) else steps.node("Transpose", tensor, perm=order)


@rule("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=MICROSOFT)
def gelu(ctx: LiftContext, node: OperatorNode) -> None:
    """Import variants of GELU: of a sum, or approximated by tanh or a sigmoid."""
    steps, x = Expansion(ctx, node), node.inputs[0]
    if node.operand(1):
        x = steps.node("Add", *node.inputs)
    if node.op_type == "QuickGelu":
        steps.node("Swish", x, alpha=node.attributes.get("alpha", 1.702))
    else:
        steps.node("Gelu", x, approximate="tanh" if node.op_type == "FastGelu" else "none")
    steps.lift()


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT, uses_all_results=True)
def skip_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Split into a sum, which is the fourth result, and its normalization over the last axis."""
    steps, simplified = Expansion(ctx, node), "Simplified" in node.op_type
    gamma, beta, bias = node.operand(2), "" if simplified else node.operand(3), node.operand(3 if simplified else 4)
    total = steps.node("Add", *node.inputs[:2])
    if bias:
        total = steps.node("Add", total, bias)
    epsilon = node.attributes.get("epsilon", 1e-12)
    operator = "RMSNormalization" if simplified else "LayerNormalization"
    result = steps.node(operator, total, gamma, *filter(None, [beta]), axis=-1, epsilon=epsilon)
    _need_no_statistics(ctx, node)
    steps.lift(result, "", "", total)


@rule("SimplifiedLayerNormalization")
def simplified_normalization(ctx: LiftContext, node: OperatorNode) -> None:
    """Import onnxruntime's name of RMSNormalization, which is older than ONNX's operator."""
    fields = {"axis": node.attributes.get("axis", -1), "epsilon": node.attributes.get("epsilon", 1e-5)}
    steps = Expansion(ctx, replace(node, domain=MICROSOFT))
    steps.node("RMSNormalization", *node.inputs, **fields)
    steps.lift()


@rule("EmbedLayerNormalization", domain=MICROSOFT, uses_all_results=True)
def embedding(ctx: LiftContext, node: OperatorNode) -> None:
    """Add and normalize embeddings of words, positions and segments; the second result is each sequence's length."""
    words, segments, table, positions, of_segments, gamma, beta, mask, position_ids = (
        node.operand(k) for k in range(9)
    )
    steps = Expansion(ctx, node)
    total = steps.node("Gather", table, words)
    if position_ids:
        rows = steps.node("Gather", positions, position_ids)
    else:
        rows = steps.constant(
            ctx.tensors.constant(positions, "position embedding")[None, : ctx.tensors.shape(words)[1]]
        )
    total = steps.node("Add", total, rows)
    if segments:
        total = steps.node("Add", total, steps.node("Gather", of_segments, segments))
    result = steps.node(
        "LayerNormalization", total, gamma, beta, axis=-1, epsilon=node.attributes.get("epsilon", 1e-12)
    )
    lengths = ""
    if len(node.outputs) > 1 and ctx.tensors.is_read(node.outputs[1]):
        if not mask:
            raise UnsupportedFeature("its output `mask_index` is used, but it has no input `mask`")
        lengths = steps.node("ReduceSum", mask, steps.integers([1]), axes=[1], keepdims=0)
    steps.lift(result, lengths, total)


def _need_no_statistics(ctx: LiftContext, node: OperatorNode) -> None:
    if any(ctx.tensors.is_read(name) for name in node.outputs[1:3]):
        raise UnsupportedFeature("its output of the mean or inverse standard deviation is used")


def activated(steps: Expansion, x: str, name: str, parameters: list[Any]) -> str:
    """Apply the activation of a fused operator to `x`. Raises `UnsupportedFeature`."""
    if name not in ACTIVATIONS:
        raise UnsupportedFeature(f"the activation {name} is not supported")
    if not name:
        return x
    fields = dict(zip(ACTIVATIONS[name], parameters, strict=False))
    if name == "Clip":
        return steps.node(name, x, *(steps.number(fields[key]) for key in ("min", "max") if key in fields))
    return steps.node(name, x, **fields)


def channels_first(steps: Expansion, tensor: str, rank: int) -> str:
    """Transpose a tensor (N, …, C) to (N, C, …)."""
    return steps.node("Transpose", tensor, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(steps: Expansion, tensor: str, rank: int) -> str:
    """Transpose a tensor (N, C, …) to (N, …, C)."""
    return steps.node("Transpose", tensor, perm=[0, *range(2, rank), 1])
