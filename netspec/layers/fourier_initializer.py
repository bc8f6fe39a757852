"""The initializer STFT: kernels that make a Conv1D a short-time Fourier transform."""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.layers.initializers import InitializerSpec
from netspec.schema.kinds import INITIALIZERS

COSINES = {"boxcar": (1.0,), "hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08)}
"""Windows as sums of (-1)ᵏ · aₖ · cos(2πkt / length), the usual ones of signal processing."""


@INITIALIZERS.register
class STFT(InitializerSpec):
    """One part of the discrete Fourier transform of what a window sees: w(t) · cos(2πft / F), or -w(t) · sin(2πft / F).

    For a Conv1D over one channel: its kernel (filters, 1, steps) has a filter for each frequency f = 0, 1, … F / 2. Its
    `strides` are the hop; one Conv1D gives the real part and one the imaginary part of each frequency.
    """

    type: Literal["STFT"] = "STFT"
    side: Literal["real", "imag"] = "real"
    """which part of the complex numbers"""
    window: Literal["boxcar", "hann", "hamming", "blackman"] | None = "hann"
    """what a frame is multiplied by; null: nothing"""
    scaling: Literal["density", "spectrum"] | None = Field(default="density")
    """what the window is divided by: the root of the sum of its squares, the sum of its values, or nothing (null)"""
    periodic: bool = False
    """whether the window goes on with its first value behind the last, not with its last"""

    samples: ClassVar = ({}, {"side": "imag", "window": "hamming", "scaling": "spectrum", "periodic": True})

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """The kernel of a Conv1D over one channel, with two frequencies or more."""
        fits = len(shape) == 3 and shape[1] == 1 and shape[0] > 1
        return None if fits else "`STFT` is for the kernel of a Conv1D of 2 filters or more over one channel"

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
        made = np.zeros(steps)
        for order, factor in enumerate(COSINES[self.window or "boxcar"]):
            made += (-1) ** order * factor * np.cos(order * turn)
        return made if steps > 1 else np.ones(1)
