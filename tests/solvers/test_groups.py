"""Groups of parameters: their members, and updates with the settings of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.errors import SpecError
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from netspec.solvers.groups import group_of
from tests.interpret import Arrays
from tests.solvers.problem import SHAPES, training

RATES = [0.1, 0.08, 0.06]


def solver(**fields: Any) -> SolverSpec:
    spec = SOLVERS.parse({"type": "SGD", **fields})
    assert isinstance(spec, SolverSpec)
    return spec


def last(spec: SolverSpec, rates: list[Any] = RATES) -> Arrays:
    """Return the parameters after the last step; a rate may be a tuple with one rate per schedule."""
    *_, states = training(spec).steps(rates)
    return {name: states[name] for name in SHAPES}


def test_first_group_that_matches_applies() -> None:
    spec = solver(groups=[{"match": "conv/*"}, {"match": ["*/bias", "fc/*"]}])
    assert [group_of(spec.groups, name) for name in ("conv/bias", "fc/kernel", "fc/bias", "other/kernel")] == [
        0, 1, 1, None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "alone"),
    [
        ({"weight_decay": 0}, {"weight_decay": 0.0}),
        ({"weight_decay": 0.3}, {"weight_decay": 0.3}),
        ({"solver": {"type": "Adam", "learning_rate": 0.01}}, {"type": "Adam"}),
        ({"solver": {"type": "SGD", "momentum": 0.5, "clipnorm": 0.2}}, {"momentum": 0.5, "clipnorm": 0.2}),
    ],
    ids=str,
)
def test_group_updates_with_its_settings(group, alone) -> None:
    defaults: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.1}
    spec = solver(**defaults, learning_rate=0.01, groups=[{"match": "conv/*", **group}])
    weights = last(spec)
    ungrouped = last(solver(**defaults))
    expected = last(solver(**({} if "solver" in group else defaults) | alone))
    np.testing.assert_array_equal(weights["fc/kernel"], ungrouped["fc/kernel"])
    for name in ("conv/kernel", "conv/bias"):
        np.testing.assert_allclose(weights[name], expected[name], rtol=1e-12)
        assert (weights[name] != ungrouped[name]).any()


def test_groups_have_separate_schedules() -> None:
    late = {"type": "StepDecay", "initial": 0.5, "step_size": 2}
    spec = solver(
        learning_rate=0.1,
        groups=[
            {"match": "conv/kernel", "learning_rate": late},
            {"match": "conv/bias", "solver": {"type": "SGD", "learning_rate": late}, "learning_rate_multiplier": 2},
        ],
    )
    assert [schedule.value(0, 9) for schedule in spec.schedules()] == [0.1, 0.5]
    assert len(solver(learning_rate=0.1, groups=[{"match": "*", "learning_rate": 0.1}]).schedules()) == 1
    weights = last(spec, [(rate, 0.5) for rate in RATES])
    np.testing.assert_array_equal(weights["fc/kernel"], last(solver())["fc/kernel"])
    np.testing.assert_array_equal(weights["conv/kernel"], last(solver(), [0.5] * 3)["conv/kernel"])
    np.testing.assert_allclose(weights["conv/bias"], last(solver(), [1.0] * 3)["conv/bias"], rtol=1e-12)


def test_global_norm_includes_groups_of_the_same_solver() -> None:
    """The norm includes parameters of groups with another rate, but not of groups with another solver."""
    plain = last(solver(global_clipnorm=0.5))
    grouped = solver(global_clipnorm=0.5, groups=[{"match": "fc/*", "learning_rate_multiplier": 2.0}])
    first = next(training(grouped).steps(RATES))
    ungrouped = next(training(solver(global_clipnorm=0.5)).steps(RATES))
    np.testing.assert_array_equal(first["conv/kernel"], ungrouped["conv/kernel"])
    separate = last(solver(global_clipnorm=0.5, groups=[{"match": "fc/*", "solver": {"type": "SGD"}}]))
    np.testing.assert_array_equal(separate["fc/kernel"], last(solver())["fc/kernel"])
    assert (np.abs(separate["conv/kernel"] - plain["conv/kernel"]) > 1e-3).any()


def test_shared_slots_are_per_solver_and_rate() -> None:
    nadam = {"type": "Nadam", "learning_rate": 0.5}
    groups = [{"match": "conv/bias", "learning_rate": 0.2}, {"match": "fc/*", "solver": nadam}]
    shared = [slot for slot in training(solver(type="Nadam", groups=groups)).solution.slots if "$" in slot.label]
    assert {slot.label for slot in shared} == {
        f"solver/${family}/momentum_product" for family in ("all", "all-1", "group-1")
    }
    assert len(shared) == 3


def test_all_unmatched_patterns_are_reported() -> None:
    spec = solver(groups=[{"match": ["conv/*", "cnv/kernel"]}, {"match": "conv/bias"}, {"match": "fc/*"}])
    with pytest.raises(SpecError) as caught:
        spec.check(list(SHAPES))
    unmatched, shadowed = caught.value.problems
    assert (unmatched.message, unmatched.hint) == (
        "`cnv/kernel` matches no parameter of the net",
        "did you mean `conv/kernel`?",
    )
    assert shadowed.message == "all parameters that match `conv/bias` are in earlier groups"
