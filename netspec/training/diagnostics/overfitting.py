"""Train on a few samples until the net has memorized them: for `--overfit`, and for `expect` of a training file."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from netspec.backends.program import NonFiniteLoss
from netspec.compile import LOSS, REGULARIZATION, Compiler
from netspec.data.loader import Loader
from netspec.layers.metrics.accuracy import AccuracyMetric
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.training.stepper import Stepper, run_steps, scheduled_rates

LEARNED = 0.05
"""Fraction of the first loss at which the samples count as learned."""
LEARNED_WITH_ACCURACY = 0.5
"""The same if each sample is classified correctly."""


@dataclass
class OverfitHistory:
    """Losses of a training on a few samples, pass by pass."""

    losses: list[float] = field(default_factory=list)
    """Mean training loss of each pass, each step's before its update; no penalties on weights."""
    accuracy: float | None = None
    """Fraction of the samples that the last pass has classified correctly, if it is logged."""
    steps: int = 0
    """Number of steps whose loss was finite."""

    def describe_criterion(self, bound: float | None) -> str:
        """Return the last loss that counts as learned, as text for messages."""
        if bound is not None:
            return f"{bound:.4g} or less"
        first = abs(self.losses[0])
        by_accuracy = "" if self.accuracy is None else (
            f", or {LEARNED_WITH_ACCURACY * first:.4g} with all samples classified correctly"
        )  # fmt: skip
        return f"{LEARNED * first:.4g} or less{by_accuracy}"

    def is_learned(self, bound: float | None = None) -> bool:
        """Whether the samples are learned: the last loss is at most `bound`, or else a fraction of the first."""
        first, last = self.losses[0], self.losses[-1]
        if not isfinite(last):
            return False
        if bound is not None:
            return last <= bound
        return last <= LEARNED * abs(first) or (self.accuracy == 1.0 and last <= LEARNED_WITH_ACCURACY * abs(first))


def limit_to_first(spec: TrainSpec, samples: int) -> TrainSpec:
    """Return the training on its first samples, in order, without random transforms and evaluations."""
    assert isinstance(spec.solver, SolverSpec)
    split = spec.data.train.fixed()
    first = split.model_copy(update={"limit": samples, "batch_size": min(split.batch_size, samples)})
    changes = {} if spec.solver.full_batch else {"accumulate": 1}
    return spec.model_copy(
        update={
            "data": spec.data.model_copy(update={"train": first}), "train": spec.train.model_copy(update=changes),
            "parallel": None,
        }
    )  # fmt: skip


def train_until_learned(
    spec: TrainSpec, compiler: Compiler, loader: Loader, steps: int, bound: float | None = None
) -> OverfitHistory:
    """Train for at most `steps` steps, in whole passes over the samples, until `OverfitHistory.is_learned`."""
    history, stepper = OverfitHistory(), Stepper(spec, compiler, loader)
    penalty = f"{LOSS}/{REGULARIZATION}"
    has_penalty = penalty in compiler.graph(compiler.batch_program, 1).outputs
    accuracies = [name for name, metric in compiler.metrics.items() if isinstance(metric, AccuracyMetric)]
    total, samples, totals = 0.0, 0, dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]()
    try:
        for batch, outcome in run_steps(stepper, loader, scheduled_rates(spec, steps)):
            loss, call = outcome(), stepper.calls.last()
            history.steps += 1
            if has_penalty and call is not None:
                loss -= float(call.program(compiler).read(penalty)[penalty])
            total, samples = total + loss * len(batch), samples + len(batch)
            for name in accuracies:
                if name in stepper.metric_totals:
                    totals[name] = totals.get(name, np.zeros(())) + np.array(stepper.metric_totals[name])
            if not loader.between_epochs:
                continue
            history.losses.append(total / samples)
            values = [compiler.metrics[name].result(*map(np.asarray, totals[name])) for name in totals]
            history.accuracy = min((float(value) for value in values if isinstance(value, (int, float))), default=None)
            total, samples, totals = 0.0, 0, {}
            if history.is_learned(bound) or history.steps + stepper.steps_per_epoch > steps:
                break
    except NonFiniteLoss:
        history.losses.append(float("inf"))
    return history
