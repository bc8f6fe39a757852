"""Several imported layers are merged to one layer that means the same."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from netspec.exchange.formats.onnx.messages import open_session
from tests.exchange.lift.models.generic import chain, imported, ints, layers_of, model, node

random = np.random.default_rng(9)
RESHAPES: dict[str, tuple[list[str], list[str]]] = {
    "two that cancel": (["a = Reshape x wide", "y1 = Reshape a narrow", "y = Tanh y1"], ["tanh"]),
    "behind each other": (
        ["a = Reshape x wide", "b = Reshape a line", "c = Reshape b square", "y = Softmax c"], ["[4, 3]", "softmax"]
    ),
    "with a function between": (["a = Reshape x wide", "b = Relu a", "c = Reshape b line", "y = Softmax c"],
                                ["relu", "[12]", "softmax"]),
    "with a function between, and back": (["a = Reshape x wide", "b = Relu a", "c = Reshape b wide", "y = Softmax c"],
                                          ["[2, 1, 6]", "relu", "softmax"]),
    "that something else reads": (["a = Reshape x wide", "b = Reshape a line", "d = Relu a", "e = Reshape d line",
                                   "y = Add b e"], ["[2, 1, 6]", "[12]", "relu", "[12]", "Add"]),
}  # fmt: skip


@pytest.mark.parametrize("name", RESHAPES)
def test_reshapes_that_are_not_needed_are_left_out(name: str, tmp_path: Path) -> None:
    nodes, notes = RESHAPES[name]
    sizes: dict[str, Any] = {
        "wide": ints(-1, 2, 1, 6),
        "narrow": ints(-1, 3, 4),
        "line": ints(-1, 12),
        "square": ints(-1, 4, 3),
    }
    proto = model(chain(*nodes), ("N", 3, 4), **sizes)
    net, text = imported(proto, tmp_path)
    lines = layers_of(text)
    assert len(lines) == len(notes), text
    assert all(word in line.replace("Flatten", "[12]") for word, line in zip(notes, lines, strict=True)), text
    x = random.normal(size=(5, 3, 4)).astype("float32")
    (expected,) = open_session(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(net.predict({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)  # float32


T, HEADS, SIZE = 5, 3, 4
WIDTH = HEADS * SIZE


def weights(*shape: int) -> np.ndarray:
    return random.normal(0, 0.4, shape).astype("float32")


PROJECTED: dict[str, Any] = {name: weights(6, WIDTH) for name in ("wq", "wk", "wv")} | {
    **{name: weights(WIDTH) for name in ("bq", "bk", "bv")}, "wo": weights(WIDTH, 6), "bo": weights(6),
    "heads": ints(0, T, HEADS, SIZE), "flat": ints(0, T, WIDTH), "root": np.float32(sqrt(SIZE)),
    "fourth": np.float32(SIZE**-0.25), "third": np.float32(1 / 3),
    "causal": np.triu(np.full((1, 1, T, T), -np.inf, "float32"), 1),
    "seen": np.where(random.random((1, 1, T, T)) < 0.5, 0, -np.inf).astype("float32"),
}  # fmt: skip
CHOSEN: dict[str, Any] = {
    "before": np.tril(np.ones((1, 1, T, T), bool)), "behind": np.triu(np.ones((T, T), bool), 1),
    "forbidden": np.float32(-3.4e38), "minus": np.float32(-np.inf), "zero": np.float32(0),
    "some": random.random((1, 1, T, T)) < 0.5, "nothing": np.zeros((1, 1, T, T), "float32"),
}  # fmt: skip
UP = {"Transpose": {"perm": [0, 2, 1, 3]}}


def heads(*letters: str, bias: bool = True) -> list[onnx.NodeProto]:
    """Return projections of x to heads (N, heads, T, size)."""
    nodes = []
    for name in letters:
        nodes += chain(f"{name}m = MatMul x w{name}")
        nodes += chain(f"{name}d = Add b{name} {name}m") if bias else []
        nodes += chain(f"{name}r = Reshape {name}{'d' if bias else 'm'} heads", f"{name}h = Transpose {name}r", **UP)
    return nodes


BEHIND = [*chain("o = Transpose w", **UP), *chain("of = Reshape o flat", "om = MatMul of wo", "y = Add om bo")]


def attention(*between: str, bias: bool = True, guard: bool = False) -> onnx.ModelProto:
    """A model with heads q and v, and kᵀ; `between` computes `p`, the operand of softmax, and may use all of them.

    With `guard`, NaN in the result of softmax becomes 0.
    """
    steps = ["i = IsNaN a", "g = Where i zero a", "w = MatMul g vh"] if guard else ["w = MatMul a vh"]
    nodes = [
        *heads("q", "v", bias=bias), *heads("k", bias=bias)[:-1],
        *chain("kt = Transpose kr", Transpose={"perm": [0, 2, 3, 1]}), *chain(*between),
        *chain("a = Softmax p", *steps, Softmax={"axis": -1}), *BEHIND,
    ]  # fmt: skip
    return model(nodes, ("N", T, 6), **PROJECTED, **CHOSEN)


def of_groups(affine: bool = True, groups: int = 2, gamma: float = 1.0) -> onnx.ModelProto:
    """Return a GroupNormalization, written as InstanceNormalization of reshaped channels."""
    nodes = chain("r = Reshape x split", "i = InstanceNormalization r ones zeros", "b = Reshape i whole")
    nodes += chain("m = Mul b g", "y = Add m o") if affine else chain("y = Identity b")
    return model(
        nodes, ("N", 6, 2, 3), split=ints(0, groups, -1), whole=ints(-1, 6, 2, 3), g=weights(6, 1, 1),
        o=weights(6, 1, 1), ones=np.full(groups, gamma, "float32"), zeros=np.zeros(groups, "float32"),
    )  # fmt: skip


def dealt(
    shape: Sequence[int], split: Sequence[int], order: Sequence[int], expected_shape: Sequence[int]
) -> onnx.ModelProto:
    """Return a model that splits axes, transposes them and joins them."""
    nodes = chain("r = Reshape x split", "t = Transpose r", "y = Reshape t whole", Transpose={"perm": order})
    return model(nodes, ("N", *shape), split=ints(0, *split), whole=ints(0, *expected_shape))


CROSS = model(
    [
        *heads("q"), *chain("c = Tanh x", "km = MatMul c wk", "vm = MatMul c wv"),
        *chain("kr = Reshape km heads", "vr = Reshape vm heads", "kh = Transpose kr", "vh = Transpose vr", **UP),
        *chain("kt = Transpose kh", Transpose={"perm": [0, 1, 3, 2]}),
        *chain("s = MatMul qh kt", "p = Div s root", "a = Softmax p", "w = MatMul a vh", Softmax={"axis": -1}), *BEHIND,
    ],
    ("N", T, 6), **PROJECTED,
)  # fmt: skip

TURNED = model(
    [
        *heads("q", "k", "v"), *chain("kj = Reshape kh samples", "ki = Transpose kj", Transpose={"perm": [0, 2, 1]}),
        *chain("kt = Reshape ki apart", "qs = Mul qh fourth", "ks = Mul kt fourth", "p = MatMul qs ks"),
        *chain("a = Softmax p", "w = MatMul a vh", Softmax={"axis": -1}), *BEHIND,
    ],
    ("N", T, 6), samples=ints(-1, T, SIZE), apart=ints(-1, HEADS, SIZE, T), **PROJECTED,
)  # fmt: skip
"""Keys that are transposed with each head as a sample, as in files of PyTorch's newer exporter."""

