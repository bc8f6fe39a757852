"""Check that training on one worker and on several gives bit-identical weights."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.distributed.launcher.mpi_discovery import require_mpiexec
from netspec.distributed.strategies.all_reduce import AllReduce
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.worker_checks import check_workers
from netspec.errors import InputError, counted
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.reproducibility.bit_comparison import compare_states, final_states
from netspec.tools.reproducibility.training_subprocess import train_in_subprocess, training_command
from netspec.tools.specs import load_train

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class VerifiedRun:
    """A training on some number of workers, compared with the training on one."""

    workers: int
    seconds: float
    """Wall time of the training, start-up included."""
    arrays: int
    """Number of arrays compared: weights and all states of solver and layers."""
    differ: tuple[str, ...]
    """Names of the arrays that are not bit-identical."""
    max_difference: float
    """Largest absolute difference of an element."""


@dataclass(frozen=True)
class ParallelCheck:
    """Trainings on 1, 2, … workers."""

    steps: int
    parallel: dict[str, Any]
    """The fields of `parallel` that were verified."""
    note: str | None
    """Settings of the training file that were replaced, and so not verified."""
    runs: tuple[VerifiedRun, ...]
    """One run per number of workers, from 1."""

    @property
    def identical(self) -> bool:
        """Whether all runs gave bit-identical arrays."""
        return not any(run.differ for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """The result as plain data."""
        runs = [asdict(run) for run in self.runs]
        for run in runs:
            run["most"] = run.pop("max_difference")
        return {"steps": self.steps, "parallel": self.parallel, "note": self.note, "runs": runs}


def verify_parallel(
    spec: str | Path, *, overrides: Sequence[str] = (), workers: int = 2, steps: int = 10
) -> ParallelCheck:
    """Check that training on 1, 2, … `workers` processes gives bit-identical weights and solver states.

    Runs the first `steps` steps of the training file `spec` on each number of workers, started by `mpiexec`, with
    `parallel: {strategy: all_reduce, deterministic: true}`, whatever strategy the file has. Leaves no files behind.

    Raises `InputError` if the training cannot be spread over the workers or MPI is missing, `RunError` if a training
    fails.

        >>> netspec.verify_parallel("train.yaml", workers=4).identical
    """
    if workers < 2:
        raise InputError("--workers must be 2 or more: results are compared with those of one worker", got=str(workers))
    require_at_least(1, {"--steps": steps})
    training = load_train(spec, overrides)
    strategy = verified_strategy(training, workers)
    check_workers(training.model_copy(update={"parallel": strategy}), workers)
    changes = [*overrides, *short_training(training, strategy, steps)]
    require_mpiexec()
    with tempfile.TemporaryDirectory(prefix="netspec-") as folder:
        trained = [_train(spec, changes, count, Path(folder) / str(count)) for count in range(1, workers + 1)]
    first = trained[0][1]
    runs = [
        VerifiedRun(count, seconds, len(first), *compare_states(first, states))
        for count, (seconds, states) in enumerate(trained, 1)
    ]
    fields = strategy.model_dump(mode="json")
    return ParallelCheck(steps, fields, unverified_settings(training, strategy), tuple(runs))


def verified_strategy(spec: TrainSpec, workers: int) -> AllReduce:
    """The deterministic all-reduce that is verified, with the training file's settings where they allow that."""
    strategy = spec.parallel if isinstance(spec.parallel, Strategy) else AllReduce()
    reduction = (
        strategy if isinstance(strategy, AllReduce) else AllReduce(heartbeat=strategy.heartbeat, stall=strategy.stall)
    )
    shards = reduction.shards if "shards" in reduction.model_fields_set else max(reduction.shards, workers)
    shards = min(shards, spec.data.train.batch_size)
    # Sums in the order of a tree are neither rounded to 16 bits nor made by host.
    exact = {"deterministic": True, "shards": shards, "reduce_in": "float32", "hierarchical": "auto"}
    return reduction.model_copy(update=exact)


def unverified_settings(spec: TrainSpec, verified: AllReduce) -> str | None:
    """The settings of the file that the verified training replaces, as text."""
    notes = ["the file has stages, which were not verified: all layers were trained"] if spec.stages else []
    if isinstance(spec.parallel, AllReduce):
        fields, used = spec.parallel.model_dump(mode="json"), verified.model_dump(mode="json")
        replaced = [f"{name}: {json.dumps(fields[name])}" for name in fields if fields[name] != used[name]]
        notes += [f"the file has {', '.join(replaced)} instead, which was not verified"] if replaced else []
    elif isinstance(spec.parallel, Strategy):
        strategy = spec.parallel.strategy
        notes.append(f"the file trains with {strategy}, which computes different weights and was not verified")
    return "; ".join(notes) or None


def short_training(spec: TrainSpec, strategy: AllReduce, steps: int) -> list[str]:
    """Overrides for a training of a few steps with `strategy`, without stages and evaluation."""
    block = json.dumps(strategy.model_dump(mode="json"))
    evaluation = [f"~data.{split}" for split in ("evaluate", "validation", "test") if getattr(spec.data, split)]
    stages = ["~stages"] if spec.stages else []
    return [*evaluation, *stages, f"train.max_steps={steps}", "train.test_every=0", f"parallel={block}"]


def _train(
    spec: str | Path, changes: list[str], workers: int, folder: Path
) -> tuple[float, Mapping[str, NDArray[Any]]]:
    """Run one training; its seconds, and the states of its checkpoint. Raises `RunError` with its error messages."""
    began = time.perf_counter()
    options = ["--threads", "1", "--device", "cpu"]  # whose sums are the same on any number of workers
    command = training_command(spec, changes, folder, workers, options)
    train_in_subprocess(command, f"the training on {counted(workers, 'worker')}")
    return round(time.perf_counter() - began, 3), final_states(folder)
