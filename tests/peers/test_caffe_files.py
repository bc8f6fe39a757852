"""OpenCV reads files written for Caffe, and computes the same; its results are recorded by `record_caffe.py`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.caffe_files import CaffeFile, caffe_files
from tests.peers.recordings import load_answers
from tests.registry.parametrize import run_all

RECORDED = load_answers("caffe_files")
"""OpenCV's output as DIGEST/end, or why it cannot run the net as DIGEST/unlike."""


@pytest.fixture(scope="module")
def files() -> list[CaffeFile]:
    return list(caffe_files())


def computes_the_same(case: CaffeFile) -> None:
    recorded = RECORDED[f"{case.digest}/end"]
    # Both compute in float32, and add some hundred terms in different orders.
    expected = case.expected()
    assert recorded.shape == expected.shape
    np.testing.assert_allclose(recorded, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_opencv_computes_the_same(files: list[CaffeFile]) -> None:
    """There are no recorded results for files that have changed since; the last test limits their number."""
    run_all(computes_the_same, [(case.id, (case,)) for case in files if f"{case.digest}/end" in RECORDED])


def test_cases_that_opencv_cannot_run_have_a_recorded_reason() -> None:
    assert all(str(reason) for key, reason in RECORDED.items() if key.endswith("/unlike"))


def test_most_recorded_results_belong_to_the_current_export(files: list[CaffeFile]) -> None:
    digests = {key.partition("/")[0] for key in RECORDED}
    assert len(digests & {caffe_file.digest for caffe_file in files}) > 0.8 * len(digests)
