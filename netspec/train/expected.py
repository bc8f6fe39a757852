"""What a training file expects of its training, found out by running some steps of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from netspec.backends.program import NonFiniteLoss
from netspec.compile import rate_inputs
from netspec.errors import Problem
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.train.adapting import adapt
from netspec.train.stepper import Part, Stepper
from netspec.train.trainer import open_training_loader, trainer
from netspec.train.transfer import init_from


@dataclass(frozen=True)
class Found:
    """What one expectation came to."""

    told: str
    """A line that says it."""
    problem: Problem | None
    """What is wrong, where it is not as expected."""


def run_expectations(spec: TrainSpec, device: str = "auto") -> Iterator[Found]:
    """Try what `expect` says: the first loss, and whether a few samples are learned. Raises `InputError`."""
    expect = spec.expect
    if expect is None:
        return
    if expect.first_loss is not None:
        wanted, loss = expect.first_loss, _losses(spec, 1, device)[0]
        fits = abs(loss - wanted.value) <= wanted.within
        expected = f"{wanted.value:g} ± {wanted.within:g}"
        place, path = expect.where("first_loss"), "expect.first_loss"
        problem = Problem("the first loss is another", place, path, expected=expected, got=f"{loss:.6g}")
        yield Found(f"the first loss is {loss:.4f} (expected {expected})", None if fits else problem)
    if expect.overfits is not None:
        goal = expect.overfits
        losses = _losses(_on_few(spec, goal.samples), goal.steps, device)
        last = losses[-_passes(spec, goal.samples) :]
        loss = float(np.mean(last))
        what = f"{goal.samples} samples in {goal.steps} steps"
        problem = Problem(
            f"the net does not learn {what}", expect.where("overfits"), "expect.overfits",
            expected=f"a loss of {goal.loss:g} or less", got=f"{loss:.6g}, from {losses[0]:.6g} at the first step",
            hint="look at the learning rate, at what the layers read, and at whether samples fit their labels",
        )  # fmt: skip
        yield Found(f"{what} come to a loss of {loss:.4g} (expected at most {goal.loss:g})",
                    None if loss <= goal.loss else problem)  # fmt: skip


def _passes(spec: TrainSpec, samples: int) -> int:
    """How many steps a pass over so many samples has."""
    return -(-samples // (min(spec.data.train.batch_size, samples) * spec.train.accumulate))


def _on_few(spec: TrainSpec, samples: int) -> TrainSpec:
    """The same training on the first samples alone."""
    split = spec.data.train
    few = split.model_copy(update={"limit": samples, "batch_size": min(split.batch_size, samples)})
    return spec.model_copy(update={"data": spec.data.model_copy(update={"train": few})})


def _losses(spec: TrainSpec, steps: int, device: str) -> list[float]:
    """The training losses of the first steps; infinite from the first one that is not finite."""
    compiler = trainer(spec, device)
    taken = init_from(spec, compiler)
    compiler.follow()
    losses: list[float] = []
    assert isinstance(spec.solver, SolverSpec)
    schedules, part = rate_inputs(spec.solver), Part()
    with open_training_loader(spec, compiler) as loader:
        adapt(compiler, loader, taken.coverage.arrays if taken is not None else ())
        stepper = Stepper(spec, compiler, loader)
        for batch in loader:
            rates = {name: one.value(len(losses), steps) for name, one in schedules.items()}
            try:
                done = stepper.take(batch, len(losses), rates, part)
                if done is not None:
                    losses.append(done[0]())
            except NonFiniteLoss:
                return [*losses, *[float("inf")] * (steps - len(losses))]
            if len(losses) == steps:
                break
    return losses
