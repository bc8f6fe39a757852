"""A dozen kills of the soak: one run is killed in each phase, and every complete run has the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system can't fork processes")
def test_a_dozen_kills_end_bit_identical() -> None:
    """Runs in a separate process, since a process with threads of kernels cannot be forked."""
    command = [sys.executable, "-m", "benchmarks.soak", "--kills", "12", "--seed", "2", "--json"]
    command += ["--cases", "window,early stopping", "--device", "reference"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr
    result = json.loads(process.stdout)
    assert (result["kills"], result["failures"]) == (12, [])
    assert result["runs compared"] >= 4
    phases = {phase.partition(":")[0] for phase in result["by phase"]}
    assert {"step", "write"} <= phases
