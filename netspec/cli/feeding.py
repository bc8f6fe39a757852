"""Does the data fit the net, as far as the spec alone tells: no file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import Compiler, Purpose
from netspec.data.base import FieldType, Source, Transform
from netspec.data.feeds import match_feeds
from netspec.data.pipeline import Pipeline
from netspec.schema.data import SplitFields
from netspec.train.evaluation import wanted_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Announced:
    """A dataset of one sample whose fields are known and whose values are not: all are zero."""

    classes: Mapping[str, tuple[str, ...]] = {}
    digest = ""

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self.fields = fields

    def __len__(self) -> int:
        return 1

    def read(self, indices: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Zeros."""
        return {name: np.zeros((len(indices), *kind.shape), kind.dtype) for name, kind in self.fields.items()}

    def describe(self, index: int) -> str:
        """There is no such sample."""
        return "no sample"


def check_feeds(compiler: Compiler, split: SplitFields, purpose: Purpose) -> None:
    """Compare the fields of a split, after its transforms, with the inputs that the net's programs read.

    Raises `InputError` with all that do not match. What a transform learns from data does not change a field's type.
    """
    assert isinstance(split, Source)
    fields = split.known_fields()
    if fields is None or any(isinstance(one, Transform) and one.needs_data for one in split.transforms):
        return
    pipeline = Pipeline(Announced(fields), split, seed=0)
    match_feeds(pipeline.fields, wanted_inputs(compiler, [purpose]), split, known=compiler.spec.inputs)
