"""Initializers whose variance is a factor over the number of inputs or outputs; GlorotUniform is in `initializers`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.layers.initializers import InitializerSpec, VarianceScalingBase, scaled
from netspec.schema.kinds import INITIALIZERS


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
        "variance_norm": "`variance_norm` is Caffe's name: here it is `mode`, fan_in, fan_out or fan_avg (AVERAGE)",
    }

    type: Literal["VarianceScaling"] = "VarianceScaling"
    scale: float = Field(default=1.0, gt=0)
    """factor of the variance"""
    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in"
    """what the variance is divided by"""
    distribution: Literal["truncated_normal", "untruncated_normal", "uniform"] = "truncated_normal"
    """shape of the distribution"""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Numbers of variance scale / fan."""
        return scaled(random, shape, self.scale, self.mode, self.distribution)
