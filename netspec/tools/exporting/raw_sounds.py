"""Sounds of any length as inputs of an exported model: padding and mel spectrograms as operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netspec.data.base import FieldType, Transform
from netspec.data.transforms.mel_spectrogram import MelSpectrogram
from netspec.data.transforms.padding import Padding
from netspec.data.transforms.spectra import band_weights, window_of
from netspec.exchange.formats.onnx.wrapper import NodeWriter, RawTensor, Wrapper


def has_operator_form(transform: Transform, field: FieldType) -> bool:
    """Return whether a transform of sounds (channels, samples) of this type has a form in operators."""
    if field.dtype != "float32" or len(field.shape) != 2 or field.shape[0] is None:
        return False
    if isinstance(transform, Padding):
        return transform.axis in (-1, 1) and transform.truncating != "random"
    if isinstance(transform, MelSpectrogram):  # ONNX's STFT has as many frames only if the FFT's length is even
        return field.shape[1] is not None and transform.fft_length % 2 == 0
    return False


def is_exact(transform: Transform) -> bool:
    """Return whether the operators of a transform give the values of the data, without rounding."""
    return isinstance(transform, Padding)


@dataclass(frozen=True)
class RawSounds:
    """Sounds (N, channels, samples) from -1 to 1, from which an input of the net is computed."""

    name: str
    """Name of the input."""
    type: FieldType
    """Type of a sound; the number of samples is None if it differs."""
    steps: Sequence[Transform]
    """Transforms with a form in operators, in their order."""

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Shape of a sound; an axis of any size has a name."""
        return tuple("samples" if size is None else size for size in self.type.shape)

    def add_to(self, wrapper: Wrapper) -> None:
        """Add the operators."""
        wrapper.inputs[self.name] = RawTensor("float32", self.shape)
        wrapper.computed.append(self.name)
        writer = _SoundWriter(wrapper, wrapper.before, f"sounds/{self.name}")
        x, field = self.name, self.type
        for step in self.steps:
            x, field = writer.transformed(x, step, field), step.infer(field)
        writer.node("Identity", x, output=self.name)


class _SoundWriter(NodeWriter):
    """Adds operators on sounds (N, channels, samples) of float32."""

    def number(self, value: Any) -> str:
        """Add a constant of float32, and return its name."""
        return self.constant(value, "float32")

    def transformed(self, x: str, step: Transform, field: FieldType) -> str:
        """Return sounds of a type after a transform."""
        match step:
            case Padding():
                return self._padded(x, step)
            case MelSpectrogram():
                return self._spectrogram(x, step, field)
        raise TypeError(step)

    def _padded(self, x: str, step: Padding) -> str:
        axis, none = self.constant([2]), self.constant([0])
        if step.truncating == "pre":
            x = self.node("Slice", x, self.constant([-step.length]), self.constant([np.iinfo(np.int64).max]), axis)
        else:
            x = self.node("Slice", x, none, self.constant([step.length]), axis)
        missing = self.node("Sub", self.constant([step.length]), self.node("Shape", x, start=2, end=3))
        around = (missing, none) if step.padding == "pre" else (none, missing)
        return self.node("Pad", x, self.node("Concat", *around, axis=0), self.number(step.value), axis)

    def _spectrogram(self, x: str, step: MelSpectrogram, field: FieldType) -> str:
        half, (channels, bins, frames) = step.fft_length // 2, step.infer(field).shape
        x = self.node("Pad", x, self.constant([half, half]), "", self.constant([2]), mode="reflect")
        rows = self.node("Reshape", x, self.constant([-1, (field.shape[1] or 0) + 2 * half, 1]))
        stride = self.constant(step.sequence_stride)
        spectra = self.node("STFT", rows, stride, self.constant(window_of(step), "float32"), onesided=1)
        power = self.node("ReduceSum", self.node("Mul", spectra, spectra), self.constant([3]), keepdims=0)
        if step.mag_exp != 2:
            power = self.node("Pow", power, self.number(step.mag_exp / 2))
        sums = self.node("MatMul", power, self.number(band_weights(step)))
        sums = self.node("Transpose", sums, perm=[0, 2, 1])
        result = self.node("Reshape", sums, self.constant([-1, channels, bins, frames]))
        return self._decibels(result, step) if step.power_to_db else result

    def _decibels(self, power: str, step: MelSpectrogram) -> str:
        """Return 10 log10(max(power, least) / reference), raised to `top_db` below the loudest value of each sample."""
        node, number = self.node, self.number
        loud = node("Log", node("Max", power, number(step.min_power)))
        reference = np.log10(max(step.ref_power, step.min_power))
        loud = node("Mul", node("Sub", node("Mul", loud, number(1 / np.log(10))), number(reference)), number(10))
        loudest = node("ReduceMax", loud, self.constant([1, 2, 3]), keepdims=1)
        return node("Max", loud, node("Sub", loudest, number(step.top_db)))
