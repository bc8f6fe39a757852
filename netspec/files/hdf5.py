"""Read HDF5 files through a separate process (`hdf5_server`), one for all files of this process.

A file on which the library loops or crashes ends that process, not this one, and is refused; the next file gets a new
process. Contiguous values are read here, at their offset in the file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import count
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, kind_of_path
from netspec.files import hdf5_server
from netspec.files.damage import COPY_AGAIN
from netspec.files.helper_process import HelperProcess

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SECONDS = 5.0
"""Processor time that the library may use for one request; most take a millisecond."""
BYTES_A_SECOND = 2**24
"""Least expected speed of the library: the time limit grows with the size of the file and of the values."""


@dataclass(frozen=True)
class StoredArray:
    """Storage of a dataset: shape, type, chunks and filters."""

    path: str
    shape: tuple[int, ...] | None
    """Shape; None for a dataset without values."""
    dtype: str
    """NumPy's name with the byte order: `<f4`."""
    type: str
    """The element type for messages."""
    layout: str
    """`contiguous`, `compact`, `chunked`, `virtual` or `unknown`."""
    external: bool
    """Whether its values are stored in other files."""
    stored: int
    """Bytes that it occupies in the file."""
    offset: int | None
    """Offset of its values in the file, if they are contiguous and stored as in memory."""
    rows: int
    """Rows of a chunk; 1 without chunks."""
    unknown_filters: tuple[tuple[int, str], ...]
    """Number and name of each filter that compresses it and that is not installed."""
    sources: tuple[str, ...]
    """Names of the files that a virtual dataset refers to."""
    bfloat16: bool
    """Whether an attribute says that its two bytes are a bfloat16."""

    @property
    def nbytes(self) -> int:
        """Bytes of its values in memory."""
        import numpy as np

        return prod(self.shape or ()) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Entry:
    """A link in a group, and the object that it refers to."""

    path: str
    kind: str
    """`group`, `dataset`, `other`, `loop` for a group that contains itself, `link` for a soft or external link."""
    array: StoredArray | None = None
    """Return the storage of a dataset; None if it is damaged."""
    fault: str = ""
    """Description of the damage."""


class Hdf5File:
    """A file on disk, or its bytes. All methods raise `InputError`; several threads may call them."""

    _numbers = count()

    def __init__(self, name: str, source: Path | memoryview, expected: str, *, trusted: bool = False) -> None:
        """Open the file. Error messages call it `name`, and expect `expected`.

        A `trusted` file, which this process wrote, is read without another process.
        """
        self.name, self.source, self.expected, self.trusted = name, source, expected, trusted
        self.number = next(self._numbers)
        status = source.stat() if isinstance(source, Path) else None
        self.size = len(source) if isinstance(source, memoryview) else source.stat().st_size
        self._mark = None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self._library: _Library | None = None
        if self._mark in _endless:
            raise self._refused(_endless[self._mark])
        self._open()

    def walk(self, group: str = "", *, deepest: int = 0, most: int = sys.maxsize) -> list[Entry]:
        """Entries of a group and of the groups in it, at most `deepest` levels and `most` entries."""
        entries = self._ask("walk", path=group, deepest=deepest, most=most)[0]["result"]
        return [_entry(entry) for entry in entries]

    def find(self, path: str) -> Entry | None:
        """The entry at a path, also through soft links; None if there is none."""
        entry = self._ask("find", path=path)[0]["result"]
        return None if entry is None else _entry(entry)

    def attributes(self, group: str) -> list[str]:
        """Names of the attributes of a group; those of the file for an empty path."""
        names: list[str] = self._ask("attributes", path=group)[0]["result"]
        return names

    def attribute(self, group: str, name: str) -> Any:
        """An attribute of a group: text, a number, or lists of these."""
        return self._ask("attribute", path=group, name=name, most=self.size)[0]["result"]

    def text(self, path: str) -> str:
        """The string in a dataset with a single one."""
        return str(self._ask("text", path=path)[0]["result"])

    def values(self, array: StoredArray, rows: Sequence[int] | None = None) -> NDArray[Any]:
        """The values of a dataset, in its shape; or some of its rows, (rows, …), which should be close together."""
        import numpy as np

        dtype, shape = np.dtype(array.dtype), array.shape or ()
        if rows is not None:
            shape = (len(rows), *shape[1:])
        size = prod(shape) * dtype.itemsize
        if array.offset is None or rows is not None:
            data = self._ask("read", path=array.path, rows=rows, room=size)[1]
        else:
            data = self._bytes(array.offset, size)
        if len(data) != size:
            raise self._refused(f"`{array.path}` does not have the size that its header states")
        return np.frombuffer(data, dtype).reshape(shape)

    def _bytes(self, offset: int, size: int) -> bytearray:
        """Read `size` bytes of the file at an offset."""
        if offset < 0 or offset + size > self.size:
            raise self._refused(f"values at byte {offset:,} of {self.size:,}")
        if not isinstance(self.source, Path):
            return bytearray(self.source[offset : offset + size])
        data = bytearray(size)
        try:
            with self.source.open("rb", buffering=0) as file:
                file.seek(offset)
                view = memoryview(data)
                while view and (count := file.readinto(view)):
                    view = view[count:]
        except OSError as error:
            raise InputError(f"cannot read {self.name}", expected=self.expected, got=error.strerror) from error
        return data[: size - len(view)]

    def _open(self) -> None:
        data = b"" if isinstance(self.source, Path) else self.source
        path = str(self.source.absolute()) if isinstance(self.source, Path) else ""
        self._ask("open", data, path=path, size=len(data))

    def _ask(self, do: str, data: bytes | memoryview = b"", room: int = 0, **arguments: Any) -> tuple[Any, bytearray]:
        seconds = SECONDS + (self.size + room) / BYTES_A_SECOND
        with _lock:
            library = _trusted_library() if self.trusted else _running()
            if do == "open":
                self._library = library
                weakref.finalize(self, library.closed.append, self.number)
            elif self._library is not library:  # the process that had this file open has ended
                self._open()
            close = [library.closed.pop() for _ in range(len(library.closed))]
            request = {"do": do, "file": self.number, "close": close, "seconds": seconds, **arguments}
            try:
                answer = library.ask(request, data)
            except BaseException:  # Ctrl-C: an unread answer must not be taken for the next one
                _forget()
                raise
            if answer is None:
                raise self._refused(self._ended(library, seconds))
        header, values = answer
        if "error" in header:
            raise self._refused(header["error"])
        return header, values

    def _ended(self, library: _Library, seconds: float) -> str:
        """Return why the process ended. The next file gets a new one; this file does not after a time limit."""
        _forget()
        assert isinstance(library, _Process)
        reason = library.helper.exit_reason()
        if reason == "SIGPROF":
            why = f"the HDF5 library did not finish after {seconds:.0f} seconds of CPU time"
            if self._mark is not None:
                _endless[self._mark] = why
            return why
        return f"the HDF5 library crashed on it ({reason})"

    def _refused(self, got: str) -> InputError:
        return InputError(f"{self.name} is damaged", expected=self.expected, got=got, hint=COPY_AGAIN)


