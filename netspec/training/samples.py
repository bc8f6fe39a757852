"""Samples that a Python program passes to a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netspec.data.sources.python import Python
from netspec.errors import InputError, Problem, did_you_mean
from netspec.schema.specs.train import TrainSpec


def with_samples(spec: TrainSpec, samples: Mapping[str, Any] | None) -> TrainSpec:
    """Return the training with samples for its splits with `source: python`, by the names of the splits.

    Raises `InputError` for samples that belong to no such split.
    """
    if samples is None:
        return spec
    if not isinstance(samples, Mapping):
        raise InputError(
            "samples are not given by split", expected="a mapping {'train': …, 'test': …}", got=type(samples).__name__
        )
    sources = {
        "train": spec.data.train,
        "validation": spec.data.validation,
        "test": spec.data.test,
        **spec.data.evaluate,
    }
    splits, sets, problems = dict[str, Any](), dict(spec.data.evaluate), []
    for name, data in samples.items():
        split = sources.get(name)
        if isinstance(split, Python):
            (sets if name in sets else splits)[name] = split.with_samples(data)
        elif split is None:
            hint = did_you_mean(str(name), sources)
            problems.append(
                Problem(
                    f"samples are given for `{name}`, but the spec has no such split", spec.where("data"), hint=hint
                )
            )
        else:
            problems.append(
                Problem(
                    f"samples are given for `{name}`, which reads from another source", split.where("source"),
                    f"{spec.data.path_of(name)}.source", expected="`source: python`",
                )
            )  # fmt: skip
    if problems:
        raise InputError(problems)
    return spec.model_copy(update={"data": spec.data.model_copy(update={**splits, "evaluate": sets})})
