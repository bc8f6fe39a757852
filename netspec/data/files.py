"""Finding and reading whole files, with errors that name the file and say what was found instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from os import stat_result
from pathlib import Path

from netspec.errors import InputError, Problem, kind_of_path, near_path


@contextmanager
def explain_read_errors(name: str | Path) -> Iterator[None]:
    """Turn an `OSError` in the block, which reads a file, into an `InputError` that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {name}", got=error.strerror or str(error)) from None


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises `InputError` if it cannot be read."""
    with explain_read_errors(path):
        return existing(path).read_bytes()


def head_of(path: Path) -> bytes:
    """Return the first 64 bytes of a file, from which `kind_of_file` recognizes the format.

    Raises `InputError` if the file cannot be read.
    """
    with explain_read_errors(path), path.open("rb") as file:
        return file.read(64)


class Watched:
    """Files that must not change while they are used: checks size and modification time against those at opening."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._marks = {path: _mark(path.stat()) for path in paths}

    def problem(self, path: Path) -> Problem | None:
        """Return a problem if a file is no longer the one that was opened."""
        try:
            mark = _mark(path.stat())
        except OSError as error:
            return Problem(
                f"{path} was removed while it was read", expected="the file found at opening", got=error.strerror
            )
        if mark == self._marks[path]:
            return None
        size, changed = self._marks[path][0], "its modification time" if mark[0] == self._marks[path][0] else "its size"
        return Problem(
            f"{path} changed while it was read", expected=f"the file found at opening, of {size:,} bytes",
            got=f"{mark[0]:,} bytes; {changed} changed", hint="start again once nothing writes to it",
        )  # fmt: skip

    def check(self, *paths: Path) -> None:
        """Raise `InputError` if any of the files, by default all, has changed."""
        problems = [problem for path in paths or self._marks if (problem := self.problem(path)) is not None]
        if problems:
            raise InputError(problems)


def _mark(status: stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def existing(path: Path, *, folder: bool = False) -> Path:
    """Return `path` if the file (or folder) exists. Raises `InputError` with the nearest name if not."""
    if path.is_dir() if folder else path.is_file():
        return path
    kind = "folder" if folder else "file"
    if path.exists():
        got = "a file" if path.is_file() else kind_of_path(path)
        raise InputError(f"{path} is not a {kind}", expected=f"a {kind}", got=got)
    raise InputError(f"{kind} {path} does not exist", hint=near_path(path, folders=folder))


def fingerprint_of(size: int, pieces: Iterable[bytes]) -> str:
    """Compute the `fingerprint` of one part of `size` bytes that arrives in pieces."""
    digest = sha256(size.to_bytes(8, "little"))
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def fingerprint(*parts: bytes | str) -> str:
    """Return a digest of the parts and of their boundaries."""
    digest = sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part  # names of files are bytes
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
