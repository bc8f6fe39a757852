"""MaxPooling, 1D to 3D."""

from __future__ import annotations

from typing import Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder
from netspec.layers.pooling import AlongSequences, MaxPool, OverImages, Pooling, ThroughVolumes
from netspec.schema.kinds import LAYERS


class MaxPooling(Pooling):
    """Base of MaxPooling1D to 3D."""

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        return MaxPool(self.window(x)).many(net.floating(x))[0]


@LAYERS.register
class MaxPooling1D(AlongSequences, MaxPooling):
    """The greatest number under a window that slides along a sequence, in each channel.

    Input (N, C, L), output (N, C, OL) with OL = ⌊(L + padding - pool) / stride⌋ + 1. Of equal maxima the first gets the
    gradient.
    """

    type: Literal["MaxPooling1D"] = "MaxPooling1D"


@LAYERS.register
class MaxPooling2D(OverImages, MaxPooling):
    """The greatest number under a sliding window, in each channel.

    Input (N, C, H, W), output (N, C, OH, OW) with OH = ⌊(H + padding - pool) / stride⌋ + 1. Of equal maxima the first
    in reading order gets the gradient.
    """

    type: Literal["MaxPooling2D"] = "MaxPooling2D"


@LAYERS.register
class MaxPooling3D(ThroughVolumes, MaxPooling):
    """The greatest number under a window that slides through a volume, in each channel.

    Input (N, C, D, H, W), output (N, C, OD, OH, OW) with OD = ⌊(D + padding - pool) / stride⌋ + 1. Of equal maxima the
    first in reading order gets the gradient.
    """

    type: Literal["MaxPooling3D"] = "MaxPooling3D"
