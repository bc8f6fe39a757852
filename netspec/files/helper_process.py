"""A process that reads files with a library that may hang or crash on damaged ones."""

from __future__ import annotations

import signal
import subprocess
import sys
import weakref
from contextlib import suppress
from types import ModuleType
from typing import IO

WAIT = 10
"""Seconds within which a process must end after its input has ended."""


class HelperProcess:
    """A subprocess that answers requests on pipes; it is stopped when this object is garbage-collected."""

    def __init__(self, script: ModuleType, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script.__file__), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        weakref.finalize(self, _end, self.process)

    def send(self, *parts: bytes | memoryview) -> bool:
        """Send a request; return False if the process has ended."""
        requests = self.process.stdin
        assert requests is not None
        try:
            for part in parts:
                requests.write(part)
            requests.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True

    def receive(self, size: int) -> bytearray | None:
        """Return the next `size` bytes of an answer; None if the process has ended before."""
        answers, data = self.process.stdout, bytearray(size)
        assert answers is not None
        count = answers.readinto(data)  # type: ignore[attr-defined]  # of a buffered reader, as pipes are
        return data if count == size else None

    def exit_reason(self) -> str:
        """Wait for the end of the process; return the name of the signal that ended it, or its exit status."""
        status = self.process.wait(WAIT)
        return signal.Signals(-status).name if status < 0 else f"status {status}"


def _end(process: subprocess.Popen[bytes]) -> None:
    pipes: tuple[IO[bytes] | None, ...] = (process.stdin, process.stdout)
    for pipe in pipes:
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
