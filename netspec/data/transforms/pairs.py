"""`{type: Pairs}`: pairs of samples of the same class, and of different classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from netspec.data.base import Array, FieldType, SampleKeys, Samples, Transform
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.field_types import Name


@TRANSFORMS.register
class Pairs(Transform):
    """Pair each sample with another one of its batch, to learn which samples are similar.

    Adds the partner's value of the field, and the field `similar`: 1 if both are of the same class, else 0. The partner
    is of the same class with probability `similar_fraction`, if the batch has such a sample, and is drawn for each
    sample and epoch; in evaluations pairs are always the same. Put the transform last: those before it also change the
    partner.
    """

    mixes: ClassVar[bool] = True
    samples: ClassVar = ({}, {"similar_fraction": 0.25, "partner": "other"})

    type: Literal["Pairs"] = "Pairs"
    label: str = "label"
    """The field of the class numbers."""
    partner: Name = "partner"
    """Name of the new field with the partner's value."""
    similar: Name = "similar"
    """Name of the new field that says whether both samples are of the same class."""
    similar_fraction: float = Field(default=0.5, ge=0, le=1)
    """Fraction of pairs of the same class."""

    def for_evaluation(self, fields: Mapping[str, FieldType]) -> Self | None:
        """Return the transform itself; None for new samples without labels, since predictions need no pairs."""
        return self if self.label in fields else None

    def infer(self, field: FieldType) -> FieldType:
        """The field keeps its type."""
        return field

    def infer_fields(self, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
        """Return all fields, the partner's value with the type of the field, and `similar` () of int32."""
        assert self.apply_to is not None  # set by the pipeline
        problems, label = [], fields.get(self.label)
        if label is None:
            problems.append(self.missing_field_problem("label", self.label, fields))
        elif label.shape or label.dtype.startswith("float"):
            problems.append(
                Problem(f"`{self.label}` is not a class number", self.where("label"), "label",
                        expected="[] of integers", got=str(label))
            )  # fmt: skip
        for name, new in (("partner", self.partner), ("similar", self.similar)):
            if new in fields or (name == "similar" and new == self.partner):
                problems.append(
                    Problem(
                        f"the samples already have a field `{new}`", self.where(name), name, expected="a different name"
                    )
                )
        if problems:
            raise InputError(problems)
        return {**fields, self.partner: fields[self.apply_to], self.similar: FieldType((), "int32")}

    def apply_fields(self, batch: Mapping[str, Samples], keys: SampleKeys) -> dict[str, Samples]:
        """Add the values of the partners, and whether their classes are equal: (N,)."""
        import numpy as np

        assert self.apply_to is not None
        labels, values = np.asarray(batch[self.label]), batch[self.apply_to]
        partner = self._partners(labels, keys.uniform(2))
        paired = [values[row] for row in partner] if isinstance(values, list) else values[partner]
        return {**batch, self.partner: paired, self.similar: (labels == labels[partner]).astype(np.int32)}

    def _partners(self, labels: Array, drawn: Array) -> Array:
        """Return the row of each sample's partner, (N,); drawn: (N, 2) in [0, 1)."""
        import numpy as np

        equal, others = labels[:, None] == labels, ~np.eye(len(labels), dtype=bool)
        wanted = equal == (drawn[:, :1] < self.similar_fraction)
        candidates = wanted & others
        # A sample without a partner of the wanted kind gets one of the other kind, or, alone in its batch, itself.
        candidates = np.where(candidates.any(axis=1, keepdims=True), candidates, others)
        candidates |= not others.any()
        chosen = (drawn[:, 1] * candidates.sum(axis=1)).astype(np.int64)
        partner: Array = (candidates.cumsum(axis=1) > chosen[:, None]).argmax(axis=1)
        return partner
