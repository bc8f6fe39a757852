"""Operators that resize and crop images of any size give the pixels of the data in ONNX Runtime."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.data.imaging.geometry import resized
from netspec.data.transforms.grayscale import Grayscale
from netspec.data.transforms.resizing import Resizing
from netspec.exchange.formats.onnx.wrapper import Wrapper
from netspec.tools.exporting.raw_images import RESIZE_OPSET, RawImages, is_exact

SIZES = [(1, 1), (7, 33), (10, 100), (100, 10), (64, 64), (97, 33), (3, 120), (51, 26)]
"""Heights and widths; Pillow resizes the rows of a tall image first."""
TARGETS = [(1, 1), (4, 10), (36, 55), (20, 8), (50, 3), (64, 64)]
STEPS = [
    {"interpolation": interpolation, "antialias": antialias}
    for interpolation in ("nearest", "bilinear", "bicubic", "lanczos", "box")
    for antialias in (True, False)
]


def operators(step: Transform, channels: int, height: int | str, width: int | str) -> onnxruntime.InferenceSession:
    """Return a session that applies a transform, whose results have this size."""
    wrapper = Wrapper()
    RawImages("image", FieldType((3, None, None), "uint8"), [step]).add_to(wrapper)
    nodes = [
        helper.make_node(
            node.op_type, node.inputs, ["result" if name == "image" else name for name in node.outputs],
            domain=node.domain, **node.attributes,
        )
        for node in wrapper.before
    ]  # fmt: skip
    image = helper.make_tensor_value_info("image", onnx.TensorProto.UINT8, ["N", 3, "height", "width"])
    result = helper.make_tensor_value_info("result", onnx.TensorProto.UINT8, ["N", channels, height, width])
    constants = [numpy_helper.from_array(array, name) for name, array in wrapper.constants.items()]
    graph = helper.make_graph(nodes, "resizing", [image], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", RESIZE_OPSET)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step['interpolation']}-{step['antialias']}")
def test_images_of_any_size_are_resized_like_the_data(step: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    largest = 0
    for height, width in TARGETS:
        resizing = Resizing(height=height, width=width, **step)
        session = operators(resizing, 3, height, width)
        for size in SIZES:
            images = random.integers(0, 256, (2, *size, 3), np.uint8)
            expected = [resized(image, height, width, **step) for image in images]
            (found,) = session.run(None, {"image": images.transpose(0, 3, 1, 2)})
            difference = np.abs(found.transpose(0, 2, 3, 1).astype(int) - np.stack(expected))
            largest = max(largest, difference.max())
    assert largest <= (0 if is_exact(resizing) else 2)


@pytest.mark.parametrize("channels", [1, 3])
def test_colors_become_gray_as_in_the_data(channels: Literal[1, 3]) -> None:
    step = Grayscale(num_output_channels=channels)
    images = np.random.default_rng(3).integers(0, 256, (4, 3, 200, 300), np.uint8)
    (found,) = operators(step, channels, "height", "width").run(None, {"image": images})
    assert is_exact(step)
    np.testing.assert_array_equal(found, step.apply(images, SampleKeys(0, 0, np.arange(4), 0)))
