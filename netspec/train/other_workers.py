"""What a checkpoint of several workers is to a training whose workers keep something else, or that has one alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from netspec.compile import Compiler
from netspec.errors import InputError, listing
from netspec.exchange.hdf5 import CheckpointFile
from netspec.schema.reader import parse_yaml
from netspec.train.crew import Crew, mean

OF_SEVERAL = ("residual", "center", "gathered")
"""Roles of states that only several workers have."""


def as_of_these(checkpoint: CheckpointFile, compiler: Compiler, crew: Crew) -> tuple[CheckpointFile, list[str]]:
    """The checkpoint as it would be had these workers written it; warnings of what that changes.

    Centers that they don't have become the parameters and moving statistics, which they stood for, and the averages
    that these are evaluated by. Of what each worker had of its own, and these have in common, there is the mean.
    """
    states = dict(checkpoint.states)
    kept = {name for name in states if checkpoint.roles[name] in crew.strategy.own}
    for name in checkpoint.own[0] if checkpoint.own else ():
        if name not in kept:
            states[name] = mean(states[name], [one[name] for one in checkpoint.own], 1 + len(checkpoint.own))
    centers = {
        name: states[label]
        for name, label in checkpoint.evaluated.items()
        if checkpoint.roles[label] == "center" and label not in compiler.info
    }
    for name, center in centers.items():
        begins = {label for label in (name, _average(compiler, name)) if label in states}
        states |= dict.fromkeys(begins, center)
        kept -= begins
    now, before = f"{crew.strategy.strategy}" if crew.size > 1 else "one worker", _strategy(checkpoint)
    told = [f"{now} has no centers, and goes on from those of {before}"] if centers else []
    used = {checkpoint.evaluated[name] for name in centers}
    past = [
        name for name, role in checkpoint.roles.items() if role in OF_SEVERAL and name not in (*compiler.info, *used)
    ]
    told += [f"{now} has no use for what {before} had kept: {listing(past, 3)}"] if past else []
    gone = {*past, *used}
    kept -= gone
    return (
        replace(
            checkpoint,
            states={name: array for name, array in states.items() if name not in gone},
            roles={name: role for name, role in checkpoint.roles.items() if name not in gone},
            own=tuple({name: array for name, array in one.items() if name in kept} for one in checkpoint.own),
        ),
        told,
    )


def _average(compiler: Compiler, name: str) -> str | None:
    """The state that holds the average which is evaluated in a parameter's place."""
    label = compiler.evaluated.get(name)
    return None if label is None else compiler.info[label].gathers or label


def _strategy(checkpoint: CheckpointFile) -> str:
    """The strategy of the workers who wrote it, where its spec tells."""
    with suppress(InputError):
        told = parse_yaml(checkpoint.spec, "").get("parallel")
        if isinstance(told, Mapping) and isinstance(told.get("strategy"), str):
            return str(told["strategy"])
    return "several workers"
