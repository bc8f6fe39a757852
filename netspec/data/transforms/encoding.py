"""`{type: CategoryEncoding}`: class numbers as one-hot vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field

from netspec.data.base import Array, FieldType, OutOfRangeSamples, SampleKeys, Samples, Transform
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class CategoryEncoding(Transform):
    """Encode a class number k as `[num_tokens]` of float32: 1 at index k, 0 elsewhere.

    As Keras's CategoryEncoding with `output_mode: one_hot`. A value that is not a class number is an error.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "num_classes": "use `num_tokens`, as in Keras",
        "depth": "use `num_tokens`, as in Keras",
    }

    type: Literal["CategoryEncoding"] = "CategoryEncoding"
    apply_to: str | None = "label"
    """The field of class numbers."""
    num_tokens: int | None = Field(default=None, ge=2)
    """Number of classes; by default that of the source."""
    output_mode: Literal["one_hot"] = "one_hot"
    """The encoding."""

    samples: ClassVar = ({"num_tokens": 10},)

    @property
    def needs_classes(self) -> bool:
        """Whether the number of classes must come from the source."""
        return self.num_tokens is None

    def with_classes(self, classes: Mapping[str, Sequence[str]]) -> Self:
        """Return the transform with as many classes as the source names."""
        names = classes.get(self.apply_to or "label") if self.needs_classes else None
        return self if names is None else self.model_copy(update={"num_tokens": len(names)})

    def infer(self, field: FieldType) -> FieldType:
        """() of integers → (num_tokens,) of float32."""
        if field.shape or field.dtype.startswith("float"):
            raise InputError("only class numbers can be encoded", expected="[] of integers", got=str(field))
        if self.num_tokens is None:
            raise InputError(
                "the number of classes is missing",
                expected=f"`num_tokens`, since the source of {field} has no class names",
            )
        return FieldType((self.num_tokens,), "float32")

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """labels: (N,) → (N, num_tokens)."""
        import numpy as np

        assert self.num_tokens is not None  # set by `infer`
        labels = np.asarray(batch)
        check_range(self.apply_to or "label", labels, self.num_tokens)
        return encoded(labels, self.num_tokens)


def check_range(name: str, labels: Array, classes: int) -> None:
    """Raise `OutOfRangeSamples` with the labels, of (N,), that are not below `classes`."""
    import numpy as np

    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    expected = f"0 to {classes - 1}, for {classes} classes"
    rows = {
        int(row): [Problem(f"`{name}` is {labels[row]}, out of range", expected=expected, got=str(labels[row]))]
        for row in bad
    }
    if rows:
        raise OutOfRangeSamples(rows)


def encoded(labels: Array, classes: int) -> Array:
    """Return one-hot vectors: (N,) → (N, classes) of float32."""
    import numpy as np

    one_hot: Array = np.zeros((len(labels), classes), np.float32)
    one_hot[np.arange(len(labels)), labels] = 1
    return one_hot
