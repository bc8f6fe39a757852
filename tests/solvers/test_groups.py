"""Groups of parameters: who is in which, and that each is moved as if it were alone."""

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
    made = SOLVERS.parse({"type": "SGD", **fields})
    assert isinstance(made, SolverSpec)
    return made


def last(spec: SolverSpec, rates: list[Any] = RATES) -> Arrays:
    """The parameters after the last step; a rate may be several: one for each schedule."""
    *_, states = training(spec).steps(rates)
    return {name: states[name] for name in SHAPES}


def test_the_first_group_that_fits_counts() -> None:
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
def test_a_group_is_moved_as_if_it_were_alone(group, alone) -> None:
    usual: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.1}
    spec = solver(**usual, learning_rate=0.01, groups=[{"match": "conv/*", **group}])
    found = last(spec)
    others = last(solver(**usual))
    own = last(solver(**({} if "solver" in group else usual) | alone))
    np.testing.assert_array_equal(found["fc/kernel"], others["fc/kernel"])
    for name in ("conv/kernel", "conv/bias"):
        np.testing.assert_allclose(found[name], own[name], rtol=1e-12)
        assert (found[name] != others[name]).any()


def test_schedules_of_groups_have_rates_of_their_own() -> None:
    late = {"type": "StepDecay", "initial": 0.5, "step_size": 2}
    spec = solver(
        learning_rate=0.1,
        groups=[
            {"match": "conv/kernel", "learning_rate": late},
            {"match": "conv/bias", "solver": {"type": "SGD", "learning_rate": late}, "learning_rate_multiplier": 2},
        ],
    )
    assert [one.value(0, 9) for one in spec.schedules()] == [0.1, 0.5]
    assert len(solver(learning_rate=0.1, groups=[{"match": "*", "learning_rate": 0.1}]).schedules()) == 1
    found = last(spec, [(rate, 0.5) for rate in RATES])
    np.testing.assert_array_equal(found["fc/kernel"], last(solver())["fc/kernel"])
    np.testing.assert_array_equal(found["conv/kernel"], last(solver(), [0.5] * 3)["conv/kernel"])
    np.testing.assert_allclose(found["conv/bias"], last(solver(), [1.0] * 3)["conv/bias"], rtol=1e-12)


def test_the_global_norm_is_that_of_all_groups_of_the_solver() -> None:
    """A rate of its own leaves a parameter in the sum; a solver of its own takes it out."""
    plain = last(solver(global_clipnorm=0.5))
    grouped = solver(global_clipnorm=0.5, groups=[{"match": "fc/*", "learning_rate_multiplier": 2.0}])
    np.testing.assert_array_equal(last(grouped)["conv/kernel"], last(grouped)["conv/kernel"])
    first = next(training(grouped).steps(RATES))
    usual = next(training(solver(global_clipnorm=0.5)).steps(RATES))
    np.testing.assert_array_equal(first["conv/kernel"], usual["conv/kernel"])
    apart = last(solver(global_clipnorm=0.5, groups=[{"match": "fc/*", "solver": {"type": "SGD"}}]))
    np.testing.assert_array_equal(apart["fc/kernel"], last(solver())["fc/kernel"])
    assert (np.abs(apart["conv/kernel"] - plain["conv/kernel"]) > 1e-3).any()


def test_what_parameters_share_is_shared_within_one_rule_and_rate() -> None:
    nadam = {"type": "Nadam", "learning_rate": 0.5}
    groups = [{"match": "conv/bias", "learning_rate": 0.2}, {"match": "fc/*", "solver": nadam}]
    shared = [slot for slot in training(solver(type="Nadam", groups=groups)).solution.slots if "$" in slot.label]
    assert {slot.label for slot in shared} == {
        f"solver/${family}/momentum_product" for family in ("all", "all-1", "group-1")
    }
    assert len(shared) == 3


def test_patterns_of_nothing_are_told_all_at_once() -> None:
    spec = solver(groups=[{"match": ["conv/*", "cnv/kernel"]}, {"match": "conv/bias"}, {"match": "fc/*"}])
    with pytest.raises(SpecError) as caught:
        spec.check(list(SHAPES))
    none, late = caught.value.problems
    assert (none.message, none.hint) == ("`cnv/kernel` fits no parameter of the net", "did you mean `conv/kernel`?")
    assert late.message == "all parameters that `conv/bias` fits are in groups before this one"
