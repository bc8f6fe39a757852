"""Models that cannot become nets: all reasons are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from netspec.errors import InputError
from tests.exchange.lift.models.generic import chain, floats, imported, ints, model, node

BN: dict[str, Any] = {name: floats(2) for name in ("g", "b", "m", "v")}

UNSUPPORTED: dict[str, tuple[onnx.ModelProto, str]] = {
    "operator": (model([node("TfIdfVectorizer", "x")]), "no layer for the operator TfIdfVectorizer (opset 13)"),
    "bytes that are no text": (
        model([node("PartitionedCall", "x", config=b"\x0a\x82\xff")]), "no layer for the operator PartitionedCall"
    ),
    "foreign domain": (model([node("BeamSearch", "x", domain="com.microsoft")]), "com.microsoft.BeamSearch"),
    "faked pattern": (model([node("Activation", "x", domain="netspec")]), "does not have this activation function"),
    "4d convolution": (
        model([node("Conv", "x w")], ("N", 2, 9, 9, 9, 9), w=floats(4, 2, 3, 3, 3, 3)), "over 4 spatial axes"
    ),
    "computed kernel": (model([node("Conv", "x x")]), "its kernel is computed, not a constant"),
    "wrong kernel": (model([node("Conv", "x w")], w=floats(4, 3, 3, 3)), "needs weights of shapes"),
    "window too large": (model([node("Conv", "x w")], w=floats(4, 2, 9, 9)), "the window is larger than the input"),
    "size of the result": (
        model([node("ConvTranspose", "x w", output_shape=[9, 9])], w=floats(2, 3, 3, 3)), "must be smaller"
    ),
    "too few scales": (
        model([node("Resize", "x  k")], k=np.array([1, 2, 1], "float32")), "`scales` [1.0, 2.0, 1.0] must have 4 values"
    ),
    "samples cut off": (model([node("Slice", "x s e a")], s=ints(1), e=ints(2), a=ints(0)), "`y` has no elements"),
    "chosen samples": (model([node("Gather", "x i", axis=0)], i=ints(0, 1)), "is taken to have the size 1"),
    "second result": (
        model([helper.make_node("BatchNormalization", [*"xgbmv"], ["p", "i"]), node("Add", "p i")], **BN),
        "its second output, `i`, is used",
    ),
    "negative constant": (model([node("LRN", "x", size=3, bias=-1.0)]), "does not take it: `k`: Input should be"),
    "no such shape": (model([node("Reshape", "x s")], s=ints(0, 7)), "cannot take the shape [0, 7]"),
    "nonsense axes": (model([node("Transpose", "x", "t", perm=[0, 9]), node("Relu", "t")]), "not a permutation"),
    "whole weights": (model([node("MatMul", "x w")], ("N", 3), w=np.ones((3, 2), "int32")), "its weights are int32"),
    "a huge constant": (
        model([node("ConstantOfShape", "s", "k"), node("Add", "x k")], s=ints(2**20, 2**20)),
        "a constant of 1,099,511,627,776 elements exceeds the limit of",
    ),
    "a result too many": (
        model([helper.make_node("Relu", ["x"], ["y", "z"])], output="z"), "its operator does not define this output"
    ),
    "a result too many of a layer": (
        model([helper.make_node("Transpose", ["x"], ["y", "z"])], output="z"), "its second output, `z`, is used"
    ),
    "an infinite scale": (
        model(chain("q = QuantizeLinear x s z", "y = DequantizeLinear q s z"), s=np.float32(np.inf), z=np.uint8(0)),
        "one of its scales is not finite",
    ),
    "boxes": (
        model(chain("c = Relu x", "b = Neg x", "p = NonMaxSuppression b c", "y = Cast p", Cast={"to": 1}), (1, 6, 4)),
        "a net has static shapes\n  hint: `netspec import --until b --until c` imports the model up to its inputs",
    ),
    "places of values": (
        model(chain("p = NonZero x", "y = Cast p", Cast={"to": 1})), "hint: `netspec import --until x` imports"
    ),
    "a sequence as result": (model([node("SequenceConstruct", "x x")]), "it is a sequence of tensors"),
    "beyond a sequence": (
        model(chain("s = SequenceConstruct x x", "y = SequenceAt s k"), k=np.asarray(2)),
        "position 2 is outside of the sequence of 2 tensors",
    ),
    "a computed place in a sequence": (
        model(
            chain("s = SequenceConstruct x x", "m = ReduceMax x", "k = Cast m", "y = SequenceAt s k",
                  Cast={"to": 7}, ReduceMax={"keepdims": 0}), (2, 3)
        ),
        "its position is computed, not a constant",
    ),
    "a lost element": (
        model(chain("f = Foo x", "s = SequenceConstruct f x", "y = SequenceAt s k"), k=np.asarray(0)), "operator Foo"
    ),
    "a tensor for a sequence": (
        model([node("SequenceAt", "x k")], k=np.asarray(0)), "`x` is not a sequence of tensors"
    ),
    "open size": (model([node("Relu", "x")], ("N", 2, "H", "W")), "the input `x` has no fixed size along `H` and `W`"),
    "open axes": (model([node("Relu", "x")], ("N", 2, "?", "?")), "no fixed size along axis 2 and axis 3"),
    "no elements": (
        model([node("Relu", "x")], ("N", 2, 0, 5)),
        "axis 2: the model says 0 along axis 2\n  expected: a batch axis, then sizes that are numbers\n  got: [N, 2, 0",
    ),
    "complex numbers": (model([node("Relu", "x")], dtype=TensorProto.COMPLEX64), "holds complex64"),
    "text": (model([node("Identity", "x")], dtype=TensorProto.STRING), "holds text"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_models_are_reported(name: str, tmp_path: Path) -> None:
    proto, message = UNSUPPORTED[name]
    with pytest.raises(InputError) as error:
        imported(proto, tmp_path)
    assert message in error.value.render()
    assert "7919" not in error.value.render()


def test_an_axis_that_is_called_unknown_has_no_name(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        imported(model([node("Relu", "x")], ("?", 2, "?", "?")), tmp_path)
    assert str(error.value.problems[0].hint).endswith("`--shape x=2,…,…`")


NEGATIVE = "LocalResponseNormalization does not take it: `k`: Input should be greater than 0"


def test_all_reasons_are_reported_at_once(tmp_path: Path) -> None:
    nodes = [
        node("TfIdfVectorizer", "x x", "a", name="first"),
        node("TfIdfVectorizer", "a a", "b"),
        node("LRN", "x", "c", size=3, bias=-1.0),
        node("Sum", "b c"),
    ]
    with pytest.raises(InputError) as error:
        imported(model(nodes), tmp_path)
    assert [problem.message.partition(": ")[2] for problem in error.value.problems] == [
        f"node `c` (LRN, opset 13) can't be imported: {NEGATIVE}",
        "netspec has no layer for the operator TfIdfVectorizer (opset 13)",
    ]
    assert error.value.problems[1].got == "2 nodes: b, first"