def has_signature(path: Path) -> bool:
    """Whether a regular file is HDF5: a user block of 512, 1024, 2048, … bytes may come before the signature."""
    if kind_of_path(path) is not None or not path.is_file():
        return False
    with path.open("rb") as file:
        size, offset = os.fstat(file.fileno()).st_size, 0
        while offset < size:
            file.seek(offset)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            offset = max(512, 2 * offset)
    return False


def _entry(entry: dict[str, Any]) -> Entry:
    facts = entry.get("dataset")
    if facts is None:
        return Entry(entry["path"], entry["kind"], None, entry.get("fault", ""))
    shape, filters = facts.pop("shape"), facts.pop("unknown_filters")
    array = StoredArray(
        shape=None if shape is None else tuple(shape), unknown_filters=tuple(map(tuple, filters)),
        sources=tuple(facts.pop("sources")), **facts,
    )  # fmt: skip
    return Entry(entry["path"], entry["kind"], array)


class _Library:
    """Answers requests with the library in this process."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        """Numbers of files that are no longer used: the next request closes them."""
        self._server = hdf5_server.Server(BytesIO())

    def ask(self, request: dict[str, Any], data: bytes | memoryview) -> tuple[dict[str, Any], bytearray] | None:
        """Send a request and return the answer; None if the process with the library has ended."""
        header, values = self._server.respond(request)
        return header, bytearray(values)


class _Process(_Library):
    """Answers requests with the library in a child process."""

    def __init__(self) -> None:
        super().__init__()
        self.helper = HelperProcess(hdf5_server)
        self.owner = os.getpid()
        import numpy  # noqa: F401, ICN001  # while the process starts: values need it

    def ask(self, request: dict[str, Any], data: bytes | memoryview) -> tuple[dict[str, Any], bytearray] | None:
        helper = self.helper
        if not helper.send(json.dumps(request).encode() + b"\n", data):
            return None
        if (head := helper.receive(hdf5_server.SIZES.size)) is None:
            return None
        text, values = (helper.receive(size) for size in hdf5_server.SIZES.unpack(head))
        if text is None or values is None:
            return None
        header: dict[str, Any] = json.loads(text)
        return header, values


_lock = threading.RLock()
_process: _Process | None = None
_endless: dict[tuple[int, ...] | None, str] = {}
"""Error messages of files that the library loops on, by device, inode, size and modification time."""
_trusted_library = cache(_Library)


def _running() -> _Process:
    """The child process, which is started if there is none. A forked process starts its own."""
    global _process  # noqa: PLW0603  # one for all files of a process
    if _process is None or _process.owner != os.getpid():
        _process = _Process()
    return _process


def _forget() -> None:
    """Let the next request start a new process."""
    global _process  # noqa: PLW0603  # as above
    _process = None
