"""Matrix products and look-ups: Dense and Embedding."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("MatMul")
def matmul(net: Translator, node: Node) -> None:
    """x · constant matrix → Dense; a bias is added to it by a following Add."""
    if node.inputs[1] not in net.constants:
        raise Unsupported("a product of two computed tensors")
    kernel = net.constants[node.inputs[1]]
    if kernel.ndim != 2:
        raise Unsupported(f"a product with a constant of {kernel.ndim} axes, not 2")
    net.add(node, "Dense", node.inputs[:1], {"units": kernel.shape[1], "use_bias": False}, {"kernel": kernel})


@rule("Gemm")
def gemm(net: Translator, node: Node) -> None:
    """alpha · x · B + beta · C with constant B and C → Dense."""
    import numpy as np

    kernel = net.constant(node.inputs[1], "second operand")
    if node.attributes["transA"] or kernel.ndim != 2:
        raise Unsupported("its first operand is transposed" if node.attributes["transA"] else "its kernel is no matrix")
    kernel = kernel.T if node.attributes["transB"] else kernel
    alpha, beta = node.attributes["alpha"], node.attributes["beta"]
    arrays: dict[str, Any] = {"kernel": kernel if alpha == 1 else kernel * kernel.dtype.type(alpha)}
    fields: dict[str, Any] = {"units": kernel.shape[1]}
    if node.operand(2):
        bias = net.constant(node.operand(2), "bias")
        if bias.ndim > 2 or (bias.ndim == 2 and bias.shape[0] != 1):
            raise Unsupported(f"a bias of shape {list(bias.shape)}")
        spread = np.broadcast_to(bias.reshape(-1), (kernel.shape[1],)) if bias.size in (1, kernel.shape[1]) else bias
        arrays["bias"] = spread if beta == 1 else spread * bias.dtype.type(beta)
    else:
        fields["use_bias"] = False
    net.add(node, "Dense", node.inputs[:1], fields, arrays)


@rule("Gather")
def gather(net: Translator, node: Node) -> None:
    """Rows of a constant table → Embedding."""
    table = net.constant(node.inputs[0], "table")
    if table.ndim != 2 or node.attributes["axis"] % 2 != 0:
        raise Unsupported("a look-up of other things than rows of a matrix")
    fields = {"input_dim": table.shape[0], "output_dim": table.shape[1]}
    net.add(node, "Embedding", node.inputs[1:2], fields, {"embeddings": table})
