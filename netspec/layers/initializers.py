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
    }

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array of first values, the same for the same (seed, name, shape)."""
        return self.draw(generator(seed, name), shape).astype(dtype)

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The values in float64, from a NumPy generator."""
        raise NotImplementedError

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


@INITIALIZERS.register
class RandomNormal(InitializerSpec):
    """Normal distribution."""

    type: Literal["RandomNormal"] = "RandomNormal"
    mean: float = 0.0
    """mean of the distribution"""
    stddev: float = Field(default=0.05, ge=0)
    """standard deviation of the distribution"""
    sparse: PositiveInt | None = None
    """to how many outputs an input has weights that are not 0, in the mean: Caffe's sparse gaussian. Default: to all"""

    samples: ClassVar = ({}, {"mean": 1.0, "sparse": 2})

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Normal numbers; with `sparse` each is kept with probability sparse / outputs."""
        made = random.normal(self.mean, self.stddev, shape)
        return made if self.sparse is None else made * (random.random(shape) * outputs(shape) < self.sparse)


@INITIALIZERS.register
class RandomUniform(InitializerSpec):
    """Uniform distribution between two numbers."""

    type: Literal["RandomUniform"] = "RandomUniform"
    minval: float = -0.05
    """the least number"""
    maxval: float = 0.05
    """the greatest number"""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Uniform numbers."""
        return random.uniform(self.minval, self.maxval, shape)


@INITIALIZERS.register
class TruncatedNormal(InitializerSpec):
    """Normal distribution without what lies over two standard deviations from the mean."""

    type: Literal["TruncatedNormal"] = "TruncatedNormal"
    mean: float = 0.0
    """mean of the distribution"""
    stddev: float = Field(default=0.05, ge=0)
    """standard deviation before the cut"""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Truncated normal numbers."""
        return self.mean + self.stddev * truncated_normal(random, shape)


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


@INITIALIZERS.register
class Orthogonal(InitializerSpec):
    """An orthogonal matrix: rows or columns, whichever are fewer, of length `gain` and at right angles to each other.

    Of a convolution kernel (out, in, window…) the rows are the output channels. Saxe et al. 2014, arXiv:1312.6120.
    """

    type: Literal["Orthogonal"] = "Orthogonal"
    gain: float = 1.0
    """length of the rows or columns"""

    samples: ClassVar = ({}, {"gain": 0.5})

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Q of the QR decomposition of normal numbers, its signs such that every Q is as likely."""
        import numpy as np

        rows, columns = shape[0] if len(shape) > 1 else 1, prod(shape[1:] if len(shape) > 1 else shape)
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diagonal(r))
        return self.gain * (q.T if rows < columns else q).reshape(shape)


@INITIALIZERS.register
class Identity(InitializerSpec):
    """A matrix, or a convolution, that passes on what comes in: `gain` on the diagonal, 0 elsewhere.

    Of a convolution kernel (out, in, window…) the middle of the window holds the diagonal (PyTorch's `dirac_`); Keras
    knows matrices alone.
    """

    type: Literal["Identity"] = "Identity"
    gain: float = 1.0
    """the numbers on the diagonal"""

    samples: ClassVar = ({}, {"gain": 0.5})

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """A vector has no diagonal."""
        return None if len(shape) >= 2 else "`Identity` is for matrices and kernels"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The diagonal."""
        import numpy as np

        rows, columns, *window = shape
        place = int(np.ravel_multi_index([size // 2 for size in window], window)) if window else 0
        made = np.zeros((rows, columns, prod(window)))
        made[:, :, place] = self.gain * np.eye(rows, columns)
        return made.reshape(shape)


@INITIALIZERS.register
class Bilinear(InitializerSpec):
    """Caffe's filler of kernels that enlarge: each window interpolates linearly along all of its axes.

    For a Conv2DTranspose with `filters` and `groups` as many as channels, `kernel_size: 2k - k % 2`, `strides: k` and
    `padding: (k - 1) / 2`, rounded up, which enlarges k times.
    """

    type: Literal["Bilinear"] = "Bilinear"

    def why_not(self, shape: tuple[int, ...]) -> str | None:
        """There must be a window."""
        return None if len(shape) >= 3 else "`Bilinear` is for kernels of convolutions"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Products of triangles of height 1, Caffe's formula for each axis of the window."""
        import numpy as np

        made = np.ones(shape)
        for axis, size in enumerate(shape[2:], 2):
            half = (size + 1) // 2
            middle = (2 * half - 1 - half % 2) / (2 * half)
            triangle = 1 - abs(np.arange(size) / half - middle)
            made *= triangle.reshape(-1, *(1,) * (len(shape) - 1 - axis))
        return made


@INITIALIZERS.register
class PositiveUnitball(InitializerSpec):
    """Caffe's filler of positive weights that sum to 1 for each output: uniform numbers, divided by their sum."""

    type: Literal["PositiveUnitball"] = "PositiveUnitball"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """Uniform numbers over their sum for each output: dense kernels are (in, out), others (out, in, window…)."""
        made = random.random(shape)
        axes = tuple(range(1, len(shape))) if len(shape) > 2 else tuple(range(len(shape)))[:1]
        return made / made.sum(axis=axes, keepdims=True)
