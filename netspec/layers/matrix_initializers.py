"""Initializers of matrices and kernels by what they do to what they are multiplied with."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Literal

from netspec.layers.initializers import InitializerSpec
from netspec.schema.kinds import INITIALIZERS


@INITIALIZERS.register
class Orthogonal(InitializerSpec):
    """An orthogonal matrix: rows or columns, whichever are fewer, of length `gain` and at right angles to each other.

    Of a convolution kernel (out, in, window…) the rows are the output channels. Saxe et al. 2014, arXiv:1312.6120.
    """

    type: Literal["Orthogonal"] = "Orthogonal"
    gain: float = 1.0
    """length of the rows or columns"""

    samples: ClassVar = ({}, {"gain": 0.5})

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Q of the QR decomposition of normal numbers, its signs such that every Q is as likely."""
        import numpy as np

        rows, columns = shape[0] if len(shape) > 1 else 1, prod(shape[1:] if len(shape) > 1 else shape)
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diagonal(r))
        return self.gain * (q.T if rows < columns else q).reshape(shape)


@INITIALIZERS.register
class Identity(InitializerSpec):
    """A matrix, or a convolution, that passes on what comes in: `gain` on the diagonal, 0 elsewhere.

    Of a convolution kernel (out, in, window…) the middle of the window holds the diagonal (PyTorch's `dirac_`); Keras
    knows matrices alone.
    """

    type: Literal["Identity"] = "Identity"
    gain: float = 1.0
    """the numbers on the diagonal"""

    samples: ClassVar = ({}, {"gain": 0.5})

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """A vector has no diagonal."""
        return None if len(shape) >= 2 else "`Identity` is for matrices and kernels"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The diagonal."""
        import numpy as np

        rows, columns, *window = shape
        place = int(np.ravel_multi_index([size // 2 for size in window], window)) if window else 0
        made = np.zeros((rows, columns, prod(window)))
        made[:, :, place] = self.gain * np.eye(rows, columns)
        return made.reshape(shape)


@INITIALIZERS.register
class Bilinear(InitializerSpec):
    """Caffe's filler of kernels that enlarge: each window interpolates linearly along all of its axes.

    For a Conv2DTranspose with `filters` and `groups` as many as channels, `kernel_size: 2k - k % 2`, `strides: k` and
    `padding: (k - 1) / 2`, rounded up, which enlarges k times.
    """

    type: Literal["Bilinear"] = "Bilinear"

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """There must be a window."""
        return None if len(shape) >= 3 else "`Bilinear` is for kernels of convolutions"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Products of triangles of height 1, Caffe's formula for each axis of the window."""
        import numpy as np

        made = np.ones(shape)
        for axis, size in enumerate(shape[2:], 2):
            half = (size + 1) // 2
            middle = (2 * half - 1 - half % 2) / (2 * half)
            triangle = 1 - abs(np.arange(size) / half - middle)
            made *= triangle.reshape(-1, *(1,) * (len(shape) - 1 - axis))
        return made


@INITIALIZERS.register
class PositiveUnitball(InitializerSpec):
    """Caffe's filler of positive weights that sum to 1 for each output: uniform numbers, divided by their sum."""

    type: Literal["PositiveUnitball"] = "PositiveUnitball"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Uniform numbers over their sum for each output: dense kernels are (in, out), others (out, in, window…)."""
        made = random.random(shape)
        axes = tuple(range(1, len(shape))) if len(shape) > 2 else tuple(range(len(shape)))[:1]
        return made / made.sum(axis=axes, keepdims=True)
