"""Initializers: the first values of parameters. Keras's names, defaults and meaning.

Values are drawn on the host, keyed by (seed, parameter name): they do not depend on the order of layers, on the
precision, or on what else the net holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import Annotated, Any, ClassVar, Literal
from zlib import crc32

from pydantic import Field

from netspec.schema.kinds import INITIALIZERS
from netspec.schema.spec import Member, Spec

TRUNCATED_STDDEV = 0.87962566103423978
"""Standard deviation of a normal distribution cut at two standard deviations."""


def generator(seed: int, name: str) -> Any:
    """NumPy's Philox generator for the parameter `name`."""
    import numpy as np

    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), crc32(name.encode())]))


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Number of inputs and outputs that a weight connects: dense kernels are (in, out), others (out, in, window…)."""
    if len(shape) < 2:
        return (shape[0] if shape else 1,) * 2
    if len(shape) == 2:
        return shape
    window = prod(shape[2:])
    return shape[1] * window, shape[0] * window


def outputs(shape: tuple[int, ...]) -> int:
    """Number of outputs that a weight leads to: dense kernels are (in, out), others (out, in, window…)."""
    return shape[1] if len(shape) == 2 else shape[0] if shape else 1


PositiveInt = Annotated[int, Field(gt=0)]


class InitializerSpec(Spec):
    """Base of initializers."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "seed": "not needed: values follow from the run's seed and the parameter's name",
        "std": "here it is `stddev`",
        "min": "here it is `minval`",
        "max": "here it is `maxval`",
        **dict.fromkeys(("input_axes", "output_axes"), "not needed: layers say which axes of a kernel are inputs"),
    }

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array of first values, the same for the same (seed, name, shape)."""
        return self.draw(generator(seed, name), shape).astype(dtype)

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The values in float64, from a NumPy generator."""
        raise NotImplementedError  # abstract: subclasses say

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """Why there are no values of this shape, where there are none."""
        return None


Initializer = Annotated[InitializerSpec, Member(INITIALIZERS)]


@dataclass(frozen=True)
class OfMatrix:
    """First values of a kernel of several axes: those of the matrix (inputs, outputs) that it stands for."""

    initial: InitializerSpec
    matrix: tuple[int, int]

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of the kernel's shape."""
        return self.initial.sample(seed, name, self.matrix, dtype).reshape(shape)

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """As of the matrix."""
        return self.initial.why_not(self.matrix)


@INITIALIZERS.register
class Zeros(InitializerSpec):
    """All 0."""

    type: Literal["Zeros"] = "Zeros"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Zeros."""
        import numpy as np

        return np.zeros(shape)


@INITIALIZERS.register
class Ones(InitializerSpec):
    """All 1."""

    type: Literal["Ones"] = "Ones"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Ones."""
        import numpy as np

        return np.ones(shape)


@INITIALIZERS.register
class Constant(InitializerSpec):
    """All the same number."""

    type: Literal["Constant"] = "Constant"
    value: float = 0.0
    """the number"""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The number, repeated."""
        import numpy as np

        return np.full(shape, self.value)


def truncated_normal(random: Any, shape: tuple[int, ...]) -> Any:
    """Standard normal numbers within ±2, by drawing again what lies outside."""
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
        return scaled(random, shape, self.factor, self.fan, "truncated_normal" if self.normal else "uniform")


def scaled(random: Any, shape: tuple[int, ...], factor: float, fan: str, distribution: str) -> Any:
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
