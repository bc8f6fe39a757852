"""Samples that a Python program passes to a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netspec.data.sources.python import Python
from netspec.errors import InputError, Problem, did_you_mean
from netspec.schema.specs.train import TrainSpec


def with_samples(spec: TrainSpec, samples: Mapping[str, Any] | None) -> TrainSpec:
    """The training with the samples of its splits of `source: python`, given by the names of the splits.

    Raises `InputError` for what is given to no such split.
    """
    if samples is None:
        return spec
    if not isinstance(samples, Mapping):
        raise InputError(
            "the samples are not given by split", expected="{'train': …, 'test': …}", got=type(samples).__name__
        )
    found, problems = {}, []
    for name, given in samples.items():
        split = getattr(spec.data, name, None) if name in type(spec.data).model_fields else None
        if isinstance(split, Python):
            found[name] = split.given(given)
        elif split is None:
            hint = did_you_mean(str(name), type(spec.data).model_fields)
            problems.append(
                Problem(
                    f"samples are given for `{name}`, which the spec has no split for", spec.where("data"), hint=hint
                )
            )
        else:
            problems.append(
                Problem(
                    f"samples are given for `{name}`, which reads others", split.where("source"), f"data.{name}.source",
                    expected="`source: python`",
                )
            )  # fmt: skip
    if problems:
        raise InputError(problems)
    return spec.model_copy(update={"data": spec.data.model_copy(update=found)})
