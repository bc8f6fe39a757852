"""Initializers that define a linear map: orthogonal, identity, bilinear interpolation, Fourier transform."""

from __future__ import annotations

from math import pi, prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.layers.initializers.base import InitializerSpec
from netspec.schema.specs.kinds import INITIALIZERS


@INITIALIZERS.register
class Orthogonal(InitializerSpec):
    """An orthogonal matrix: rows or columns, whichever are fewer, of length `gain` and at right angles to each other.

    Of a convolution kernel (out, in, window…) the rows are the output channels. Saxe et al. 2014, arXiv:1312.6120.
    """

    type: Literal["Orthogonal"] = "Orthogonal"
    gain: float = 1.0
    """Length of the rows or columns."""

    samples: ClassVar = ({}, {"gain": 0.5})

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Q of the QR decomposition of a normal matrix, with signs chosen such that Q is uniformly distributed."""
        import numpy as np

        rows, columns = shape[0] if len(shape) > 1 else 1, prod(shape[1:] if len(shape) > 1 else shape)
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diagonal(r))
        return self.gain * (q.T if rows < columns else q).reshape(shape)


@INITIALIZERS.register
class IdentityInitializer(InitializerSpec):
    """A matrix, or a convolution, that returns its input: `gain` on the diagonal, 0 elsewhere.

    For a convolution kernel (out, in, window…) the center of the window holds the diagonal (PyTorch's `dirac_`); Keras
    supports matrices only.
    """

    type: Literal["Identity"] = "Identity"
    gain: float = 1.0
    """Value on the diagonal."""

    samples: ClassVar = ({}, {"gain": 0.5})

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """A vector has no diagonal."""
        return None if len(shape) >= 2 else "`Identity` needs a matrix or a kernel"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        import numpy as np

        rows, columns, *window = shape
        center = int(np.ravel_multi_index([size // 2 for size in window], window)) if window else 0
        kernel = np.zeros((rows, columns, prod(window)))
        kernel[:, :, center] = self.gain * np.eye(rows, columns)
        return kernel.reshape(shape)


@INITIALIZERS.register
class Bilinear(InitializerSpec):
    """Caffe's bilinear filler of upsampling kernels: each window interpolates linearly along all of its axes.

    For a Conv2DTranspose that enlarges images k times: `filters` and `groups` are the number of channels, `kernel_size`
    is 2k - k % 2, `strides` is k, and `padding` is (k - 1) / 2, rounded up.
    """

    type: Literal["Bilinear"] = "Bilinear"

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return a reason if the parameter is not the kernel of a convolution."""
        return None if len(shape) >= 3 else "`Bilinear` needs the kernel of a convolution"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Products of triangles of height 1, Caffe's formula for each axis of the window."""
        import numpy as np

        kernel = np.ones(shape)
        for axis, size in enumerate(shape[2:], 2):
            half = (size + 1) // 2
            middle = (2 * half - 1 - half % 2) / (2 * half)
            triangle = 1 - abs(np.arange(size) / half - middle)
            kernel *= triangle.reshape(-1, *(1,) * (len(shape) - 1 - axis))
        return kernel


@INITIALIZERS.register
class PositiveUnitball(InitializerSpec):
    """Caffe's filler of positive weights that sum to 1 for each output: uniform numbers, divided by their sum."""

    type: Literal["PositiveUnitball"] = "PositiveUnitball"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Uniform numbers over their sum for each output: dense kernels are (in, out), others (out, in, window…)."""
        weights = random.random(shape)
        axes = tuple(range(1, len(shape))) if len(shape) > 2 else tuple(range(len(shape)))[:1]
        return weights / weights.sum(axis=axes, keepdims=True)


COSINES = {"boxcar": (1.0,), "hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08)}
"""Windows as sums of (-1)ᵏ · aₖ · cos(2πkt / length), as usual in signal processing."""


@INITIALIZERS.register
class STFTInitializer(InitializerSpec):
    """One part of the discrete Fourier transform of a window: w(t) · cos(2πft / F), or -w(t) · sin(2πft / F).

    For a Conv1D over one channel: its kernel (filters, 1, steps) has a filter for each frequency f = 0, 1, … F / 2. Its
    `strides` are the hop; one Conv1D gives the real part and another the imaginary part of each frequency.
    """

    type: Literal["STFT"] = "STFT"
    side: Literal["real", "imag"] = "real"
    """Real or imaginary part."""
    window: Literal["boxcar", "hann", "hamming", "blackman"] | None = "hann"
    """Window that a frame is multiplied by; null: none."""
    scaling: Literal["density", "spectrum"] | None = Field(default="density")
    """Divisor of the window: the root of the sum of its squares, the sum of its values, or none (null)."""
    periodic: bool = False
    """Whether the window is periodic (its first value follows the last) rather than symmetric."""

    samples: ClassVar = ({}, {"side": "imag", "window": "hamming", "scaling": "spectrum", "periodic": True})

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """The kernel must be that of a Conv1D over one channel, with two frequencies or more."""
        fits = len(shape) == 3 and shape[1] == 1 and shape[0] > 1
        return None if fits else "`STFT` needs the kernel of a Conv1D with 2 or more filters and one input channel"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The waves of each frequency under the window, (filters, 1, steps)."""
        import numpy as np

        count, _, steps = shape
        time, frequency = np.arange(steps), np.arange(count)[:, None] / (2 * (count - 1))
        angle = -2 * pi * frequency * time
        waves = np.cos(angle) if self.side == "real" else np.sin(angle)
        if self.window is not None:
            window = self._window(steps)
            divisor = {"density": np.sqrt((window**2).sum()), "spectrum": abs(window).sum(), None: 1.0}[self.scaling]
            waves = waves * window / divisor
        return waves[:, None]

    def _window(self, steps: int) -> Any:
        import numpy as np

        turn = 2 * pi * np.arange(steps) / max(1, steps if self.periodic else steps - 1)
        window = np.zeros(steps)
        for order, factor in enumerate(COSINES[self.window or "boxcar"]):
            window += (-1) ** order * factor * np.cos(order * turn)
        return window if steps > 1 else np.ones(1)
