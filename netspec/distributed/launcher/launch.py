"""`launch`: start workers on this machine, pass signals on to them, and report how they ended.

MPI's own `mpiexec` starts the workers. Their output does not pass through it: every worker gets the standard streams of
this process over its control socket (`control_socket.py`). What `mpiexec` itself prints is kept, and shown only if
nothing else explains a failure. Signals go from here straight to the workers, so that all kinds of `mpiexec` behave
alike.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from netspec.backends.launcher_env import CONTROL_SOCKET, clean_environment
from netspec.distributed.communicators.shared_memory import SHM_SIZE_HINT, free_space
from netspec.distributed.launcher.control_socket import ControlServer, WorkerConnection
from netspec.distributed.launcher.mpi_discovery import Mpiexec
from netspec.distributed.monitoring.failure_reports import INTERRUPTED, resume_hint, workers_arguments
from netspec.errors import Problem, RunError

STOP_SIGNALS, SNAPSHOT_SIGNALS = ("SIGINT", "SIGTERM"), ("SIGUSR1", "SIGHUP")
POLL_INTERVAL = 0.1
"""Seconds between two checks whether `mpiexec` has ended."""
STOP_TIMEOUT = 10.0
"""Seconds that workers may take to end after the second request to stop, before they are killed."""
MPIEXEC_EXIT_TIMEOUT = 3.0
"""Seconds that `mpiexec` may take to end after the workers."""
OUTPUT_TAIL_BYTES = 20_000
"""Number of bytes that are kept of the end of the output of `mpiexec`."""


def launch(mpiexec: Mpiexec, workers: int, program: list[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run a program as several workers, and return their exit status.

    The first two SIGINT or SIGTERM are forwarded to the workers, a third kills them; SIGUSR1 and SIGHUP are forwarded.
    Raises `RunError` if a worker died, or none could be started.
    """
    with tempfile.TemporaryDirectory(prefix="netspec-") as folder:
        path = Path(folder) / "control"
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        command = mpiexec.command(workers, program, root=root)
        with _MpiJob(path, command, {**clean_environment(environment), CONTROL_SOCKET: str(path)}, workers) as job:
            return job.run()


