"""ONNX's own tests (`onnx.backend.test`), run by its own runner: single nodes, small models and complete models."""

from __future__ import annotations

import pytest

from tests.exchange.backend.suite import cases, exclusions, standard_tests

TESTS = standard_tests(__name__)
TESTS |= {name: pytest.mark.exhaustive(suite) for name, suite in TESTS.items() if "RealModel" in name}
for suite in TESTS.values():
    for name, case in list(vars(suite).items()):
        if "_expanded" in name:  # the operator as a function of other operators, which have cases, too
            setattr(suite, name, pytest.mark.exhaustive(case))
globals().update(TESTS)


def test_every_exclusion_matches_a_case() -> None:
    names = {case.name for _, case in cases()}
    assert not [name for exclusion in exclusions() for name in exclusion.unused(names)]


def test_no_case_is_excluded_twice() -> None:
    duplicate = [case.name for _, case in cases() if sum(exclusion.covers(case.name) for exclusion in exclusions()) > 1]
    assert not duplicate
