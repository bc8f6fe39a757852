"""`train.precision` on the command line: states stay float32, float16 scales the loss, the log has the precision."""

from __future__ import annotations

from json import loads

import numpy as np

from netspec.exchange.formats.native.hdf5 import read_weights


def test_a_bfloat16_run_keeps_float32_states_and_resumes(netspec, work):
    """Parameters differ from those of float32 about as much as rounding to 8 bits, but are not rounded themselves."""
    for name, precision in (("wide", "float32"), ("narrow", "bfloat16")):
        netspec.ok("train", "train.yaml", f"train.precision={precision}", "--run-dir", name)
    wide, narrow = (read_weights(work / name / "weights.h5").arrays for name in ("wide", "narrow"))
    for name, array in narrow.items():
        assert array.dtype == np.float32
        assert (array != wide[name]).any()
        np.testing.assert_allclose(array, wide[name], rtol=0.05, atol=0.05)
    kernel = narrow["hidden/kernel"]
    assert (kernel.view(np.uint32) & 0xFFFF).any()
    netspec.ok("test", "train.yaml", "--weights", "narrow/weights.h5")
    start = loads((work / "narrow" / "log.jsonl").read_text().partition("\n")[0])
    assert start["precision"] == "bfloat16"
    words = ("train", "train.yaml", "train.precision=bfloat16", "train.max_steps=16", "--run-dir", "narrow", "--resume")
    netspec.ok(*words)


def test_a_float16_run_skips_overflowing_steps_and_resumes_bit_identically(netspec, work):
    """The loss scale adapts unless it is fixed; the log counts the steps that are skipped because of overflows."""
    high = "train.loss_scale={initial: 3e6, growth_steps: 3}"  # makes gradients exceed 65504, the largest float16
    words = ("train", "train.yaml", "train.precision=float16", "--device", "reference", high, "train.log_every=1")
    netspec.ok(*words, "--run-dir", "whole")
    lines = [loads(line) for line in (work / "whole" / "log.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["event"] == "log"]
    skipped = logged[-1]["skipped_steps"]
    assert 0 < skipped < len(logged)
    assert min(event["loss_scale"] for event in logged) < 3e6
    assert np.isfinite([event["loss"] for event in logged]).all()
    netspec.ok(*words, "train.max_steps=5", "--run-dir", "parts")
    netspec.ok(*words, "--run-dir", "parts", "--resume")
    whole, other = (read_weights(work / name / "weights.h5").arrays for name in ("whole", "parts"))
    for name, array in whole.items():
        np.testing.assert_array_equal(array, other[name])
        assert np.isfinite(array).all()


def test_unsupported_float16_is_reported_with_its_location(netspec, work):
    result = netspec("train", "train.yaml", "train.precision=float16", "--device", "cpu")
    assert result.status == 2
    assert "does not compute in float16" in result.err
    assert "expected: one of bfloat16, float32, float64, tf32" in result.err
    netspec.ok("check", "train.yaml", "train.precision=float16")  # other devices may support float16


def test_tf32_on_a_device_without_it_is_float32_with_a_note(netspec, work):
    runs = {name: netspec("train", "train.yaml", f"train.precision={name}", "--run-dir", name)
            for name in ("float32", "tf32")}  # fmt: skip
    assert "has no kernels that round to tf32: it computes in float32" in runs["tf32"].out
    assert "steps on cpu in tf32" in runs["tf32"].out
    first, other = (read_weights(work / name / "weights.h5").arrays for name in runs)
    for name, array in first.items():
        np.testing.assert_array_equal(array, other[name])
