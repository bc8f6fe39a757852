"""Initializers whose variance is inversely proportional to the number of inputs or outputs."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.layers.initializers.base import InitializerSpec, fans
from netspec.schema.specs.kinds import INITIALIZERS

TRUNCATED_STDDEV = 0.87962566103423978
"""Standard deviation of a normal distribution cut at two standard deviations."""


def truncated_normal(random: Any, shape: tuple[int, ...]) -> Any:
    """Standard normal numbers within ±2; values outside are drawn again."""
    values = random.standard_normal(shape)
    outside = abs(values) > 2
    while outside.any():
        values[outside] = random.standard_normal(int(outside.sum()))
        outside = abs(values) > 2
    return values


class VarianceScalingBase(InitializerSpec):
    """Base of initializers whose variance is a factor over the number of inputs, of outputs, or their mean."""

    factor: ClassVar[float] = 1.0
    fan: ClassVar[str] = "fan_in"
    normal: ClassVar[bool] = False

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Numbers of variance factor / fan."""
        return draw_scaled(random, shape, self.factor, self.fan, "truncated_normal" if self.normal else "uniform")


def draw_scaled(random: Any, shape: tuple[int, ...], factor: float, fan: str, distribution: str) -> Any:
    """Numbers of variance factor / fan, where the fan is `fan_in`, `fan_out` or `fan_avg`."""
    fan_in, fan_out = fans(shape)
    count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[fan]
    variance = factor / max(1.0, count)
    if distribution == "uniform":
        limit = sqrt(3 * variance)
        return random.uniform(-limit, limit, shape)
    if distribution == "untruncated_normal":
        return random.normal(0.0, sqrt(variance), shape)
    return truncated_normal(random, shape) * (sqrt(variance) / TRUNCATED_STDDEV)


@INITIALIZERS.register
class GlorotUniform(VarianceScalingBase):
    """Uniform within ±√(6 / (fan_in + fan_out)). Glorot and Bengio 2010. Caffe's `xavier` is close to it."""

    type: Literal["GlorotUniform"] = "GlorotUniform"
    fan: ClassVar[str] = "fan_avg"


@INITIALIZERS.register
class GlorotNormal(VarianceScalingBase):
    """Truncated normal of variance 2 / (fan_in + fan_out). Glorot and Bengio 2010."""

    type: Literal["GlorotNormal"] = "GlorotNormal"
    fan: ClassVar[str] = "fan_avg"
    normal: ClassVar[bool] = True


@INITIALIZERS.register
class HeUniform(VarianceScalingBase):
    """Uniform within ±√(6 / fan_in). He et al. 2015, arXiv:1502.01852."""

    type: Literal["HeUniform"] = "HeUniform"
    factor: ClassVar[float] = 2.0


@INITIALIZERS.register
class HeNormal(VarianceScalingBase):
    """Truncated normal of variance 2 / fan_in. He et al. 2015, arXiv:1502.01852."""

    type: Literal["HeNormal"] = "HeNormal"
    factor: ClassVar[float] = 2.0
    normal: ClassVar[bool] = True


@INITIALIZERS.register
class LecunUniform(VarianceScalingBase):
    """Uniform within ±√(3 / fan_in). LeCun et al. 1998, "Efficient BackProp"."""

    type: Literal["LecunUniform"] = "LecunUniform"


@INITIALIZERS.register
class LecunNormal(VarianceScalingBase):
    """Truncated normal of variance 1 / fan_in. LeCun et al. 1998, "Efficient BackProp"."""

    type: Literal["LecunNormal"] = "LecunNormal"
    normal: ClassVar[bool] = True


@INITIALIZERS.register
class VarianceScaling(InitializerSpec):
    """Variance scale / fan, with the fan and the distribution chosen.

    Caffe's `xavier` is `distribution: uniform`, its `msra` is `scale: 2, distribution: untruncated_normal`.
    """

    foreign_fields: ClassVar[dict[str, str]] = InitializerSpec.foreign_fields | {
        "variance_norm": "`variance_norm` is Caffe's name: use `mode`, fan_in, fan_out or fan_avg (AVERAGE)",
    }

    type: Literal["VarianceScaling"] = "VarianceScaling"
    scale: float = Field(default=1.0, gt=0)
    """Factor of the variance."""
    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in"
    """Divisor of the variance."""
    distribution: Literal["truncated_normal", "untruncated_normal", "uniform"] = "truncated_normal"
    """Shape of the distribution."""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Numbers of variance scale / fan."""
        return draw_scaled(random, shape, self.scale, self.mode, self.distribution)
