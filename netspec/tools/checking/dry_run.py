"""Check a training without running it, so that problems are found before workers are allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netspec.data.base import Source as DataSource
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.worker_checks import check_workers
from netspec.errors import InputError, Problem, near_path
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.stages import stage_specs
from netspec.schema.specs.train import TrainSpec
from netspec.tools.checking.check import check as check_spec
from netspec.tools.comparing.curves import steps_of
from netspec.tools.planning.worker_plan import worker_memory
from netspec.tools.specs import load_train
from netspec.training.events import SPLITS


@dataclass(frozen=True)
class DryRun:
    """A training that could begin, and what it would be."""

    name: str
    workers: int
    servers: int
    """Ranks in addition to the workers that update the parameters."""
    batch_size: int
    """Samples of a batch of all workers."""
    largest_share: int
    """Samples of a batch that one worker gets at most; others may get one fewer."""
    samples: dict[str, int]
    """Number of samples of each split: `training`, `validation`, `test`, or the name of a further set."""
    steps: int
    worker_bytes: int
    """Bytes that a worker allocates for training steps: activations, weights, solver states."""

    def as_json(self) -> dict[str, Any]:
        """The result as an event."""
        return {"event": "dry_run", **asdict(self)}


def dry_run(
    source: Source, *, overrides: Overrides = (), workers: int = 1, weights: str | Path | None = None
) -> DryRun:
    """Check a training without running it: its spec, its split over workers, its data and its first weights.

    Nothing is allocated, trained or written. Raises `InputError` with all that is wrong.

        >>> netspec.dry_run("train.yaml", workers=64).worker_bytes
    """
    spec = load_train(source, overrides)
    samples, problems = dict[str, int](), dict[Problem, None]()  # a dict: two checks may find the same problem

    def count_samples() -> None:
        for name, split in spec.data.splits().items():
            samples[SPLITS.get(name, name)] = _samples(spec, split)

    checks: list[Callable[[], object]] = [
        lambda: check_workers(spec, workers), lambda: check_spec(source, overrides=overrides, data=False),
        lambda: _find(weights), count_samples,
    ]  # fmt: skip
    for check in checks:
        try:
            check()
        except InputError as error:
            problems.update(dict.fromkeys(error.problems))
    if problems:
        raise InputError(problems)
    batch = spec.data.train.batch_size
    worker = worker_memory(spec, workers, batch)  # raises if the strategy cannot split the net
    servers = spec.parallel.servers_among(workers) if isinstance(spec.parallel, Strategy) else 0
    name, steps = spec.name or spec.net.name, sum(map(steps_of, stage_specs(spec) or [spec]))
    return DryRun(
        name, workers - servers, servers, batch, worker.samples, samples, steps, worker.nbytes
    )  # fmt: skip


def _find(weights: str | Path | None) -> None:
    if weights is not None and not Path(weights).is_file():
        raise InputError(f"--weights: file {weights} does not exist", hint=near_path(Path(weights), folders=False))


def _samples(spec: TrainSpec, split: object) -> int:
    assert isinstance(split, DataSource)
    samples = len(split.open(seed=spec.train.seed))
    return min(samples, split.limit) if split.limit is not None else samples