class _MpiJob:
    """A running `mpiexec`, and the connections to its workers."""

    def __init__(self, path: Path, command: list[str], environment: dict[str, str], workers: int) -> None:
        self._size, self._program = workers, command[0]
        self._control = ControlServer(path, _standard_streams())
        self._folder = path.parent
        self._output_tail = b""
        self._stop_requests = 0
        self._kill_at: float | None = None
        self._killed = False
        self._previous_handlers: dict[int, Any] = {}
        self._select = selectors.DefaultSelector()
        self._select.register(self._control.listener, selectors.EVENT_READ, self._accept)
        # In a new session: signals of the terminal must reach this process alone.
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._select.register(self._output, selectors.EVENT_READ, self._read_mpiexec_output)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for names, handler in ((STOP_SIGNALS, self._stop), (SNAPSHOT_SIGNALS, self._forward_signal)):
                for number in (getattr(signal, name) for name in names):
                    self._previous_handlers[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._kill()
        self._control.close()
        self._select.close()
        self._output.close()

    def run(self) -> int:
        """Wait for the end of the job, and return its exit status. Raises `RunError`."""
        while self._process.poll() is None:
            self._poll()
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._killed = True
                self._kill()
        while self._poll(0):  # read the last messages
            pass
        return self._status(self._process.returncode)

    def _poll(self, patience: float = POLL_INTERVAL) -> int:
        ready = self._select.select(patience)
        for key, _ in ready:
            act: Callable[[Any], None] = key.data
            act(key.fileobj)
        self._control.find_first_death()
        return len(ready)

    def _accept(self, listener: socket.socket) -> None:
        worker = self._control.accept()
        if self._control.count == self._size:  # remove the folder now: it would be left if this process were killed
            shutil.rmtree(self._folder)
        self._select.register(worker.line, selectors.EVENT_READ, lambda _: self._listen(worker))

    def _listen(self, worker: WorkerConnection) -> None:
        if not self._control.listen(worker):
            self._select.unregister(worker.line)
        if worker.ends_all:
            self._end_workers()

    def _read_mpiexec_output(self, output: Any) -> None:
        data = os.read(output.fileno(), 65536)
        self._output_tail = (self._output_tail + data)[-OUTPUT_TAIL_BYTES:]
        if not data:
            self._select.unregister(output)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_requests += 1
        if self._stop_requests > 2 or len(self._control.connected()) < self._size:
            self._kill_at = 0.0
            return
        if self._stop_requests > 1:
            self._kill_at = time.monotonic() + STOP_TIMEOUT
        self._forward_signal(number, frame)

    def _forward_signal(self, number: int, frame: FrameType | None) -> None:
        for worker in self._control.connected():
            worker.send(number)

    def _kill(self) -> None:
        """Kill the workers, then `mpiexec` unless it ends by itself."""
        killed = self._end_workers()
        signals = (signal.SIGTERM, signal.SIGKILL)
        for number in (0, *signals) if len(killed) == self._size else signals:
            if self._process.poll() is not None:
                return
            with suppress(OSError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(MPIEXEC_EXIT_TIMEOUT)

    def _end_workers(self) -> Sequence[WorkerConnection]:
        """Kill the connected workers, and return them."""
        workers = self._control.connected()
        for worker in workers:
            worker.send(signal.SIGKILL)
        return workers

    def _status(self, returned: int) -> int:
        """Return the exit status of the job, from the workers' reports and the status of `mpiexec`."""
        if returned == 0:
            return 0
        output = self._output_tail.decode(errors="replace")
        # A worker that crashed died first: those that end later were killed.
        died = self._control.died and (self._control.crashed() or self._control.died)
        cause = _signal_name(returned if died is None else _worker_status(died.pid, output, returned))
        if died is not None and died.crashed:
            cause = died.crashed
        if self._killed or (
            self._stop_requests and died is not None and cause in STOP_SIGNALS
        ):  # it didn't handle the signal yet
            return INTERRUPTED
        resume = resume_hint(self._control.run_dir(), workers_arguments(self._size))
        if died is None and (failure := self._control.failure()) is not None:
            raise RunError(failure, hint=resume)
        if died is None and self._control.first_status:
            return self._control.first_status
        if died is not None:
            ended = f"was ended by {cause}" if cause else f"ended with status {returned}"
            likely, got, hint = _probable_cause(cause)
            hints = [text for text in (hint, resume) if text]
            raise RunError(f"{died.describe()} {ended}{likely}", got=got, hint="; ".join(hints) or None)
        raise RunError(
            Problem(
                f"{self._program} ended with status {returned}",
                notes=tuple(output.strip().splitlines()[-20:]),
                hint=resume,
            )
        )


def _probable_cause(cause: str | None) -> tuple[str, str | None, str | None]:
    """Return the probable cause of a signal: the end of a message, what was found, and a hint."""
    match cause:
        case "SIGKILL":
            return ": the machine may have run out of memory", None, None
        case "SIGBUS":
            room = free_space()
            likely = ": the shared memory may have been full, or a file that it read truncated"
            return likely, room and f"{room[1]} now that the workers have ended", SHM_SIZE_HINT
    return "", None, None


def _worker_status(pid: int | None, output: str, returned: int) -> int:
    """Return the exit status that Hydra prints for a worker, or else the status of `mpiexec`.

    Hydra's own status is the OR over all workers, including those that it kills: SIGBUS and SIGKILL make SIGTERM
    (7 | 9 = 15).
    """
    match = re.search(rf"PID {pid} RUNNING AT .*\n=\s+EXIT CODE: (\d+)", output)
    return int(match[1]) if match else returned


def _signal_name(returned: int) -> str | None:
    """Return the name of the signal in a status of `mpiexec`: its number (Hydra), or that plus 128; None without."""
    number = returned - 128 if returned > 128 else abs(returned)
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _standard_streams() -> Sequence[int]:
    """Return the file descriptors of standard output and standard error; of `/dev/null` for a closed stream."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    descriptors = []
    for number in (1, 2):
        try:
            descriptors.append(os.dup(number))
        except OSError:
            descriptors.append(os.open(os.devnull, os.O_WRONLY))
    return descriptors
