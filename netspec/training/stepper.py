"""`Stepper`: training steps of one batch, or of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np

from netspec.backends.executor import Outcome
from netspec.backends.program import Program
from netspec.compile import (
    FIRST,
    GRADIENT_NORM,
    LEARNING_RATE,
    SHARE,
    STEP,
    TOTAL,
    WEIGHT,
    Compiler,
    ProgramKind,
    mean_totals,
    scheduled_inputs,
)
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.lbfgs import LBFGS, partial_step_problem
from netspec.training.diagnostics.call_record import CallRecord, ProgramCall
from netspec.training.lbfgs import LbfgsMinimizer


@dataclass
class PartialStep:
    """Finished part of a step with several batches, between two of them."""

    batches: int = 0
    samples: int = 0
    loss: float = 0.0
    """Sum of the losses of the samples."""
    weight: float = 0.0
    """Weight of this worker's samples, in nominal batches."""


class Stepper:
    """Runs training steps, each on one batch or on several.

    A step reads `accumulate` batches, fewer at the end of an epoch, and its loss and gradients are the means over all
    its samples. Random numbers are drawn as for one batch of all these samples. A step of a full-batch solver reads an
    epoch, and computes its loss as often as the solver requests.
    """

    def __init__(
        self,
        spec: TrainSpec,
        compiler: Compiler,
        loader: Loader,
        *,
        calls: CallRecord | None = None,
        stage: Callable[[int], int | None] = lambda step: None,
        restarts: bool = False,
    ) -> None:
        """`stage` returns the compiled variant for a step, None for the last variant.

        `calls` records the calls of programs; by default, and for L-BFGS, the record can't repeat them.
        `restarts`: a failed step of several batches starts again from its first batch, because a worker does not have
        the gradients of the others and can't continue it alone. Raises `InputError` if the solver needs the whole
        training set in a step and `accumulate` gives it less.
        """
        loop = spec.train
        self._compiler, self._accumulate, self._seed = compiler, loop.accumulate, loop.seed
        self.metric_totals: dict[str, tuple[float, ...]] = {}
        """Totals of metrics of this worker's samples of the last batch, by metric, if they are logged."""
        self._totals: dict[str, list[str]] = {}
        """Names of these totals among the results of a program, by metric."""
        for name in mean_totals(compiler.net_graph(compiler.batch_program, 1)) if compiler.logs_metrics else ():
            self._totals.setdefault(name.rpartition("/")[0], []).append(name)
        self._updating: Program | None = None
        """The program that updated the parameters last."""
        self.changed = False
        """Whether a failed step changed states that `rewind` does not restore."""
        self.restarts = restarts and compiler.batch_program is ProgramKind.ACCUMULATE
        """Whether a failed step of several batches starts again from its first batch."""
        self._moving = moving_averages(compiler) if self.restarts else []
        """Names of the states that each batch changes and that a restarted step restores."""
        self._start: dict[str, Any] = {}
        """Their values before the current step."""
        self._before: int | None = None
        """Version of the states that a failing step leaves unchanged."""
        if isinstance(spec.solver, LBFGS):
            calls = None  # the host changes the parameters between calls, so repeated calls would have other results
        self.calls = calls or CallRecord(compiler, unknown_reason="steps are not recorded")
        """The last calls of programs."""
        self._held: list[Batch] = []
        """The batches of the current epoch so far, for a full-batch solver."""
        self._minimizer = LbfgsMinimizer(spec.solver, compiler) if isinstance(spec.solver, LBFGS) else None
        if self._minimizer is not None and (problem := partial_step_problem(loader.steps_per_epoch, loop)) is not None:
            raise InputError(problem)
        self._loader = loader
        self._stage = stage
        self.steps_per_epoch = -(-loader.steps_per_epoch // loop.accumulate)
        """Number of steps in an epoch, including a smaller last one."""

    def run(self, batch: Batch, step: int, rates: Mapping[str, float], part: PartialStep) -> tuple[Outcome, int] | None:
        """Run a batch. After the last of a step, return a function for its loss and the number of losses, else None.

        The number of losses is 1, or 0 if this worker has none of the step's samples. `part` is the finished part of
        the step `step`, and is updated. `rates` are the scheduled values, by the inputs of the programs. Raises
        `NonFiniteLoss` before any state changes. A device that runs ahead raises it one step later, or when the loss is
        requested.
        """
        states, self.metric_totals = self._compiler.states, {}
        if not part.batches:
            self._start = {name: states[name] for name in self._moving}
        self._before = None if self.restarts else states.version
        try:
            outcome = self._run(batch, step, rates, part)
        except BaseException:
            self.changed = self._before not in (None, states.version)
            raise
        if outcome is not None:
            self._start = {}
        return outcome

    def rewind(self) -> None:
        """Restore the states from before a failed step. Gradient sums start from zero in each step anyway."""
        for name, array in self._start.items():
            self._compiler.states.assign(name, array)
        self._start = {}

    def _run(
        self, batch: Batch, step: int, rates: Mapping[str, float], part: PartialStep
    ) -> tuple[Outcome, int] | None:
        if self._minimizer is None and self._compiler.batch_program is ProgramKind.TRAIN:
            if self._compiler.workers == 1 and not len(batch):
                return float, 0
            global_batch = batch.end - batch.position
            inputs = {**self._inputs(batch, step, part), **_update_inputs(step, rates)}
            kind, stage = self._compiler.batch_program, self._stage(step)
            program = self.calls.run(ProgramCall(kind, batch.rows, stage, global_batch, inputs, step, batch.indices))
            self._updating = program
            self._read_totals(program, batch)
            return program.outcome, 1
        result = self._accumulate_batch(batch, step, rates, part)
        return None if result is None else (lambda: result[0], result[1])

    def _accumulate_batch(
        self, batch: Batch, step: int, rates: Mapping[str, float], part: PartialStep
    ) -> tuple[float, int] | None:
        """Run one batch of a step with several batches; see `run`."""
        if self._minimizer is not None:
            return self._minimize(self._minimizer, batch, step, rates[LEARNING_RATE])
        loss, samples = self._add(batch, step, part)
        part.batches += 1
        part.samples += samples
        part.loss += loss * samples
        part.weight += len(batch) / self._loader.batch_size
        if part.batches < self._accumulate and not self._loader.between_epochs:
            return None
        result = self._update(step, rates, part)
        part.batches, part.samples, part.loss, part.weight = 0, 0, 0.0, 0.0
        return result

    def _update(self, step: int, rates: Mapping[str, float], part: PartialStep) -> tuple[float, int]:
        """Update the parameters by the gradients of all batches of a step; return its loss and 1, if it has samples."""
        if not part.samples:
            return 0.0, 0
        self._before = self._compiler.states.version
        mean = {SHARE: np.array(self._loader.batch_size / part.samples), WEIGHT: np.array(part.weight)}
        inputs = {**_update_inputs(step, rates), **mean}
        program = self.calls.run(ProgramCall(ProgramKind.UPDATE, 1, self._stage(step), None, inputs, step))
        self._updating = program
        return part.loss / part.samples, 1

    def _add(self, batch: Batch, step: int, part: PartialStep) -> tuple[float, int]:
        """Add the gradients of a batch to those of the step; return its loss and its number of samples."""
        global_batch = batch.end - batch.position
        kind, inputs = self._compiler.batch_program, self._inputs(batch, step, part)
        program = self.calls.run(ProgramCall(kind, batch.rows, None, global_batch, inputs, step, batch.indices))
        self._read_totals(program, batch)
        alone = self._compiler.workers == 1
        samples = len(batch) if alone else round(float(program.read(TOTAL)[TOTAL]) * self._loader.batch_size)
        return program.guard, samples

    def gradient_norm(self) -> float | None:
        """Return the norm of the gradients of the last step, before clipping; None if it is not computed."""
        if not self._compiler.logs_gradient_norm:
            return None
        if self._minimizer is not None:
            return self._minimizer.gradient_norm
        if self._updating is None:
            return None
        return float(self._updating.read(GRADIENT_NORM)[GRADIENT_NORM])

    def _read_totals(self, program: Program, batch: Batch) -> None:
        """Add the totals of metrics that a program has computed for the batch, or a part of it, if it has samples."""
        if self._totals and len(batch):
            read = program.read(*(name for names in self._totals.values() for name in names))
            for metric, names in self._totals.items():
                before = self.metric_totals.get(metric, (0.0,) * len(names))
                values = (read[name].item() for name in names)
                self.metric_totals[metric] = tuple(map(add, before, values))

    def _inputs(self, batch: Batch, step: int, part: PartialStep) -> dict[str, Any]:
        """Return the inputs of a program for a batch, including the weight of the batch in the step."""
        return {
            **batch.inputs,
            RNG_INPUT: np.array([self._seed, step, part.samples + batch.offset]),
            WEIGHT: np.array(len(batch) / self._loader.batch_size),
            FIRST: np.array(part.batches == 0),
        }

    def is_midstep(self, part: PartialStep) -> bool:
        """Return whether a step continues with the next batch."""
        return part.batches > 0 or bool(self._held)

    def _minimize(
        self, minimizer: LbfgsMinimizer, batch: Batch, step: int, rate: float
    ) -> tuple[float, int] | None:  # fmt: skip
        """Store a batch; after the last of an epoch run a step on all of them. Skip an epoch that began earlier."""
        if not self._held and batch.position:
            return None
        self._held.append(batch)
        if not self._loader.between_epochs:
            return None
        batches, self._held = self._held, []
        samples = sum(map(len, batches))
        is_first = True

        def evaluate() -> float:
            nonlocal is_first
            total = 0.0
            for number, each in enumerate(batches):
                weight = {WEIGHT: np.array(len(each) / self._loader.batch_size), FIRST: np.array(number == 0)}
                kind, inputs = self._compiler.batch_program, {**each.inputs, **weight}
                program = self.calls.run(ProgramCall(kind, len(each), None, None, inputs, step, each.indices))
                total += program.guard * len(each)
                if is_first:  # at the parameters from which the step starts
                    self.calls.check_gradients()
                    self._read_totals(program, each)
            is_first = False
            return total / samples

        return minimizer.step(evaluate, self._loader.batch_size / samples, rate), 1


def run_steps(
    stepper: Stepper, batches: Iterable[Batch], rates: Callable[[int], Mapping[str, float]]
) -> Iterator[tuple[Batch, Outcome]]:
    """Run one step after another; yield the last batch of each, and a function for its loss.

    `rates` returns the scheduled values of a step, counted from 0. Raises `NonFiniteLoss` as `Stepper.run`.
    """
    part, step = PartialStep(), 0
    for batch in batches:
        result = stepper.run(batch, step, rates(step), part)
        if result is not None:
            step += 1
            yield batch, result[0]


def scheduled_rates(spec: TrainSpec, steps: int) -> Callable[[int], dict[str, float]]:
    """Return a function for the scheduled values of each of `steps` steps, by the inputs of the programs."""
    assert isinstance(spec.solver, SolverSpec)
    schedules = scheduled_inputs(spec.solver)
    return lambda step: {name: schedule.value(step, steps) for name, schedule in schedules.items()}


def moving_averages(compiler: Compiler) -> list[str]:
    """Return the names of the moving averages, which every batch of a step updates."""
    updates, info = compiler.net_graph(ProgramKind.ACCUMULATE, 1).builder.updates, compiler.info
    return [name for name in updates if info[name].role == "statistic" and info[name].value.dtype.is_float]


def _update_inputs(step: int, rates: Mapping[str, float]) -> dict[str, Any]:
    """Return the inputs of an update, apart from gradients."""
    return {**{name: np.array(rate) for name, rate in rates.items()}, STEP: np.array(step + 1.0)}