WIDE: dict[str, Any] = {
    "wi": weights(6, 3 * WIDTH), "bi": weights(3 * WIDTH), "wo": weights(WIDTH, 6), "bo": weights(6),
    "root": np.float32(sqrt(SIZE)), "zero": ints(0), "parts": ints(T, 2, 3, WIDTH),
    "joint": ints(T, 2 * HEADS, SIZE), "apart": ints(2, HEADS, T, SIZE), "rows": ints(T * 2, WIDTH),
    "back": ints(T, 2, 6), "third": ints(3), "five": ints(0, T, 3, HEADS, SIZE), "flat": ints(0, T, WIDTH),
    "heads": ints(0, T, HEADS, SIZE), "eq": ints(WIDTH, WIDTH, WIDTH), **{f"at{k}": np.int64(k) for k in range(3)},
    **{f"from{k}": ints(k) for k in range(4)}, "ones": ints(1, 1, 1),
}  # fmt: skip
LOOK = [
    *chain("kt = Transpose kh", "s = MatMul qh kt", Transpose={"perm": [0, 1, 3, 2]}),
    *chain("p = Div s root", "a = Softmax p", "w = MatMul a vh", Softmax={"axis": -1}),
]


def of_one_product(exporter: str) -> onnx.ModelProto:
    """Return attention whose query, key and value are one product, which is split as by different exporters."""
    nodes = []
    if exporter == "PyTorch":  # time-major
        nodes += chain("f = Transpose x", "m = MatMul f wi", "d = Add bi m", "r = Reshape d parts",
                       "u = Unsqueeze r zero", Transpose={"perm": [1, 0, 2]})  # fmt: skip
        nodes += chain("t = Transpose u", "c = Squeeze t third", Transpose={"perm": [3, 1, 2, 0, 4]})
        for k, name in enumerate("qkv"):
            nodes += chain(f"{name} = Gather c at{k}", f"{name}j = Reshape {name} joint", Gather={"axis": 0})
            nodes += chain(f"{name}i = Transpose {name}j", f"{name}h = Reshape {name}i apart",
                           Transpose={"perm": [1, 0, 2]})  # fmt: skip
        nodes += [*LOOK, *chain("o = Transpose w", "of = Reshape o rows", Transpose={"perm": [2, 0, 1, 3]})]
        nodes += chain("g = Gemm of wo bo", "b = Reshape g back", "y = Transpose b", Transpose={"perm": [1, 0, 2]})
        return model(nodes, (2, T, 6), **WIDE)
    nodes += chain("m = MatMul x wi", "d = Add bi m")
    if exporter in ("timm", "Paddle", "unbound"):
        nodes += chain("r = Reshape d five", "t = Transpose r", Transpose={"perm": [2, 0, 3, 1, 4]})
        if exporter == "unbound":
            nodes.append(onnx.helper.make_node("Split", ["t", "ones"], ["q", "k", "v"], axis=0))
        for k, name in enumerate("qkv"):
            if exporter == "timm":
                nodes += chain(f"{name}h = Gather t at{k}", Gather={"axis": 0})
                continue
            nodes += chain(f"{name} = Slice t from{k} from{k + 1} zero") if exporter == "Paddle" else []
            nodes += chain(f"{name}h = Squeeze {name} zero")
    else:
        nodes.append(onnx.helper.make_node("Split", ["d", "eq"], ["q", "k", "v"], axis=2))
        for name in "qkv":
            nodes += chain(f"{name}r = Reshape {name} heads", f"{name}h = Transpose {name}r", **UP)
    return model([*nodes, *LOOK, *BEHIND], ("N", T, 6), **WIDE)


