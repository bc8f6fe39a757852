"""Moving averages of weights: `ema` against its formula; it does not change the training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.averaging import EMASpec
from netspec.solvers.base import SolverSpec
from tests.solvers.problem import SHAPES, training

RATES = [0.1] * 7


def solver(**fields: Any) -> SolverSpec:
    spec = SOLVERS.parse({"type": "SGD", "momentum": 0.9, **fields})
    assert isinstance(spec, SolverSpec)
    return spec


def expected_averages(weights: list[Any], ema: dict[str, Any]) -> list[Any]:
    """Return the average after each update, by the formula."""
    averages: list[Any] = []
    for t, w in enumerate(weights, start=1):
        n = t - ema.get("start_step", 0)
        decay = min(ema["decay"], (1 + n) / (10 + n)) if ema.get("warmup") else ema["decay"]
        averages.append(w if n <= 0 or t == 1 else decay * averages[-1] + (1 - decay) * w)
    return averages


@pytest.mark.parametrize(
    "ema", [{"decay": 0.9}, {"decay": 0.5, "start_step": 3}, {"decay": 0.9, "warmup": True, "start_step": 1}], ids=str
)
@pytest.mark.parametrize("groups", [[], [{"match": "fc/*", "solver": {"type": "Adam"}}]], ids=["one", "groups"])
def test_average_equals_formula_and_weights_are_unchanged(ema, groups) -> None:
    built = training(solver(ema=ema, groups=groups))
    averaged, plain = list(built.steps(RATES)), list(training(solver(groups=groups)).steps(RATES))
    assert built.solution.evaluated == {name: f"solver/{name}/average" for name in SHAPES}
    for name in SHAPES:
        expected = expected_averages([states[name] for states in plain], ema)
        for states, plain_states, average in zip(averaged, plain, expected, strict=True):
            np.testing.assert_array_equal(states[name], plain_states[name])
            np.testing.assert_allclose(states[f"solver/{name}/average"], average, rtol=1e-13, atol=1e-15)


def test_overwrite_every_copies_the_average_to_the_weights() -> None:
    built = training(solver(momentum=0.0, ema={"decay": 0.8, "overwrite_every": 3}))
    quadratic, weights, average = built.quadratic, dict(built.quadratic.start), dict(built.quadratic.start)
    for t, states in enumerate(built.steps(RATES), start=1):
        for name, w in weights.items():
            w = w - 0.1 * quadratic.gradient(name, w)
            average[name] = w if t == 1 else 0.8 * average[name] + 0.2 * w
            weights[name] = average[name] if t % 3 == 0 else w
            np.testing.assert_allclose(states[name], weights[name], rtol=1e-13)
            np.testing.assert_allclose(states[f"solver/{name}/average"], average[name], rtol=1e-13)


@pytest.mark.parametrize("swa", [{"start_step": 0}, {"start_step": 2, "every": 2}, {"start_step": 3}], ids=str)
def test_swa_is_the_mean_of_the_weights(swa) -> None:
    built = training(solver(swa=swa))
    averaged, plain = list(built.steps(RATES)), list(training(solver()).steps(RATES))
    assert built.solution.evaluated == {name: f"solver/{name}/average" for name in SHAPES}
    first, every = max(swa["start_step"], 1), swa.get("every", 1)
    for name in SHAPES:
        for t, states in enumerate(averaged, start=1):
            chosen = [plain[n - 1][name] for n in range(first, t + 1, every)] or [plain[t - 1][name]]
            np.testing.assert_array_equal(states[name], plain[t - 1][name])
            np.testing.assert_allclose(states[f"solver/{name}/average"], np.mean(chosen, 0), rtol=1e-12, atol=1e-14)


def test_number_is_the_decay() -> None:
    assert solver(ema=0.99).ema == EMASpec(decay=0.99)
