"""`{type: Normalization}`: y = (x − mean) / √variance, with values set or learned from the training split."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.data.base import Array, FieldType, SampleKeys, Samples, Transform, per_sample
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.spec import describe, problem

EPSILON = 1e-7
"""Lower bound of the standard deviation in the division, as in Keras: a constant channel becomes zeros."""

BLOCK_VALUES = 2**17
"""Number of values that are processed at a time."""

NonNegative = Annotated[float, Field(ge=0)]


@TRANSFORMS.register
class Normalization(Transform):
    """Normalize: y = (x − mean) / √variance, as in Keras, with one value for all or one per channel (first axis).

    Set `mean` and `variance`, or `adapt: true` to compute them from the training split, per channel, in float64, before
    the first step; the test split is then normalized with the values of the training split. The result is float32.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "std": "use `variance`, the square of the standard deviation",
        "stddev": "use `variance`, the square of the standard deviation",
    }

    positions: ClassVar = "kept"

    type: Literal["Normalization"] = "Normalization"
    mean: float | list[float] | None = None
    """The value to subtract: a number, or one for each channel."""
    variance: NonNegative | list[NonNegative] | None = None
    """The square of the divisor: a number, or one for each channel."""
    adapt: bool = False
    """Whether to compute `mean` and `variance` from the training split."""

    pointwise: ClassVar[bool] = True
    samples: ClassVar = ({"mean": 33.3, "variance": 6172.6},)

    @model_validator(mode="after")
    def _values_or_adapt(self) -> Self:
        fields = [name for name in ("mean", "variance") if getattr(self, name) is not None]
        if self.adapt and fields:
            raise problem(
                f"`adapt` computes `{fields[0]}`, which is also set",
                field=fields[0],
                expected="either `adapt: true`, or both `mean` and `variance`",
                got="both",
            )
        if not self.adapt and len(fields) < 2:
            raise problem(
                "`mean` or `variance` is missing",
                field=fields[0] if fields else None,
                expected="both `mean` and `variance`, or `adapt: true`",
                got=f"only `{fields[0]}`" if fields else "neither",
            )
        return self

    @property
    def needs_data(self) -> bool:
        """True until mean and variance are known."""
        return self.adapt and self.mean is None

    def learn(self, field: FieldType, chunks: Iterable[Samples]) -> dict[str, Any]:
        """Return mean and variance of each channel, (C,), over all samples and positions; one of each for scalars.

        Chunks are merged by the formula of Chan, Golub and LeVeque ("Updating formulae …", 1979), which is accurate for
        large means.
        """
        import numpy as np

        channels = _channels(field)
        count = 0
        mean: Any = 0.0  # an array (C,) from the first chunk on, like the next variable
        squares: Any = 0.0
        for chunk in chain.from_iterable(_as_arrays(chunk) for chunk in chunks):
            values = chunk.reshape(len(chunk), channels, -1).astype("float64")
            size = values.size // channels
            chunk_mean = values.mean(axis=(0, 2))
            chunk_squares = ((values - chunk_mean[:, None]) ** 2).sum(axis=(0, 2))
            total = count + size
            delta = chunk_mean - mean
            mean = mean + delta * (size / total)
            squares = squares + chunk_squares + delta**2 * (count * size / total)
            count = total
        return {"mean": np.asarray(mean).tolist(), "variance": np.asarray(squares / count).tolist()}

    def infer(self, field: FieldType) -> FieldType:
        """(C, …) of any type → (C, …) of float32. Raises `InputError` if the number of values is not C (or 1)."""
        channels = _channels(field)
        problems = [
            Problem(
                f"`{name}` does not match the data",
                self.where(name),
                path=name,
                expected=f"a number, or one for each channel of the data: {channels}",
                got=describe(values),
            )
            for name, values in (("mean", self.mean), ("variance", self.variance))
            if isinstance(values, list) and len(values) not in (1, channels)
        ]
        if problems:
            raise InputError(problems)
        return FieldType(field.shape, "float32")

    def restore(self, values: Array) -> Array:
        """y: (N, C, …) → x = y · √variance + mean, of float64."""
        import numpy as np

        over_channels = (-1, *(1,) * (values.ndim - 2)) if values.ndim > 1 else (-1,)
        deviation = np.maximum(np.sqrt(np.asarray(self.variance, np.float64)), EPSILON).reshape(over_channels)
        original: Array = values * deviation + np.asarray(self.mean, np.float64).reshape(over_channels)
        return original

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """x: (N, C, …) → (N, C, …) of float32. Computed in float64 if float32 cannot represent all values of x."""
        return per_sample(batch, self._normalized)

    def _normalized(self, batch: Array) -> Array:
        import numpy as np

        exact = np.result_type(batch.dtype, np.float32)
        over_channels = (-1, *(1,) * (batch.ndim - 2)) if batch.ndim > 1 else (-1,)
        mean = np.asarray(self.mean, np.float64).astype(exact).reshape(over_channels)
        deviation = np.maximum(np.sqrt(np.asarray(self.variance, np.float64)), EPSILON)
        deviation = deviation.astype(exact).reshape(over_channels)
        normal: Array = np.empty(batch.shape, np.float32)
        block_rows = max(1, BLOCK_VALUES * len(batch) // max(1, batch.size))
        for start in range(0, len(batch), block_rows):  # few enough to stay in the cache between the two operations
            rows = slice(start, start + block_rows)
            if exact == np.float32:
                np.subtract(batch[rows], mean, out=normal[rows], dtype=exact)
                np.divide(normal[rows], deviation, out=normal[rows])
            else:
                normal[rows] = (batch[rows].astype(exact) - mean) / deviation
        return normal


def _channels(field: FieldType) -> int:
    """Return the size of a sample's first axis; 1 for scalars. Raises `InputError` if it differs between samples."""
    channels = field.shape[0] if field.shape else 1
    if channels is None:
        raise InputError("samples differ in their number of channels", expected="one first size", got=str(field))
    return channels


def _as_arrays(chunk: Samples) -> list[Array]:
    """Return a chunk as arrays (N, …): one, or one for each sample if they differ in size."""
    return [sample[None] for sample in chunk] if isinstance(chunk, list) else [chunk]
