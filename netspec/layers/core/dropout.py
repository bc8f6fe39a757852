"""Dropout and its variants: random zeros, and noise, in training."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import dropout as ops
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.spatial import require_spatial
from netspec.schema.specs.kinds import LAYERS

SELU_LEAST = -1.0507009873554805 * 1.6732632423543772
"""Limit of the activation `selu` for very negative elements. Klambauer et al. 2017, arXiv:1706.02515"""


def apply_dropout(builder: Builder, x: Value, rate: float, shape: tuple[int, ...] | None = None) -> Value:
    """Set a fraction `rate` of the elements of `x` to 0 and scale the others up in training; else return `x`.

    Elements are dropped independently, or together along axes of size 1 in `shape`, which broadcasts to the shape of
    `x`.
    """
    if not builder.training or not rate:
        return x
    mask_shape = shape or x.shape
    uniform, counter = builder.uniform_op(mask_shape)
    return ops.Dropout(rate, uniform, mask_shape)(x, counter)


class NoiseLayer(LayerSpec):
    """Base of layers that change their input at random in training, and return it unchanged in inference."""

    passes_mask: ClassVar = True
    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "seed": "not needed: the noise follows from the run's seed, the step and the layer's name",
        "data_format": "not needed: data is channels-first",
    }

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        x = builder.floating(x)
        mask_shape = self.mask_shape(x)  # in inference too, so that errors are reported
        return self.apply_noise(builder, x, mask_shape) if builder.training and self.strength() else x

    def strength(self) -> float:
        """Strength of the change; 0 changes nothing."""
        raise NotImplementedError  # subclasses implement it

    def mask_shape(self, x: Value) -> tuple[int, ...]:
        """Shape of the random numbers, which broadcasts to that of `x`."""
        return x.shape

    def apply_noise(self, builder: Builder, x: Value, mask_shape: tuple[int, ...]) -> Value:
        """The layer's output for `x` in training."""
        raise NotImplementedError  # subclasses implement it


class DropoutBase(NoiseLayer):
    """Base of layers that drop a share of their input."""

    rate: float = Field(ge=0, lt=1)
    """Share of the elements that are dropped."""

    def strength(self) -> float:
        return self.rate

    def apply_noise(self, builder: Builder, x: Value, mask_shape: tuple[int, ...]) -> Value:
        """Set elements to 0 and scale the others."""
        return apply_dropout(builder, x, self.rate, mask_shape)


class ShapedDropout(DropoutBase):
    """Field of layers that can drop elements together."""

    noise_shape: tuple[PositiveInt | None, ...] | None = Field(default=None, strict=False)
    """Sizes of the random draws, batch first: 1 for axes whose elements are dropped together, null for the input's
    size. Default: each element is dropped independently."""

    def mask_shape(self, x: Value) -> tuple[int, ...]:
        """The shape that `noise_shape` describes."""
        noise_shape = self.noise_shape or (None,) * len(x.shape)
        fits = len(noise_shape) == len(x.shape) and all(
            size is None or (axis > 0 and size in (1, have))
            for axis, (size, have) in enumerate(zip(noise_shape, x.shape, strict=False))
        )
        require(
            fits, "`noise_shape` does not fit the input",
            expected=f"{len(x.shape)} sizes, each null or 1; the first is null, since each sample has its own mask",
            got=["null" if size is None else size for size in noise_shape],
        )  # fmt: skip
        return tuple(have if size is None else size for size, have in zip(noise_shape, x.shape, strict=True))


@LAYERS.register
class Dropout(ShapedDropout):
    """Sets each element to 0 with probability `rate` in training, and scales the others by 1 / (1 - rate).

    Input (N, …), output the same; nothing changes in inference. The zeros depend only on the run's seed, the step, the
    layer's name and the element's index in the global batch. Srivastava et al. 2014, JMLR 15.
    """

    type: Literal["Dropout"] = "Dropout"

    samples: ClassVar = (
        Sample.of((4, 3, 5), rate=0.5),
        Sample.of((4, 6), rate=0.2),
        Sample.of((2, 3), rate=0.0),
        Sample.of((3, 2, 4), rate=0.5, noise_shape=[None, 1, 4]),
    )


