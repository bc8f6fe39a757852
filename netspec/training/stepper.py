"""`Stepper`: training steps of one batch, or of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from netspec.backends.executor import Outcome
from netspec.compile import FIRST, LEARNING_RATE, SHARE, STEP, TOTAL, WEIGHT, Compiler, ProgramKind
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.lbfgs import LBFGS, unread
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
    """Runs training steps on the batches that it receives.

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
        stage: Callable[[int], int | None] = lambda step: None,
        restarts: bool = False,
    ) -> None:
        """`stage` returns the compiled variant of a step, None for the last one.

        `restarts`: a failed step of several batches starts again from its first batch. One of several workers can't
        continue it, since it does not have the gradients of the others. Raises `InputError` if the solver needs the
        whole training set in a step and `accumulate` gives it less.
        """
        loop = spec.train
        self._compiler, self._accumulate, self._seed = compiler, loop.accumulate, loop.seed
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
        self._held: list[Batch] = []
        """The batches of the current epoch so far, for a full-batch solver."""
        self._minimizer = LbfgsMinimizer(spec.solver, compiler) if isinstance(spec.solver, LBFGS) else None
        if self._minimizer is not None and (problem := unread(loader.steps_per_epoch, loop)) is not None:
            raise InputError(problem)
        self._loader = loader
        self._stage = stage
        self.steps_per_epoch = -(-loader.steps_per_epoch // loop.accumulate)
        """Number of steps in an epoch, including a smaller last one."""

    def run(self, batch: Batch, step: int, rates: Mapping[str, float], part: PartialStep) -> tuple[Outcome, int] | None:
        """Run a batch. Return a function for the loss of the step, and 1, if this is its last batch, else None.

        A worker that trains by itself and has none of the step's samples does nothing and returns 0 losses.
        `part` is the finished part of step `step`, and is updated. `rates` are the scheduled values by
        the inputs of the programs. Raises `NonFiniteLoss` before anything is changed; a device that runs ahead raises
        that of the step before, or where the loss is asked for.
        """
        states = self._compiler.states
        if not part.batches:
            self._start = {name: states[name] for name in self._moving}
        self._before = None if self.restarts else states.version
        try:
            found = self._taken(batch, step, rates, part)
        except BaseException:
            self.changed = self._before not in (None, states.version)
            raise
        if found is not None:
            self._start = {}
        return found

    def rewind(self) -> None:
        """Restore the states from before a failed step. Gradient sums start from zero in each step anyway."""
        for name, array in self._start.items():
            self._compiler.states.assign(name, array)
        self._start = {}

    def _taken(
        self, batch: Batch, step: int, rates: Mapping[str, float], part: PartialStep
    ) -> tuple[Outcome, int] | None:
        if self._minimizer is None and self._compiler.batch_program is ProgramKind.TRAIN:
            if self._compiler.workers == 1 and not len(batch):
                return float, 0
            whole = batch.end - batch.position
            program = self._compiler.program(self._compiler.batch_program, batch.rows, self._stage(step), whole)
            program.write({**self._inputs(batch, step, part), **_update(step, rates)})
            program.run()
            return program.outcome, 1
        found = self._of_several(batch, step, rates, part)
        return None if found is None else (lambda: found[0], found[1])

    def _of_several(
        self, batch: Batch, step: int, rates: Mapping[str, float], part: PartialStep
    ) -> tuple[float, int] | None:
        """Run one batch of a step with several batches; see `run`."""
        if self._minimizer is not None:
            return self._minimize(self._minimizer, batch, rates[LEARNING_RATE])
        loss, samples = self._add(batch, step, part)
        part.batches += 1
        part.samples += samples
        part.loss += loss * samples
        part.weight += len(batch) / self._loader.batch_size
        if part.batches < self._accumulate and not self._loader.between_epochs:
            return None
        found = self._end(step, rates, part)
        part.batches, part.samples, part.loss, part.weight = 0, 0, 0.0, 0.0
        return found

    def _end(self, step: int, rates: Mapping[str, float], part: PartialStep) -> tuple[float, int]:
        """Update the parameters by the gradients of all batches of a step; return its loss and 1, if it has samples."""
        if not part.samples:
            return 0.0, 0
        self._before = self._compiler.states.version
        program = self._compiler.program(ProgramKind.UPDATE, 1, self._stage(step))
        mean = {SHARE: np.array(self._loader.batch_size / part.samples), WEIGHT: np.array(part.weight)}
        program.write({**_update(step, rates), **mean})
        program.run()
        return part.loss / part.samples, 1

    def _add(self, batch: Batch, step: int, part: PartialStep) -> tuple[float, int]:
        """Add the gradients of a batch to those of the step; return its loss and its number of samples."""
        whole = batch.end - batch.position
        program = self._compiler.program(self._compiler.batch_program, batch.rows, global_batch=whole)
        program.write(self._inputs(batch, step, part))
        program.run()
        alone = self._compiler.workers == 1
        samples = len(batch) if alone else round(float(program.read(TOTAL)[TOTAL]) * self._loader.batch_size)
        return program.guard, samples

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

    def _minimize(self, minimizer: LbfgsMinimizer, batch: Batch, rate: float) -> tuple[float, int] | None:
        """Keep a batch; at the end of an epoch run a step on all of them. The rest of a broken epoch is passed over."""
        if not self._held and batch.position:
            return None
        self._held.append(batch)
        if not self._loader.between_epochs:
            return None
        batches, self._held = self._held, []
        samples = sum(map(len, batches))

        def evaluate() -> float:
            total = 0.0
            for number, one in enumerate(batches):
                program = self._compiler.program(self._compiler.batch_program, len(one))
                weight = {WEIGHT: np.array(len(one) / self._loader.batch_size), FIRST: np.array(number == 0)}
                program.write({**one.inputs, **weight})
                program.run()
                total += program.guard * len(one)
            return total / samples

        return minimizer.step(evaluate, self._loader.batch_size / samples, rate), 1


def moving_averages(compiler: Compiler) -> list[str]:
    """Names of the moving averages, of which each batch of a step, and each part of it, finds others."""
    updates, info = compiler.net_graph(ProgramKind.ACCUMULATE, 1).builder.updates, compiler.info
    return [name for name in updates if info[name].role == "statistic" and info[name].value.dtype.is_float]


def _update(step: int, rates: Mapping[str, float]) -> dict[str, Any]:
    """The inputs of an update, apart from gradients."""
    return {**{name: np.array(rate) for name, rate in rates.items()}, STEP: np.array(step + 1.0)}
