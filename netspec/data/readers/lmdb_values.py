"""Values of an LMDB by the index of their key, read by a separate process (`lmdb_server`)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np

from netspec.data.files import Watched
from netspec.data.readers import lmdb_server
from netspec.data.readers.lmdb_server import GONE, OPENED
from netspec.errors import InputError

WORD = np.dtype("<i8")
SECONDS = 10
"""Seconds in which a process whose input ended must end by itself."""


class LmdbValues:
    """Keys and values. Several threads may read; they are served one after another."""

    def __init__(self, path: Path) -> None:
        if find_spec("lmdb") is None:
            raise ModuleNotFoundError("No module named 'lmdb'", name="lmdb")
        self.data = path / "data.mdb" if path.is_dir() else path
        self.watched = Watched([self.data])
        command = [sys.executable, "-P", str(Path(lmdb_server.__file__)), str(path.resolve())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._process)
        state, count = self._words(2)
        if state != OPENED:
            raise self._refused(*self._bytes(int(count)).decode("utf-8", "replace").split("\n", 1))
        if not count:
            raise InputError(f"{self.data} holds nothing", expected="Datums of Caffe")
        self._ends = np.concatenate([[0], np.cumsum(self._words(int(count)))])
        self._keys = self._bytes(int(self._ends[-1]))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def key(self, index: int) -> bytes:
        """Return the key at an index."""
        return self._keys[self._ends[index] : self._ends[index + 1]]

    def values(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return the values of the keys at these indices; None for missing ones. Raises `InputError` if it ended."""
        self.watched.check()
        with self._lock:
            requests = self._process.stdin
            assert requests is not None
            try:
                requests.write(np.array([len(indices), *indices], WORD).tobytes())
                requests.flush()
            except (BrokenPipeError, ValueError):
                raise self._ended() from None
            sizes = self._words(len(indices)).tolist()
            return [None if size == GONE else self._bytes(size) for size in sizes]

    def _words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.frombuffer(self._bytes(count * WORD.itemsize), WORD)

    def _bytes(self, count: int) -> bytes:
        answers = self._process.stdout
        assert answers is not None
        data = answers.read(count)
        if len(data) < count:
            raise self._ended()
        return data

    def _ended(self) -> InputError:
        """Explain the end of the process: the file changed, or has damage that the library does not survive."""
        self.watched.check()
        status = self._process.wait(SECONDS)
        reason = signal.Signals(-status).name if status < 0 else f"status {status}"
        return InputError(
            f"{self.data} is damaged, or changed while it was read", expected="an intact LMDB that nothing writes to",
            got=f"the process that reads it ended ({reason})",
        )  # fmt: skip

    def _refused(self, kind: str, text: str) -> InputError:
        if kind == "short":
            needed, size = map(int, text.split())
            return InputError(f"{self.data} is cut short", expected=f"{needed:,} bytes", got=f"{size:,} bytes")
        if kind == "damaged":
            return InputError(f"{self.data} is damaged", expected="an intact LMDB", got=text)
        return InputError(f"{self.data} is not an LMDB, or is damaged", expected="an LMDB of Caffe's Datums", got=text)


def _end(process: subprocess.Popen[bytes]) -> None:
    pipes: list[IO[bytes] | None] = [process.stdin, process.stdout]
    for pipe in pipes:
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
