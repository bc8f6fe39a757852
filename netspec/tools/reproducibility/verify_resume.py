"""Check that a training that is killed again and again ends bit-identical to one that is not."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from netspec.distributed.strategies.base import Strategy
from netspec.distributed.worker_checks import check_workers
from netspec.errors import InputError, RunError
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.reproducibility.bit_comparison import RunComparison, RunDifference, compare_runs_bitwise
from netspec.tools.reproducibility.training_subprocess import (
    train_in_subprocess,
    training_command,
    training_failure,
)
from netspec.tools.specs import load_train
from netspec.training.events import Event, parse_events
from netspec.training.run_directory import RunDir

POLL_INTERVAL = 0.001
"""Seconds between two looks at the log of a training that is to be killed."""
TIMEOUT_AFTER_KILL = 120.0
"""Seconds in which a training must end after one of its workers was killed."""
MAX_ROUNDS_WITHOUT_KILL = 3
"""Number of trainings in a row that may end before they are killed."""


@dataclass(frozen=True)
class Kill:
    """A training that was killed."""

    resumed_from: int
    """Number of steps done when this part of the training began."""
    logged_step: int
    """Number of steps done when it was killed, according to its log."""
    worker: int | None
    """Index of the killed worker, in the order in which the workers were started; None if all were killed."""


@dataclass(frozen=True)
class ResumeCheck:
    """A training in killed pieces, compared with one that was not interrupted."""

    steps: int
    workers: int
    kills: tuple[Kill, ...]
    """The kills in their order."""
    arrays: int
    """Number of arrays compared: weights and all states of solver and layers."""
    log_lines: int
    """Number of results in the log of the uninterrupted training: losses and evaluations."""
    differences: tuple[RunDifference, ...]
    """All differences. Those of the log come first, in the order of steps."""

    @property
    def identical(self) -> bool:
        """Whether both trainings gave the same bits."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**asdict(self), "identical": self.identical}


def verify_resume(
    spec: str | Path, *, overrides: Sequence[str] = (), steps: int = 50, kills: int = 5, workers: int = 1,
    device: str = "auto", seed: int = 0,
) -> ResumeCheck:  # fmt: skip
    """Check that a training that is killed `kills` times ends bit-identical to one that is not interrupted.

    Runs the first `steps` steps of the training file `spec` twice. The second training is killed (SIGKILL) at moments
    that `seed` draws from the duration of the first, and resumed each time. With several workers, kills alternate
    between all of them and one. Compares the weights, all states, the monitored values, the position in the data, and
    every result in the log. The stages of a training share the steps equally. A training that ends before it is killed
    is compared too, and starts again. Leaves no files behind.

    Raises `InputError` if the training or its strategy can't be verified, `RunError` if a training fails.

        >>> netspec.verify_resume("train.yaml", kills=10).identical
    """
    require_at_least(1, {"--steps": steps, "--kills": kills, "--workers": workers})
    training = load_train(spec, overrides)
    if steps < len(training.stages):
        raise InputError(
            "--steps must be at least the number of stages", expected=f"at least {len(training.stages)}", got=str(steps)
        )
    _check_strategy(training, workers)
    changes = [*overrides, *verified_settings(training, steps, kills)]

    def command(run_dir: Path) -> list[str]:
        return training_command(spec, changes, run_dir, workers, ["--device", device])

    with tempfile.TemporaryDirectory(prefix="netspec-") as folder:
        straight = Path(folder) / "straight"
        train_in_subprocess(command(straight), "the run without interruptions")
        killed = _KilledTraining(command, workers, straight, Path(folder), np.random.default_rng(seed))
        while len(killed.kills) < kills:
            killed.train(kills - len(killed.kills))
        differences = tuple(difference for comparison in killed.comparisons for difference in comparison.differences)
        compared = killed.comparisons[0]
        return ResumeCheck(steps, workers, tuple(killed.kills), compared.arrays, compared.log_lines, differences)


