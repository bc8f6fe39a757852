"""Standard streams that are full, closed, or no longer read: at most one line, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMANDS = {
    "check": ["check", "net.yaml"],
    "problems": ["check", "net.yaml", "name=", "--json"],
    "json": ["check", "net.yaml", "--json"],
    "help": ["--help"],
    "schema": ["schema"],
}
ONE_PER_CAUSE = [name if name == "json" else pytest.param(name, marks=pytest.mark.exhaustive) for name in COMMANDS]
"""Each command is a process that takes a second: one of them is enough for CI."""


def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONUNBUFFERED": options.pop("unbuffered", "")}
    command = [sys.executable, "-m", "netspec", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, timeout=60, check=False, env=environment, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the platform has no device that is always full")
@pytest.mark.parametrize("name", ONE_PER_CAUSE)
def test_a_full_output_is_reported_in_one_line(work, name):
    assert_full_output_is_reported(name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the platform has no device that is always full")
@pytest.mark.parametrize("name", ["check", "json"])
@pytest.mark.slow
def test_a_full_output_is_reported_without_buffers(work, name):
    assert_full_output_is_reported(name, unbuffered="1")


def assert_full_output_is_reported(name: str, unbuffered: str = "") -> None:
    with Path("/dev/full").open("wb") as full:
        process = run(COMMANDS[name], stdout=full, unbuffered=unbuffered)
    assert process.stderr == b"error: cannot write to the standard output: no space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize("name", ONE_PER_CAUSE)
def test_a_closed_output_is_reported_in_one_line(work, name):
    process = run(COMMANDS[name], preexec_fn=lambda: os.close(1))
    assert process.stderr == b"error: cannot write to the standard output: it is closed\n"
    assert process.returncode == 1


@pytest.mark.parametrize("name", ONE_PER_CAUSE)
def test_a_closed_reader_sets_the_exit_status_without_an_error_message(work, name):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = run(COMMANDS[name], stdout=writing)
    finally:
        os.close(writing)
    assert (process.returncode, process.stderr) == (1, b"")


@pytest.mark.parametrize(("words", "status"), [(["check", "net.yaml"], 0), (["check", "nothing.yaml"], 2)])
def test_a_closed_error_stream_changes_no_status(work, words, status):
    command = [sys.executable, "-m", "netspec", *words]
    process = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=False, preexec_fn=lambda: os.close(2))
    assert process.returncode == status
    assert b"nothing.yaml" not in process.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the platform has no device that is always full")
def test_a_training_whose_output_is_lost_writes_its_weights(work):
    with Path("/dev/full").open("wb") as full:
        process = run(["train", "train.yaml", "--json", "--run-dir", "run"], stdout=full)
    assert process.stderr == b"error: cannot write to the standard output: no space left on device\n"
    assert process.returncode == 1
