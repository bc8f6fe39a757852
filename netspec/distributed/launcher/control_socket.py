"""The control socket between a worker and the command that started it, `netspec train --workers N` (`launch.py`).

It is a Unix socket in a folder that only its user can enter. The worker sends its process id and rank, receives the
standard output and error of the command (a terminal stays a terminal, a pipe gets whole lines), and finally sends its
exit status; if it crashes, Python writes the name of the signal to the socket. If the command closes the connection,
the worker exits.
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

from netspec.backends.launcher_env import CONTROL_SOCKET, launcher_rank
from netspec.distributed.monitoring.failure_reports import workers_arguments

MIN_DESCRIPTOR = 200
"""Smallest file descriptor of a connection. Linux closes the highest descriptors of a dead process first. So this
connection ends before the connection to `mpiexec`, which then kills the other workers: the first connection to end
belongs to the worker that died first."""
KILL_TIMEOUT = 10.0
"""Seconds that the command may take to kill the workers after a request."""
IGNORED_SIGNALS = ("SIGUSR1", "SIGHUP")
"""Signals that request a checkpoint. They are ignored until training handles them: they would end the worker."""

_connections: list[socket.socket] = []


def connect() -> None:
    """Connect to the command that started this process, if one did."""
    path = os.environ.pop(CONTROL_SOCKET, None)  # processes that this one starts must not connect
    if path is None:
        return
    with socket.socket(socket.AF_UNIX) as low:
        low.connect(path)
        line = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, MIN_DESCRIPTOR))
    _connections.append(line)
    send_facts(pid=os.getpid(), rank=launcher_rank() or 0)
    _, streams, _, _ = socket.recv_fds(line, 1, 2)
    for stream, descriptor in zip(streams, (1, 2), strict=True):
        os.dup2(stream, descriptor)
        os.close(stream)
    for file in (sys.stdout, sys.stderr):
        file.reconfigure(line_buffering=file.isatty())  # type: ignore[union-attr]  # they are text files
    for name in IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    faulthandler.enable(line.fileno(), all_threads=False)
    threading.Thread(target=_exit_on_close, args=(line,), name="control-socket", daemon=True).start()


def is_connected() -> bool:
    """Return whether this process is connected to the command that started it."""
    return bool(_connections)


def start_arguments(workers: int) -> list[str]:
    """Return the command-line arguments that start `workers` workers; none if an MPI launcher started them."""
    return workers_arguments(workers) if is_connected() else []


def send_facts(**facts: Any) -> None:
    """Send facts to the command that started this process, if there is one."""
    for line in _connections:
        with suppress(OSError):
            line.sendall(json.dumps(facts).encode() + b"\n")


def report_exit(status: int) -> None:
    """Report the exit status of this worker, which is about to exit."""
    send_facts(status=status)


def request_kill(status: int) -> None:
    """Ask the command that started this process, if any, to kill all workers, so that the launcher can clean up."""
    if is_connected():
        send_facts(status=status, ends_all=True)
        time.sleep(KILL_TIMEOUT)


def _exit_on_close(line: socket.socket) -> None:
    """Wait until the command closes the connection, then exit."""
    with suppress(OSError):
        while line.recv(64):
            pass
    os._exit(1)


MAX_LINE_BYTES = 1 << 20
"""Largest number of bytes of a worker's message, which is one line."""
FATAL_PREFIX = b"Fatal Python error: "
"""Text that Python writes before the system's name of a fatal signal."""


class WorkerConnection:
    """The connection to a worker, and the facts that it has sent."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.pid: int | None = None
        self.rank = 0
        self.status: int | None = None
        """Exit status; None while the worker runs, and if it died."""
        self.run_dir: str | None = None
        self.failure: str | None = None
        """Reason why it ended the job."""
        self.ends_all = False
        """Whether it has requested that all workers be killed."""
        self.crashed: str | None = None
        """Name of the signal by which it died, if it could report one."""
        self._rest = b""

    def listen(self) -> bool:
        """Read what has arrived; return whether the connection is still open."""
        try:
            data = self.line.recv(65536)
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if FATAL_PREFIX in line:
                self.crashed = _signal(line.partition(FATAL_PREFIX)[2].decode())
            elif line.startswith(b"{"):  # otherwise part of Python's traceback
                self._update(json.loads(line))
        return bool(data) and len(self._rest) < MAX_LINE_BYTES

    def send(self, number: int) -> None:
        """Send the worker a signal."""
        if self.pid is not None:
            with suppress(OSError):
                os.kill(self.pid, number)

    def describe(self) -> str:
        """Return the rank and process id, as the start of a message."""
        return f"worker {self.rank} (pid {self.pid})"

    def _update(self, facts: dict[str, Any]) -> None:
        for name in ("pid", "rank", "status", "run_dir", "failure", "ends_all"):
            if name in facts:
                setattr(self, name, facts[name])


def _signal(word: str) -> str | None:
    """Return the name of the signal with this description."""
    description = word.strip().replace("-", " ")
    return next((Signal.name for Signal in signal.Signals if signal.strsignal(Signal) == description), None)


class ControlServer:
    """The connections to all workers."""

    def __init__(self, path: Path, streams: Sequence[int]) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1024)
        self.died: WorkerConnection | None = None
        """First worker that died without a report, if nothing had ended the job before."""
        self.first_status = 0
        """First exit status that is not 0."""
        self._streams = list(streams)
        self._workers: list[WorkerConnection] = []
        self._disconnected: list[WorkerConnection] = []

    def accept(self) -> WorkerConnection:
        """Accept the connection of a worker, and pass it the standard streams."""
        line, _ = self.listener.accept()
        with suppress(OSError):
            socket.send_fds(line, [b"."], self._streams)
        self._workers.append(WorkerConnection(line))
        return self._workers[-1]

    @property
    def count(self) -> int:
        """Number of workers that have connected."""
        return len(self._workers)

    def connected(self) -> list[WorkerConnection]:
        """Return the workers with an open connection and a known process id, which can't have been reused."""
        return [worker for worker in self._workers if worker.pid is not None and worker not in self._disconnected]

    def listen(self, worker: WorkerConnection) -> bool:
        """Read what a worker has sent; return whether its connection is still open."""
        is_open = worker.listen()
        if worker.status and not self.first_status:
            self.first_status = worker.status
        if not is_open:
            self._disconnected.append(worker)
        return is_open

    def find_first_death(self) -> None:
        """Set `died`, once all messages are read: a worker that ends the job reports so before others are killed."""
        if self.died is None and not self.first_status:
            self.died = next((worker for worker in self._disconnected if worker.status is None), None)

    def crashed(self) -> WorkerConnection | None:
        """Return the first worker that reported a fatal signal."""
        return next((worker for worker in self._disconnected if worker.crashed), None)

    def run_dir(self) -> str | None:
        """Return the run directory, once a worker has reported it."""
        return next((worker.run_dir for worker in self._workers if worker.run_dir), None)

    def failure(self) -> str | None:
        """Return the reason why a worker ended the job, if one did."""
        return next((worker.failure for worker in self._workers if worker.failure), None)

    def close(self) -> None:
        """Close all connections, which ends the workers that still run."""
        for connection in (self.listener, *(worker.line for worker in self._workers)):
            connection.close()
        for stream in self._streams:
            os.close(stream)
