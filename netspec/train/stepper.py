"""`Stepper`: training steps of one batch, or of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from netspec.backends.steps import Outcome
from netspec.compile import FIRST, LEARNING_RATE, SHARE, STEP, TOTAL, WEIGHT, Compiler, Purpose
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError
from netspec.graph.ops.random import RNG_INPUT
from netspec.parallel.strategies.base import Strategy
from netspec.schema.train import TrainSpec
from netspec.solvers.lbfgs import LBFGS, unread
from netspec.train.lbfgs import Minimizer
from netspec.train.served import Connection


@dataclass
class Part:
    """What of a step is done: of a step with several batches, between two of them."""

    batches: int = 0
    samples: int = 0
    loss: float = 0.0
    """Sum of the losses of the samples."""
    weight: float = 0.0
    """What the samples of this worker count, in nominal batches."""


class Stepper:
    """Runs training steps on the batches that it is given.

    A step reads `accumulate` batches, fewer at the end of an epoch, and its loss and gradients are the means over all
    its samples. Random numbers are those of one batch of all of them. A step of a solver of the whole training set
    reads an epoch, and computes its loss as often as the solver likes.
    """

    def __init__(self, spec: TrainSpec, compiler: Compiler, loader: Loader) -> None:
        """Raises `InputError` where a step is to read the whole training set, and `accumulate` has it read less."""
        loop = spec.train
        self._compiler, self._accumulate, self._seed = compiler, loop.accumulate, loop.seed
        self.changed = False
        """Whether a step that failed had begun to change states, beside those that `rewind` brings back."""
        self._moving: list[str] = []
        """Names of states that each batch of a step changes, of which the step may be begun anew."""
        self._start: dict[str, Any] = {}
        """What they were before the step that is under way."""
        self._anew = False
        self._before: int | None = None
        """The version of the states that a step leaves as they are while it fails."""
        self._held: list[Batch] = []
        """The batches of an epoch so far, for a solver of the whole."""
        self._minimizer = Minimizer(spec.solver, compiler) if isinstance(spec.solver, LBFGS) else None
        if self._minimizer is not None and (problem := unread(loader.steps_per_epoch, loop)) is not None:
            raise InputError(problem)
        self._loader = loader
        strategy = spec.parallel
        self._stage = strategy.stage if isinstance(strategy, Strategy) and compiler.workers > 1 else lambda step: None
        self.steps_per_epoch = -(-loader.steps_per_epoch // loop.accumulate)
        """How many steps an epoch has, the smaller last one included."""

    def take(self, batch: Batch, step: int, rates: Mapping[str, float], part: Part) -> tuple[Outcome, int] | None:
        """Run what a batch is for. What asks for the loss of the step, and 1 where this is its last batch, else None.

        A worker that trains by itself, and has none of the step's samples, does nothing, and finds 0 losses.
        `part` is what of step `step` was done before, and is brought up to date. `rates` are the learning rates by the
        inputs of the programs. Raises `NonFiniteLoss` before anything is changed; a device that runs ahead raises that
        of the step before, or where the loss is asked for.
        """
        states = self._compiler.states
        if not part.batches:
            self._start = {name: states[name] for name in self._moving}
        self._before = None if self._anew else states.version
        try:
            found = self._taken(batch, step, rates, part)
        except BaseException:
            self.changed = self._before not in (None, states.version)
            raise
        if found is not None:
            self._start = {}
        return found

    def begins_anew(self) -> Self:
        """Have a step of several batches begin anew where it fails: it, as one of several workers, knows not all."""
        self._anew = self._compiler.of_batch is Purpose.ACCUMULATE
        self._moving = moving(self._compiler) if self._anew else []
        return self

    def rewind(self) -> None:
        """Have states as they were before a step that failed; sums of gradients begin anew with each step."""
        for name, array in self._start.items():
            self._compiler.states.assign(name, array)
        self._start = {}

    def _taken(self, batch: Batch, step: int, rates: Mapping[str, float], part: Part) -> tuple[Outcome, int] | None:
        if self._minimizer is None and self._compiler.of_batch is Purpose.TRAIN:
            if self._compiler.workers == 1 and not len(batch):
                return float, 0
            whole = batch.end - batch.position
            program = self._compiler.program(self._compiler.of_batch, batch.rows, self._stage(step), whole)
            program.write({**self._inputs(batch, step, part), **_update(step, rates)})
            program.run()
            return program.outcome, 1
        found = self._of_several(batch, step, rates, part)
        return None if found is None else (lambda: found[0], found[1])

    def _of_several(self, batch: Batch, step: int, rates: Mapping[str, float], part: Part) -> tuple[float, int] | None:
        """The same of a step with several batches."""
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

    def _end(self, step: int, rates: Mapping[str, float], part: Part) -> tuple[float, int]:
        """Move the parameters by the gradients of all batches of a step; its loss and 1, where there are samples."""
        if not part.samples:
            return 0.0, 0
        self._before = self._compiler.states.version
        program = self._compiler.program(Purpose.UPDATE, 1, self._stage(step))
        mean = {SHARE: np.array(self._loader.batch_size / part.samples), WEIGHT: np.array(part.weight)}
        program.write({**_update(step, rates), **mean})
        program.run()
        return part.loss / part.samples, 1

    def _add(self, batch: Batch, step: int, part: Part) -> tuple[float, int]:
        """Add the gradients of a batch to those of the step so far: its loss, and how many samples it has."""
        whole = batch.end - batch.position
        program = self._compiler.program(self._compiler.of_batch, batch.rows, whole=whole)
        program.write(self._inputs(batch, step, part))
        program.run()
        alone = self._compiler.workers == 1
        samples = len(batch) if alone else round(float(program.read(TOTAL)[TOTAL]) * self._loader.batch_size)
        return program.guard, samples

    def _inputs(self, batch: Batch, step: int, part: Part) -> dict[str, Any]:
        """What a program reads of a batch, and what it counts in the step."""
        return {
            **batch.inputs,
            RNG_INPUT: np.array([self._seed, step, part.samples + batch.offset]),
            WEIGHT: np.array(len(batch) / self._loader.batch_size),
            FIRST: np.array(part.batches == 0),
        }

    def midway(self, part: Part) -> bool:
        """Whether a step goes on with the next batch."""
        return part.batches > 0 or bool(self._held)

    def _minimize(self, minimizer: Minimizer, batch: Batch, rate: float) -> tuple[float, int] | None:
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
                program = self._compiler.program(self._compiler.of_batch, len(one))
                weight = {WEIGHT: np.array(len(one) / self._loader.batch_size), FIRST: np.array(number == 0)}
                program.write({**one.inputs, **weight})
                program.run()
                total += program.guard * len(one)
            return total / samples

        return minimizer.step(evaluate, self._loader.batch_size / samples, rate), 1


def moving(compiler: Compiler) -> list[str]:
    """Names of the moving averages, of which each batch of a step, and each part of it, finds others."""
    updates, info = compiler.built(Purpose.ACCUMULATE, 1).builder.updates, compiler.info
    return [name for name in updates if info[name].role == "statistic" and info[name].value.dtype.is_float]


def _update(step: int, rates: Mapping[str, float]) -> dict[str, Any]:
    """What an update reads beside gradients."""
    return {**{name: np.array(rate) for name, rate in rates.items()}, STEP: np.array(step + 1.0)}


class ServedStepper(Stepper):
    """Runs the steps of a worker whose parameters are on servers."""

    def __init__(self, spec: TrainSpec, compiler: Compiler, loader: Loader, servers: Connection) -> None:
        super().__init__(spec, compiler, loader)
        self._servers, self._told = servers, 0.0
        self._sum = 0.0
        """Of the losses of this worker's samples of a step."""

    def _add(self, batch: Batch, step: int, part: Part) -> tuple[float, int]:
        """The batch of all workers counts; one of a step that they have made without this worker is passed over."""
        loss = 0.0
        if step >= self._servers.step:
            loss, samples = super()._add(batch, step, part)
            self._sum += loss * samples
        return loss, batch.end - batch.position

    def _end(self, step: int, rates: Mapping[str, float], part: Part) -> tuple[float, int]:
        """Give the gradients away, and go on with the parameters that come back."""
        if step >= self._servers.step:
            loss = self._sum / (part.weight * self._loader.batch_size) if part.weight else 0.0
            self._told, self._sum = self._servers.done(step, part.weight, loss, rates), 0.0
        return self._told, 1
