"""Check `expect` of a training file by running some steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from netspec.backends.program import NonFiniteLoss
from netspec.compile import Compiler
from netspec.data.loader import Loader
from netspec.errors import Problem
from netspec.schema.specs.expect import Overfits, TrainExpectation
from netspec.schema.specs.train import TrainSpec
from netspec.training.adaptation import adapt
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.diagnostics.overfitting import limit_to_first, train_until_learned
from netspec.training.stepper import Stepper, run_steps, scheduled_rates
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
        with _started(spec, device) as (compiler, loader):
            loss = _first_loss(spec, compiler, loader)
        bounds = expect.first_loss
        fits = abs(loss - bounds.value) <= bounds.within
        expected = f"{bounds.value:g} ± {bounds.within:g}"
        location, path = expect.where("first_loss"), "expect.first_loss"
        problem = Problem("the first loss is not as expected", location, path, expected=expected, got=f"{loss:.6g}")
        yield ExpectationResult(f"the first loss is {loss:.4f} (expected {expected})", None if fits else problem)
    if expect.overfits is not None:
        yield _overfits(spec, expect, expect.overfits, device)


def _overfits(spec: TrainSpec, expect: TrainExpectation, goal: Overfits, device: str) -> ExpectationResult:
    """Check whether the net can memorize a few samples."""
    few = limit_to_first(spec, goal.samples)
    with _started(few, device) as (compiler, loader):
        history = train_until_learned(few, compiler, loader, goal.steps, goal.loss)
    first, last = history.losses[0], history.losses[-1]
    criterion = history.describe_criterion(goal.loss)
    goal_text = f"{goal.samples} samples in {goal.steps} steps"
    problem = Problem(
        f"the net does not learn {goal_text}", expect.where("overfits"), "expect.overfits",
        expected=f"a loss of {criterion}", got=f"{last:.6g}, from {first:.6g} in the first pass",
        hint="`netspec train SPEC --overfit` names likely reasons; check that the labels belong to the samples",
    )  # fmt: skip
    summary = f"{goal_text} reach a loss of {last:.4g} (expected: {criterion})"
    return ExpectationResult(summary, None if history.is_learned(goal.loss) else problem)


@contextmanager
def _started(spec: TrainSpec, device: str) -> Iterator[tuple[Compiler, Loader]]:
    """Compile a training, and give it its first values."""
    compiler = training_compiler(spec, device)
    transfer = init_from(spec, compiler)
    compiler.reset_copies()
    with open_training_loader(spec, compiler) as loader:
        adapt(compiler, loader, transfer.coverage.arrays if transfer is not None else ())
        yield compiler, loader


def _first_loss(spec: TrainSpec, compiler: Compiler, loader: Loader) -> float:
    """Return the loss of the first step; infinite if it is not finite."""
    try:
        _, loss = next(run_steps(Stepper(spec, compiler, loader), loader, scheduled_rates(spec, 1)))
        return loss()
    except NonFiniteLoss:
        return inf
