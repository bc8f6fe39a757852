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

from netspec.backends.launcher_env import CONTROL_SOCKET
from netspec.distributed.communicators.shared_memory import MORE, free_room
from netspec.distributed.launcher.control_socket import ControlServer, WorkerConnection
from netspec.distributed.launcher.mpi_discovery import Mpiexec, clean_environment
from netspec.distributed.monitoring.failure_reports import INTERRUPTED, resume_hint, workers_arguments
from netspec.errors import Problem, RunError

STOP, SNAPSHOT = ("SIGINT", "SIGTERM"), ("SIGUSR1", "SIGHUP")
LOOK_EVERY = 0.1
"""Seconds between two looks at whether `mpiexec` has ended."""
AT_ONCE_WITHIN = 10.0
"""Seconds that workers may take to end after the second request to stop, before they are killed."""
CLEANED_WITHIN = 3.0
"""Seconds that `mpiexec` may take to end when the workers have."""
KEPT = 20_000
"""Bytes of what `mpiexec` says last that are kept."""


def launch(mpiexec: Mpiexec, workers: int, program: list[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run a program as several workers; the exit status that they left with.

    The first SIGINT or SIGTERM is passed on, the second too, a third kills; SIGUSR1 and SIGHUP are passed on. Raises
    `RunError` where a worker died, or none could be started.
    """
    with tempfile.TemporaryDirectory(prefix="netspec-") as folder:
        path = Path(folder) / "tether"
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        command = mpiexec.command(workers, program, root=root)
        with _Job(path, command, {**clean_environment(environment), CONTROL_SOCKET: str(path)}, workers) as job:
            return job.run()


class _Job:
    """An `mpiexec` that runs, and the lines of its workers."""

    def __init__(self, path: Path, command: list[str], environment: dict[str, str], workers: int) -> None:
        self._size, self._program = workers, command[0]
        self._lines = ControlServer(path, _standard_streams())
        self._folder = path.parent
        self._said = b""
        self._requests = 0
        self._kill_at: float | None = None
        self._killed = False
        self._before: dict[int, Any] = {}
        self._select = selectors.DefaultSelector()
        self._select.register(self._lines.listener, selectors.EVENT_READ, self._welcome)
        # In a session of its own: what a terminal sends to all of a command must come here alone.
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._select.register(self._output, selectors.EVENT_READ, self._hear)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for names, handler in ((STOP, self._stop), (SNAPSHOT, self._pass_on)):
                for number in (getattr(signal, name) for name in names):
                    self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._kill()
        self._lines.close()
        self._select.close()
        self._output.close()

    def run(self) -> int:
        """Wait for the end; the status. Raises `RunError`."""
        while self._process.poll() is None:
            self._look()
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._killed = True
                self._kill()
        while self._look(0):  # what was said last
            pass
        return self._status(self._process.returncode)

    def _look(self, patience: float = LOOK_EVERY) -> int:
        ready = self._select.select(patience)
        for key, _ in ready:
            act: Callable[[Any], None] = key.data
            act(key.fileobj)
        self._lines.settle()
        return len(ready)

    def _welcome(self, listener: socket.socket) -> None:
        worker = self._lines.accept()
        if self._lines.count == self._size:  # nobody comes any more: it would be left if this process were killed
            shutil.rmtree(self._folder)
        self._select.register(worker.line, selectors.EVENT_READ, lambda _: self._listen(worker))

    def _listen(self, worker: WorkerConnection) -> None:
        if not self._lines.listen(worker):
            self._select.unregister(worker.line)
        if worker.ends_all:
            self._end_workers()

    def _hear(self, output: Any) -> None:
        said = os.read(output.fileno(), 65536)
        self._said = (self._said + said)[-KEPT:]
        if not said:
            self._select.unregister(output)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._requests += 1
        if self._requests > 2 or len(self._lines.there()) < self._size:
            self._kill_at = 0.0
            return
        if self._requests > 1:
            self._kill_at = time.monotonic() + AT_ONCE_WITHIN
        self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        for worker in self._lines.there():
            worker.send(number)

    def _kill(self) -> None:
        """Kill the workers, and `mpiexec` if it doesn't end thereupon."""
        found = self._end_workers()
        asked = (signal.SIGTERM, signal.SIGKILL)
        for number in (0, *asked) if len(found) == self._size else asked:
            if self._process.poll() is not None:
                return
            with suppress(OSError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLEANED_WITHIN)

    def _end_workers(self) -> Sequence[WorkerConnection]:
        """Kill the workers that are there."""
        found = self._lines.there()
        for worker in found:
            worker.send(signal.SIGKILL)
        return found

    def _status(self, returned: int) -> int:
        """The exit status of the job, from what the workers said and how `mpiexec` ended."""
        if returned == 0:
            return 0
        said = self._said.decode(errors="replace")
        died = self._lines.died and (self._lines.crashed() or self._lines.died)  # else it was killed thereupon
        how = _signal_of(returned if died is None else _own_status(died.pid, said, returned))
        if died is not None and died.crashed:
            how = died.crashed
        if self._killed or (self._requests and died is not None and how in STOP):  # it did not listen to it yet
            return INTERRUPTED
        again = resume_hint(self._lines.run_dir(), workers_arguments(self._size))
        if died is None and (failure := self._lines.failure()) is not None:
            raise RunError(failure, hint=again)
        if died is None and self._lines.first_status:
            return self._lines.first_status
        if died is not None:
            ended = f"was ended by {how}" if how else f"ended with status {returned}"
            likely, got, hint = _likely(how)
            hints = [one for one in (hint, again) if one]
            raise RunError(f"{died.describe()} {ended}{likely}", got=got, hint="; ".join(hints) or None)
        raise RunError(
            Problem(
                f"{self._program} ended with status {returned}",
                notes=tuple(said.strip().splitlines()[-20:]),
                hint=again,
            )
        )


def _likely(how: str | None) -> tuple[str, str | None, str | None]:
    """Why a worker may have been ended by a signal: words behind it, what is there now, and what helps."""
    match how:
        case "SIGKILL":
            return ": perhaps the memory was not enough", None, None
        case "SIGBUS":
            room = free_room()
            likely = ": perhaps the shared memory was full, or a file that it read was cut short"
            return likely, room and f"{room[1]} now that the workers have ended", MORE
    return "", None, None


def _own_status(pid: int | None, said: str, returned: int) -> int:
    """With which status a process ended: as hydra says of it, else that of `mpiexec`.

    Hydra's own is the OR of all, those that it kills among them: of SIGBUS and SIGKILL it makes SIGTERM (7 | 9 = 15).
    """
    own = re.search(rf"PID {pid} RUNNING AT .*\n=\s+EXIT CODE: (\d+)", said)
    return int(own[1]) if own else returned


def _signal_of(returned: int) -> str | None:
    """The signal that a process died from, by the status of `mpiexec`, which is its number (hydra) or 128 more."""
    number = returned - 128 if returned > 128 else abs(returned)
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _standard_streams() -> Sequence[int]:
    """File descriptors of the output and the error stream; of nowhere for one that is closed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    found = []
    for number in (1, 2):
        try:
            found.append(os.dup(number))
        except OSError:
            found.append(os.open(os.devnull, os.O_WRONLY))
    return found
