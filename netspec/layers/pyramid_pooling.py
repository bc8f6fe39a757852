"""SpatialPyramidPooling: as many numbers from an image of any size."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Concat
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.layers.pooling import AveragePool, MaxPool
from netspec.layers.sizes import need_image
from netspec.layers.window import Window
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem


def _levels(value: Any) -> Any:
    bins = value if isinstance(value, (list, tuple)) else [value]
    if not bins or any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in bins):
        expected = "the number of levels, or a list with the bins of each along an axis, such as [1, 2, 4]"
        raise problem("not the levels of a pyramid", expected=expected, got=describe(value))
    return value if isinstance(value, int) else tuple(value)


Levels = Annotated[int | tuple[int, ...], BeforeValidator(_levels, json_schema_input_type=int | list[int])]
"""How many levels, of 1, 2, 4, 8 … bins along each axis; or the bins of each."""


@LAYERS.register
class SpatialPyramidPooling(LayerSpec):
    """Pool an image over grids of 1, 2 by 2, 4 by 4 … bins, and put the results behind one another.

    Input (N, C, H, W), output (N, C · Σ bins²), whatever the size of the image. A bin is ⌈H / bins⌉ high; what is then
    missing is padded, as Caffe's SPP does, and in an average counts as zeros. He et al. 2014, arXiv:1406.4729.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "pyramid_height": "`pyramid_height` is Caffe's name: here it is `levels`",
        "spp_param": "not needed: what Caffe has inside it stands here beside `type`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Concatenate", "Flatten")

    type: Literal["SpatialPyramidPooling"] = "SpatialPyramidPooling"
    levels: Levels
    """how many levels there are, of 1, 2, 4 … bins along each axis; or a list with the bins of each"""
    pool: Literal["max", "average"] = "max"
    """what is made of the numbers in a bin"""

    samples: ClassVar = (
        Sample.of((2, 2, 4, 5), levels=2),
        Sample.of((1, 2, 5, 4), levels=[3, 1], pool="average"),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C · Σ bins²)."""
        need_image(x)
        image = net.floating(x)
        bins = [2**level for level in range(self.levels)] if isinstance(self.levels, int) else self.levels
        parts = [self._level(image, count) for count in bins]
        return parts[0] if len(parts) == 1 else Concat(1)(*parts)

    def _level(self, x: Value, bins: int) -> Value:
        size = tuple(-(-length // bins) for length in x.shape[2:])
        missing = [one * bins - length for one, length in zip(size, x.shape[2:], strict=True)]
        pads = tuple(((less + 1) // 2, less // 2) for less in missing)
        need(
            all(begin < one for (begin, _), one in zip(pads, size, strict=True)),
            f"the image is too small for {bins} bins along each axis: some would hold nothing but padding",
            expected="fewer bins, or a larger image",
            got=x.type,
        )
        window = Window(size, size, pads, (1, 1))
        if self.pool == "max":
            y = MaxPool(window).many(x)[0]
        else:
            y = AveragePool(window, pads if any(map(any, pads)) else ())(x)
        return reshape_to(y, (x.shape[0], prod(y.shape[1:])))
