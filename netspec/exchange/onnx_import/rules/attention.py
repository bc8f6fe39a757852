"""Attention as one node: in the form that is put together again with its projections."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Steps, Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = -1e9
"""What is added to the score of a place that must not be looked at."""
READ = {"q_num_heads", "kv_num_heads", "scale", "is_causal", "softmax_precision", "qk_matmul_output_mode"}
UNSAID = (0, -1)
"""What other attributes are where they say nothing."""
PAST, LAST = 4, 7
"""Operands from the first to before the last that are a state, or lengths of sequences."""


@rule("Attention")
def attention(net: Translator, node: Node) -> None:
    """Heads apart where there are several, softmax(scale · query · keyᵀ + mask) · value, heads together.

    query: (N, T, heads · D) or (N, heads, T, D), as key and value. Other forms are written as ONNX says that they are.
    """
    import numpy as np

    have = node.attributes
    if any(value not in UNSAID for name, value in have.items() if name not in READ):
        raise Unsupported("limited scores, or a window")
    if any(map(node.operand, range(PAST, LAST))):
        raise Unsupported("a state of the places before, or lengths")
    shapes = [net.shape(name) for name in node.inputs[:3]]
    packed = len(shapes[0]) == 3
    counts = [have.get(f"{which}_num_heads") if packed else shapes[place][1] for place, which in enumerate(("q", "kv"))]
    if not counts[0] or counts[0] != counts[1]:
        raise Unsupported("keys and values that heads share")
    features = shapes[0][-1] // counts[0] if packed else shapes[0][-1]
    factor = have.get("scale", 1 / sqrt(features))
    packed &= counts[0] > 1 or factor != 1
    steps, heads, rank = Steps(net, node), list(node.inputs[:3]), 4 if packed else len(shapes[0])
    if packed:
        apart = steps.constant(np.asarray([0, 0, counts[0], -1], "int64"))
        heads = [steps.of("Transpose", steps.of("Reshape", name, apart), perm=[0, 2, 1, 3]) for name in heads]
    turned = steps.of("Transpose", heads[1], perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = steps.of("MatMul", heads[0], turned)
    if factor != 1:
        scores = steps.of("Mul", scores, steps.constant(np.float32(factor)))
    mask = _mask(net, node, (shapes[0][-2], shapes[1][-2]))
    if mask is not None:
        scores = steps.of("Add", scores, steps.constant(mask))
    found = steps.of("MatMul", steps.of("Softmax", scores, axis=-1), heads[2])
    if packed:
        together = steps.constant(np.asarray([0, 0, -1], "int64"))
        steps.of("Reshape", steps.of("Transpose", found, perm=[0, 2, 1, 3]), together)
    steps.run()


def _mask(net: Translator, node: Node, shape: tuple[int, int]) -> NDArray[Any] | None:
    """What is added to the scores (T, S). Raises `Unsupported` where a place may look nowhere: ONNX gives 0 there."""
    import numpy as np

    made = np.zeros(shape, "float32")
    if node.operand(3):
        given = net.constant(node.operand(3), "mask")
        if given.shape != shape:
            raise Unsupported(f"a mask {list(given.shape)} of {shape[0]} × {shape[1]} places")
        made = np.where(given, 0, NEVER).astype("float32") if given.dtype == bool else np.maximum(given, NEVER)
    elif not node.attributes.get("is_causal"):
        return None
    if node.attributes.get("is_causal"):
        made = np.where(np.tri(*shape, dtype=bool), made, np.float32(NEVER))
    if (made <= NEVER).all(axis=1).any():
        raise Unsupported("a place that may look nowhere")
    return made.astype("float32")
