"""Data that a caller passes to a model: a loader, a source as in a training file, or samples in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from netspec.compile import Compiler, ProgramKind
from netspec.data.loader import Loader, open_loader
from netspec.data.pipeline import Learned
from netspec.data.sources.python import Python
from netspec.errors import InputError
from netspec.schema.messages.problems import problems_of
from netspec.schema.specs.data import SOURCES, DataSpec, SplitFields
from netspec.schema.specs.train import LoopSpec
from netspec.training.inference.model import DEFAULT_BATCH
from netspec.training.required_inputs import input_fields, input_ranges


def is_split(data: object) -> bool:
    """Whether the data is a split as in a training file, a mapping or spec that names its source."""
    return isinstance(data, SplitFields) or (isinstance(data, Mapping) and isinstance(data.get(SOURCES.tag), str))


@contextmanager
def open_data(
    data: object,
    compiler: Compiler,
    purpose: ProgramKind,
    *,
    batch_size: int | None = None,
    learned: Learned | None = None,
) -> Iterator[Loader]:
    """Open a loader that reads each sample of `data` once, for a program of kind `purpose`.

    The transforms of a split are applied, with the values `learned` in training; if these are None, the split learns
    them itself. The parts of a sample that is a tuple are the net's inputs, in their order. Raises `InputError` with
    all that does not fit the net.
    """
    if isinstance(data, Loader):
        yield data
        return
    if isinstance(data, Mapping) and is_split(data):
        data = _split({"batch_size": batch_size or DEFAULT_BATCH, **data})
    if not isinstance(data, SplitFields):
        fields = {"batch_size": batch_size or DEFAULT_BATCH, "fields": list(compiler.spec.inputs)}
        data = Python.model_validate(fields).with_samples(data)
    seed = LoopSpec.model_fields["seed"].default  # for sources of synthetic data
    with open_loader(
        data,
        seed=seed,
        inputs=input_fields(compiler, [purpose]),
        ranges=input_ranges(compiler),
        declared_inputs=compiler.spec.inputs,
        learned=learned,
    ) as loader:
        yield loader


def _split(fields: dict[str, Any]) -> SplitFields:
    """Validate a split. Raises `InputError` with all its problems."""
    data = {"train": fields}
    try:
        return DataSpec.model_validate(data).train
    except ValidationError as error:
        problems = problems_of(error, data, DataSpec)
        raise InputError([replace(each, path=each.path.removeprefix("train.")) for each in problems]) from None
