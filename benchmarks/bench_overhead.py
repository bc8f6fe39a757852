"""Measures what logging, callbacks and progress add to LeNet's training step.

A training with a log line every 10 steps, a progress display and three callbacks, one of which reads the loss of each
step, alternates with a bare loop of the same data and the same step. Both are in one process, with separate weights.
Prints the median time of a step of both, and the median of their ratios: with metrics in both, then only in the log.

python -m benchmarks.bench_overhead [--quick] [--json]
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from statistics import median
from typing import TypeAlias

import netspec
from benchmarks import report
from benchmarks.alternate import ROOT
from benchmarks.results import Results
from netspec.cli.progress import display
from netspec.tools.specs import load_train
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.loop import TrainingLoop
from netspec.training.stepper import Stepper, run_steps, scheduled_rates

SPEC = ROOT / "model_zoo" / "lenet_mnist" / "train.yaml"
STEPS = 20
"""Number of steps of a round of each loop."""
GOAL = 1.03
"""Highest ratio of the step with logging to the bare one."""
CHANGES = {
    "train.max_epochs": None, "train.test_every": 0, "train.checkpoint_every": 0, "train.log_every": 10,
}  # fmt: skip


Seconds: TypeAlias = tuple[float, float]
"""Wall time, and processor time of all threads, which other processes disturb less."""


def clocks() -> Seconds:
    """Return the wall time and the processor time."""
    return time.perf_counter(), time.process_time()


def seconds_since(began: Seconds) -> Seconds:
    """Return the wall time and the processor time of a step, for a round that began at `began`."""
    wall, processor = clocks()
    return (wall - began[0]) / STEPS, (processor - began[1]) / STEPS


class Observer(netspec.Callback):
    """A callback that reads the loss of each step."""

    def __init__(self) -> None:
        self.losses = 0.0

    def on_step_end(self, training: TrainingLoop) -> None:
        """Add the loss."""
        self.losses += training.loss


class Alternate(netspec.Callback):
    """Runs a round of the bare loop after each round of the training, and times both."""

    def __init__(self, bare: Iterator[None]) -> None:
        self._bare, self._began = bare, clocks()
        self.logged: list[Seconds] = []
        self.plain: list[Seconds] = []

    def on_step_end(self, training: TrainingLoop) -> None:
        """Run and time a round of the bare loop if a round of the training has ended."""
        if training.step % STEPS:
            return
        if training.step > STEPS:  # the first round compiles
            self.logged.append(seconds_since(self._began))
            began = clocks()
            for _ in range(STEPS):
                next(self._bare)
            self.plain.append(seconds_since(began))
        self._began = clocks()

    def ratio(self, clock: int) -> float:
        """Return the median ratio of the training to the bare loop, by wall time (0) or processor time (1)."""
        return median(ours[clock] / plain[clock] for ours, plain in zip(self.logged, self.plain, strict=True))


def bare_steps(*, metrics: bool) -> Generator[None, None, None]:
    """Train without a loop around the steps."""
    loop = {**CHANGES, "train.log_metrics": metrics, "train.max_steps": 1}
    spec = load_train(SPEC, loop)
    compiler = training_compiler(spec, "cpu")
    with open_training_loader(spec, compiler) as loader:
        for _ in run_steps(Stepper(spec, compiler, loader), loader, scheduled_rates(spec, 10_000)):
            yield


def main() -> int:
    """Measure, and compare with the goal."""
    options = report.parsed(report.parser(__doc__ or ""))
    results, rounds = Results("overhead", options), 10 if options.quick else 30
    for name, metrics in (("logging, callbacks and progress", True), ("the same, and metrics of each batch", False)):
        bare = bare_steps(metrics=metrics)
        for _ in range(STEPS):
            next(bare)
        alternate = Alternate(bare)
        with (
            tempfile.TemporaryDirectory() as folder,
            Path(os.devnull).open("w") as sink,
            contextlib.redirect_stdout(sink),
            display(as_json=False) as listener,
        ):
            netspec.train(
                SPEC, run_dir=Path(folder) / "run", device="cpu", listeners=[listener],
                callbacks=[Observer(), Observer(), alternate], **CHANGES, **{"train.max_steps": (rounds + 1) * STEPS},
            )  # fmt: skip
        bare.close()
        results.add({
            "what": name, "bare": median(wall for wall, _ in alternate.plain),
            "training": median(wall for wall, _ in alternate.logged), "ratio": alternate.ratio(0),
            "processor": alternate.ratio(1), "goal": GOAL,
        })  # fmt: skip
    return results.end()


if __name__ == "__main__":
    sys.exit(report.run(main))
