"""`train.precision: bfloat16` from the command line: what is kept is float32."""

from __future__ import annotations

from json import loads

import numpy as np

from netspec.exchange.hdf5 import read_weights


def test_a_training_in_bfloat16_keeps_float32_and_goes_on(netspec, work):
    """Parameters are as far from those of float32 as rounding to 8 bits takes them, and none of 8 bits itself."""
    for name, precision in (("wide", "float32"), ("narrow", "bfloat16")):
        assert netspec("train", "train.yaml", f"train.precision={precision}", "--run-dir", name).status == 0
    wide, narrow = (read_weights(work / name / "weights.h5").arrays for name in ("wide", "narrow"))
    for name, array in narrow.items():
        assert array.dtype == np.float32
        assert (array != wide[name]).any()
        np.testing.assert_allclose(array, wide[name], rtol=0.05, atol=0.05)
    kernel = narrow["hidden/kernel"]
    assert (kernel.view(np.uint32) & 0xFFFF).any()
    assert netspec("test", "train.yaml", "--weights", "narrow/weights.h5").status == 0
    start = loads((work / "narrow" / "log.jsonl").read_text().partition("\n")[0])
    assert start["precision"] == "bfloat16"
    words = ("train", "train.yaml", "train.precision=bfloat16", "train.max_steps=16", "--run-dir", "narrow", "--resume")
    assert netspec(*words).status == 0
