"""`{type: Rescaling}`: y = x · scale + offset."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.data.base import Array, FieldType, SampleKeys, Samples, Transform, per_sample
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class Rescaling(Transform):
    """Rescale: y = x · scale + offset, as in Keras: `scale: 0.00392156862745098` maps 0 … 255 to 0 … 1."""

    positions: ClassVar = "kept"

    type: Literal["Rescaling"] = "Rescaling"
    scale: float
    """The factor."""
    offset: float = 0.0
    """The value added after scaling."""

    pointwise: ClassVar[bool] = True
    samples: ClassVar = ({"scale": "${1/255}"},)

    def infer(self, field: FieldType) -> FieldType:
        """(…) of any type → (…) of float32."""
        return FieldType(field.shape, "float32")

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """x: (N, …) → (N, …) of float32."""
        return per_sample(batch, self._rescaled)

    def restore(self, values: Array) -> Array:
        """y: (N, …) → x = (y − offset) / scale."""
        original: Array = (values.astype("float64") - self.offset) / self.scale
        return original

    def _rescaled(self, batch: Array) -> Array:
        scaled = batch.astype("float32")
        scaled *= self.scale
        if self.offset:
            scaled += self.offset
        return scaled
