"""Convert a checkpoint of several workers for a training with another number of workers or another strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from netspec.compile import Compiler
from netspec.errors import InputError, listing
from netspec.exchange.formats.native.hdf5 import CheckpointFile
from netspec.schema.yaml.reader import parse_yaml
from netspec.training.session import Session

MULTI_WORKER_ROLES = ("residual", "center", "gathered")
"""Roles of states that only several workers have."""


def mean_state(first: Any, others: Sequence[Any], parts: int) -> Any:
    """Return the sum of the workers' values of a state, divided by `parts`. Integer states are taken from the root."""
    if first.dtype.kind != "f":
        return first
    return (sum(others, first.astype(np.float64)) / parts).astype(first.dtype)


def reshard_checkpoint(
    checkpoint: CheckpointFile, compiler: Compiler, session: Session
) -> tuple[CheckpointFile, list[str]]:
    """Return the checkpoint that the workers of `session` would have written, and warnings of what is lost.

    Without a parameter server, a center becomes the parameter or moving statistic that it stands for, and the average
    that is evaluated in its place. States that were separate on each worker and are now shared are averaged.
    """
    states = dict(checkpoint.states)
    per_worker = {name for name in states if checkpoint.roles[name] in session.own_roles}
    for name in checkpoint.own[0] if checkpoint.own else ():
        if name not in per_worker:
            others = [worker[name] for worker in checkpoint.own]
            states[name] = mean_state(states[name], others, 1 + len(others))
    centers = {
        name: states[label]
        for name, label in checkpoint.evaluated.items()
        if checkpoint.roles[label] == "center" and label not in compiler.info
    }
    for name, center in centers.items():
        initialized = {label for label in (name, _average(compiler, name)) if label in states}
        states |= dict.fromkeys(initialized, center)
        per_worker -= initialized
    now, before = session.description, _strategy(checkpoint)
    warnings = [f"{now} has no centers and continues from those of {before}"] if centers else []
    used = {checkpoint.evaluated[name] for name in centers}
    unused = [
        name
        for name, role in checkpoint.roles.items()
        if role in MULTI_WORKER_ROLES and name not in (*compiler.info, *used)
    ]
    warnings += [f"{now} does not use these states of {before}: {listing(unused, 3)}"] if unused else []
    dropped = {*unused, *used}
    per_worker -= dropped
    return (
        replace(
            checkpoint,
            states={name: array for name, array in states.items() if name not in dropped},
            roles={name: role for name, role in checkpoint.roles.items() if name not in dropped},
            own=tuple(
                {name: array for name, array in worker.items() if name in per_worker} for worker in checkpoint.own
            ),
        ),
        warnings,
    )


def _average(compiler: Compiler, name: str) -> str | None:
    """Return the state that holds the average which is evaluated in place of a parameter."""
    label = compiler.evaluated.get(name)
    return None if label is None else compiler.info[label].gathers or label


def _strategy(checkpoint: CheckpointFile) -> str:
    """Return the strategy of the workers that wrote the checkpoint, if its spec names one."""
    with suppress(InputError):
        parallel = parse_yaml(checkpoint.spec, "").get("parallel")
        if isinstance(parallel, Mapping) and isinstance(parallel.get("strategy"), str):
            return str(parallel["strategy"])
    return "several workers"
