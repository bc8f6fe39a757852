"""The comparison of services: its requests fit the model that ONNX Runtime serves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from benchmarks import bench_serving


@pytest.mark.slow
def test_onnx_runtime_serves_the_net_alone(tmp_path: Path) -> None:
    run = bench_serving.prepare(tmp_path)
    session = ort.InferenceSession(str(run / "lenet.onnx"), providers=["CPUExecutionProvider"])
    _, _, body = bench_serving.requests()["binary"].partition(b"\r\n\r\n")
    image = np.frombuffer(body[-4 * 28 * 28 :], np.float32).reshape(1, 1, 28, 28)
    assert session.run(["logits"], {"image": image})[0].shape == (1, 10)
