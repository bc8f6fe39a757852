"""Comparison of two arrays: finite values are measured, other values are counted if only one side has them."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.exchange.numeric_diff import Gap, compare, gap_of

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ([0.5, 1.0], [0.5, 1.5], "largest difference 0.5"),
        ([1.0, 2e5], [1.0, 200000.2], "largest difference 0.2 (relative 1e-06)"),
        ([NAN, INF, 2.0], [NAN, INF, 2.5],
         ("largest difference 0.5 (relative 0.25) of those that are finite; "
          "NaN or infinite alike on both sides: 2 of 3 numbers")),
        ([NAN, NAN], [NAN, NAN], "NaN or infinite alike on both sides: 2 of 2 numbers"),
        ([NAN, 1.0], [3.0, 1.0],
         "largest difference 0 of those that are finite; NaN on one side alone: 1 of 2 numbers"),
        ([INF, INF, NAN], [-INF, 1.0, INF],
         "NaN on one side alone: 1 of 3 numbers; infinite on one side, another number on the other: 2 of 3 numbers"),
    ],
)  # fmt: skip
def test_gap_is_formatted(ours: list[float], theirs: list[float], message: str) -> None:
    assert str(gap_of(np.array(ours), np.array(theirs))) == message


def test_several_outputs_as_one() -> None:
    ours = {"a": np.array([10.0, NAN]), "b": np.array([0.5])}
    whole = compare(ours, {"a": np.array([11.0, NAN]), "b": np.array([0.0])}).whole
    assert whole == Gap(3, 1.0, 0.5, same_not_finite=1)
    assert compare(ours, {**ours, "b": np.array([NAN])}).whole.relative == (
        "largest difference 0 of those that are finite; NaN or infinite alike on both sides: 1 of 3 numbers; "
        "NaN on one side alone: 1 of 3 numbers"
    )
