"""netspec turns the telemetry of onnxruntime off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_onnxruntime_writes_nothing_to_the_home_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    for name in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"):
        environment.pop(name, None)
    code = "from netspec.exchange.formats.onnx.messages import runnable_opset; runnable_opset(['Relu'])"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert not list(tmp_path.iterdir())
