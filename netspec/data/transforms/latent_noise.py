"""`{type: LatentNoise}`: a field of random numbers in each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from netspec.data.base import FieldType, SampleKeys, Samples, Transform
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.field_types import Name, Shape


@TRANSFORMS.register
class LatentNoise(Transform):
    """Add a field of normal random numbers to each sample: the latent vector from which a generator makes an image.

    The numbers depend on the seed, the epoch and the sample; in evaluations they are always the same. The field is
    float32.
    """

    mixes: ClassVar[bool] = True
    samples: ClassVar = ({"field": "latent", "shape": [64]},)

    type: Literal["LatentNoise"] = "LatentNoise"
    field: Name
    """Name of the new field."""
    shape: Shape
    """Shape of the field in a sample."""
    mean: float = 0.0
    """Mean of the numbers."""
    stddev: float = Field(default=1.0, gt=0)
    """Standard deviation of the numbers."""

    def infer(self, field: FieldType) -> FieldType:
        """The field keeps its type."""
        return field

    def infer_fields(self, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
        """Return all fields, including the new one. Raises `InputError` if its name is taken."""
        if self.field in fields:
            raise InputError(
                Problem(f"the samples already have a field `{self.field}`", self.where("field"), "field",
                        expected="a different name", got=str(fields[self.field]))
            )  # fmt: skip
        return {**fields, self.field: FieldType(self.shape, "float32")}

    def apply_fields(self, batch: Mapping[str, Samples], keys: SampleKeys) -> dict[str, Samples]:
        """Add the numbers: (N, *shape) of float32."""
        import numpy as np

        drawn = np.empty((len(keys.indices), *self.shape), np.float32)
        for row, sample in enumerate(drawn):
            sample[...] = keys.generator(row).normal(self.mean, self.stddev, self.shape)
        return {**batch, self.field: drawn}
