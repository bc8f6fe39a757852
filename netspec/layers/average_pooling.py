"""AveragePooling, 1D to 3D."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.pooling import AlongSequences, AveragePool, OverImages, Pooling, ThroughVolumes
from netspec.layers.window import Explicit, Window
from netspec.schema.kinds import LAYERS


class AveragePooling(Pooling):
    """Base of AveragePooling1D to 3D."""

    count_include_pad: bool = False
    """true: padding counts as zeros, though not where `ceil_mode` lets a window reach beyond it, as in PyTorch and
    Caffe; false: the mean is over the input alone"""

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        window = self.window(x)
        counted: Explicit = ()
        if self.count_include_pad:
            counted = Window.of(x.shape[2:], window.size, window.strides, self.padding, window.dilation).pads
        return AveragePool(window, counted if any(map(any, counted)) else ())(net.floating(x))


@LAYERS.register
class AveragePooling1D(AlongSequences, AveragePooling):
    """The mean of the numbers under a window that slides along a sequence, in each channel; padding is not counted.

    Input (N, C, L), output (N, C, OL) with OL = ⌊(L + padding - pool) / stride⌋ + 1.
    """

    type: Literal["AveragePooling1D"] = "AveragePooling1D"

    samples: ClassVar = (
        *AlongSequences.samples,
        Sample.of((2, 2, 6), pool_size=3, strides=2, padding=1, ceil_mode=True, count_include_pad=True),
    )


@LAYERS.register
class AveragePooling2D(OverImages, AveragePooling):
    """The mean of the numbers under a sliding window, in each channel; padding is not counted.

    Input (N, C, H, W), output (N, C, OH, OW) with OH = ⌊(H + padding - pool) / stride⌋ + 1.
    """

    type: Literal["AveragePooling2D"] = "AveragePooling2D"

    samples: ClassVar = (
        *OverImages.samples,
        Sample.of((2, 2, 5, 4), pool_size=3, strides=1, padding=[[1, 1], [1, 0]], count_include_pad=True),
    )


@LAYERS.register
class AveragePooling3D(ThroughVolumes, AveragePooling):
    """The mean of the numbers under a window that slides through a volume, in each channel; padding is not counted.

    Input (N, C, D, H, W), output (N, C, OD, OH, OW) with OD = ⌊(D + padding - pool) / stride⌋ + 1.
    """

    type: Literal["AveragePooling3D"] = "AveragePooling3D"

    samples: ClassVar = (
        *ThroughVolumes.samples,
        Sample.of((1, 1, 3, 4, 4), padding=[1, 0, 1], ceil_mode=True, count_include_pad=True),
    )
