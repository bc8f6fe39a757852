"""Small models with onnxruntime's contrib operators (com.microsoft), and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.exchange.lift.models.generic import node

DOMAIN = "com.microsoft"
random = np.random.default_rng(11)
Arrays = Mapping[str, Any]


def drawn(*shape: int) -> np.ndarray:
    return random.normal(size=shape).astype("float32")


def whole(*rows: Sequence[int] | int) -> np.ndarray:
    return np.asarray(rows, "int32")


def own(op_type: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return node(op_type, inputs, output, domain=DOMAIN, **attributes)


def contributed(
    nodes: list[onnx.NodeProto],
    inputs: Arrays,
    outputs: str = "y",
    opset: int = 17,
    batch: int | str = "N",
    **weights: Any,
) -> tuple[onnx.ModelProto, Arrays]:
    """A model for these inputs with a dynamic batch size, and the inputs."""
    graph = helper.make_graph(
        nodes,
        "graph of onnxruntime",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [batch, *array.shape[1:]])
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)])
    proto.ir_version = 8
    return onnx.shape_inference.infer_shapes(proto), inputs


X, IMAGE, FOUR = {"x": drawn(2, 4, 6)}, {"x": drawn(2, 2, 6, 5)}, {"x": drawn(2, 3, 4, 6)}
SIX: dict[str, Any] = {"g": drawn(6), "b": drawn(6)}
KERNEL: dict[str, Any] = {"w": drawn(3, 2, 3, 3), "b": drawn(3)}
FUSED: dict[str, tuple[onnx.ModelProto, Arrays]] = {
    "a convolution and relu": contributed([own("FusedConv", "x w b", activation="Relu")], IMAGE, **KERNEL),
    "a convolution and leaky relu": contributed(
        [own("FusedConv", "x w b", activation="LeakyRelu", activation_params=[0.2], pads=[1] * 4, strides=[2, 2])],
        IMAGE, **KERNEL,
    ),
    "a convolution and a sum": contributed(
        [node("Conv", "x v", "z"), own("FusedConv", "x w b z", activation="Clip", activation_params=[0.0, 1.0])],
        IMAGE, v=drawn(3, 2, 3, 3), **KERNEL,
    ),
    "a convolution in groups": contributed(
        [own("FusedConv", "x w b", activation="HardSigmoid", activation_params=[0.3, 0.4], group=2)],
        IMAGE, w=drawn(4, 1, 3, 3), b=drawn(4),
    ),
    "a product with a bias": contributed(
        [own("FusedGemm", "x w b", activation="LeakyRelu", activation_alpha=0.3, transB=1, alpha=0.5, beta=2.0)],
        {"x": drawn(2, 6)}, w=drawn(3, 6), b=drawn(3),
    ),
    "a product with itself": contributed([own("FusedMatMul", "x x", transB=1, alpha=0.3)], X),
    "a product with itself in front": contributed([own("FusedMatMul", "x x", transA=1)], X),
    "a product with a matrix": contributed([own("FusedMatMul", "x w", transB=1, alpha=0.3)], X, w=drawn(5, 6)),
    "a product of moved axes": contributed(
        [own("FusedMatMul", "x x", transB=1, transBatchA=1, transBatchB=1)], FOUR, batch=2
    ),
    "gelu": contributed([own("Gelu", "x")], X),
    "fast gelu": contributed([own("FastGelu", "x b")], X, b=drawn(6)),
    "fast gelu alone": contributed([own("FastGelu", "x")], X),
    "quick gelu": contributed([own("QuickGelu", "x")], X),
    "gelu of a sum": contributed([own("BiasGelu", "x b")], X, b=drawn(6)),
    "a sum normalized": contributed([node("Relu", "x", "r"), own("SkipLayerNormalization", "x r g b")], X, **SIX),
    "a sum normalized and read": contributed(
        [
            node("Relu", "x", "r"), own("SkipLayerNormalization", "x r g b c", "o, , , s", epsilon=1e-5),
            node("Add", "o s"),
        ],
        X, c=drawn(6), **SIX,
    ),
    "a sum with a constant": contributed([own("SkipLayerNormalization", "x r g b")], X, r=drawn(4, 6), **SIX),
    "a sum by its root mean square": contributed(
        [node("Relu", "x", "r"), own("SkipSimplifiedLayerNormalization", "x r g b", "o, , , s"), node("Add", "o s")],
        X, **SIX,
    ),
    "root mean square": contributed(
        [node("SimplifiedLayerNormalization", "x g", axis=-1, epsilon=1e-5)], X, g=drawn(6)
    ),
    "layer normalization of an old opset": contributed([node("LayerNormalization", "x g b")], X, opset=14, **SIX),
    "a product, the second one transposed": contributed([own("TransposeMatMul", "x x", transB=1)], X),
    "parts": contributed([own("GatherND", "x i")], {"x": drawn(2, 3)}, batch=2, i=np.array([[0, 1], [1, 2]])),
    "padding": contributed([own("Pad", "x p v")], X, p=np.array([0, 0, 1, 0, 1, 2]), v=np.float32(0.5)),
    "quantized": contributed(
        [own("QuantizeLinear", "x s z", "q"), own("DequantizeLinear", "q s z")], X, s=np.float32(0.1), z=np.int16(3)
    ),
    "places in an image": contributed(
        [own("GridSample", "x g")], {**IMAGE, "g": random.uniform(-1, 1, (2, 3, 4, 2)).astype("float32")}
    ),
    "a triangle": contributed([own("Trilu", "x")], X),
    "an axis": contributed([own("ExpandDims", "x k")], X, k=np.asarray(1, "int32")),
}  # fmt: skip

QUERY, KEYS, KEPT = drawn(2, 3, 8), drawn(2, 5, 8), whole([1, 1, 1, 0, 0], [1, 1, 1, 1, 0])
PROJECTIONS: dict[str, Any] = {"w": drawn(8, 24) * np.float32(0.3), "b": drawn(24)}
TWO: dict[str, Any] = {"q": QUERY, "k": KEYS, "v": drawn(2, 5, 8)}
WORDS: dict[str, Any] = {"i": whole([1, 2, 3, 4, 5], [0, 8, 7, 6, 2]), "s": whole([0, 0, 1, 1, 1], [1, 0, 0, 0, 1])}
TABLES: dict[str, Any] = {"w": drawn(9, 8), "p": drawn(6, 8), "t": drawn(2, 8), "g": drawn(8), "b": drawn(8)}

ANGLES = np.arange(9)[:, None] * [1.0, 0.1]
TURNS: dict[str, Any] = {"c": np.cos(ANGLES).astype("float32"), "s": np.sin(ANGLES).astype("float32")}
POSITIONS: dict[str, Any] = {"p": np.array([[0, 1, 2], [4, 3, 6]])}


def to_itself(operands: str, more: Arrays | None = None, weights: Arrays = PROJECTIONS, **attributes: Any) -> Any:
    attention = own("Attention", f"x w b{operands}", num_heads=2, **attributes)
    return contributed([attention], {"x": KEYS, **(more or {})}, **weights)


def heads(inputs: str, arrays: Arrays, weights: Arrays | None = None, **attributes: Any) -> Any:
    return contributed([own("MultiHeadAttention", inputs, num_heads=2, **attributes)], arrays, **(weights or {}))


def rotated(*shape: int, more: Arrays | None = None, weights: Arrays | None = None, **attributes: Any) -> Any:
    rotation = own("RotaryEmbedding", "x p c s", **attributes)
    return contributed([rotation], {"x": drawn(*shape), **(more or {})}, **TURNS, **(weights or {}))


ATTENTION: dict[str, tuple[onnx.ModelProto, Arrays]] = {
    "to itself": to_itself(""),
    "to what is before": to_itself("", unidirectional=1),
    "masked keys": to_itself(" m", {"m": KEPT}),
    "lengths": to_itself(" m", {"m": whole(3, 5)}),
    "masked pairs": to_itself(" m", {"m": np.tril(np.ones((2, 5, 5), "int32"))}),
    "added to the scores": to_itself("   a", weights={"a": drawn(1, 2, 5, 5), **PROJECTIONS}, scale=0.5),
    "narrow values": to_itself(
        "", weights={name: array[..., :20] for name, array in PROJECTIONS.items()}, qkv_hidden_sizes=[8, 8, 4]
    ),
    "to others": heads("q k v b", TWO, {"b": PROJECTIONS["b"]}),
    "to others, masked": heads("q k v  m", {**TWO, "m": KEPT}),
    "one tensor": heads("q q q   a", {"q": QUERY}, {"a": drawn(1, 2, 3, 3)}, unidirectional=1, scale=0.3),
    "heads apart": heads("q k v", {"q": QUERY, "k": drawn(2, 2, 5, 4), "v": drawn(2, 2, 5, 4)}),
    "words": contributed([own("EmbedLayerNormalization", "i s w p t g b", "y, l")], WORDS, **TABLES),
    "words alone": contributed(
        [own("EmbedLayerNormalization", "i  w p  g b", "y, l")], {"i": WORDS["i"]},
        **{name: TABLES[name] for name in "wpgb"},
    ),
    "words of lengths": contributed(
        [
            own("EmbedLayerNormalization", "i s w p t g b m", "e, l, u", mask_index_type=1),
            own("Attention", "e z c l", "a", num_heads=2), node("Add", "a u"),
        ],
        {**WORDS, "m": KEPT}, z=PROJECTIONS["w"], c=PROJECTIONS["b"], **TABLES,
    ),
    "words at positions": contributed(
        [own("EmbedLayerNormalization", "i s w p t g b  o", "y, l")],
        {**WORDS, "o": whole([1, 2, 3, 4, 5], [5, 4, 3, 0, 1])}, **TABLES,
    ),
    "rotated": rotated(2, 3, 8, more=POSITIONS),
    "rotated in pairs of neighbors": rotated(2, 3, 8, more=POSITIONS, interleaved=1, scale=2.0),
    "rotated from a position": rotated(2, 3, 8, weights={"p": np.array([2])}, num_heads=2),
    "rotated in part": rotated(2, 3, 16, more=POSITIONS, num_heads=2, rotary_embedding_dim=4),
    "rotated heads": rotated(2, 2, 3, 4, weights={"p": np.array([2])}),
    "rotated heads in part": rotated(2, 2, 3, 8, more=POSITIONS, num_heads=2, rotary_embedding_dim=4),
}  # fmt: skip

MODELS = {**FUSED, **ATTENTION}
