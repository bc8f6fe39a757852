"""Operators that pad sounds and compute spectrograms give the values of the data in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.data.transforms.mel_spectrogram import MelSpectrogram
from netspec.data.transforms.padding import Padding
from netspec.exchange.formats.onnx.wrapper import Wrapper
from netspec.tools.exporting.raw_images import RESIZE_OPSET
from netspec.tools.exporting.raw_sounds import RawSounds, has_operator_form

SPECTRA = [
    {"fft_length": 256, "sequence_length": 200, "sequence_stride": 80, "num_mel_bins": 40},
    {"fft_length": 250, "sequence_stride": 250, "num_mel_bins": 12, "window": "hamming", "top_db": 20},
    {"fft_length": 64, "sequence_stride": 33, "num_mel_bins": 100, "window": None, "power_to_db": False, "mag_exp": 1},
    {"fft_length": 128, "num_mel_bins": 8, "ref_power": 4, "min_power": 0.01, "min_freq": 0, "max_freq": 2000},
]


def in_operators(steps: list[Transform], sounds: np.ndarray) -> np.ndarray:
    """Return sounds (N, channels, samples) after transforms, computed by ONNX Runtime."""
    wrapper = Wrapper()
    RawSounds("audio", FieldType((sounds.shape[1], None), "float32"), steps).add_to(wrapper)
    nodes = [
        helper.make_node(
            node.op_type, node.inputs, ["result" if name == "audio" else name for name in node.outputs],
            domain=node.domain, **node.attributes,
        )
        for node in wrapper.before
    ]  # fmt: skip
    audio = helper.make_tensor_value_info("audio", onnx.TensorProto.FLOAT, ["N", sounds.shape[1], "samples"])
    axes = [f"axis{index}" for index in range(2 + len(steps))]  # a spectrogram adds one
    result = helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, axes)
    constants = [numpy_helper.from_array(array, name) for name, array in wrapper.constants.items()]
    graph = helper.make_graph(nodes, "sounds", [audio], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", RESIZE_OPSET)], ir_version=9)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"audio": sounds})
    return np.asarray(result)


def in_data(steps: list[Transform], sounds: np.ndarray) -> np.ndarray:
    """Return sounds after transforms, computed as for a training."""
    for step in steps:
        sounds = np.asarray(step.apply(sounds, SampleKeys(0, 0, np.arange(len(sounds)), 0)))
    return sounds


def noise(channels: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).uniform(-1, 1, (3, channels, length)).astype(np.float32)


@pytest.mark.parametrize("padding", ["pre", "post"])
@pytest.mark.parametrize("truncating", ["pre", "post"])
@pytest.mark.parametrize("length", [1, 59, 60, 61, 200])
def test_sounds_are_padded_and_truncated_as_in_the_data(padding: Any, truncating: Any, length: int) -> None:
    steps: list[Transform] = [Padding(length=60, padding=padding, truncating=truncating, value=0.5)]
    sounds = noise(2, length)
    np.testing.assert_array_equal(in_operators(steps, sounds), in_data(steps, sounds))


@pytest.mark.parametrize("settings", SPECTRA, ids=lambda settings: str(settings["fft_length"]))
@pytest.mark.parametrize("length", [700, 1000, 1500])
def test_spectrograms_are_those_of_the_data(settings: dict[str, Any], length: int) -> None:
    steps: list[Transform] = [Padding(length=1000), MelSpectrogram(sampling_rate=8000, **settings)]
    sounds = noise(2, length)
    expected = in_data(steps, sounds)
    # A power is a sum of rounded squares with about 7 digits, and decibels reach 100.
    np.testing.assert_allclose(in_operators(steps, sounds), expected, rtol=1e-4, atol=1e-3)


def test_other_transforms_and_types_have_no_operators() -> None:
    sound, fixed = FieldType((1, None), "float32"), FieldType((1, 900), "float32")
    assert has_operator_form(Padding(length=60), sound)
    assert not has_operator_form(Padding(length=60, truncating="random"), sound)
    assert not has_operator_form(Padding(length=60), FieldType((None,), "int32"))
    assert has_operator_form(MelSpectrogram(fft_length=64), fixed)
    assert not has_operator_form(MelSpectrogram(fft_length=63), fixed)
    assert not has_operator_form(MelSpectrogram(fft_length=64), sound)
