"""A worker's line to the command that started it: `netspec train --workers N` holds the other end (`launch.py`).

A Unix socket in a folder that its user alone can enter. Over it a worker says its process id and rank, gets the
standard output and error of the command (a terminal stays one, a pipe gets whole lines), and says in the end with which
status it leaves; where it crashes, Python says by which signal. A line that ends from afar ends the worker: nobody is
left that it could work for.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from netspec.backends.launcher_env import CONTROL_SOCKET, told_rank
from netspec.distributed.monitoring.failure_reports import workers_arguments

HIGH = 200
"""The least file descriptor of a line. Linux closes those of a process that dies from the highest on: so this line ends
before the one to `mpiexec` does, whereupon the others are killed, and the first one that ends is of who died first."""
KILLED_WITHIN = 10.0
"""Seconds in which the command kills workers that are to end."""
IGNORED = ("SIGUSR1", "SIGHUP")
"""They ask a training for a checkpoint; until it listens, they would end the worker."""

_lines: list[socket.socket] = []


def connect() -> None:
    """Take up the line to the command that started this process, if one did."""
    path = os.environ.pop(CONTROL_SOCKET, None)  # not for the processes that this one starts
    if path is None:
        return
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(path)
        line = socket.socket(fileno=fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH))
    _lines.append(line)
    send_facts(pid=os.getpid(), rank=told_rank() or 0)
    _, streams, _, _ = socket.recv_fds(line, 1, 2)
    for stream, own in zip(streams, (1, 2), strict=True):
        os.dup2(stream, own)
        os.close(stream)
    for one in (sys.stdout, sys.stderr):
        one.reconfigure(line_buffering=one.isatty())  # type: ignore[union-attr]  # they are files of text
    for name in IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    faulthandler.enable(line.fileno(), all_threads=False)
    threading.Thread(target=_follow, args=(line,), name="tether", daemon=True).start()


def is_connected() -> bool:
    """Return whether the command that started this process holds the other end."""
    return bool(_lines)


def start_arguments(workers: int) -> list[str]:
    """Return the arguments that start `workers` workers from the command; none if an MPI launcher started them."""
    return workers_arguments(workers) if is_connected() else []


def send_facts(**facts: Any) -> None:
    """Send facts to the command that started this process, if there is one."""
    for line in _lines:
        with suppress(OSError):
            line.sendall(json.dumps(facts).encode() + b"\n")


def report_exit(status: int) -> None:
    """Report that this worker ends by itself, with an exit status."""
    send_facts(status=status)


def request_kill(status: int) -> None:
    """Have the command that started this process kill all workers, if one did: what launched them tidies up then."""
    if is_connected():
        send_facts(status=status, ends_all=True)
        time.sleep(KILLED_WITHIN)


def _follow(line: socket.socket) -> None:
    """Wait for the end of the line, and end with it."""
    with suppress(OSError):
        while line.recv(64):
            pass
    os._exit(1)


LONGEST = 1 << 20
"""Bytes that a worker may say in one line."""
FATAL = b"Fatal Python error: "
"""What Python says first of a signal by which it dies; the system's word for it follows."""


class WorkerConnection:
    """A worker's line, and what was said over it."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.pid: int | None = None
        self.rank = 0
        self.status: int | None = None
        """The exit status that it left with; None while it runs, and of one that died."""
        self.run_dir: str | None = None
        self.failure: str | None = None
        """Why it ended the job."""
        self.ends_all = False
        """Whether all workers are to be killed."""
        self.crashed: str | None = None
        """The name of the signal by which it died, where it could say so."""
        self._rest = b""

    def listen(self) -> bool:
        """Take in what is there; whether the line still stands."""
        try:
            said = self.line.recv(65536)
        except OSError:
            said = b""
        *whole, self._rest = (self._rest + said).split(b"\n")
        for one in whole:
            if FATAL in one:
                self.crashed = _signal(one.partition(FATAL)[2].decode())
            elif one.startswith(b"{"):  # else where Python was then
                self._take(json.loads(one))
        return bool(said) and len(self._rest) < LONGEST

    def send(self, number: int) -> None:
        """Send it a signal."""
        if self.pid is not None:
            with suppress(OSError):
                os.kill(self.pid, number)

    def describe(self) -> str:
        """Which one it is, as a message begins."""
        return f"worker {self.rank} (pid {self.pid})"

    def _take(self, facts: dict[str, Any]) -> None:
        for name in ("pid", "rank", "status", "run_dir", "failure", "ends_all"):
            if name in facts:
                setattr(self, name, facts[name])


def _signal(word: str) -> str | None:
    """The name of a signal that has this name in words."""
    said = word.strip().replace("-", " ")
    return next((one.name for one in signal.Signals if signal.strsignal(one) == said), None)


class ControlServer:
    """The lines of all workers."""

    def __init__(self, path: Path, streams: Sequence[int]) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1024)
        self.died: WorkerConnection | None = None
        """The first worker that ended without a word, if nothing had ended the job before."""
        self.first_status = 0
        """What the first worker left with that did not leave with 0."""
        self._streams = list(streams)
        self._workers: list[WorkerConnection] = []
        self._ended: list[WorkerConnection] = []

    def accept(self) -> WorkerConnection:
        """Take up the line of a worker, and hand it the standard streams."""
        line, _ = self.listener.accept()
        with suppress(OSError):
            socket.send_fds(line, [b"."], self._streams)
        self._workers.append(WorkerConnection(line))
        return self._workers[-1]

    @property
    def count(self) -> int:
        """How many workers there have been."""
        return len(self._workers)

    def there(self) -> list[WorkerConnection]:
        """The workers that have said who they are, and whose lines stand: a process id is theirs as long as they do."""
        return [one for one in self._workers if one.pid is not None and one not in self._ended]

    def listen(self, worker: WorkerConnection) -> bool:
        """Take in what a worker says; whether its line still stands."""
        stands = worker.listen()
        if worker.status and not self.first_status:
            self.first_status = worker.status
        if not stands:
            self._ended.append(worker)
        return stands

    def settle(self) -> None:
        """See who died, once all that is there was heard: who ends the job says so before the others are killed."""
        if self.died is None and not self.first_status:
            self.died = next((one for one in self._ended if one.status is None), None)

    def crashed(self) -> WorkerConnection | None:
        """The first worker that said that it died by a signal."""
        return next((one for one in self._ended if one.crashed), None)

    def run_dir(self) -> str | None:
        """Where the run is, once it has begun."""
        return next((one.run_dir for one in self._workers if one.run_dir), None)

    def failure(self) -> str | None:
        """Why a worker ended the job, if one did."""
        return next((one.failure for one in self._workers if one.failure), None)

    def close(self) -> None:
        """Let go of all lines, which ends the workers that are still there."""
        for one in (self.listener, *(worker.line for worker in self._workers)):
            one.close()
        for stream in self._streams:
            os.close(stream)
