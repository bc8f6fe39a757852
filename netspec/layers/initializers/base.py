"""Base class of initializers, and those with constant values. Keras's names, defaults and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, Literal
from zlib import crc32

from pydantic import Field

from netspec.schema.specs.kinds import INITIALIZERS
from netspec.schema.specs.spec import Member, Spec


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
    """Number of outputs of a weight: dense kernels are (in, out), others (out, in, window…)."""
    return shape[1] if len(shape) == 2 else shape[0] if shape else 1


PositiveInt = Annotated[int, Field(gt=0)]


class InitializerSpec(Spec):
    """Base of initializers."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "seed": "not needed: values follow from the run's seed and the parameter's name",
        "std": "use `stddev`",
        "min": "use `minval`",
        "max": "use `maxval`",
        **dict.fromkeys(("input_axes", "output_axes"), "not needed: layers say which axes of a kernel are inputs"),
    }

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A NumPy array of first values, the same for the same (seed, name, shape)."""
        return self.draw(generator(seed, name), shape).astype(dtype)

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        """The values in float64, from a NumPy generator."""
        raise NotImplementedError  # subclasses implement it

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return why the initializer has no values of this shape; None if it has."""
        return None


Initializer = Annotated[InitializerSpec, Member(INITIALIZERS)]


@dataclass(frozen=True)
class MatrixInitial:
    """First values of a kernel with several axes, drawn for the matrix (inputs, outputs) that it represents."""

    initial: InitializerSpec
    matrix: tuple[int, ...]

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of the kernel's shape."""
        return self.initial.sample(seed, name, self.matrix, dtype).reshape(shape)

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return why the initializer rejects the matrix's shape; None if it does not."""
        return self.initial.reject_reason(self.matrix)


@INITIALIZERS.register
class Zeros(InitializerSpec):
    """All 0."""

    type: Literal["Zeros"] = "Zeros"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        import numpy as np

        return np.zeros(shape)


@INITIALIZERS.register
class Ones(InitializerSpec):
    """All 1."""

    type: Literal["Ones"] = "Ones"

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        import numpy as np

        return np.ones(shape)


@INITIALIZERS.register
class Constant(InitializerSpec):
    """All elements are the same."""

    type: Literal["Constant"] = "Constant"
    value: float = 0.0
    """Value of all elements."""

    def draw(self, random: Any, shape: tuple[int, ...]) -> Any:
        import numpy as np

        return np.full(shape, self.value)
