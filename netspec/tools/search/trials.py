"""Trains the trials of a search in one or more processes; trials of a batch take turns, one training step each.

Trials that differ only in numbers run one compiled program, one step of each after the other, and read each batch once.
Narayanan et al. 2018, "Accelerating deep learning workloads through efficient multi-model execution" (ModelBatch).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
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
from netspec.training.lockstep import Lockstep
from netspec.training.run import AUTO, Interrupted, training_steps
from netspec.training.signals import Signals

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
class TrialOutcome:
    """How the training of a trial ended."""

    value: float | None = None
    """The monitored value of the final weights; None if it failed or was interrupted."""
    pruned: bool = False
    message: str | None = None
    """Why it failed, or ended before its last epoch."""
    interrupted: bool = False
    """Whether it was asked to stop, and can be resumed."""
    seconds: float = 0.0
    """Duration, without the time of other trials with which it took turns."""
    seconds_to_best: float = 0.0
    """Time until its best evaluation."""
    batch: tuple[int, ...] = ()
    """Numbers of the trials that ran the same program, itself included; empty if it was the only one."""


class Trainer:
    """Trains a batch of trials at a time in this process, which keeps its compiled kernels."""

    def __init__(self) -> None:
        self.tasks: list[TrialTask] = []
        """Tasks that have been submitted and whose outcome has not been returned."""
        self._outcomes: Iterator[tuple[TrialTask, TrialOutcome]] = iter(())
        self._signals = Signals()

    @property
    def is_free(self) -> bool:
        """Whether more trials can be submitted."""
        return not self.tasks

    def submit(self, tasks: Sequence[TrialTask]) -> None:
        """Accept a batch of tasks."""
        self.tasks += tasks
        self._signals = Signals()
        self._outcomes = train_trials(tasks, self._signals)

    def next_outcomes(self) -> list[tuple[TrialTask, TrialOutcome]]:
        """Wait until a trial, or several, have ended."""
        task, outcome = next(self._outcomes)
        self.tasks.remove(task)
        return [(task, outcome)]

    def stop(self) -> list[tuple[TrialTask, TrialOutcome]]:
        """Ask running trials to save and stop, and wait for them; return the outcomes that were not returned yet."""
        self._signals.request_stop("the search has ended")
        return list(self._outcomes)


class ProcessTrainer(Trainer):
    """Trains trials in several processes, each with its share of the cores."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self._threads = max(1, threads() // jobs)
        self._processes = [_start_process(self._threads) for _ in range(jobs)]
        self._busy: dict[Connection, tuple[BaseProcess, dict[int, TrialTask]]] = {}
        """The tasks of each process that has some, by the numbers of the trials."""

    @property
    def is_free(self) -> bool:
        """Whether a process has no trial."""
        return len(self._busy) < len(self._processes)

    def submit(self, tasks: Sequence[TrialTask]) -> None:
        """Send a batch of tasks to a process that is free."""
        self.tasks += tasks
        process, connection = next(pair for pair in self._processes if pair[1] not in self._busy)
        self._busy[connection] = process, {task.trial.number: task for task in tasks}
        connection.send(tasks)

    def next_outcomes(self) -> list[tuple[TrialTask, TrialOutcome]]:
        """Wait until trials have ended. Those whose process was killed have failed; another process replaces it."""
        connection = wait(list(self._busy))[0]
        assert isinstance(connection, Connection)
        process, tasks = self._busy[connection]
        try:
            number, outcome = connection.recv()
            ended = [(tasks.pop(number), outcome)]
        except (EOFError, ConnectionError):
            process.join()
            self._processes[self._processes.index((process, connection))] = _start_process(self._threads)
            killed = TrialOutcome(message="its process was killed; if memory was short, use fewer --jobs")
            ended = [(task, killed) for task in tasks.values()]
            tasks.clear()
        if not tasks:
            del self._busy[connection]
        for task, _ in ended:
            self.tasks.remove(task)
        return ended

    def stop(self) -> list[tuple[TrialTask, TrialOutcome]]:
        """Ask running trials to save and stop, and wait for all processes; return the outcomes."""
        for process, _ in self._busy.values():
            process.terminate()  # a training saves first
        outcomes = []
        for connection, (_, tasks) in self._busy.items():
            with suppress(EOFError, ConnectionError):
                while tasks:
                    number, outcome = connection.recv()
                    outcomes.append((tasks.pop(number), outcome))
        for process, connection in self._processes:
            connection.close()
            process.join()
        return outcomes


def _start_process(thread_count: int) -> tuple[BaseProcess, Connection]:
    """Start a process that trains the trials that are sent to it."""
    parent_end, child_end = Pipe()
    process = get_context("spawn").Process(target=_serve_tasks, args=(child_end,), daemon=True)
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(thread_count)  # libraries look when they are loaded
    try:
        process.start()
    finally:
        del os.environ[THREADS]
        if before is not None:
            os.environ[THREADS] = before
    child_end.close()
    return process, parent_end


