"""Pooling over all elements of a channel: GlobalAveragePooling and GlobalMaxPooling, 1D to 3D."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.reduce import ReduceMax, ReduceMean, Reduction
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.spatial import require_spatial
from netspec.schema.specs.kinds import LAYERS


class GlobalPooling(LayerSpec):
    """Base of layers that reduce each channel to one element, for data with `rank` spatial axes."""

    rank: ClassVar[int]
    reduction: ClassVar[type[Reduction]]

    keepdims: bool = False
    """Keep the spatial axes, with size 1."""

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C), or (N, C, 1…)."""
        require_spatial(x, self.rank)
        return self.reduction(tuple(range(2, self.rank + 2)), self.keepdims)(builder.floating(x))


@LAYERS.register
class GlobalAveragePooling1D(GlobalPooling):
    """The mean of each channel over the whole sequence.

    Input (N, C, L), output (N, C), or (N, C, 1) with `keepdims`.
    """

    rank: ClassVar[int] = 1
    reduction: ClassVar = ReduceMean

    type: Literal["GlobalAveragePooling1D"] = "GlobalAveragePooling1D"

    samples: ClassVar = (Sample.of((2, 3, 5)), Sample.of((2, 3, 5), keepdims=True))


@LAYERS.register
class GlobalAveragePooling2D(GlobalPooling):
    """The mean of each channel over the whole image.

    Input (N, C, H, W), output (N, C), or (N, C, 1, 1) with `keepdims`.
    """

    rank: ClassVar[int] = 2
    reduction: ClassVar = ReduceMean

    type: Literal["GlobalAveragePooling2D"] = "GlobalAveragePooling2D"

    samples: ClassVar = (Sample.of((2, 3, 4, 5)), Sample.of((2, 3, 4, 5), keepdims=True))


@LAYERS.register
class GlobalAveragePooling3D(GlobalPooling):
    """The mean of each channel over the whole volume.

    Input (N, C, D, H, W), output (N, C), or (N, C, 1, 1, 1) with `keepdims`.
    """

    rank: ClassVar[int] = 3
    reduction: ClassVar = ReduceMean

    type: Literal["GlobalAveragePooling3D"] = "GlobalAveragePooling3D"

    samples: ClassVar = (Sample.of((2, 2, 3, 4, 2)), Sample.of((2, 2, 3, 4, 2), keepdims=True))


@LAYERS.register
class GlobalMaxPooling1D(GlobalPooling):
    """Maximum of each channel over the whole sequence.

    Input (N, C, L), output (N, C), or (N, C, 1) with `keepdims`. Equal maxima share the gradient.
    """

    rank: ClassVar[int] = 1
    reduction: ClassVar = ReduceMax

    type: Literal["GlobalMaxPooling1D"] = "GlobalMaxPooling1D"

    samples: ClassVar = (Sample.of((2, 3, 5)), Sample.of((2, 3, 5), keepdims=True))


@LAYERS.register
class GlobalMaxPooling2D(GlobalPooling):
    """Maximum of each channel over the whole image.

    Input (N, C, H, W), output (N, C), or (N, C, 1, 1) with `keepdims`. Equal maxima share the gradient.
    """

    rank: ClassVar[int] = 2
    reduction: ClassVar = ReduceMax

    type: Literal["GlobalMaxPooling2D"] = "GlobalMaxPooling2D"

    samples: ClassVar = (Sample.of((2, 3, 4, 5)), Sample.of((2, 3, 4, 5), keepdims=True))


@LAYERS.register
class GlobalMaxPooling3D(GlobalPooling):
    """Maximum of each channel over the whole volume.

    Input (N, C, D, H, W), output (N, C), or (N, C, 1, 1, 1) with `keepdims`. Equal maxima share the gradient.
    """

    rank: ClassVar[int] = 3
    reduction: ClassVar = ReduceMax

    type: Literal["GlobalMaxPooling3D"] = "GlobalMaxPooling3D"

    samples: ClassVar = (Sample.of((2, 2, 3, 4, 2)), Sample.of((2, 2, 3, 4, 2), keepdims=True))
