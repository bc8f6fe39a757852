"""Groups of nodes that form one layer are recognized in each notation, and similar groups are not."""

from __future__ import annotations

from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from netspec.errors import InputError
from netspec.exchange.formats.onnx.messages import open_session
from tests.exchange.lift.models.generic import chain, floats, imported, ints, layers_of, model, node

f = np.float32
G, B = floats(5), floats(5)


def layer_norm(square: str, *behind: onnx.NodeProto, axes: tuple[int, ...] = (-1,)) -> list[onnx.NodeProto]:
    """d = x - mean(x); r = √(mean(d²) + epsilon)."""
    return [
        node("ReduceMean", "x", "m", axes=axes, keepdims=1), node("Sub", "x m", "d"), *chain(f"q = {square}"),
        node("ReduceMean", "q", "v", axes=axes, keepdims=1), *chain("w = Add v epsilon", "r = Sqrt w"), *behind,
    ]  # fmt: skip


CUBE: dict[str, Any] = {"k": f(0.044715), "s": f(sqrt(2 / pi)), "one": f(1), "half": f(0.5), "two": f(2), "three": f(3)}
SIX: dict[str, Any] = {"three": f(3), "lo": f(0), "hi": f(6), "six": f(6), "part": f(1 / 6)}
LN: dict[str, Any] = {"two": f(2), "mhalf": f(-0.5), "one": f(1), "epsilon": f(1e-5)}
SIZES: dict[str, Any] = {"last": ints(2), "kept": ints(-1, 3, 1), "full": ints(1, 3, 5), "ones": ints(1, 1, 1)}
OVER = {name: {"axes": [-1], "keepdims": 1} for name in ("ReduceMean", "ReduceL2")}

