"""Comparison of all bits of the states, files and logs of two trainings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import find_latest_checkpoint, read_weights
from netspec.training.events import Event, read_log
from netspec.training.run_directory import STAGE, RunDir

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOGGED = ("log", "test")
"""Events with results, which must not depend on interruptions."""
TIMES = ("time", "elapsed", "seconds", "samples_per_second")
"""Fields of these events that measure time."""


def final_states(run: Path) -> Mapping[str, NDArray[Any]]:
    """Return the states in the newest checkpoint of a run."""
    checkpoint = find_latest_checkpoint(RunDir(run).checkpoints).content
    assert checkpoint is not None, "a run that succeeds has written a checkpoint"
    return checkpoint.states


def compare_states(
    states: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]]
) -> tuple[tuple[str, ...], float]:
    """Return the names of the arrays that are not bit-identical, and the largest absolute difference of an element."""
    names = [*states, *(name for name in others if name not in states)]
    differ = tuple(name for name in names if not _is_identical(states.get(name), others.get(name)))
    gaps = (
        float(np.abs(states[name].astype(float) - others[name].astype(float)).max())
        for name in differ
        if name in states and name in others and states[name].shape == others[name].shape
    )
    return differ, max(gaps, default=0)


def _is_identical(array: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    return (
        array is not None and other is not None and array.dtype == other.dtype and array.shape == other.shape
        and array.tobytes() == other.tobytes()
    )  # fmt: skip


@dataclass(frozen=True)
class RunDifference:
    """A difference between two runs that should be bit-identical."""

    where: str
    """File of the run directory, with the step if it is a log."""
    name: str
    """Name of the state or field."""
    description: str
    """Its values in both runs."""

    def __str__(self) -> str:
        return f"{self.where}: {self.name}: {self.description}"


@dataclass(frozen=True)
class RunComparison:
    """A run, compared with another one that should be bit-identical."""

    arrays: int
    """Number of arrays compared: weights and all states of solver and layers."""
    log_lines: int
    """Number of results in the log: losses and evaluations."""
    differences: tuple[RunDifference, ...]
    """All differences; those of the log come first, in the order of steps."""


def compare_runs_bitwise(run: Path, other: Path) -> RunComparison:
    """Compare two finished runs: the last checkpoint, the files of weights, and every result in the log.

    A result that one run logged several times, because it repeated the steps after a checkpoint, must be the same each
    time. Times are not compared. Stages are compared one by one: each is a run, whose folder is part of `where`.
    """
    if stages := sorted(path.name for path in run.glob(f"{STAGE}*")):
        compared = [compare_runs_bitwise(run / name, other / name) for name in stages]
        return RunComparison(
            sum(stage.arrays for stage in compared), sum(stage.log_lines for stage in compared),
            tuple(
                replace(difference, where=f"{name}/{difference.where}")
                for name, stage in zip(stages, compared, strict=True) for difference in stage.differences
            ),
        )  # fmt: skip
    logged, again = _results(run), _results(other)
    differences = list(_different_results(logged, again))
    arrays, expected = _saved(run)
    other_arrays, actual = _saved(other)
    for name in compare_states(arrays, other_arrays)[0]:
        where, _, state = name.partition(": ")
        differences.append(RunDifference(where, state, _describe_arrays(arrays.get(name), other_arrays.get(name))))
    for name in expected | actual:
        where, _, field = name.partition(": ")
        differences += _different_field(where, field, expected.get(name), actual.get(name))
    return RunComparison(len(arrays), len(logged), tuple(differences))


def _saved(run: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the other values in the newest checkpoint and the files of weights, by file and name."""
    folder = RunDir(run)
    latest = find_latest_checkpoint(folder.checkpoints)
    if latest.path is None or latest.content is None:
        raise InputError(f"there is no intact checkpoint in {folder.checkpoints}", got="; ".join(latest.notes) or None)
    where, checkpoint = latest.path.name, latest.content
    arrays = {f"{where}: {name}": array for name, array in checkpoint.states.items()}
    for rank, states in enumerate(checkpoint.own, 1):
        arrays |= {f"{where}: {name} of worker {rank}": array for name, array in states.items()}
    values: dict[str, Any] = {f"{where}: {name}": value for name, value in checkpoint.progress.items()}
    values |= {f"{where}: spec": checkpoint.spec, f"{where}: evaluated": checkpoint.evaluated}
    for path in (folder.best, folder.weights):
        if path.is_file():
            weights = read_weights(path)
            arrays |= {f"{path.name}: {name}": array for name, array in weights.arrays.items()}
            values |= {f"{path.name}: {name}": value for name, value in weights.meta.items()}
    return arrays, values


def _results(run: Path) -> dict[tuple[int, str, str], list[Event]]:
    """Return the results in the log of a run by step, kind of event and split, in the order of the log."""
    results: dict[tuple[int, str, str], list[Event]] = {}
    for event in read_log(RunDir(run).log):
        if event["event"] in LOGGED:
            values = {name: value for name, value in event.items() if name not in TIMES}
            results.setdefault((event["step"], event["event"], event.get("split", "train")), []).append(values)
    return results


def _different_results(
    logged: Mapping[tuple[int, str, str], list[Event]], again: Mapping[tuple[int, str, str], list[Event]]
) -> Iterator[RunDifference]:
    for step, kind, split in sorted({*logged, *again}):
        where = f"log.jsonl, step {step:,}, {split} data"
        first = logged.get((step, kind, split), [{}])[0]
        for event in again.get((step, kind, split), [{}]):
            for name in first | event:
                yield from _different_field(where, name, first.get(name), event.get(name))


def _different_field(where: str, name: str, expected: Any, actual: Any) -> Iterator[RunDifference]:
    """Yield a difference if two values are not the same; NaN equals NaN."""
    texts = [json.dumps(value, sort_keys=True) for value in (expected, actual)]
    if texts[0] != texts[1]:
        yield RunDifference(where, name, " ≠ ".join(text if len(text) <= 80 else f"{text[:80]}…" for text in texts))


def _describe_arrays(array: NDArray[Any] | None, other: NDArray[Any] | None) -> str:
    if array is None or other is None:
        return "missing in one run"
    if array.shape != other.shape or array.dtype != other.dtype:
        return f"{array.dtype}{list(array.shape)} ≠ {other.dtype}{list(other.shape)}"
    bits = f"u{array.dtype.itemsize}" if array.dtype.itemsize in (1, 2, 4, 8) else array.dtype
    differ = np.argwhere(np.atleast_1d(array).view(bits) != np.atleast_1d(other).view(bits))
    first = tuple(differ[0])
    values = " ≠ ".join(repr(np.atleast_1d(values)[first].item()) for values in (array, other))
    return f"{len(differ)} of {array.size} elements, first at {[int(index) for index in first]}: {values}"
