"""Files as every format here needs them: written whole or not at all, and told apart by content when read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from netspec.errors import InputError, RunError, kind_of_file, nearest

HEAD_BYTES = 512
"""How much of a file `sniff` wants to see."""


def write_atomically(path: str | Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a temporary file beside `path`, force it to disk, and rename it to `path`.

    Whatever happens, `path` holds either what it held before or the whole new file. Raises `InputError` where there is
    no folder to write into, `RunError` where writing fails (a full disk, no permission).
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}", hint="make the folder first")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder", expected="the name of a file")
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        hint = "what was there before, if anything, is unchanged"
        raise RunError(f"cannot write {path}", got=str(error), hint=hint) from error
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Force the rename itself to disk."""
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

    Raises `InputError` where it is missing, a folder, empty, or can't be read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise InputError(f"{path} is empty", expected=what, got="0 bytes")
            yield file, size
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", expected=what, hint=_near(path)) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", expected=what) from None
    except OSError as error:
        raise InputError(f"cannot read {path}", expected=what, got=str(error)) from error


def _near(path: Path) -> str | None:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no folder {path.parent} either"
    found = nearest(path.name, names)
    return f"did you mean `{path.parent / found}`?" if found else None


_SIGNATURES: tuple[tuple[bytes, str, str | None], ...] = (
    (
        b"version https://git-lfs",
        "a Git LFS pointer: a note of where the file is, not the file",
        "fetch the file itself: `git lfs pull`",
    ),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file of another program", None),
    (b"PK\x03\x04", "a zip archive (.npz, .keras, …)", None),
    (b"\x93NUMPY", "a NumPy array (.npy)", None),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"\x80\x02", "a Python pickle (PyTorch's older .pt)", "pickles run code when they are read: netspec reads none"),
    (b"<!DOCTYPE", "a web page", "the download went wrong"),
    (b"<html", "a web page", "the download went wrong"),
    (b"\x08", "probably a protobuf file, such as ONNX", "an ONNX model is read by `netspec import`"),
)


def sniff(head: bytes) -> tuple[str, str | None]:
    """What a file is by its first bytes, and a hint where there is one to give."""
    for signature, what, hint in _SIGNATURES:
        if head.startswith(signature):
            return what, hint
    return kind_of_file(head), None