def _check_strategy(training: TrainSpec, workers: int) -> None:
    """Raise `InputError` if the training can't run on the workers, or two of its runs differ without any kill."""
    check_workers(training, workers)
    strategy = training.parallel
    if workers > 1 and isinstance(strategy, Strategy) and not strategy.reproducible:
        raise InputError(
            f"a run with {strategy.strategy} can't be verified: each run computes different weights",
            location=strategy.where(), expected="a strategy whose runs can be repeated",
            hint="verify another one: `parallel={strategy: all_reduce}`",
        )  # fmt: skip


def verified_settings(spec: TrainSpec, steps: int, kills: int) -> list[str]:
    """Return overrides for a short training that logs every step and writes several checkpoints between two kills.

    Stages share the steps.
    """
    every = spec.train.checkpoint_every
    most = max(1, steps // (2 * (kills + 1)))
    every = min(every, most) if every else most
    changes = [f"train.max_steps={steps}", "train.log_every=1", f"train.checkpoint_every={every}"]
    for index, stage in enumerate(spec.stages):
        length = (index + 1) * steps // len(spec.stages) - index * steps // len(spec.stages)
        changes += [f"~stages.{index}.max_epochs"] if stage.max_epochs is not None else []
        changes.append(f"stages.{index}.max_steps={length}")
    return changes


class _KilledTraining:
    """A training that is killed and resumed, and compared with a straight one whenever it is complete."""

    def __init__(
        self, command: Callable[[Path], list[str]], workers: int, straight: Path, folder: Path, rng: np.random.Generator
    ) -> None:
        """`command` returns the command line that trains in a run directory."""
        self.kills: list[Kill] = []
        self.comparisons: list[RunComparison] = []
        self._command, self._workers = command, workers
        self._straight, self._folder, self._random = straight, folder, rng
        with RunDir(straight).log.open(encoding="utf-8") as lines:
            events = [event for event in parse_events(lines) if isinstance(event.get("step"), int)]
        self._events = [event for event in events if event["event"] in ("log", "test", "checkpoint")]
        self._rounds, self._rounds_without_kill = 0, 0

    def train(self, kills: int) -> None:
        """Train to the end with up to `kills` kills, and compare the result."""
        self._rounds += 1
        run, before = self._folder / f"killed-{self._rounds}", len(self.kills)
        for step, delay in self._moments(kills):
            if not self._run_piece(run, step, delay):
                break
        else:
            self._run_piece(run, None, 0)
        self.comparisons.append(compare_runs_bitwise(self._straight, run))
        self._rounds_without_kill = 0 if len(self.kills) > before else self._rounds_without_kill + 1
        if self._rounds_without_kill == MAX_ROUNDS_WITHOUT_KILL:
            raise RunError("the run ends before it can be killed", hint="train more steps: `--steps`")

    def _moments(self, kills: int) -> Iterator[tuple[int, float]]:
        """Yield moments of the straight training in their order: a step, and seconds after its first event."""
        first, last = self._events[0]["elapsed"], self._events[-1]["elapsed"]
        for number in range(kills):
            moment = first + (number + self._random.random()) / kills * (last - first)
            before = [event for event in self._events if event["elapsed"] <= moment]
            step = before[-1]["step"]
            began = next(event["elapsed"] for event in self._events if event["step"] == step)
            yield step, max(0.0, moment - began)

    def _run_piece(self, run: Path, step: int | None, delay: float) -> bool:
        """Train until the log has `step`, and kill `delay` seconds later. Return False if the training ended before."""
        with tempfile.TemporaryFile() as errors, _Log(RunDir(run).log) as log:
            process = subprocess.Popen(
                [*self._command(run), "--resume", "auto"], stdout=subprocess.DEVNULL, stderr=errors
            )
            started: list[int] = []
            try:
                while process.poll() is None and (step is None or log.step < step):
                    time.sleep(POLL_INTERVAL if step is not None else 10 * POLL_INTERVAL)
                    log.update()
                    if self._workers > 1 and log.step >= 0 and not started:
                        started = _descendants(process.pid)  # now, since it takes longer than a short step
                with suppress(subprocess.TimeoutExpired):
                    process.wait(delay)
                if process.poll() is None:
                    self._kill(process, started, log)
                    return True
            finally:
                if process.poll() is None:
                    _send_kill([*_descendants(process.pid), process.pid])
                    process.wait()
            if process.returncode:
                errors.seek(0)
                description = f"the run that resumed after {len(self.kills)} kills"
                raise training_failure(description, errors.read().decode(errors="replace"))
        return False

    def _kill(self, process: subprocess.Popen[bytes], started: Sequence[int], log: _Log) -> None:
        """Kill the training: all workers with their launcher; with several workers, every second kill is of one.

        `started` are the processes of the launcher, the workers last.
        """
        one = len(self.kills) % 2 == 1 and len(started) > self._workers > 1
        worker = int(self._random.integers(self._workers)) if one else None
        _send_kill([*reversed(started), process.pid] if worker is None else [started[-self._workers + worker]])
        try:
            process.wait(TIMEOUT_AFTER_KILL)  # the launcher of several workers ends the others
        except subprocess.TimeoutExpired:
            raise RunError(
                "the run did not end after one of its workers was killed",
                expected=f"that the launcher ends all workers within {TIMEOUT_AFTER_KILL:g} s",
            ) from None
        log.update()
        resumed_from = log.resumed_from or 0
        self.kills.append(Kill(resumed_from, max(resumed_from, log.step), worker))


class _Log:
    """The lines that a training appends to its log."""

    def __init__(self, path: Path) -> None:
        self._path, self._rest = path, b""
        self._file: IO[bytes] | None = None
        self._ends: dict[int, int] = {}
        """The largest number of steps in the lines of each stage, those of earlier parts of the training included."""
        self.resumed_from: int | None = None
        """Number of steps at the start of this part of the training; None before it starts."""
        self.step = -1
        """The largest number of steps in the new lines; -1 if there is none."""
        self._read_earlier_lines()

    def _read_earlier_lines(self) -> None:
        """Read the lines of earlier parts of the training: a stage continues the steps of the stages before it.

        A kill may have torn the last line, which is left out.
        """
        for event in self._new_events():
            self._record_end(event)
        self._rest = b""

    def update(self) -> None:
        """Read the lines that are new."""
        for event in self._new_events():
            if event["event"] == "start" and self.resumed_from is None:
                self.resumed_from = event["step"] or self._end_before(event)
            self._record_end(event)
            if isinstance(event.get("step"), int):
                self.step = max(self.step, event["step"])

    def _new_events(self) -> Iterator[Event]:
        """Read and yield the events in new complete lines."""
        if self._file is None:
            if not self._path.is_file():
                return
            self._file = self._path.open("rb")
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        yield from parse_events(line.decode(errors="replace") for line in lines)

    def _record_end(self, event: Event) -> None:
        if isinstance(event.get("step"), int):
            stage = event.get("stage", 1)
            self._ends[stage] = max(self._ends.get(stage, 0), event["step"])

    def _end_before(self, event: Event) -> int:
        """Return the number of steps at the end of the stages before an event's: a stage that starts logs step 0."""
        return max((end for stage, end in self._ends.items() if stage < event.get("stage", 1)), default=0)

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


def _send_kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or indirectly; those that these started come last."""
    parents = dict(_parents())
    descendants, generation = list[int](), {pid}
    while generation:
        children = sorted(child for child, parent in parents.items() if parent in generation)
        descendants += children
        generation = set(children)
    return descendants


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process of this machine with its parent."""
    if not Path("/proc/self/stat").is_file():  # macOS
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            child, parent = line.split()
            yield int(child), int(parent)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            # The second field, the name of the program in parentheses, may contain spaces and parentheses.
            yield int(path.parent.name), int(path.read_bytes().rpartition(b")")[2].split()[1])
