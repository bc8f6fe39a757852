"""Training the trials of a search, in this process or in several."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from netspec.errors import NetspecError, RunError
from netspec.schema.language.overrides import Override
from netspec.schema.load import Source
from netspec.schema.specs.search import SearchSpec
from netspec.tools.search.study import ChosenTrial, Pruner
from netspec.training.callbacks.base import Callback
from netspec.training.run import AUTO, Interrupted, run
from netspec.training.run_directory import RunDir

if TYPE_CHECKING:
    from netspec.training.evaluation import Evaluation
    from netspec.training.loop import TrainingLoop


@dataclass(frozen=True)
class TrialTask:
    """What a process needs to train one trial."""

    trial: ChosenTrial
    source: Source
    overrides: list[str | Override]
    search: SearchSpec
    device: str


@dataclass(frozen=True)
class Outcome:
    """How the training of a trial ended."""

    value: float | None = None
    """The monitored value of the final weights; None if it failed or was interrupted."""
    pruned: bool = False
    message: str | None = None
    """Why it failed."""
    interrupted: bool = False
    """Whether it was asked to stop, and can be resumed."""
    seconds: float = 0.0


class Trainer:
    """Trains one trial at a time in this process, which keeps its compiled programs."""

    def __init__(self) -> None:
        self.tasks: list[TrialTask] = []
        """Tasks that have been submitted and whose outcome has not been returned."""

    @property
    def is_free(self) -> bool:
        """Whether another trial can be submitted."""
        return not self.tasks

    def submit(self, task: TrialTask) -> None:
        """Accept a task."""
        self.tasks.append(task)

    def next_outcome(self) -> tuple[TrialTask, Outcome]:
        """Wait until a trial has ended."""
        task = self.tasks.pop()
        return task, train_trial(task)

    def stop(self) -> None:
        """Ask trainings to save and stop, and wait for them."""


class ProcessTrainer(Trainer):
    """Trains trials in several processes, each with its share of the cores."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self._processes = [_start_process(jobs) for _ in range(jobs)]
        self._busy: dict[Connection, tuple[BaseProcess, TrialTask]] = {}

    @property
    def is_free(self) -> bool:
        """Whether a process has no trial."""
        return len(self.tasks) < len(self._processes)

    def submit(self, task: TrialTask) -> None:
        """Send a task to a process that is free."""
        super().submit(task)
        process, connection = next(pair for pair in self._processes if pair[1] not in self._busy)
        self._busy[connection] = process, task
        connection.send(task)

    def next_outcome(self) -> tuple[TrialTask, Outcome]:
        """Wait until a trial has ended. Raises `RunError` if its process has died."""
        connection = wait(list(self._busy))[0]
        assert isinstance(connection, Connection)
        _, task = self._busy.pop(connection)
        self.tasks.remove(task)
        try:
            return task, connection.recv()
        except (EOFError, ConnectionError):
            raise RunError(
                f"the process that trained {task.trial.run_dir} was killed",
                hint="if memory was short, use fewer --jobs; --resume continues the search",
            ) from None  # fmt: skip

    def stop(self) -> None:
        """Ask trainings to save and stop, and wait for all processes."""
        for process, _ in self._busy.values():
            process.terminate()  # a training saves first
        for connection in self._busy:
            with suppress(EOFError, ConnectionError):
                connection.recv()
        for process, connection in self._processes:
            connection.close()
            process.join()


@contextmanager
def open_trainer(jobs: int) -> Iterator[Trainer]:
    """Open what trains `jobs` trials at the same time; trainings that still run in the end are asked to stop."""
    trainer = Trainer() if jobs == 1 else ProcessTrainer(jobs)
    try:
        yield trainer
    finally:
        trainer.stop()


def _start_process(jobs: int) -> tuple[BaseProcess, Connection]:
    """Start one of `jobs` processes that train what is sent to them."""
    here, there = Pipe()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, int(os.environ.get("OMP_NUM_THREADS", cores)) // jobs)
    process = get_context("spawn").Process(target=_train_what_comes, args=(there, threads), daemon=True)
    process.start()
    there.close()
    return process, here


def _train_what_comes(connection: Connection, threads: int) -> None:
    """Train the tasks that are sent, and send their outcomes, until the connection is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C of a terminal is for the search, which then asks its processes to stop
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            connection.send(train_trial(connection.recv(), parent=os.getppid()))


def train_trial(task: TrialTask, parent: int | None = None) -> Outcome:
    """Train a trial, or continue it, and end it early if the study says so. Its errors are part of the outcome.

    It stops if the process `parent` ends.
    """
    run_dir = task.trial.run_dir
    watch = _Watch(Pruner(run_dir.parent, task.search, task.trial.number), parent)
    began = time.perf_counter()
    try:
        run(task.source, task.overrides, run_dir=run_dir, resume=AUTO, device=task.device, callbacks=[watch])
    except Interrupted:
        if not watch.pruned:
            return Outcome(interrupted=True)
    except NetspecError as error:
        return Outcome(message=error.problems[0].message, seconds=time.perf_counter() - began)
    shutil.rmtree(RunDir(run_dir).checkpoints, ignore_errors=True)  # the final weights stay
    seconds = time.perf_counter() - began
    if watch.result is None or not isfinite(watch.result):
        return Outcome(message="no evaluation had a finite value", seconds=seconds)
    return Outcome(watch.result, watch.pruned, seconds=seconds)


class _Watch(Callback):
    """Reports each evaluation, and asks the training to stop if the trial is pruned."""

    reads_loss = False

    def __init__(self, pruner: Pruner, parent: int | None) -> None:
        self._pruner, self._parent = pruner, parent
        self.pruned = False
        self.result: float | None = None
        """The value of the weights that the training would end with now."""
        self.evaluations = 0

    def on_step_end(self, training: TrainingLoop) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            training.request_stop("the search was killed")

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        loop = training.spec.train
        value = loop.value_in(evaluation.all_values())
        if not loop.restore_best or loop.improves(value, self.result):
            self.result = value
        self.evaluations += 1
        if isfinite(value) and self._pruner.ends(value, self.evaluations) and not training.finished:
            self.pruned = True
            training.request_stop("other trials were better at this evaluation")

    def state_dict(self) -> dict[str, Any]:
        return {"result": self.result, "evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.result, self.evaluations = state["result"], state["evaluations"]
