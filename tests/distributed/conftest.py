"""Jobs of real workers, which run the scripts in `programs`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from netspec.backends.launcher_env import clean_environment
from netspec.distributed.launcher.mpi_discovery import find_mpiexec

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
MPIEXEC = find_mpiexec() if find_spec("mpi4py") else None
QUICK = {"PATIENCE": "3 2"}
"""Environment of tests in which workers soon stop waiting for others. By default they wait longer, since a test machine
may be busy."""
NONE: Mapping[str, str] = {}
LIMIT = 240
"""Seconds until a job that does not end fails its test."""


class Job:
    """A job, started by a command."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], stdout: int) -> None:
        environment = clean_environment(os.environ) | {"PYTHONPATH": str(ROOT), **variables}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        self.out = self.err = ""
        self.pids: list[int] = []

    def line(self) -> str:
        """Return the next line that the job prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begun(self) -> Job:
        """Read the process ids of the workers, which are printed once all have started."""
        self.pids = [int(word) for word in self.line().split()]
        return self

    def end(self) -> int:
        """Wait for the end, check that no worker is left, and return the exit status."""
        self.out, self.err = self.process.communicate(timeout=LIMIT)
        assert not self.left()
        return self.process.returncode

    def left(self) -> Sequence[int]:
        """Return the workers that are still running after a few seconds."""
        until = time.monotonic() + 5
        while (actual := [pid for pid in self.pids if _runs(pid)]) and time.monotonic() < until:
            time.sleep(0.05)
        return actual


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Jobs:
    """Starts jobs, and kills those that a failed test leaves."""

    def __init__(self) -> None:
        self._all: list[Job] = []

    def __call__(
        self,
        workers: int,
        *words: str,
        by: str = "netspec",
        variables: Mapping[str, str] = NONE,
        stdout: int = subprocess.PIPE,
    ) -> Job:
        """Start a program of `programs`, like `netspec train --workers N` or with MPI's own `mpiexec`."""
        program = [str(PROGRAMS / words[0]), *words[1:]]
        if by == "mpiexec":
            return self.start(self.by_mpiexec(workers, program), variables, stdout)
        return self.start([sys.executable, str(PROGRAMS / "start.py"), str(workers), *program], variables, stdout)

    def train(self, *words: object, by: int = 0, variables: Mapping[str, str] = NONE) -> Job:
        """Start `netspec train`; with `by`, as that many processes of `mpiexec`."""
        program = ["-m", "netspec", "train", *map(str, words)]
        return self.start(self.by_mpiexec(by, program) if by else [sys.executable, *program], variables)

    def by_mpiexec(self, workers: int, program: list[str]) -> list[str]:
        """Return the command that runs a Python program with MPI's own `mpiexec`."""
        assert MPIEXEC is not None
        return MPIEXEC.command(workers, [sys.executable, *program], root=os.geteuid() == 0)

    def start(self, command: Sequence[str], variables: Mapping[str, str] = NONE, stdout: int = subprocess.PIPE) -> Job:
        """Start a command with additional environment variables."""
        self._all.append(Job(command, variables, stdout))
        return self._all[-1]

    def close(self) -> None:
        for job in self._all:
            if job.process.poll() is None:
                for pid in (job.process.pid, *job.pids):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            job.process.communicate(timeout=LIMIT)


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    if MPIEXEC is None:
        pytest.skip("mpi4py or an mpiexec is not installed: pip install -e '.[mpi]'")
    started = Jobs()
    yield started
    started.close()


def trainings(
    jobs: Any, workers: int, listed: list[dict[str, Any]], folder: Path, program: str = "trainings.py"
) -> dict[str, str]:
    """Run trainings, by default on the device `reference`; return the errors of those that fail, by name."""
    message = folder / "list.json"
    message.write_text(json.dumps([{"device": "reference", **training} for training in listed]))
    job = jobs(workers, program, str(message), by="mpiexec")
    assert job.end() == 0, job.err
    lines = [json.loads(line) for line in job.out.splitlines()]
    return {Path(line["run"]).name: line["error"] for line in lines}