FOUND: dict[str, tuple[onnx.ModelProto, str]] = {
    "layer norm": (
        model(layer_norm("Pow d two", *chain("n = Div d r", "o = Mul n g", "y = Add o b")), ("N", 3, 5),
              **LN, g=G, b=B),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "layer norm whose weights PyTorch shares": (
        model(chain("g2 = Identity g", "b2 = Reshape b line")
              + layer_norm("Pow d two", *chain("n = Div d r", "o = Mul n g2", "y = Add o b2")), ("N", 3, 5),
              **LN, g=G, b=B, line=ints(5)),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "layer norm by reciprocals and itself": (
        model(layer_norm("Mul d d", *chain("i = Reciprocal r", "n = Mul i d", "o = Mul g n", "y = Add b o")),
              ("N", 3, 5), **LN, g=G, b=B),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "layer norm without offset": (
        model(layer_norm("Pow d two", *chain("i = Div one r", "n = Mul d i", "y = Mul n g")), ("N", 3, 5), **LN, g=G),
        "{name: y, type: LayerNormalization, epsilon: 1e-05, center: false}",
    ),
    "layer norm alone": (
        model(layer_norm("Pow d two", *chain("y = Div d r")), ("N", 3, 5), **LN),
        "{name: y, type: LayerNormalization, epsilon: 1e-05, center: false, scale: false}",
    ),
    "layer norm over channels": (
        model(layer_norm("Pow d two", *chain("n = Div d r", "o = Mul n g", "y = Add o b"), axes=(1,)), ("N", 5, 3, 2),
              **LN, g=G.reshape(5, 1, 1), b=B.reshape(5, 1, 1)),
        "{name: y, type: LayerNormalization, epsilon: 1e-05, axis: 1}",
    ),
    "layer norm, its factor along another axis": (
        model(layer_norm("Pow d two", *chain("n = Div d r", "o = Mul n g", "y = Add o b"), axes=(2, 3)), ("N", 5, 3, 2),
              **LN, g=G.reshape(5, 1, 1), b=B.reshape(5, 1, 1)),
        "{name: y, type: Bias}",
    ),
    "layer norm of TensorFlow": (
        model(
            layer_norm("Mul d d", *chain("i = Reciprocal r", "a = Mul i g", "p = Mul x a", "q2 = Mul m a",
                                         "o = Sub b q2", "y = Add p o")),
            ("N", 3, 5), **LN, g=G, b=B,
        ),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "layer norm of flax": (
        model(
            chain("m = ReduceMean x", "q = Mul x x", "s = ReduceMean q", "q2 = Mul m m", "u = Sub s q2",
                  "v = Max u zero", "d = Sub x m", "w = Add v epsilon", "t = Sqrt w", "r = Reciprocal t",
                  "a = Mul r g", "n = Mul d a", "y = Add n b", **OVER),
            ("N", 3, 5), **LN, g=G, b=B, zero=f(0),
        ),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "layer norm of JAX, by sums whose axis is gone": (
        model(
            chain("t = ReduceSum x last", "m = Mul t fifth", "q = Mul x x", "s = ReduceSum q last", "e = Mul s fifth",
                  "q2 = Mul m m", "u = Sub e q2", "v = Max u zero", "vr = Reshape v kept", "vb = Expand vr ones",
                  "w = Add vb epsilon", "rt = Sqrt w", "r = Reciprocal rt", "a = Mul r g", "mr = Unsqueeze m last",
                  "d = Sub x mr", "n = Mul d a", "y = Add n b", ReduceSum={"keepdims": 0}),
            ("N", 3, 5), **LN, g=G, b=B, zero=f(0), fifth=f(0.2), **SIZES,
        ),
        "{name: y, type: LayerNormalization, epsilon: 1e-05}",
    ),
    "root mean square by a sum over a number": (
        model(chain("q = Mul x x", "s = ReduceSum q last", "v = Div s five", "w = Add v epsilon", "r = Sqrt w",
                    "y = Div x r", ReduceSum={"keepdims": 1}), ("N", 3, 5), **LN, five=f(5), **SIZES),
        "{name: y, type: RMSNormalization, epsilon: 1e-05}",
    ),
    "softmax of JAX": (
        model(chain("m = ReduceMax x", "l = Max lo m", "lr = Reshape l kept", "lb = Expand lr full", "d = Sub x lb",
                    "e = Exp d", "s = ReduceSum e last", "sr = Reshape s kept", "y = Div e sr",
                    ReduceMax={"axes": [-1], "keepdims": 0}, ReduceSum={"keepdims": 0}),
              ("N", 3, 5), lo=f(-np.inf), **SIZES),
        "{name: y, type: Activation, activation: softmax}",
    ),
    "softmax alone, over another axis": (
        model(chain("e = Exp x", "s = ReduceSum e one", "y = Div e s", ReduceSum={"keepdims": 1}), ("N", 3, 5),
              one=ints(1)),
        "{name: y, type: Activation, activation: softmax, axis: 1}",
    ),
    "logarithm of softmax": (
        model(chain("m = ReduceMax x", "d = Sub x m", "e = Exp d", "s = ReduceSum e last", "l = Log s", "o = Add m l",
                    "y = Sub x o", ReduceMax={"axes": [-1], "keepdims": 1}, ReduceSum={"keepdims": 1}),
              ("N", 3, 5), **SIZES),
        "{name: y, type: Activation, activation: log_softmax}",
    ),
    "root mean square": (
        model(chain("q = Pow x two", "v = ReduceMean q", "w = Add v epsilon", "r = Sqrt w", "i = Div one r",
                    "n = Mul x i", "y = Mul g n", **OVER), ("N", 3, 5), **LN, g=G),
        "{name: y, type: RMSNormalization, epsilon: 1e-05}",
    ),
    "root mean square of JAX": (
        model(chain("e = CastLike epsilon x", "q = Mul x x", "v = ReduceMean q", "w = Add v e", "r = Sqrt w",
                    "n = Div x r", "y = Mul n g", **OVER), ("N", 3, 5), opset=15, **LN, g=G),
        "{name: y, type: RMSNormalization, epsilon: 1e-05}",
    ),
    "root mean square alone": (
        model(chain("q = Mul x x", "v = ReduceMean q", "w = Add v epsilon", "i = Pow w mhalf", "y = Mul i x", **OVER),
              ("N", 3, 5), **LN),
        "{name: y, type: RMSNormalization, epsilon: 1e-05}",
    ),
    "length of PyTorch": (
        model(chain("l = ReduceL2 x", "c = Clip l lo", "s = Shape x", "e = Expand c s", "y = Div x e", **OVER),
              ("N", 3, 5), lo=f(1e-12)),
        "{name: y, type: UnitNormalization}",
    ),
    "length of Keras": (
        model(chain("q = Mul x x", "s = ReduceSum q ax", "c = Max s lo", "r = Sqrt c", "i = Reciprocal r",
                    "y = Mul x i"), ("N", 3, 5), lo=f(1e-12), ax=ints(1)),
        "{name: y, type: UnitNormalization, axis: 1}",
    ),
    "gelu of PyTorch": (
        model(chain("a = Div x s2", "e = Erf a", "b = Add e one", "h = Mul x b", "y = Mul h half"),
              s2=f(sqrt(2)), **CUBE),
        "{name: y, type: Activation, activation: gelu}",
    ),
    "gelu of Keras": (
        model(chain("a = Mul x s2", "e = Erf a", "b = Add one e", "h = Mul half x", "y = Mul h b"),
              s2=f(0.5**0.5), **CUBE),
        "{name: y, type: Activation, activation: gelu}",
    ),
    "gelu as one node": (
        model([node("Gelu", "x")], ("N", 3, 5), opset=20),
        "{name: y, type: Activation, activation: gelu}",
    ),
    "gelu by tanh as one node": (
        model([node("MatMul", "x w", "a"), node("Gelu", "a", approximate="tanh")], ("N", 3, 5), opset=20,
              w=floats(5, 4)),
        "{name: y, type: Dense, units: 4, activation: {type: gelu, approximate: true}, use_bias: false}",
    ),
    "root mean square as one node": (
        model([node("RMSNormalization", "x g", axis=-1)], ("N", 3, 5), opset=23, g=G),
        "{name: y, type: RMSNormalization, epsilon: 1e-05}",
    ),
    "root mean square as one node over axes": (
        model([node("RMSNormalization", "x g", axis=2, epsilon=1e-3)], ("N", 3, 4, 5), opset=23, g=floats(4, 5)),
        "{name: y, type: RMSNormalization, axis: [2, 3], epsilon: 0.001}",
    ),
    "gelu by tanh": (
        model(chain("c = Pow x three", "d = Mul c k", "e = Add x d", "g = Mul e s", "t = Tanh g", "b = Add t one",
                    "h = Mul x half", "y = Mul h b"), **CUBE),
        "{name: y, type: Activation, activation: {type: gelu, approximate: true}}",
    ),
    "gelu by tanh and products": (
        model(chain("q = Mul x x", "c = Mul q x", "d = Mul k c", "e = Add d x", "g = Mul s e", "t = Tanh g",
                    "b = Add one t", "h = Mul x b", "y = Mul half h"), **CUBE),
        "{name: y, type: Activation, activation: {type: gelu, approximate: true}}",
    ),
    "quick gelu": (
        model(chain("a = Mul x k", "s = Sigmoid a", "y = Mul x s"), k=f(1.702)),
        "{name: y, type: Activation, activation: {type: swish, beta: 1.702}}",
    ),
    "leaky relu by choice": (
        model(chain("p = GreaterOrEqual x lo", "n = Mul k x", "y = Where p x n"), lo=f(0), k=f(0.01)),
        "{name: y, type: Activation, activation: {type: leaky_relu, negative_slope: 0.01}}",
    ),
    "logarithm of sigmoid": (
        model(chain("s = Sigmoid x", "y = Log s")), "{name: y, type: Activation, activation: log_sigmoid}"
    ),
    "hard swish of PyTorch": (
        model([node("HardSigmoid", "x", "h", alpha=1 / 6, beta=0.5), node("Mul", "x h")]),
        "{name: y, type: Activation, activation: hard_silu}",
    ),
    "hard swish of old PyTorch": (
        model(chain("a = Add x three", "c = Clip a lo hi", "m = Mul x c", "y = Div m six"), **SIX),
        "{name: y, type: Activation, activation: hard_silu}",
    ),
    "hard sigmoid": (
        model(chain("a = Add three x", "r = Relu a", "c = Min r six", "y = Mul c part"), **SIX),
        "{name: y, type: Activation, activation: hard_sigmoid}",
    ),
    "mish": (
        model(chain("e = Exp x", "o = Add e one", "l = Log o", "t = Tanh l", "y = Mul x t"), one=f(1)),
        "{name: y, type: Activation, activation: mish}",
    ),
    "silu by exp": (
        model(chain("m = Neg x", "e = Exp m", "o = Add e one", "y = Div x o"), one=f(1)),
        "{name: y, type: Activation, activation: silu}",
    ),
    "through Identity": (
        model(chain("i = Identity x", "s = Sigmoid i", "j = Identity s", "y = Mul x j")),
        "{name: y, type: Activation, activation: silu}",
    ),
    "what is normalized after a convolution stays": (
        model(chain("c = Conv x w", "o = Mul c g", "y = Add o b"),
              w=floats(4, 2, 3, 3), g=floats(4, 1, 1), b=floats(4, 1, 1)),
        "{name: y, type: Scale, use_bias: true}",
    ),
}  # fmt: skip

OTHER: dict[str, onnx.ModelProto] = {
    "means over different axes": model(
        [node("ReduceMean", "x", "m", axes=[-1], keepdims=1), node("Sub", "x m", "d"), node("Mul", "d d", "q"),
         node("ReduceMean", "q", "v", axes=[1], keepdims=1), *chain("w = Add v epsilon", "r = Sqrt w", "y = Mul d r")],
        ("N", 3, 5), **LN,
    ),
    "a mean that is read elsewhere": model(
        layer_norm("Pow d two", *chain("i = Reciprocal r", "n = Mul d i", "y = Add n m")), ("N", 3, 5), **LN
    ),
    "a sum over another number": model(
        chain("q = Mul x x", "s = ReduceSum q last", "v = Div s six", "w = Add v epsilon", "r = Sqrt w", "y = Div x r",
              ReduceSum={"keepdims": 1}), ("N", 3, 5), **LN, six=f(6), last=ints(2),
    ),
    "a mean that is stretched along another axis": model(
        chain("q = Mul x x", "v = ReduceMean q", "vr = Reshape v other", "w = Add vr epsilon", "r = Sqrt w",
              "y = Div x r", ReduceMean={"axes": [-1], "keepdims": 0}), ("N", 5, 5), **LN, other=ints(-1, 1, 5),
    ),
    "shares of sums over another axis": model(
        chain("e = Exp x", "s = ReduceSum e last", "sr = Unsqueeze s one", "y = Div e sr", ReduceSum={"keepdims": 0}),
        ("N", 5, 5), one=ints(1), last=ints(2),
    ),
    "another constant": model(
        chain("a = Add x three", "c = Clip a lo hi", "m = Mul x c", "y = Mul m three"), **SIX
    ),
    "another tensor": model(chain("s = Sigmoid x", "t = Tanh x", "y = Mul s t")),
}  # fmt: skip
"""Models that resemble a pattern, but must not be read as one."""


def compare(proto: onnx.ModelProto, folder: Path) -> str:
    """Check that the net agrees with the model; return its YAML."""
    net, text = imported(proto, folder)
    (spec,) = net.spec.inputs.values()
    x = np.random.default_rng(3).normal(size=(3, *spec.shape)).astype("float32")
    (expected,) = open_session(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
    return text


@pytest.mark.parametrize("name", FOUND)
def test_a_pattern_becomes_one_layer(name: str, tmp_path: Path) -> None:
    proto, line = FOUND[name]
    layers = layers_of(compare(proto, tmp_path))
    assert layers[-1] == line
    assert len(layers) == {"Scale": 2, "Bias": 3}.get(line.split(" ")[3].strip(",}"), 1)


@pytest.mark.parametrize("name", OTHER)
def test_similar_nodes_do_not_match_a_pattern(name: str, tmp_path: Path) -> None:
    text = compare(OTHER[name], tmp_path)
    assert not any(word in text for word in ("LayerNorm", "softmax", "silu", "hard_sigmoid"))


def test_squares_of_squares_take_no_time(tmp_path: Path) -> None:
    squares = chain("x0 = Relu x", *(f"x{i + 1} = Mul x{i} x{i}" for i in range(60)), "y = Relu x60")
    _, text = imported(model(squares), tmp_path)
    assert len(layers_of(text)) == 62


def test_nodes_without_operands(tmp_path: Path) -> None:
    proto = model([helper.make_node("Constant", [], ["c"], value_float=2.0), *chain("y = Mul x c")])
    assert layers_of(imported(proto, tmp_path)[1]) == ["{name: y, type: Power, scale: 2.0}"]
    with pytest.raises(InputError, match="Div"):
        imported(model(chain("y = Div x")), tmp_path)


def test_a_layer_norm_behind_many_sums_is_found(tmp_path: Path) -> None:
    """The normalized value is itself a sum of sums, whose terms could be confused with those of the formula."""
    nodes, last = [], "x"
    for k in range(8):
        nodes += chain(f"s{k} = Sigmoid {last}", f"m{k} = Mul s{k} {last}", f"a{k} = Add {last} m{k}")
        last = f"a{k}"
    behind = layer_norm("Pow d two", *chain("n = Div d r", "o = Mul n g", "y = Add o b"))
    for proto in behind:
        proto.input[:] = [last if name == "x" else name for name in proto.input]
    _, text = imported(model([*nodes, *behind], ("N", 3, 5), **LN, g=G, b=B), tmp_path)
    assert "type: LayerNormalization" in text
