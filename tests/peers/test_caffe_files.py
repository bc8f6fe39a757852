"""OpenCV reads what is written for Caffe, and computes the same, as `record_caffe.py` recorded it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.caffe_files import CaffeFile, caffe_files
from tests.peers.test_answers import ANSWERS


@pytest.mark.parametrize("one", list(caffe_files()), ids=lambda one: one.id)
def test_opencv_computes_the_same(one: CaffeFile) -> None:
    with np.load(ANSWERS / "caffe_files.npz") as stored:
        found = {name: stored[key] for name in ("end", "unlike") if (key := f"{one.digest}/{name}") in stored.files}
    if not found:
        pytest.skip("what is written has changed since the answers were recorded: tests/peers/record_caffe.py")
    if "unlike" in found:
        pytest.skip(f"OpenCV can't run it: {found['unlike']}")
    # Both in float32, adding some hundred terms in different orders.
    expected = one.expected()
    assert found["end"].shape == expected.shape
    np.testing.assert_allclose(found["end"], expected, rtol=1e-5, atol=1e-5)


def test_most_answers_are_those_to_what_is_written_now() -> None:
    with np.load(ANSWERS / "caffe_files.npz") as stored:
        answers = {key.partition("/")[0] for key in stored.files}
    assert len(answers & {one.digest for one in caffe_files()}) > 0.8 * len(answers)