def as_one_node(separate: bool = False, **fields: Any) -> onnx.ModelProto:
    """Return attention by ONNX's Attention operator, whose heads may be separate before."""
    names, before = "qm km vm", chain("qm = MatMul x wq", "km = MatMul x wk", "vm = MatMul x wv")
    behind = chain("y = MatMul o wo")
    if separate:
        names, before = "qh kh vh", heads("q", "k", "v", bias=False)
        behind = [*chain("ot = Transpose o", **UP), *chain("of = Reshape ot flat", "y = MatMul of wo")]
    else:
        fields = {"q_num_heads": HEADS, "kv_num_heads": HEADS} | fields
    masked = f"{names} {fields.pop('mask', '')}".strip()
    return model(
        [*before, node("Attention", masked, "o", **fields), *behind], ("N", T, 6), opset=23, **PROJECTED, **SEEN
    )


SEEN: dict[str, Any] = {
    "seldom": np.eye(T, dtype=bool),
    "before": np.tril(np.ones((T, T), bool)),
}  # fmt: skip
ONE_NODE = "{name: y, type: MultiHeadAttention, use_bias: false, num_heads: 3, key_dim: 4}"
CAUSAL = "{name: y, type: MultiHeadAttention, use_bias: false, use_causal_mask: true, num_heads: 3, key_dim: 4}"

CAUSAL_HEADS = "{name: y, type: MultiHeadAttention, use_causal_mask: true, num_heads: 3, key_dim: 4}"

