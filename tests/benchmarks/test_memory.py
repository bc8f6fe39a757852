"""A stream of many windows takes no more memory than its windows need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.alternate import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="the most that was resident is read from /proc")
@pytest.mark.slow
def test_the_memory_of_a_stream_is_bounded_by_its_window():
    """A window has 600 samples of 12 kB, and at most two are held; the 30 windows of the stream would take 221 MB."""
    command = [sys.executable, "-m", "benchmarks.bench_memory", "--measure", "600", "30"]
    result = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert result["samples"] == 30 * 600
    # 19 to 37 MB were measured, for 2 windows as for 40: batches made ahead, and memory that threads do not release.
    assert result["bytes"] < 10 * 600 * 12288
