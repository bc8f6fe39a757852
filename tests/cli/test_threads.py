"""`--threads`: set before the libraries that create threads are loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.slow
def test_a_training_runs_with_as_many_threads_as_asked_for(work, count):
    words = [sys.executable, "-m", "netspec", "train", "train.yaml", "--threads", str(count), "--json"]
    process = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(process.stdout.splitlines()[0])["threads"] == count


def test_zero_threads_are_refused(netspec, work):
    result = netspec("train", "train.yaml", "--threads", "0")
    assert (result.status, result.err) == (2, "error: --threads must be 1 or more\n  got: 0\n")
