"""Sequences of tensors, and selections of boxes, that are resolved while importing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.exchange.lift.models.generic import agrees, chain, floats, graph, ints, layers_of, model, node

FIRST, LAST = np.asarray(0), np.asarray(-1)
BESIDE: dict[str, Any] = {"ConcatFromSequence": {"axis": 1}}


def of(*steps: str, weights: dict[str, Any] | None = None, **attributes: Any) -> onnx.ModelProto:
    return model(chain(*steps, **attributes), ("N", 4, 6), opset=17, first=FIRST, last=LAST, **(weights or {}))


MODELS = {
    "an element": of("a = Relu x", "b = Neg x", "s = SequenceConstruct a b", "e = SequenceAt s last", "y = Exp e"),
    "an element twice": of(
        "c = Conv x w", "s = SequenceConstruct c", "a = SequenceAt s first", "r = Relu a", "b = SequenceAt s first",
        "y = Mul r b", weights={"w": floats(3, 4, 2)},
    ),
    "an identity": of("s = SequenceConstruct x x", "t = Identity s", "y = SequenceAt t first"),
    "single elements": of(
        "s = SplitToSequence x", "y = ConcatFromSequence s",
        SplitToSequence={"axis": -2, "keepdims": 0}, ConcatFromSequence={"axis": -1, "new_axis": 1},
    ),
    "parts of a size": of(
        "s = SplitToSequence x k", "a = SequenceAt s last", "y = Neg a", weights={"k": np.asarray(4)},
        SplitToSequence={"axis": 2},
    ),
    "parts of sizes": of(
        "s = SplitToSequence x k", "a = SequenceAt s last", "t = SequenceInsert s a first", "u = SequenceErase t",
        "y = ConcatFromSequence u", weights={"k": ints(1, 3)}, SplitToSequence={"axis": 1}, **BESIDE,
    ),
    "constants": of(
        "s = SplitToSequence k", "a = SequenceAt s first", "b = SequenceAt s last", "c = Add x a", "y = Mul c b",
        weights={"k": floats(2, 6)},
    ),
    "a large constant": of(
        "s = SequenceConstruct k k", "a = SequenceAt s first", "y = MatMul x a", weights={"k": floats(6, 20_000)}
    ),
    "a length": of("s = SequenceConstruct x x", "n = SequenceLength s", "f = Cast n", "y = Mul x f", Cast={"to": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_is_resolved(name: str, tmp_path: Path) -> None:
    agrees(MODELS[name], tmp_path)


def test_a_sequence_grows_in_a_loop(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info
    inner = graph(
        chain("c2 = Identity c", "f = Cast i", "v = Add x f", "q2 = SequenceInsert q v", Cast={"to": 1}),
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []), sequence("q", TensorProto.FLOAT, None)],
        "",
    )  # fmt: skip
    inner.output.append(helper.make_tensor_value_info("c2", TensorProto.BOOL, []))
    inner.output.append(sequence("q2", TensorProto.FLOAT, None))
    nodes = [
        helper.make_node("SequenceEmpty", [], ["e"]),
        node("Loop", "n  e", "s", body=inner),
        node("ConcatFromSequence", "s", axis=1),
    ]
    text = agrees(model(nodes, ("N", 4), n=np.asarray(3)), tmp_path)
    assert "Concatenate" in layers_of(text)[-1]


def test_a_function_of_each_element(tmp_path: Path) -> None:
    """onnx's own expansion of SequenceMap aborts the process if it does not know the elements' types."""
    inner = graph([node("Relu", "v", "r")], [helper.make_tensor_value_info("v", TensorProto.FLOAT, None)], "r")
    nodes = [
        node("Neg", "x", "n"),
        node("SequenceConstruct", "x n", "s"),
        node("SequenceMap", "s", "t", body=inner),
        node("ConcatFromSequence", "t", axis=1),
    ]
    agrees(model(nodes, ("N", 4), opset=17), tmp_path)


def test_constant_boxes_are_chosen_while_importing(tmp_path: Path) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1.1], [2, 2, 3, 3]]], "float32")
    nodes = [node("NonMaxSuppression", "b s k t", "n"), node("Cast", "n", "f", to=1), node("Add", "x f")]
    scores, count = np.array([[[0.9, 0.8, 0.7]]], "float32"), np.array([5])
    agrees(model(nodes, ("N", 2, 3), b=boxes, s=scores, k=count, t=np.array([0.5], "float32")), tmp_path)
