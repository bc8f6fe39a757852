"""Damaged models and other files are refused with a message."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from netspec.errors import InputError
from netspec.exchange.formats.onnx.importing import import_onnx
from tests.exchange.lift.models.generic import RESHAPED, floats, model, node
from tests.exchange.lift.models.single_sample import IN_BATCHES, WHOLE

W = floats(4, 2, 3, 3)


def broken(change: str) -> bytes:
    proto = model([node("Conv", "x w"), node("Relu", "y", "z")], output="z", w=W)
    nodes, weights = proto.graph.node, proto.graph.initializer[0]
    match change:
        case "circle":
            nodes[0].input[0] = "z"
        case "dangling":
            nodes[0].input[0] = "nowhere"
        case "twice":
            nodes[1].output[0] = "y"
        case "external":
            weights.data_location = TensorProto.EXTERNAL
            weights.external_data.add(key="location", value="../../etc/passwd")
        case "short":
            weights.raw_data = weights.raw_data[:-4]
        case "negative":
            weights.dims[0] = -4
        case "huge":
            weights.dims[0] = 2**60
        case "type":
            weights.data_type = 1234
        case "old":
            proto.opset_import[0].version = 5  # before opset 7, operators had other attributes
        case "new":
            proto.opset_import[0].version = 999
        case "new IR":
            proto.ir_version = 999
        case "two initializers":
            proto.graph.initializer.add().CopyFrom(weights)
        case "two inputs":
            proto.graph.input.add().CopyFrom(proto.graph.input[0])
        case "no output":
            proto.graph.output[0].name = "gone"
        case "no opset":
            del proto.opset_import[:]
        case "no nodes":
            del nodes[:]
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("circle", "run in a circle"),
        ("dangling", "reads `nowhere`, which nothing makes"),
        ("twice", "makes `y`, which exists already"),
        ("external", "which is not below the model's folder"),
        ("short", "the weights `w` are damaged: they hold no float array of 4 × 2 × 3 × 3"),
        ("negative", "have the shape [-4, 2, 3, 3]"),
        ("huge", "the weights `w` are damaged"),
        ("type", "the weights `w` are damaged: they hold no known array of 4 × 2 × 3 × 3"),
        ("old", "opset 5"),
        ("new", "is written in ONNX opset 999"),
        ("new IR", "is written in ONNX IR version 999"),
        ("two initializers", "the initializer `w` is there 2 times"),
        ("two inputs", "the input `x` is there 2 times"),
        ("no output", "the output `gone` is made by no node"),
        ("no opset", "without nodes or opset"),
        ("no nodes", "without nodes or opset"),
    ],
)
def test_broken_models_are_refused(change: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(broken(change))
    with pytest.raises(InputError) as error:
        import_onnx(tmp_path / "m")
    assert message in error.value.render()


@pytest.mark.parametrize("content", [b"", b"\x08", b"\x08\x07garbage" * 50, b"\x89PNG", b"version https://git-lfs"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(InputError, match="m"):
        import_onnx(tmp_path / "m")


WHOLE_ONES = [WHOLE[name][0] for name in ("an image", "a repeated batch")]
SOUND = [sample.SerializeToString() for sample in (RESHAPED, *WHOLE_ONES, IN_BATCHES["heads as samples"][0])]


@given(st.data())
def test_no_damage_ends_in_another_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Since ONNX files have no checksum, damage may go unnoticed; it must not cause a traceback."""
    content = bytearray(data.draw(st.sampled_from(SOUND)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("fuzz") / "m.onnx"
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    with suppress(InputError):
        import_onnx(path)
