"""The layer CenterCrop: the middle of an image."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from netspec.graph.ops.shape import Slice
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.layers.sizes import need_spatial
from netspec.schema.kinds import LAYERS


@LAYERS.register
class CenterCrop(LayerSpec):
    """Keep the middle of an image. Of an odd rest one more row is cut off below, one more column on the right.

    Input (N, C, H, W), output (N, C, height, width). Where the input is smaller Keras enlarges it: here that is the
    layer Resizing.
    """

    alike: ClassVar[tuple[str, ...]] = ("Cropping2D",)

    type: Literal["CenterCrop"] = "CenterCrop"
    height: PositiveInt
    """how many rows are kept"""
    width: PositiveInt
    """how many columns are kept"""

    samples: ClassVar = (
        Sample.of((2, 2, 5, 4), height=2, width=3),
        Sample.of((1, 3, 3, 4), height=3, width=2),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C, height, width)."""
        need_spatial(x, 2)
        sizes = (self.height, self.width)
        need(
            all(kept <= size for kept, size in zip(sizes, x.shape[2:], strict=True)),
            "the input is smaller than what is to be kept",
            expected=f"{self.height} rows and {self.width} columns, or more", got=x.type,
        )  # fmt: skip
        for axis, kept in enumerate(sizes, 2):
            start = (x.shape[axis] - kept) // 2
            if kept < x.shape[axis]:
                x = Slice(axis, start, start + kept)(x)
        return x
