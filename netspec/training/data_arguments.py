"""Data that a caller gives to a model: a loader, a source as a split of a train file names it, or samples in Python."""

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
from netspec.training.evaluation import wanted_inputs
from netspec.training.inputs import input_ranges
from netspec.training.model import DEFAULT_BATCH


def is_split(given: object) -> bool:
    """Whether this is a split of a train file, as a mapping or a spec: it names its source."""
    return isinstance(given, SplitFields) or (isinstance(given, Mapping) and isinstance(given.get(SOURCES.tag), str))


@contextmanager
def open_data(
    given: object,
    compiler: Compiler,
    purpose: ProgramKind,
    *,
    batch_size: int | None = None,
    learned: Learned | None = None,
) -> Iterator[Loader]:
    """The loader that feeds a program for `purpose` with what is given, each sample once.

    A split's transforms are applied, with what the training `learned`; without that it is as if it were the training's
    own. Parts of samples that are tuples are the net's inputs, in their order. Raises InputError with all that does not
    feed the net.
    """
    if isinstance(given, Loader):
        yield given
        return
    if isinstance(given, Mapping) and is_split(given):
        given = _split({"batch_size": batch_size or DEFAULT_BATCH, **given})
    if not isinstance(given, SplitFields):
        named = {"batch_size": batch_size or DEFAULT_BATCH, "fields": list(compiler.spec.inputs)}
        given = Python.model_validate(named).given(given)
    wanted, known = wanted_inputs(compiler, [purpose]), compiler.spec.inputs
    seed = LoopSpec.model_fields["seed"].default  # of what a source makes up
    with open_loader(
        given, seed=seed, wanted=wanted, ranges=input_ranges(compiler), known=known, learned=learned
    ) as loader:
        yield loader


def _split(given: dict[str, Any]) -> SplitFields:
    """A split as a mapping says it. Raises InputError with all that is wrong with it."""
    data = {"train": given}
    try:
        return DataSpec.model_validate(data).train
    except ValidationError as error:
        found = problems_of(error, data, DataSpec)
        raise InputError([replace(one, path=one.path.removeprefix("train.")) for one in found]) from None
