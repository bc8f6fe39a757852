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

    A center that they do not have becomes the parameter or moving statistic that it stood for, and the average that
    is evaluated in its place. States of which every worker had its own, and which these have in common, are averaged.
    """
    states = dict(checkpoint.states)
    kept = {name for name in states if checkpoint.roles[name] in session.own_roles}
    for name in checkpoint.own[0] if checkpoint.own else ():
        if name not in kept:
            states[name] = mean_state(states[name], [one[name] for one in checkpoint.own], 1 + len(checkpoint.own))
    centers = {
        name: states[label]
        for name, label in checkpoint.evaluated.items()
        if checkpoint.roles[label] == "center" and label not in compiler.info
    }
    for name, center in centers.items():
        begins = {label for label in (name, _average(compiler, name)) if label in states}
        states |= dict.fromkeys(begins, center)
        kept -= begins
    now, before = session.description, _strategy(checkpoint)
    warnings = [f"{now} has no centers, and goes on from those of {before}"] if centers else []
    used = {checkpoint.evaluated[name] for name in centers}
    past = [
        name
        for name, role in checkpoint.roles.items()
        if role in MULTI_WORKER_ROLES and name not in (*compiler.info, *used)
    ]
    warnings += [f"{now} has no use for what {before} had kept: {listing(past, 3)}"] if past else []
    gone = {*past, *used}
    kept -= gone
    return (
        replace(
            checkpoint,
            states={name: array for name, array in states.items() if name not in gone},
            roles={name: role for name, role in checkpoint.roles.items() if name not in gone},
            own=tuple({name: array for name, array in one.items() if name in kept} for one in checkpoint.own),
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
