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
from contextlib import suppress
from typing import Any

from netspec.parallel.told import TETHER, told_rank
from netspec.parallel.words import workers_option

HIGH = 200
"""The least file descriptor of a line. Linux closes those of a process that dies from the highest on: so this line ends
before the one to `mpiexec` does, whereupon the others are killed, and the first one that ends is of who died first."""
KILLED_WITHIN = 10.0
"""Seconds in which the command kills workers that are to end."""
IGNORED = ("SIGUSR1", "SIGHUP")
"""They ask a training for a checkpoint; until it listens, they would end the worker."""

_lines: list[socket.socket] = []


def attach() -> None:
    """Take up the line to the command that started this process, if one did."""
    path = os.environ.pop(TETHER, None)  # not for the processes that this one starts
    if path is None:
        return
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(path)
        line = socket.socket(fileno=fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH))
    _lines.append(line)
    tell(pid=os.getpid(), rank=told_rank() or 0)
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


def attached() -> bool:
    """Whether a command that started this process holds the other end."""
    return bool(_lines)


def options(workers: int) -> list[str]:
    """What the command that started this process was given to start so many; none where a launcher of MPI did."""
    return workers_option(workers) if attached() else []


def tell(**facts: Any) -> None:
    """Say something to the command that started this process, if one did."""
    for line in _lines:
        with suppress(OSError):
            line.sendall(json.dumps(facts).encode() + b"\n")


def leave(status: int) -> None:
    """Say that this worker ends by itself, with an exit status."""
    tell(status=status)


def end_all(status: int) -> None:
    """Have the command that started this process kill all workers, if one did: what launched them tidies up then."""
    if attached():
        tell(status=status, ends_all=True)
        time.sleep(KILLED_WITHIN)


def _follow(line: socket.socket) -> None:
    """Wait for the end of the line, and end with it."""
    with suppress(OSError):
        while line.recv(64):
            pass
    os._exit(1)
