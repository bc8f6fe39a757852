"""Random numbers, and choices by them: drawn once, while a model is imported, as a net computes the same each time."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any
from zlib import crc32

from netspec.exchange.onnx_import.computing import MAX_ELEMENTS
from netspec.exchange.onnx_import.folding import element_type
from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.translate import Steps, Translator, rule

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


@rule("Multinomial")
def multinomial(net: Translator, node: Node) -> None:
    """Classes (N, samples) by logits (N, classes): as many sums of probabilities as a drawn number is not below."""
    import numpy as np

    if not net.whole:
        raise Mixed("each sample has random numbers of its own")
    rows, classes = net.shape(node.inputs[0])
    uniform = replace(node, attributes={**node.attributes, "low": 0.0, "high": 1.0, "dtype": 0})
    drawn = _drawn(net, uniform, (rows, node.attributes["sample_size"], 1), "float32")
    steps = Steps(net, node)
    zero, one, last = (steps.constant(np.asarray([number], "int64")) for number in (0, 1, classes - 1))
    sums = steps.of("CumSum", steps.of("Softmax", node.inputs[0], axis=-1), one)
    sums = steps.of("Slice", sums, zero, last, one)  # the last is 1, but for rounding
    past = steps.of("GreaterOrEqual", steps.constant(drawn), steps.of("Unsqueeze", sums, axes=[1]))
    steps.of("ReduceSum", steps.of("Cast", past, to=node.attributes["dtype"]), axes=[2], keepdims=0)
    steps.run()


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