MADE: dict[str, tuple[onnx.ModelProto, list[str]]] = {
    "heads": (attention("s = MatMul qh kt", "p = Div s root"),
              ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"]),
    **{
        f"one product as {exporter} has it": (
            of_one_product(exporter), ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"]
        )
        for exporter in ("PyTorch", "timm", "Paddle", "unbound", "GPT-2")
    },
    "one node": (as_one_node(), [ONE_NODE]),
    "one node, heads apart": (as_one_node(separate=True), [ONE_NODE]),
    "one node, causal": (as_one_node(is_causal=1), [CAUSAL]),
    "one node, a mask of all places before": (as_one_node(mask="before"), [CAUSAL]),
    "one node of a head": (
        model([node("Attention", "x x x", q_num_heads=1, kv_num_heads=1, scale=1.0)], ("N", T, 6), opset=23),
        ["{name: y, type: Attention, from: [x, x]}"],
    ),
    "heads, keys turned as samples": (TURNED, ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"]),
    "heads, both operands scaled": (
        attention("qs = Mul qh fourth", "ks = Mul kt fourth", "p = MatMul qs ks"),
        ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"],
    ),
    "heads, the queries scaled": (
        attention("qs = Div qh root", "p = MatMul qs kt"),
        ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"],
    ),
    "heads without biases before": (
        attention("s = MatMul qh kt", "p = Div s root", bias=False),
        ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"],
    ),
    "heads that look back": (attention("s = MatMul qh kt", "d = Div s root", "p = Add d causal"), [CAUSAL_HEADS]),
    "heads that look elsewhere": (
        CROSS,
        ["{name: c, type: Activation, activation: tanh}",
         "{name: y, type: MultiHeadAttention, from: [x, c], num_heads: 3, key_dim: 4}"],
    ),
    "attention": (
        model(chain("k = Tanh x", "kt = Transpose k", "s = MatMul x kt", "a = Softmax s", "y = MatMul a k",
                    Transpose={"perm": [0, 2, 1]}, Softmax={"axis": -1}), ("N", T, 6)),
        ["{name: k, type: Activation, activation: tanh}", "{name: y, type: Attention, from: [x, k]}"],
    ),
    "attention to values of their own": (
        model(chain("k = Tanh x", "v = Sin x", "kt = Transpose k", "s = MatMul x kt", "a = Softmax s", "y = MatMul a v",
                    Transpose={"perm": [0, 2, 1]}, Softmax={"axis": -1}), ("N", T, 6)),
        ["{name: k, type: Activation, activation: tanh}", '{name: v, type: Expression, from: x, expr: "sin(x)"}',
         "{name: y, type: Attention, from: [x, v, k]}"],
    ),
    "groups of PyTorch": (
        of_groups(), ["{name: y, type: GroupNormalization, epsilon: 1e-05, groups: 2}"]
    ),
    "groups without factors": (
        of_groups(affine=False),
        ["{name: y, type: GroupNormalization, epsilon: 1e-05, center: false, scale: false, groups: 2}"],
    ),
    "heads that look back by choice": (
        attention("s = MatMul qh kt", "d = Div s root", "p = Where before d forbidden"), [CAUSAL_HEADS]
    ),
    "heads that look back by the other choice": (
        attention("s = MatMul qh kt", "d = Div s root", "p = Where behind minus d"), [CAUSAL_HEADS]
    ),
    "heads, a mask of nothing, and a guard": (
        attention("s = MatMul qh kt", "d = Div s root", "p = Add d nothing", guard=True),
        ["{name: y, type: MultiHeadAttention, num_heads: 3, key_dim: 4}"],
    ),
    "channel shuffle": (
        dealt((6, 2, 3), (3, 2, 2, 3), (0, 2, 1, 3, 4), (-1, 2, 3)), ["{name: y, type: ChannelShuffle, groups: 3}"]
    ),
    "pixel shuffle": (
        dealt((8, 2, 3), (2, 2, 2, 2, 3), (0, 1, 4, 2, 5, 3), (2, 4, 6)),
        ["{name: y, type: DepthToSpace, block_size: 2}"],
    ),
    "depth to space of TensorFlow": (
        dealt((8, 2, 3), (2, 2, 2, 2, 3), (0, 3, 4, 1, 5, 2), (2, 4, 6)),
        ["{name: y, type: DepthToSpace, block_size: 2, mode: DCR}"],
    ),
    "pixel unshuffle": (
        dealt((2, 4, 6), (2, 2, 2, 3, 2), (0, 1, 3, 5, 2, 4), (8, 2, 3)),
        ["{name: y, type: SpaceToDepth, block_size: 2}"],
    ),
    "space to depth of TensorFlow": (
        dealt((2, 4, 6), (2, 2, 2, 3, 2), (0, 3, 5, 1, 2, 4), (8, 2, 3)),
        ["{name: y, type: SpaceToDepth, block_size: 2, mode: DCR}"],
    ),
}  # fmt: skip

OTHER = {
    "channels that other axes are made of": dealt((36,), (3, 2, 2, 3), (0, 2, 1, 3, 4), (-1, 2, 3)),
    "blocks of channels that other axes are made of": dealt((4, 12), (2, 2, 2, 2, 3), (0, 1, 4, 2, 5, 3), (2, 4, 6)),
    "another scale": attention("s = MatMul qh kt", "p = Mul s third"),
    "another mask": attention("s = MatMul qh kt", "d = Div s root", "p = Add d seen"),
    "another choice": attention("s = MatMul qh kt", "d = Div s root", "p = Where some d forbidden"),
    "a choice of little": attention("s = MatMul qh kt", "d = Div s root", "p = Where before d zero"),
    "groups with factors of their own": of_groups(gamma=2.0),
    "another mask of one node": as_one_node(mask="seldom"),
    "one node, its scores limited": model(
        [node("Attention", "x x x", q_num_heads=1, kv_num_heads=1, softcap=2.0)], ("N", T, 6), opset=23
    ),
    "weights that are read": attention("s = MatMul qh kt", "p = Div s root"),
}
OTHER["weights that are read"].graph.output.append(onnx.helper.make_tensor_value_info("a", 1, None))


def compare(proto: onnx.ModelProto, folder: Path) -> list[str]:
    """Check that the net agrees with the model; return its layers."""
    net, text = imported(proto, folder)
    (spec,) = net.spec.inputs.values()
    x = random.normal(size=(2, *spec.shape)).astype("float32")
    expected = open_session(proto.SerializeToString()).run(None, {"x": x})
    results = net.predict({"x": x})
    for info, array in zip(proto.graph.output, expected, strict=True):
        np.testing.assert_allclose(results[info.name], array, rtol=1e-4, atol=1e-5)
    return layers_of(text)


@pytest.mark.parametrize("name", MADE)
def test_layers_that_become_one(name: str, tmp_path: Path) -> None:
    proto, lines = MADE[name]
    assert compare(proto, tmp_path) == lines


@pytest.mark.parametrize("name", OTHER)
def test_other_graphs_do_not_become_these_layers(name: str, tmp_path: Path) -> None:
    lines_of_other = compare(OTHER[name], tmp_path)
    assert not any(word in line for line in lines_of_other for word in ("Attention", "GroupNormalization"))


@pytest.mark.parametrize("cut", ["Slice", "Slice back", "Split"])
def test_time_major_data_is_sliced(cut: str, tmp_path: Path) -> None:
    """Slices of several steps of (T, N, 3), in the same order."""
    turn = {"perm": [1, 0, 2]}
    nodes = chain("t = Transpose x", Transpose=turn)
    if cut == "Slice back":
        nodes += chain("d = Slice t three back zero minus", "y = Transpose d", Transpose=turn)
    elif cut == "Slice":
        nodes += chain(
            "a = Slice t two five zero", "b = Slice t zero two zero", "c = Add b b", "y = Transpose d", Transpose=turn
        )
        nodes.insert(-1, onnx.helper.make_node("Concat", ["a", "c"], ["d"], axis=0))
    else:
        nodes.append(onnx.helper.make_node("Split", ["t", "sizes"], ["a", "b"], axis=0))
        nodes.append(onnx.helper.make_node("Concat", ["b", "a"], ["d"], axis=0))
        nodes += chain("y = Transpose d", Transpose=turn)
    constants: dict[str, Any] = {
        "zero": ints(0),
        "two": ints(2),
        "three": ints(3),
        "five": ints(5),
        "sizes": ints(2, 3),
    }
    proto = model(nodes, ("N", 5, 3), **constants, minus=ints(-1), back=ints(-(2**63) + 1))
    last = [line.split("type: ")[1].partition("}")[0].partition(",")[0] for line in compare(proto, tmp_path)][-1]
    assert last == ("Flip" if cut == "Slice back" else "Concatenate")


def test_a_softmax_of_turned_axes_is_over_the_right_one(tmp_path: Path) -> None:
    nodes = chain("t = Transpose x", "s = Softmax t", "y = Conv s w", Softmax={"axis": 1}, **UP)
    proto = model(nodes, ("N", 2, 5, 3), w=weights(1, 5, 1, 1))
    assert [line.split(", ")[1] for line in compare(proto, tmp_path)] == [
        "type: Activation", "type: Permute", "type: Conv2D"
    ]  # fmt: skip


def test_channels_that_are_last_between_layers_are_not_turned(tmp_path: Path) -> None:
    last, first = {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}
    nodes = [
        *chain("c = Conv x w", "t = Transpose c", "r = Relu t", Transpose=last),
        *chain("s = Sigmoid t", "m = Mul r s", "u = Transpose m", "y = Conv u v", Transpose=first),
    ]
    proto = model(nodes, ("N", 2, 5, 3), w=weights(4, 2, 3, 3), v=weights(2, 4, 3, 1))
    assert not any("Permute" in line for line in compare(proto, tmp_path))