class SpatialDropout(DropoutBase):
    """Base of SpatialDropout1D to 3D."""

    rank: ClassVar[int]

    def mask_shape(self, x: Value) -> tuple[int, ...]:
        """One draw per channel of each sample."""
        require_spatial(x, self.rank)
        return (*x.shape[:2], *(1,) * self.rank)


@LAYERS.register
class SpatialDropout1D(SpatialDropout):
    """Dropout of complete channels of a sequence.

    Input (N, C, L), output the same; in inference nothing changes. Tompson et al. 2015, arXiv:1411.4280.
    """

    rank: ClassVar[int] = 1

    type: Literal["SpatialDropout1D"] = "SpatialDropout1D"

    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5),)


@LAYERS.register
class SpatialDropout2D(SpatialDropout):
    """Dropout of complete channels of an image, since adjacent pixels are correlated.

    Input (N, C, H, W), output the same; nothing changes in inference. Tompson et al. 2015, arXiv:1411.4280.
    """

    rank: ClassVar[int] = 2

    type: Literal["SpatialDropout2D"] = "SpatialDropout2D"

    samples: ClassVar = (Sample.of((4, 3, 2, 3), rate=0.3),)


@LAYERS.register
class SpatialDropout3D(SpatialDropout):
    """Dropout of complete channels of a volume.

    Input (N, C, D, H, W), output the same; in inference nothing changes. Tompson et al. 2015, arXiv:1411.4280.
    """

    rank: ClassVar[int] = 3

    type: Literal["SpatialDropout3D"] = "SpatialDropout3D"

    samples: ClassVar = (Sample.of((4, 3, 2, 2, 2), rate=0.3),)


@LAYERS.register
class AlphaDropout(ShapedDropout):
    """Dropout that keeps mean 0 and variance 1, for nets with the activation `selu`.

    Input (N, …), output the same; nothing changes in inference. In training an element becomes α' = -1.7581, the limit
    of selu, with probability `rate`; then all are scaled by ((1 - rate) · (1 + rate · α'²))^-½ and shifted, so that
    mean and variance stay. Klambauer et al. 2017, arXiv:1706.02515.
    """

    type: Literal["AlphaDropout"] = "AlphaDropout"

    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5), Sample.of((4, 6), rate=0.2, noise_shape=[None, 1]))

    def apply_noise(self, builder: Builder, x: Value, mask_shape: tuple[int, ...]) -> Value:
        """a · (x or α') + b."""
        scale = 1 / sqrt((1 - self.rate) * (1 + self.rate * SELU_LEAST**2))
        return (
            ops.keep_where(builder.uniform(mask_shape), x, SELU_LEAST, self.rate) * scale
            - scale * SELU_LEAST * self.rate
        )


@LAYERS.register
class GaussianDropout(DropoutBase):
    """Multiplies each element by normal noise of mean 1 and variance rate / (1 - rate) in training.

    Input (N, …), output the same; nothing changes in inference. The factors have the mean and variance of Dropout's.
    Srivastava et al. 2014, JMLR 15, section 10.
    """

    type: Literal["GaussianDropout"] = "GaussianDropout"

    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5), Sample.of((2, 3), rate=0.0))

    def apply_noise(self, builder: Builder, x: Value, mask_shape: tuple[int, ...]) -> Value:
        """x · (1 + deviation · normal)."""
        return x * (builder.normal(mask_shape) * sqrt(self.rate / (1 - self.rate)) + 1.0)


@LAYERS.register
class GaussianNoise(NoiseLayer):
    """Adds a normal random number of mean 0 to each element in training.

    Input (N, …), output the same; nothing changes in inference. The noise depends only on the run's seed, the step, the
    layer's name and the element's index in the global batch.
    """

    type: Literal["GaussianNoise"] = "GaussianNoise"
    stddev: float = Field(ge=0)
    """Standard deviation of the noise."""

    samples: ClassVar[Any] = (Sample.of((4, 3, 5), stddev=0.5), Sample.of((2, 3), stddev=0.0))

    def strength(self) -> float:
        return self.stddev

    def apply_noise(self, builder: Builder, x: Value, mask_shape: tuple[int, ...]) -> Value:
        """x + deviation · normal."""
        return x + builder.normal(mask_shape) * self.stddev
