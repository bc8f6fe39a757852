"""Discrete Fourier transforms, DFT and STFT: products with constant matrices of cosines and sines."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Take, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, need_countable, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem

LONGEST = 4096
"""Of a transform: its matrix has up to 4 times the square of that many numbers."""


@cache
def waves(given: int, length: int, count: int, parts: tuple[int, int], inverse: bool) -> Any:
    """The matrix (given · parts, count · parts) that transforms rows: of each number the real part, then the other.

    X[k] = Σ x[t] · exp(∓2πi·k·t / length), for k < count; the inverse divides by the length.
    """
    import numpy as np

    angles = 2 * np.pi * (np.outer(np.arange(given), np.arange(count)) % length) / length
    real, imag = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    both = np.stack([np.stack([real, imag], -1), np.stack([-imag, real], -1)], 1)
    both = both / (length if inverse else 1)
    return both[:, : parts[0], :, : parts[1]].reshape(given * parts[0], count * parts[1])


@cache
def back_to_real(given: int, length: int) -> Any:
    """The matrix (given · 2, length) of the inverse whose result is real, of the first half of the frequencies."""
    import numpy as np

    matrix = waves(given, length, length, (2, 1), inverse=True).reshape(given, 2, length)
    twice = np.full((given, 1, 1), 2.0)
    twice[0] = 1.0
    if length % 2 == 0 and given == length // 2 + 1:
        twice[-1] = 1.0
    return (matrix * twice).reshape(given * 2, length)


def need_short(length: int) -> None:
    """Raise for a transform of more than is computed by matrices."""
    need(length <= LONGEST, "the transform is too long", expected=f"up to {LONGEST:,}", got=f"{length:,}")


def _parts(x: Value) -> int:
    """1 where numbers are real, 2 where they have an imaginary part too."""
    need(
        len(x.shape) >= 3 and x.shape[-1] in (1, 2),
        "the input does not hold real or complex numbers",
        expected="(batch, …, 1), or (batch, …, 2) of real and imaginary parts",
        got=x.type,
    )
    return x.shape[-1]


def _times(x: Value, matrix: Any) -> Value:
    """Rows of x times a constant matrix."""
    return MatMul()(x, constant(matrix.astype(str(x.dtype))))


@LAYERS.register
class DFT(LayerSpec):
    """The discrete Fourier transform along an axis: X[k] = Σ x[t] · exp(-2πi·k·t / n), or its inverse.

    Input (N, …, L, …, 1) of real numbers or (N, …, L, …, 2) of real and imaginary parts, output (N, …, n, …, 2).
    https://onnx.ai/onnx/operators/onnx__DFT.html
    """

    one_way: ClassVar = "it is written as the product with a matrix that it is"

    type: Literal["DFT"] = "DFT"
    axis: int = -2
    """the axis to transform along"""
    n: PositiveInt | None = None
    """the length of the transform, to which the input is cut or filled with zeros; default: that of the axis"""
    inverse: bool = False
    """from frequencies back; divided by the length"""
    onesided: bool = False
    """frequencies 0 … ⌊n / 2⌋ alone, which say all of real numbers; of the inverse the result is real"""

    samples: ClassVar = (
        Sample.of((2, 5, 1)),
        Sample.of((2, 4, 3, 2), axis=1, n=3),
        Sample.of((2, 4, 1), n=6, onesided=True),
        Sample.of((2, 3, 2), inverse=True),
        Sample.of((2, 3, 2), inverse=True, onesided=True),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …, L, …, 1 or 2) → (N, …, n, …, 2)."""
        parts, rank = _parts(x), len(x.shape)
        axis = sample_axis(x, self.axis, "to transform along")
        need(axis != rank - 1, "the last axis holds the parts of numbers", expected="another axis", got=self.axis)
        real = self.inverse and self.onesided
        have = x.shape[axis]
        length = self.n or (2 * (have - 1) if real else have)
        need(
            not self.onesided or parts == (2 if self.inverse else 1),
            "one side says all of a transform of real numbers alone",
            expected=f"(batch, …, {2 if self.inverse else 1})",
            got=x.type,
        )
        need(length > 0, "nothing is left of the transform", expected="a length of 1 or more", got=length)
        need_short(max(length, have))
        count = length // 2 + 1 if self.onesided and not real else length
        within = length // 2 + 1 if real else length
        given, out = min(have, within), 1 if real else 2
        x = net.floating(x)
        order = (*(k for k in range(rank) if k not in (axis, rank - 1)), axis, rank - 1)
        moved = Transpose(order)(x) if axis != rank - 2 else x
        if given < have:
            moved = Take(rank - 2, tuple(range(given)))(moved)
        rows = reshape_to(moved, (*moved.shape[:-2], given * parts))
        matrix = back_to_real(given, length) if real else waves(given, length, count, (parts, 2), self.inverse)
        made = reshape_to(_times(rows, matrix), (*moved.shape[:-2], count, out))
        return Transpose(tuple(order.index(k) for k in range(rank)))(made) if axis != rank - 2 else made


