"""Values of an LMDB by the index of their key, read by a separate process (`lmdb_server`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from netspec.data.files import Watched
from netspec.data.readers import lmdb_server
from netspec.data.readers.lmdb_server import GONE, OPENED
from netspec.errors import InputError
from netspec.files.helper_process import HelperProcess

WORD = np.dtype("<i8")


class LmdbValues:
    """Keys and values. Several threads may read; they are served one after another."""

    def __init__(self, path: Path) -> None:
        if find_spec("lmdb") is None:
            raise ModuleNotFoundError("No module named 'lmdb'", name="lmdb")
        self.data = path / "data.mdb" if path.is_dir() else path
        self.watched = Watched([self.data])
        self._helper = HelperProcess(lmdb_server, str(path.resolve()))
        self._lock = threading.Lock()
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
        return bytes(self._keys[self._ends[index] : self._ends[index + 1]])

    def values(self, indices: Sequence[int]) -> list[bytearray | None]:
        """Return the values of the keys at these indices; None for missing ones. Raises `InputError` if it ended."""
        self.watched.check()
        with self._lock:
            if not self._helper.send(np.array([len(indices), *indices], WORD).tobytes()):
                raise self._ended()
            sizes = self._words(len(indices)).tolist()
            return [None if size == GONE else self._bytes(size) for size in sizes]

    def _words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.frombuffer(self._bytes(count * WORD.itemsize), WORD)

    def _bytes(self, count: int) -> bytearray:
        data = self._helper.receive(count)
        if data is None:
            raise self._ended()
        return data

    def _ended(self) -> InputError:
        """Explain the end of the process: the file changed, or has damage that the library does not survive."""
        self.watched.check()
        return InputError(
            f"{self.data} is damaged, or changed while it was read", expected="an intact LMDB that nothing writes to",
            got=f"the process that reads it ended ({self._helper.exit_reason()})",
        )  # fmt: skip

    def _refused(self, kind: str, text: str) -> InputError:
        if kind == "short":
            needed, size = map(int, text.split())
            return InputError(f"{self.data} is cut short", expected=f"{needed:,} bytes", got=f"{size:,} bytes")
        if kind == "damaged":
            return InputError(f"{self.data} is damaged", expected="an intact LMDB", got=text)
        return InputError(f"{self.data} is not an LMDB, or is damaged", expected="an LMDB of Caffe's Datums", got=text)
