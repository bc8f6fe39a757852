"""Random numbers: they are drawn once, while a model is imported, since a net computes the same at every run."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any
from zlib import crc32

from netspec.exchange.onnx_import.computing import MAX_ELEMENTS
from netspec.exchange.onnx_import.folding import element_type
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray


@rule("RandomNormal", "RandomUniform")
def of_shape(net: Translator, node: Node) -> None:
    """A constant of the shape that the node names."""
    net.constants[node.outputs[0]] = _drawn(net, node, tuple(node.attributes["shape"]), "float32")


@rule("RandomNormalLike", "RandomUniformLike")
def like(net: Translator, node: Node) -> None:
    """A constant of the operand's shape."""
    x = node.inputs[0]
    if not net.whole and net.is_computed(x):
        raise Mixed("each sample has random numbers of its own")
    own = str(net.dtype(x)) if net.is_computed(x) else str(net.constants[x].dtype)
    net.constants[node.outputs[0]] = _drawn(net, node, net.shape(x), own)


def _drawn(net: Translator, node: Node, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Numbers as the attributes say; they depend on the node's seed, or its name, alone."""
    import numpy as np

    if prod(shape) > MAX_ELEMENTS:
        raise Unsupported(f"more than {MAX_ELEMENTS:,} random numbers")
    net.remarks.append(f"the random numbers of {node.describe()} were drawn once: every run has the same")
    seed, given = node.attributes.get("seed"), node.attributes.get("dtype")
    random = np.random.default_rng(crc32(repr(node.label if seed is None else seed).encode()))
    if "mean" in node.attributes:
        numbers = random.normal(node.attributes["mean"], node.attributes["scale"], shape)
    else:
        numbers = random.uniform(node.attributes["low"], node.attributes["high"], shape)
    return np.asarray(numbers, element_type(given) if given else dtype)
