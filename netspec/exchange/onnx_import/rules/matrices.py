"""Matrix products: Dense and MatMul."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("MatMul")
def matmul(net: Translator, node: Node) -> None:
    """x · constant matrix → Dense, to which a following Add adds a bias; two computed tensors → MatMul."""
    if node.inputs[1] not in net.constants:
        _of_two(net, node)
        return
    kernel = net.constants[node.inputs[1]]
    if kernel.ndim != 2:
        raise Unsupported(f"a product with a constant of {kernel.ndim} axes, not 2")
    net.add(node, "Dense", node.inputs[:1], {"units": kernel.shape[1], "use_bias": False}, {"kernel": kernel})


def _of_two(net: Translator, node: Node) -> None:
    """A product in each sample; operands that were transposed before are left as they were."""
    if node.inputs[0] in net.constants:
        raise Unsupported("its first operand is a constant")
    sources, fields = [], {}
    for name, field in zip(node.inputs, ("transpose_a", "transpose_b"), strict=True):
        turned = net.turned.get(name)
        order = turned.permutation if turned else ()
        if turned and order == (*range(len(order) - 2), len(order) - 1, len(order) - 2):
            fields[field] = True
        sources.append(turned.source if turned and field in fields else name)
    net.add(node, "MatMul", sources, fields)


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
