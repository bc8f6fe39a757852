"""Tests of the registry-wide suites themselves: that a wrong sample fails its class and is named."""

from __future__ import annotations

import pytest

from tests.registry.parametrize import run_all


def reject_even(number: int, reason: str) -> None:
    assert number % 2, reason


def test_all_runs_are_made_and_errors_name_theirs() -> None:
    with pytest.raises(ExceptionGroup, match="2 samples") as caught:
        run_all(reject_even, [(f"case-{number}", (number, "even")) for number in range(4)])
    assert [error.__notes__ for error in caught.value.exceptions] == [["in case-0 with even"], ["in case-2 with even"]]


def test_a_single_error_is_raised_as_it_is() -> None:
    with pytest.raises(AssertionError, match="even") as caught:
        run_all(reject_even, [("one", (1, "odd")), ("two", (2, "even"))])
    assert caught.value.__notes__ == ["in two with even"]
