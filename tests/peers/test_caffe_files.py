"""OpenCV reads what is written for Caffe, and computes the same, as `record_caffe.py` recorded it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.caffe_files import CaffeFile, caffe_files
from tests.peers.recordings import load_answers

RECORDED = load_answers("caffe_files")
"""OpenCV's output as DIGEST/end, or why it cannot run the net as DIGEST/unlike."""


def can_be_run(case: CaffeFile) -> bool:
    """Whether OpenCV does not say that it can't."""
    return f"{case.digest}/unlike" not in RECORDED


@pytest.mark.parametrize("case", [*filter(can_be_run, caffe_files())], ids=lambda one: one.id)
def test_opencv_computes_the_same(case: CaffeFile) -> None:
    recorded = RECORDED.get(f"{case.digest}/end")
    if recorded is None:
        pytest.skip("what is written has changed since the answers were recorded: tests/peers/record_caffe.py")
    # Both in float32, adding some hundred terms in different orders.
    expected = case.expected()
    assert recorded.shape == expected.shape
    np.testing.assert_allclose(recorded, expected, rtol=1e-5, atol=1e-5)


def test_cases_that_opencv_cannot_run_have_a_recorded_reason() -> None:
    assert all(str(said) for key, said in RECORDED.items() if key.endswith("/unlike"))


def test_most_answers_are_those_to_what_is_written_now() -> None:
    digests = {key.partition("/")[0] for key in RECORDED}
    assert len(digests & {caffe_file.digest for caffe_file in caffe_files()}) > 0.8 * len(digests)
