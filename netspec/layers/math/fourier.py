"""Discrete Fourier transforms, DFT and STFT: products with constant matrices of cosines and sines."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Take, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, require_countable, sample_axis
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem

LONGEST = 4096
"""Longest transform; its matrix has up to 4 times the square of this many elements."""


@cache
def dft_matrix(inputs: int, length: int, count: int, parts: tuple[int, int], inverse: bool) -> Any:
    """The matrix (inputs · parts, count · parts) that transforms rows; real and imaginary parts alternate.

    X[k] = Σ x[t] · exp(∓2πi·k·t / length), for k < count; the inverse divides by the length.
    """
    import numpy as np

    require_precomputable(inputs * count * prod(parts), "elements of the transform's matrix")
    angles = 2 * np.pi * (np.outer(np.arange(inputs), np.arange(count)) % length) / length
    real, imag = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    both = np.stack([np.stack([real, imag], -1), np.stack([-imag, real], -1)], 1)
    both = both / (length if inverse else 1)
    return both[:, : parts[0], :, : parts[1]].reshape(inputs * parts[0], count * parts[1])


@cache
def real_inverse_matrix(inputs: int, length: int) -> Any:
    """The matrix (inputs · 2, length) of the inverse that maps the first half of the frequencies to a real result."""
    import numpy as np

    matrix = dft_matrix(inputs, length, length, (2, 1), inverse=True).reshape(inputs, 2, length)
    weights = np.full((inputs, 1, 1), 2.0)
    weights[0] = 1.0
    if length % 2 == 0 and inputs == length // 2 + 1:
        weights[-1] = 1.0
    return (matrix * weights).reshape(inputs * 2, length)


def require_short(length: int) -> None:
    """Raise if a transform is too long to be computed with a matrix."""
    require(length <= LONGEST, "the transform is too long", expected=f"up to {LONGEST:,}", got=f"{length:,}")


def _parts(x: Value) -> int:
    """1 for real elements, 2 for complex ones."""
    require(
        len(x.shape) >= 3 and x.shape[-1] in (1, 2),
        "the input must hold real or complex elements",
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

    Input (N, …, L, …, 1) for real elements, or (N, …, L, …, 2) for real and imaginary parts; output (N, …, n, …, 2).
    https://onnx.ai/onnx/operators/onnx__DFT.html
    """

    onnx_roundtrip_blocker: ClassVar = "it is exported as a matrix product"

    type: Literal["DFT"] = "DFT"
    axis: int = -2
    """The axis to transform along."""
    n: PositiveInt | None = None
    """The length of the transform, to which the input is truncated or padded with zeros; default: that of the axis."""
    inverse: bool = False
    """`true`: the inverse transform, divided by the length."""
    onesided: bool = False
    """Limits the result to frequencies 0 … ⌊n / 2⌋, which determine the rest for real input. The inverse is real."""

    samples: ClassVar = (
        Sample.of((2, 5, 1)),
        Sample.of((2, 4, 3, 2), axis=1, n=3),
        Sample.of((2, 4, 1), n=6, onesided=True),
        Sample.of((2, 3, 2), inverse=True),
        Sample.of((2, 3, 2), inverse=True, onesided=True),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, L, …, 1 or 2) → (N, …, n, …, 2)."""
        parts, rank = _parts(x), len(x.shape)
        axis = sample_axis(x, self.axis, "to transform along")
        require(
            axis != rank - 1, "the last axis holds real and imaginary parts", expected="a different axis", got=self.axis
        )
        real = self.inverse and self.onesided
        size = x.shape[axis]
        length = self.n or (2 * (size - 1) if real else size)
        require(
            not self.onesided or parts == (2 if self.inverse else 1),
            "`onesided` needs a real input",
            expected=f"(batch, …, {2 if self.inverse else 1})",
            got=x.type,
        )
        require(length > 0, "the transform has length 0", expected="a length of 1 or more", got=length)
        require_short(max(length, size))
        count = length // 2 + 1 if self.onesided and not real else length
        max_inputs = length // 2 + 1 if real else length
        inputs, out_parts = min(size, max_inputs), 1 if real else 2
        x = builder.floating(x)
        order = (*(k for k in range(rank) if k not in (axis, rank - 1)), axis, rank - 1)
        axis_last = Transpose(order)(x) if axis != rank - 2 else x
        if inputs < size:
            axis_last = Take(rank - 2, tuple(range(inputs)))(axis_last)
        rows = reshape_to(axis_last, (*axis_last.shape[:-2], inputs * parts))
        matrix = (
            real_inverse_matrix(inputs, length) if real else dft_matrix(inputs, length, count, (parts, 2), self.inverse)
        )
        y = reshape_to(_times(rows, matrix), (*axis_last.shape[:-2], count, out_parts))
        return Transpose(tuple(order.index(k) for k in range(rank)))(y) if axis != rank - 2 else y


@LAYERS.register
class STFT(LayerSpec):
    """Short-time Fourier transform: the discrete Fourier transform of frames of a signal.

    Input (N, …, L, 1) for real elements, or (N, …, L, 2) for real and imaginary parts, and optionally a window (N,
    frame_length); output (N, …, ⌊(L - frame_length) / frame_step⌋ + 1, frequencies, 2).
    https://onnx.ai/onnx/operators/onnx__STFT.html
    """

    onnx_roundtrip_blocker: ClassVar = "it is exported as a matrix product"

    type: Literal["STFT"] = "STFT"
    frame_length: PositiveInt
    """Length of a frame, in elements of the signal."""
    frame_step: PositiveInt
    """Step from one frame to the next."""
    onesided: bool = True
    """Limits the result to the frequencies 0 … ⌊frame_length / 2⌋, which determine the rest for real input."""

    samples: ClassVar = (
        Sample.of((2, 7, 1), frame_length=4, frame_step=2),
        Sample.of((2, 6, 2), (2, 3), frame_length=3, frame_step=1, onesided=False),
    )

    @model_validator(mode="after")
    def _at_most_frame_length(self) -> Self:
        if self.frame_length > LONGEST:
            raise problem(
                "the frames are too long",
                field="frame_length",
                expected=f"up to {LONGEST:,}",
                got=f"{self.frame_length:,}",
            )
        return self

    def build(self, builder: Builder, x: Value, window: Value | None = None) -> Value:
        """x: (N, …, L, 1 or 2), window: (N, frame_length) → (N, …, frames, frequencies, 2)."""
        parts, length, rank = _parts(x), self.frame_length, len(x.shape)
        lead, steps = x.shape[:-2], x.shape[-2]
        require(
            not self.onesided or parts == 1,
            "`onesided` needs a real input",
            expected="(batch, …, steps, 1), or `onesided: false`",
            got=x.type,
        )
        require(length <= steps, "the signal is shorter than a frame", expected=f"{length} steps or more", got=x.type)
        frames = (steps - length) // self.frame_step + 1
        require_countable(frames * length, rank - 2)
        samples_of_frames = tuple(frame * self.frame_step + t for frame in range(frames) for t in range(length))
        frames_of_x = reshape_to(Take(rank - 2, samples_of_frames)(builder.floating(x)), (*lead, frames, length, parts))
        if window is not None:
            samples = window.type.size // length
            require(
                window.dtype.is_float and window.shape[-1:] == (length,) and samples in (1, x.shape[0]),
                "the second input is not a window",
                expected=f"floats (batch, {length})",
                got=window.type,
            )
            frames_of_x = frames_of_x * reshape_to(builder.floating(window), (samples, *(1,) * (rank - 2), length, 1))
        count = length // 2 + 1 if self.onesided else length
        y = _times(
            reshape_to(frames_of_x, (*lead, frames, length * parts)),
            dft_matrix(length, length, count, (parts, 2), inverse=False),
        )
        return reshape_to(y, (*lead, frames, count, 2))
