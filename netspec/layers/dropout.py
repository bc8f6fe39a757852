"""Dropout and its kin: random zeros, and noise, in training."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import dropout as ops
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.sizes import need_spatial
from netspec.schema.kinds import LAYERS

SELU_LEAST = -1.0507009873554805 * 1.6732632423543772
"""What the activation `selu` makes of very negative numbers. Klambauer et al. 2017, arXiv:1706.02515"""


def dropped(net: Builder, x: Value, rate: float, shape: tuple[int, ...] | None = None) -> Value:
    """In training `x` with a share `rate` of its numbers set to 0 and the others scaled up; else `x` itself.

    Numbers are dropped one by one, or together where `shape`, which broadcasts to that of `x`, has size 1.
    """
    if not net.training or not rate:
        return x
    places = shape or x.shape
    uniform, counter = net.draws(places)
    return ops.Dropout(rate, uniform, places)(x, counter)


class Noisy(LayerSpec):
    """Base of layers that change their input at random in training, and leave it alone in inference."""

    passes_mask: ClassVar = True
    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "seed": "not needed: the numbers follow from the run's seed, the step and the layer's name",
        "data_format": "not needed: data is channels-first",
    }

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        x = net.floating(x)
        places = self.places(x)  # in inference too, so that what does not fit is told
        return self.changed(net, x, places) if net.training and self.strength() else x

    def strength(self) -> float:
        """How much is changed: with 0, nothing."""
        raise NotImplementedError  # abstract: subclasses say

    def places(self, x: Value) -> tuple[int, ...]:
        """The shape of the random numbers, which broadcasts to that of `x`."""
        return x.shape

    def changed(self, net: Builder, x: Value, places: tuple[int, ...]) -> Value:
        """What the layer makes of `x` in training."""
        raise NotImplementedError  # abstract: subclasses say


class Dropping(Noisy):
    """Base of layers that drop a share of their input."""

    rate: float = Field(ge=0, lt=1)
    """share of the numbers that are dropped"""

    def strength(self) -> float:
        """The share."""
        return self.rate

    def changed(self, net: Builder, x: Value, places: tuple[int, ...]) -> Value:
        """Zeros among numbers that are scaled up."""
        return dropped(net, x, self.rate, places)


class Shaped(Dropping):
    """The field of layers that may be told which numbers are dropped together."""

    noise_shape: tuple[PositiveInt | None, ...] | None = Field(default=None, strict=False)
    """sizes of the draws, batch first: 1 along axes whose numbers are dropped together, null for as many as the input
    has. Default: each number on its own"""

    def places(self, x: Value) -> tuple[int, ...]:
        """As `noise_shape` says."""
        given = self.noise_shape or (None,) * len(x.shape)
        fits = len(given) == len(x.shape) and all(
            size is None or (axis > 0 and size in (1, have))
            for axis, (size, have) in enumerate(zip(given, x.shape, strict=False))
        )
        need(
            fits, "`noise_shape` does not fit the input",
            expected=f"{len(x.shape)} sizes, each null or 1, the first null: the samples of a batch are drawn apart",
            got=["null" if size is None else size for size in given],
        )  # fmt: skip
        return tuple(have if size is None else size for size, have in zip(given, x.shape, strict=True))


@LAYERS.register
class Dropout(Shaped):
    """In training, set each number to 0 with probability `rate`, and scale the others by 1 / (1 - rate).

    Input (N, …), output the same; in inference nothing changes. The zeros depend on the run's seed, the step, the
    layer's name and the place of the number in the global batch, and on nothing else. Srivastava et al. 2014, JMLR 15.
    """

    type: Literal["Dropout"] = "Dropout"

    samples: ClassVar = (
        Sample.of((4, 3, 5), rate=0.5),
        Sample.of((4, 6), rate=0.2),
        Sample.of((2, 3), rate=0.0),
        Sample.of((3, 2, 4), rate=0.5, noise_shape=[None, 1, 4]),
    )


class SpatialDropout(Dropping):
    """Base of SpatialDropout1D to 3D."""

    rank: ClassVar[int]

    def places(self, x: Value) -> tuple[int, ...]:
        """One draw for each channel of each sample."""
        need_spatial(x, self.rank)
        return (*x.shape[:2], *(1,) * self.rank)


@LAYERS.register
class SpatialDropout1D(SpatialDropout):
    """As Dropout, but whole channels of a sequence at once.

    Input (N, C, L), output the same; in inference nothing changes. Tompson et al. 2015, arXiv:1411.4280.
    """

    rank: ClassVar[int] = 1

    type: Literal["SpatialDropout1D"] = "SpatialDropout1D"

    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5),)


@LAYERS.register
class SpatialDropout2D(SpatialDropout):
    """As Dropout, but whole channels of an image at once: neighbouring places tell much the same.

    Input (N, C, H, W), output the same; in inference nothing changes. Tompson et al. 2015, arXiv:1411.4280.
    """

    rank: ClassVar[int] = 2

    type: Literal["SpatialDropout2D"] = "SpatialDropout2D"

    samples: ClassVar = (Sample.of((4, 3, 2, 3), rate=0.3),)


@LAYERS.register
class SpatialDropout3D(SpatialDropout):
    """As Dropout, but whole channels of a volume at once.

    Input (N, C, D, H, W), output the same; in inference nothing changes. Tompson et al. 2015, arXiv:1411.4280.
    """

    rank: ClassVar[int] = 3

    type: Literal["SpatialDropout3D"] = "SpatialDropout3D"

    samples: ClassVar = (Sample.of((4, 3, 2, 2, 2), rate=0.3),)


@LAYERS.register
class AlphaDropout(Shaped):
    """Dropout that keeps mean 0 and variance 1, for nets with the activation `selu`.

    Input (N, …), output the same; in inference nothing changes. In training a number becomes α' = -1.7581, selu's least
    value, with probability `rate`; then all are scaled by ((1 - rate) · (1 + rate · α'²))^-½ and shifted, so that mean
    and variance stay. Klambauer et al. 2017, arXiv:1706.02515.
    """

    type: Literal["AlphaDropout"] = "AlphaDropout"

    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5), Sample.of((4, 6), rate=0.2, noise_shape=[None, 1]))

    def changed(self, net: Builder, x: Value, places: tuple[int, ...]) -> Value:
        """a · (x or α') + b."""
        scale = 1 / sqrt((1 - self.rate) * (1 + self.rate * SELU_LEAST**2))
        return ops.kept(net.uniform(places), x, SELU_LEAST, self.rate) * scale - scale * SELU_LEAST * self.rate


@LAYERS.register
class GaussianDropout(Dropping):
    """In training, multiply each number by a normal one of mean 1 and deviation √(rate / (1 - rate)).

    Input (N, …), output the same; in inference nothing changes. The factors have the mean and variance of Dropout's.
    Srivastava et al. 2014, JMLR 15, section 10.
    """

    type: Literal["GaussianDropout"] = "GaussianDropout"

    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5), Sample.of((2, 3), rate=0.0))

    def changed(self, net: Builder, x: Value, places: tuple[int, ...]) -> Value:
        """x · (1 + deviation · normal)."""
        return x * (net.normal(places) * sqrt(self.rate / (1 - self.rate)) + 1.0)


@LAYERS.register
class GaussianNoise(Noisy):
    """In training, add a normal number of mean 0 to each.

    Input (N, …), output the same; in inference nothing changes. The numbers depend on the run's seed, the step, the
    layer's name and the place in the global batch, and on nothing else.
    """

    type: Literal["GaussianNoise"] = "GaussianNoise"
    stddev: float = Field(ge=0)
    """standard deviation of what is added"""

    samples: ClassVar[Any] = (Sample.of((4, 3, 5), stddev=0.5), Sample.of((2, 3), stddev=0.0))

    def strength(self) -> float:
        """The deviation."""
        return self.stddev

    def changed(self, net: Builder, x: Value, places: tuple[int, ...]) -> Value:
        """x + deviation · normal."""
        return x + net.normal(places) * self.stddev
