"""Training the trials of a search, in this process or in several."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from netspec.errors import NetspecError, Problem
from netspec.schema.language.overrides import Override
from netspec.schema.load import Source
from netspec.schema.specs.search import SearchSpec
from netspec.tools.search.study import PendingTrial, Pruner
from netspec.training.callbacks.base import Callback
from netspec.training.environment import threads
from netspec.training.run import AUTO, Interrupted, run

if TYPE_CHECKING:
    from netspec.training.evaluation import Evaluation
    from netspec.training.loop import TrainingLoop


THREADS = "OMP_NUM_THREADS"
PRUNED = "other trials were better at this evaluation"
STOPPED = "stopped at the time limit"


@dataclass(frozen=True)
class TrialTask:
    """All that a process needs to train one trial."""

    trial: PendingTrial
    source: Source
    overrides: list[str | Override]
    search: SearchSpec
    device: str
    deadline: float | None = None
    """The time, as `time.monotonic` returns it, at which the trial ends with what it has learned."""


@dataclass(frozen=True)
class Outcome:
    """How the training of a trial ended."""

    value: float | None = None
    """The monitored value of the final weights; None if it failed or was interrupted."""
    pruned: bool = False
    message: str | None = None
    """Why it failed, or ended before its last epoch."""
    interrupted: bool = False
    """Whether it was asked to stop, and can be resumed."""
    seconds: float = 0.0
    seconds_to_best: float = 0.0
    """Time until its best evaluation."""


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

    def stop(self) -> list[tuple[TrialTask, Outcome]]:
        """Ask running trials to save and stop, and wait for them; return the outcomes that were not returned yet."""
        return []


class ProcessTrainer(Trainer):
    """Trains trials in several processes, each with its share of the cores."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self._threads = max(1, threads() // jobs)
        self._processes = [_start_process(self._threads) for _ in range(jobs)]
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
        """Wait until a trial has ended. One whose process was killed has failed; another process replaces it."""
        connection = wait(list(self._busy))[0]
        assert isinstance(connection, Connection)
        process, task = self._busy.pop(connection)
        self.tasks.remove(task)
        try:
            return task, connection.recv()
        except (EOFError, ConnectionError):
            process.join()
            self._processes[self._processes.index((process, connection))] = _start_process(self._threads)
            return task, Outcome(message="its process was killed; if memory was short, use fewer --jobs")

    def stop(self) -> list[tuple[TrialTask, Outcome]]:
        """Ask running trials to save and stop, and wait for all processes; return the outcomes."""
        for process, _ in self._busy.values():
            process.terminate()  # a training saves first
        outcomes = []
        for connection, (_, task) in self._busy.items():
            with suppress(EOFError, ConnectionError):
                outcomes.append((task, connection.recv()))
        for process, connection in self._processes:
            connection.close()
            process.join()
        return outcomes


def _start_process(thread_count: int) -> tuple[BaseProcess, Connection]:
    """Start a process that trains the trials that are sent to it."""
    here, there = Pipe()
    process = get_context("spawn").Process(target=_serve_tasks, args=(there,), daemon=True)
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(thread_count)  # libraries look when they are loaded
    try:
        process.start()
    finally:
        del os.environ[THREADS]
        if before is not None:
            os.environ[THREADS] = before
    there.close()
    return process, here


def _serve_tasks(connection: Connection) -> None:
    """Train the tasks that are sent, and send their outcomes, until the connection is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C of a terminal is for the search, which then asks its processes to stop
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            connection.send(train_trial(connection.recv(), parent=os.getppid()))


def train_trial(task: TrialTask, parent: int | None = None) -> Outcome:
    """Train a trial, or continue it, and end it early if the study says so. Its errors are part of the outcome.

    It stops if the process `parent` ends.
    """
    run_dir = task.trial.run_dir
    callback = _TrialCallback(Pruner(run_dir.parent, task.search, task.trial.number), parent, task.deadline)
    began = time.perf_counter()
    try:
        run(task.source, task.overrides, run_dir=run_dir, resume=AUTO, device=task.device, callbacks=[callback])
    except Interrupted:
        if not callback.pruned:
            return Outcome(interrupted=True)
    except NetspecError as error:
        return Outcome(message=_described(error.problems[0]), seconds=time.perf_counter() - began)
    seconds = time.perf_counter() - began
    if callback.result is None or not isfinite(callback.result):
        return Outcome(message="no evaluation had a finite value", seconds=seconds)
    message = STOPPED if callback.stop_training else None
    to_best = callback.best_at - began
    return Outcome(callback.result, callback.pruned, message, seconds=seconds, seconds_to_best=to_best)


def _described(problem: Problem) -> str:
    return f"{problem.message} ({problem.got})" if problem.got else problem.message


class _TrialCallback(Callback):
    """Reports each evaluation, asks the training to stop if the trial is pruned, and finishes it at the deadline."""

    reads_loss = False

    def __init__(self, pruner: Pruner, parent: int | None, deadline: float | None) -> None:
        self._pruner, self._parent, self._deadline = pruner, parent, deadline
        self.pruned = False
        self.best_at = time.perf_counter()
        """Time of the best evaluation."""
        self._best: float | None = None
        self.result: float | None = None
        """The value of the weights that the training would end with now."""
        self.evaluations = 0

    def on_step_end(self, training: TrainingLoop) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            training.request_stop("the search was killed")
        if self._deadline is not None and time.monotonic() >= self._deadline and not training.finished:
            self.stop_training = True  # the evaluation of a finished training follows

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        loop = training.spec.train
        value = loop.value_in(evaluation.all_values())
        if loop.improves(value, self._best):
            self._best, self.best_at = value, time.perf_counter()
        if not loop.restore_best or loop.improves(value, self.result):
            self.result = value
        self.evaluations += 1
        if isfinite(value) and self._pruner.should_prune(value, self.evaluations) and not training.finished:
            training.request_stop(PRUNED)
            self.pruned = training.signals.stop == PRUNED  # and not Ctrl-C, which came before

    def state_dict(self) -> dict[str, Any]:
        return {"result": self.result, "evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.result, self.evaluations = state["result"], state["evaluations"]
