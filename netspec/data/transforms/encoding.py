"""`{type: CategoryEncoding}`: class numbers as vectors of zeros and a one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from netspec.data.base import DamagedSamples, FieldType, SampleKeys, Transform
from netspec.errors import InputError, Problem
from netspec.schema.data import TRANSFORMS

if TYPE_CHECKING:
    from netspec.data.base import Array, Samples


@TRANSFORMS.register
class CategoryEncoding(Transform):
    """A class number k becomes `[num_tokens]` of float32: one at place k, counted from 0, and zero elsewhere.

    As Keras's with `output_mode: one_hot`. A number that is no class is a damaged sample.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "num_classes": "here it is `num_tokens`, as in Keras",
        "depth": "here it is `num_tokens`, as in Keras",
    }

    type: Literal["CategoryEncoding"] = "CategoryEncoding"
    apply_to: str | None = "label"
    """the field of class numbers"""
    num_tokens: int = Field(ge=2)
    """how many classes there are"""
    output_mode: Literal["one_hot"] = "one_hot"
    """what the numbers become"""

    samples: ClassVar = ({"num_tokens": 10},)

    def infer(self, field: FieldType) -> FieldType:
        """() of whole numbers → (num_tokens,) of float32."""
        if field.shape or field.dtype.startswith("float"):
            raise InputError("only class numbers can be encoded", expected="[] of whole numbers", got=str(field))
        return FieldType((self.num_tokens,), "float32")

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """labels: (N,) → (N, num_tokens)."""
        import numpy as np

        labels = np.asarray(batch)
        damaged = out_of_range(self.apply_to or "label", labels, self.num_tokens)
        if damaged:
            raise DamagedSamples(damaged)
        return encoded(labels, self.num_tokens)


def out_of_range(name: str, labels: Array, classes: int) -> dict[int, list[Problem]]:
    """What is wrong with labels (N,) that are none of so many classes, by row."""
    import numpy as np

    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    expected = f"0 to {classes - 1}, for {classes} classes"
    return {
        int(row): [Problem(f"`{name}` is {labels[row]}, out of range", expected=expected, got=str(labels[row]))]
        for row in bad
    }


def encoded(labels: Array, classes: int) -> Array:
    """Zeros and a one for each label: (N,) → (N, classes) of float32."""
    import numpy as np

    found: Array = np.zeros((len(labels), classes), np.float32)
    found[np.arange(len(labels)), labels] = 1
    return found
