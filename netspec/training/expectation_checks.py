"""Check `expect` of a training file by running some steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from netspec.backends.program import NonFiniteLoss
from netspec.compile import scheduled_inputs
from netspec.errors import Problem
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.training.adaptation import adapt
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.stepper import PartialStep, Stepper
from netspec.training.transfer import init_from


@dataclass(frozen=True)
class ExpectationResult:
    """Result of one expectation."""

    summary: str
    """The result as one line of text."""
    problem: Problem | None
    """The error if the expectation is not met."""
    warning: Problem | None = None
    """A remarkable result that may be a mistake."""


def run_expectations(spec: TrainSpec, device: str = "auto") -> Iterator[ExpectationResult]:
    """Check the expected first loss, and whether the net can overfit a few samples. Raises `InputError`.

    Without such expectations, nothing is run.
    """
    expect = spec.expect
    if expect is None:
        return
    if expect.first_loss is not None:
        bounds, loss = expect.first_loss, _losses(spec, 1, device)[0]
        fits = abs(loss - bounds.value) <= bounds.within
        expected = f"{bounds.value:g} ± {bounds.within:g}"
        location, path = expect.where("first_loss"), "expect.first_loss"
        problem = Problem("the first loss is not as expected", location, path, expected=expected, got=f"{loss:.6g}")
        yield ExpectationResult(f"the first loss is {loss:.4f} (expected {expected})", None if fits else problem)
    if expect.overfits is not None:
        goal = expect.overfits
        losses = _losses(_on_few(spec, goal.samples), goal.steps, device)
        last = losses[-_steps_per_pass(spec, goal.samples) :]
        loss = float(np.mean(last))
        goal_text = f"{goal.samples} samples in {goal.steps} steps"
        problem = Problem(
            f"the net does not learn {goal_text}", expect.where("overfits"), "expect.overfits",
            expected=f"a loss of {goal.loss:g} or less", got=f"{loss:.6g}, from {losses[0]:.6g} at the first step",
            hint="check the learning rate, the `from` of the layers, and that the labels belong to the samples",
        )  # fmt: skip
        yield ExpectationResult(f"{goal_text} reach a loss of {loss:.4g} (expected at most {goal.loss:g})",
                    None if loss <= goal.loss else problem)  # fmt: skip


def _steps_per_pass(spec: TrainSpec, samples: int) -> int:
    """Return the number of steps of one pass over `samples` samples."""
    return -(-samples // (min(spec.data.train.batch_size, samples) * spec.train.accumulate))


def _on_few(spec: TrainSpec, samples: int) -> TrainSpec:
    """Return the training on its first samples only."""
    split = spec.data.train
    few = split.model_copy(update={"limit": samples, "batch_size": min(split.batch_size, samples)})
    return spec.model_copy(update={"data": spec.data.model_copy(update={"train": few})})


def _losses(spec: TrainSpec, steps: int, device: str) -> list[float]:
    """Return the training losses of the first steps; infinite from the first non-finite one on."""
    compiler = training_compiler(spec, device)
    transfer = init_from(spec, compiler)
    compiler.reset_copies()
    losses: list[float] = []
    assert isinstance(spec.solver, SolverSpec)
    schedules, part = scheduled_inputs(spec.solver), PartialStep()
    with open_training_loader(spec, compiler) as loader:
        adapt(compiler, loader, transfer.coverage.arrays if transfer is not None else ())
        stepper = Stepper(spec, compiler, loader)
        for batch in loader:
            rates = {name: schedule.value(len(losses), steps) for name, schedule in schedules.items()}
            try:
                outcome = stepper.run(batch, len(losses), rates, part)
                if outcome is not None:
                    losses.append(outcome[0]())
            except NonFiniteLoss:
                return [*losses, *[float("inf")] * (steps - len(losses))]
            if len(losses) == steps:
                break
    return losses
