"""Initializers that draw from a distribution with given parameters."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.layers.initializers.base import InitializerSpec, PositiveInt, outputs
from netspec.layers.initializers.variance_scaling import truncated_normal
from netspec.schema.specs.kinds import INITIALIZERS


@INITIALIZERS.register
class RandomNormal(InitializerSpec):
    """Normal distribution."""

    type: Literal["RandomNormal"] = "RandomNormal"
    mean: float = 0.0
    """Mean of the distribution."""
    stddev: float = Field(default=0.05, ge=0)
    """Standard deviation of the distribution."""
    sparse: PositiveInt | None = None
    """Mean number of outputs to which an input has nonzero weights, as in Caffe's sparse Gaussian. Default: all."""

    samples: ClassVar = ({}, {"mean": 1.0, "sparse": 2})

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Normal numbers; with `sparse`, each is kept with probability sparse / outputs."""
        weights = random.normal(self.mean, self.stddev, shape)
        return weights if self.sparse is None else weights * (random.random(shape) * outputs(shape) < self.sparse)


@INITIALIZERS.register
class RandomUniform(InitializerSpec):
    """Uniform distribution between two limits."""

    type: Literal["RandomUniform"] = "RandomUniform"
    minval: float = -0.05
    """Lower limit."""
    maxval: float = 0.05
    """Upper limit."""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        return random.uniform(self.minval, self.maxval, shape)


@INITIALIZERS.register
class TruncatedNormal(InitializerSpec):
    """Normal distribution without values more than two standard deviations from the mean."""

    type: Literal["TruncatedNormal"] = "TruncatedNormal"
    mean: float = 0.0
    """Mean of the distribution."""
    stddev: float = Field(default=0.05, ge=0)
    """Standard deviation before the cut."""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        return self.mean + self.stddev * truncated_normal(random, shape)
