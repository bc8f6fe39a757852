"""Does the data fit the net, as far as the spec alone tells: no file is opened."""

from __future__ import annotations

from collections.abc import Mapping

from netspec.compile import Compiler, Purpose
from netspec.data.base import Dataset, FieldType, Source, Transform
from netspec.data.feeds import match_feeds
from netspec.data.pipeline import Pipeline
from netspec.schema.data import SplitFields
from netspec.train.evaluation import wanted_inputs


class Announced(Dataset):
    """A dataset of one sample whose fields are known; it is never read."""

    digest = ""

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self.fields = fields

    def __len__(self) -> int:
        return 1


def check_feeds(compiler: Compiler, split: SplitFields, purpose: Purpose) -> None:
    """Compare the fields of a split, after its transforms, with the inputs that the net's programs read.

    Raises `InputError` with all that do not match. What a transform learns from data does not change a field's type.
    """
    assert isinstance(split, Source)
    fields = split.known_fields()
    waiting = [isinstance(one, Transform) and (one.needs_data or one.needs_classes) for one in split.transforms]
    if fields is None or any(waiting):
        return
    pipeline = Pipeline(Announced(fields), split, seed=0)
    match_feeds(pipeline.fields, wanted_inputs(compiler, [purpose]), split, known=compiler.spec.inputs)