@LAYERS.register
class STFT(LayerSpec):
    """The discrete Fourier transform of frames, which go along a signal in steps.

    Input (N, …, L, 1) of real numbers or (N, …, L, 2) of real and imaginary parts, and, if frames are weighted, a
    window (N, frame_length); output (N, …, ⌊(L - frame_length) / frame_step⌋ + 1, frequencies, 2).
    https://onnx.ai/onnx/operators/onnx__STFT.html
    """

    one_way: ClassVar = "it is written as the product with a matrix that it is"

    type: Literal["STFT"] = "STFT"
    frame_length: PositiveInt
    """how much of the signal a frame has"""
    frame_step: PositiveInt
    """steps from one frame to the next"""
    onesided: bool = True
    """frequencies 0 … ⌊frame_length / 2⌋ alone, which say all of real numbers"""

    samples: ClassVar = (
        Sample.of((2, 7, 1), frame_length=4, frame_step=2),
        Sample.of((2, 6, 2), (2, 3), frame_length=3, frame_step=1, onesided=False),
    )

    @model_validator(mode="after")
    def _short(self) -> Self:
        if self.frame_length > LONGEST:
            raise problem(
                "the frames are too long",
                field="frame_length",
                expected=f"up to {LONGEST:,}",
                got=f"{self.frame_length:,}",
            )
        return self

    def build(self, net: Builder, x: Value, window: Value | None = None) -> Value:
        """x: (N, …, L, 1 or 2), window: (N, frame_length) → (N, …, frames, frequencies, 2)."""
        parts, length, rank = _parts(x), self.frame_length, len(x.shape)
        lead, have = x.shape[:-2], x.shape[-2]
        need(
            not self.onesided or parts == 1,
            "one side says all of a transform of real numbers alone",
            expected="(batch, …, steps, 1), or `onesided: false`",
            got=x.type,
        )
        need(length <= have, "no frame fits into the signal", expected=f"{length} steps or more", got=x.type)
        frames = (have - length) // self.frame_step + 1
        need_countable(frames * length, rank - 2)
        places = tuple(frame * self.frame_step + t for frame in range(frames) for t in range(length))
        cut = reshape_to(Take(rank - 2, places)(net.floating(x)), (*lead, frames, length, parts))
        if window is not None:
            samples = window.type.size // length
            need(
                window.dtype.is_float and window.shape[-1:] == (length,) and samples in (1, x.shape[0]),
                "the second input is no window",
                expected=f"floats {[x.shape[0], length]}",
                got=window.type,
            )
            cut = cut * reshape_to(net.floating(window), (samples, *(1,) * (rank - 2), length, 1))
        count = length // 2 + 1 if self.onesided else length
        made = _times(
            reshape_to(cut, (*lead, frames, length * parts)),
            waves(length, length, count, (parts, 2), inverse=False),
        )
        return reshape_to(made, (*lead, frames, count, 2))
