"""`netspec train --dry-run`: what keeps a training from beginning, found before there are workers to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netspec.cli.curves import steps_of
from netspec.cli.one_worker import one_worker
from netspec.cli.output import count, size
from netspec.cli.preflight import preflight
from netspec.cli.specs import load_train
from netspec.data.base import Source
from netspec.errors import InputError, Problem, counted, near_path
from netspec.parallel.strategies.base import Strategy
from netspec.schema.train import TrainSpec
from netspec.train.fitting import check_workers


@dataclass(frozen=True)
class Rehearsed:
    """A training that could begin, and what it would be."""

    name: str
    workers: int
    servers: int
    """Ranks beside the workers, which move the parameters."""
    batch_size: int
    """Of all workers together."""
    largest_share: int
    """Samples of a batch that one worker gets at most; others may get one fewer."""
    samples: dict[str, int]
    """Of the training data, and of the test data where there is some."""
    steps: int
    worker_bytes: int
    """What a worker allocates for training steps: activations, weights, the solver's states; of stages the most."""

    def as_json(self) -> dict[str, Any]:
        """The event that `--json` prints."""
        return {"event": "dry_run", **asdict(self)}

    def told(self) -> str:
        """The same for people."""
        split = self.largest_share < self.batch_size
        each = f": {count(self.largest_share)} samples each" if split else ""
        if split and self.batch_size % self.workers:
            each += " or one fewer"
        servers = f" and {counted(self.servers, 'server')}" if self.servers else ""
        data = ", ".join(f"{counted(number, 'sample')} of {split} data" for split, number in self.samples.items())
        return (
            f"{self.name}: {counted(self.workers, 'worker')}{servers}, a batch of {count(self.batch_size)}{each}\n"
            f"{data}; {counted(self.steps, 'step')}\n"
            f"a worker allocates {size(self.worker_bytes)} for a training step\n"
            "nothing was written: this was a dry run"
        )


def rehearse(file: str, overrides: Sequence[str], workers: int, weights: str | None = None) -> Rehearsed:
    """Check all that can be without computing: the spec, its split over workers, that data and weights are there.

    Nothing is allocated, trained or written. Raises `InputError` with all that is wrong.
    """
    spec = load_train(file, overrides)
    splits = {"training": spec.data.train, "test": spec.data.test}
    samples, problems = dict[str, int](), dict[Problem, None]()  # in order, and once though two checks find it

    def count_samples() -> None:
        for name, split in splits.items():
            if split is not None:
                samples[name] = _samples(spec, split)

    checks: list[Callable[[], object]] = [
        lambda: check_workers(spec, workers), lambda: preflight(file, overrides), lambda: _find(weights), count_samples,
    ]  # fmt: skip
    for check in checks:
        try:
            check()
        except InputError as error:
            problems.update(dict.fromkeys(error.problems))
    if problems:
        raise InputError(problems)
    batch = spec.data.train.batch_size
    worker = one_worker(spec, workers, batch)  # which tells what a strategy can't do with the net
    servers = spec.parallel.servers_among(workers) if isinstance(spec.parallel, Strategy) else 0
    name = spec.name or spec.net.name
    return Rehearsed(
        name, workers - servers, servers, batch, worker.samples, samples, steps_of(spec), worker.nbytes
    )  # fmt: skip


def _find(weights: str | None) -> None:
    if weights is not None and not Path(weights).is_file():
        raise InputError(f"--weights: there is no file {weights}", hint=near_path(Path(weights), folders=False))


def _samples(spec: TrainSpec, split: object) -> int:
    assert isinstance(split, Source)
    found = len(split.open(seed=spec.train.seed))
    return min(found, split.limit) if split.limit is not None else found