def _serve_tasks(connection: Connection) -> None:
    """Train the tasks that are sent, and send their outcomes, until the connection is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C of a terminal is for the search, which then asks its processes to stop
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            for task, outcome in train_trials(connection.recv(), Signals(), parent=os.getppid()):
                connection.send((task.trial.number, outcome))


def train_trials(
    tasks: Sequence[TrialTask], signals: Signals, parent: int | None = None
) -> Iterator[tuple[TrialTask, TrialOutcome]]:
    """Train trials, those that share a program in turns, and yield the outcome of each when it ends.

    Errors are part of the outcome. When `signals` request a stop, running trials save and stop, and no other starts:
    those that wait are interrupted too. All trials stop if the process `parent` ends.
    """
    waiting = deque(tasks)
    while waiting and signals.stop is None:
        with Lockstep(signals) if len(waiting) > 1 else nullcontext() as lockstep:
            running: list[_RunningTrial] = []
            while waiting and signals.stop is None:
                if running and (lockstep is None or not lockstep.has_room(len(running))):
                    break
                running.append(_RunningTrial(waiting.popleft(), parent, lockstep))
                yield from _advance(running[-1:], running, signals)  # opens the data
            yield from _advance(running, running, signals)  # compiles, and runs a step
            for batch in _batches(running, lockstep):
                while batch:
                    yield from _advance(batch, batch, signals)
    for task in waiting:
        yield task, TrialOutcome(interrupted=True)


def _advance(
    trials: Sequence[_RunningTrial], running: list[_RunningTrial], signals: Signals
) -> Iterator[tuple[TrialTask, TrialOutcome]]:
    """Run a step of each trial; yield the outcomes of those that end, and remove these from `running`.

    If one was interrupted, the others are asked to stop: a training that runs alone, or in stages, has its own signals.
    """
    for trial in list(trials):
        if (outcome := trial.advance()) is not None:
            running.remove(trial)
            if outcome.interrupted:
                signals.request_stop("another trial was interrupted")
            yield trial.task, outcome


def _batches(running: Sequence[_RunningTrial], lockstep: Lockstep | None) -> list[list[_RunningTrial]]:
    """Divide trials into batches that have a program in common and have come equally far."""
    batches: dict[Hashable, list[_RunningTrial]] = {}
    for trial in running:
        training = trial.callback.training
        assert training is not None, "all of them have run a step"
        program = training.compiler if lockstep is None else lockstep.plans.compilers_sharing_with(training.compiler)[0]
        batches.setdefault((program, training.loader.position), []).append(trial)
    for batch in batches.values():
        numbers = tuple(trial.task.trial.number for trial in batch)
        for trial in batch if len(batch) > 1 else ():
            trial.batch = numbers
    return list(batches.values())


class _RunningTrial:
    """A trial that is trained step by step."""

    def __init__(self, task: TrialTask, parent: int | None, lockstep: Lockstep | None) -> None:
        self.task = task
        self.batch: tuple[int, ...] = ()
        run_dir = task.trial.run_dir
        self.callback = _TrialCallback(Pruner(run_dir.parent, task.search, task.trial.number), parent, task.deadline)
        self._began, self._seconds = time.perf_counter(), 0.0
        self._steps = training_steps(
            task.source, task.overrides, run_dir=run_dir, resume=AUTO, device=task.device, callbacks=[self.callback],
            lockstep=lockstep,
        )  # fmt: skip

    def advance(self) -> TrialOutcome | None:
        """Run to the next point at which another trial may run; at the end, return the outcome."""
        began = time.perf_counter()
        outcome = self._advance()
        self._seconds += time.perf_counter() - began
        return None if outcome is None else replace(outcome, seconds=self._seconds, batch=self.batch)

    def _advance(self) -> TrialOutcome | None:
        callback = self.callback
        try:
            next(self._steps)
            return None
        except StopIteration:
            pass
        except Interrupted:
            if not callback.pruned:
                return TrialOutcome(interrupted=True)
        except NetspecError as error:
            return TrialOutcome(message=_described(error.problems[0]))
        if callback.result is None or not isfinite(callback.result):
            return TrialOutcome(message="no evaluation had a finite value")
        message = STOPPED if callback.stop_training else None
        to_best = callback.best_at - self._began
        return TrialOutcome(callback.result, callback.pruned, message, seconds_to_best=to_best)


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
        """The monitored value of the weights that the training would return if it ended now."""
        self.evaluations = 0
        self.training: TrainingLoop | None = None
        """The training, once it has begun."""

    def on_train_start(self, training: TrainingLoop) -> None:
        self.training = training

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
