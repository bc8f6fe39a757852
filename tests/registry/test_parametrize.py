"""Tests of the registry-wide suites themselves: that a wrong sample fails its class and is named."""

from __future__ import annotations

import pytest

from netspec.tools.verification.cases import SampleCase, cases
from tests.registry.fast_samples import first_is_fast
from tests.registry.parametrize import each_class, run_all


def reject_even(number: int, reason: str) -> None:
    assert number % 2, reason


def test_all_runs_are_attempted_and_errors_name_their_run() -> None:
    with pytest.raises(ExceptionGroup, match="2 samples") as caught:
        run_all(reject_even, [(f"case-{number}", (number, "even")) for number in range(4)])
    assert [error.__notes__ for error in caught.value.exceptions] == [["in case-0 with even"], ["in case-2 with even"]]


def test_a_single_error_is_raised_as_it_is() -> None:
    with pytest.raises(AssertionError, match="even") as caught:
        run_all(reject_even, [("one", (1, "odd")), ("two", (2, "even"))])
    assert caught.value.__notes__ == ["in two with even"]


def test_a_costly_check_is_slow_except_for_the_first_sample_of_each_class() -> None:
    samples: dict[bool, list[SampleCase]] = {True: [], False: []}
    check = each_class("loss", costly=True)(lambda case: samples[slow].append(case))
    for param in check.pytestmark[0].args[1]:
        slow = bool(param.marks)
        check(*param.values)
    assert samples[False] == [case for case in cases("loss") if case.number == 0]
    assert samples[True] == [case for case in cases("loss") if case.number > 0]


def test_all_but_the_first_sample_of_each_class_are_slow() -> None:
    params = first_is_fast(case for case in cases("layer") if case.id != "layer-Dense-0")
    assert [param.id for param in params if param.values[0].type == "Dense" and not param.marks] == ["layer-Dense-1"]
    assert {param.values[0].number for param in params if not param.marks} == {0, 1}
