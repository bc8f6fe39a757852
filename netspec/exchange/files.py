"""Files as every format here needs them: written whole or not at all, and told apart by content when read."""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from netspec.errors import InputError, RunError, is_pickle, kind_of_file, kind_of_path, near_path

HEAD_BYTES = 512
"""How much of a file `sniff` wants to see."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp", re.DOTALL)
"""Names of the files that `write_atomically` fills, and of the folders of `staging`."""
FORGOTTEN = 3600.0
"""Seconds after which such a file, or folder, that nobody has written to is what a killed process left."""


def write_atomically(path: str | Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a temporary file beside `path`, force it to disk, and rename it to `path`.

    Whatever happens, `path` holds either what it held before or the whole new file; what killed processes left of
    earlier attempts is removed. A link stays: its target is written. Raises `InputError` where no file can be there,
    `RunError` where writing fails (a full disk, …).
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    _remove_forgotten(target)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        hint = "what was there before, if anything, is unchanged"
        raise RunError(f"cannot write {path}", got=error.strerror or str(error), hint=hint) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(target: Path) -> Path:
    """A name beside `target` that nobody has."""
    return target.with_name(f"{_beginning(target)}{secrets.token_hex(6)}.tmp")


def _beginning(target: Path) -> str:
    return f".{target.name[:100]}."


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A folder beside `target` for files that are not to be seen yet; it is gone afterwards.

    What killed processes left of earlier ones of this name is removed. Raises `OSError`.
    """
    target = target.absolute()
    _remove_forgotten(target)
    staged = _temporary(target)
    staged.mkdir(mode=0o700)
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _remove_forgotten(target: Path) -> None:
    """Remove what processes that were killed while they wrote `target` left beside it."""
    for path in target.parent.glob(f"{glob.escape(_beginning(target))}*.tmp"):
        with suppress(OSError):
            newest = max(one.lstat().st_mtime for one in (path, *(path.iterdir() if path.is_dir() else ())))
            if _TEMPORARY.fullmatch(path.name) and time.time() - newest > FORGOTTEN:
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise `InputError` where no file can be written: a folder, a pipe or a device is there, or the folder is not."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {target.parent}", hint="make the folder first")
    there = kind_of_path(target)
    if there is not None:  # a device or a pipe would be replaced by a file
        raise InputError(f"cannot write {path}: it is {there}", expected="the name of a file")


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that a process which was killed left in a folder that nobody else writes."""
    for path in folder.glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            _remove(path)


def sync_folder(folder: Path) -> None:
    """Force a rename in it to disk."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # some systems do not open folders; the file's own content is safe already
        return
    try:
        os.fsync(handle)
    except OSError:  # nor do all file systems sync them
        pass
    finally:
        os.close(handle)


@contextmanager
def reading(path: str | Path, what: str) -> Iterator[tuple[BufferedReader, int]]:
    """The file opened for reading, with its size in bytes; `what` says what it should be, for the message.

    Raises `InputError` where it is missing, a folder, a pipe or a device, empty, or can't be read.
    """
    path = Path(path)
    there = kind_of_path(path)
    if there is not None:
        raise InputError(f"{path} is {there}", expected=what)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise InputError(f"{path} is empty", expected=what, got="0 bytes")
            yield file, size
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", expected=what, hint=near_path(path)) from None
    except OSError as error:
        raise InputError(f"cannot read {path}", expected=what, got=error.strerror or str(error)) from error


LFS_POINTER = b"version https://git-lfs"
"""What a file of Git LFS begins with that stands in the place of another."""
_SIGNATURES: tuple[tuple[bytes, str, str | None], ...] = (
    (
        LFS_POINTER,
        "a Git LFS pointer: a note of where the file is, not the file",
        "fetch the file itself: `git lfs pull`",
    ),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file of another program", None),
    (b"PK\x03\x04", "a zip archive (.npz, .keras, …)", None),
    (b"\x93NUMPY", "a NumPy array (.npy)", None),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"<!DOCTYPE", "a web page", "the download went wrong"),
    (b"<html", "a web page", "the download went wrong"),
    (b"\x08", "probably a protobuf file, such as ONNX", "an ONNX model is read by `netspec import`"),
)


NO_PICKLES = "pickles (PyTorch's older .pt, joblib's files) run code when they are read: netspec reads none"


def sniff(head: bytes) -> tuple[str, str | None]:
    """What a file is by its first bytes, and a hint where there is one to give."""
    for signature, what, hint in _SIGNATURES:
        if head.startswith(signature):
            return what, hint
    return kind_of_file(head), NO_PICKLES if is_pickle(head) else None
