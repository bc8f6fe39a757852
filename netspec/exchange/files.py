"""Write files completely or not at all, and recognize files by their content."""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from types import ModuleType

from netspec.errors import (
    InputError,
    Location,
    NetspecError,
    Problem,
    RunError,
    is_pickle,
    kind_of_file,
    kind_of_path,
    near_path,
)
from netspec.files.damage import refuse_damage

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

HEAD_BYTES = 512
"""Number of bytes that `sniff` reads."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.(?:tmp|new)", re.DOTALL)
"""Names of the files that `write_atomically` fills, and of the folders of `staging`."""
FORGOTTEN = 3600.0
"""Age in seconds after which such a file counts as left by a killed process, and also such a folder if the file system
has no locks that end with their process."""
NEW = ".new"
"""Suffix of a folder of `staging` until it is locked; other processes leave it alone."""


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a temporary file next to `path`, force it to disk, and rename it to `path`.

    Whatever happens, `path` is either unchanged or the whole new file. Temporary files that killed processes left are
    removed. A link stays: its target is written. Raises `InputError` if `path` cannot be a file, `RunError` if writing
    fails (a full disk, …).
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    _remove_forgotten(target)
    try:
        with renamed_in_errors(temporary, Path(path)):
            write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        hint = "an existing file of this name was not changed"
        raise RunError(f"cannot write {path}", got=error.strerror or str(error), hint=hint) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text_atomically(path: str | Path, text: str) -> None:
    """Write a text in UTF-8 as `write_atomically` does, with the same errors."""
    write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))


def is_folder_path(path: Path) -> bool:
    """Return whether an output path names a folder: it is one, or its name has no suffix."""
    return path.is_dir() or not path.suffix


def _temporary(target: Path) -> Path:
    """An unused name next to `target`."""
    return target.with_name(f"{_beginning(target)}{secrets.token_hex(6)}.tmp")


def _beginning(target: Path) -> str:
    return f".{target.name[:100]}."


@contextmanager
def staging(target: Path, named: Path | None = None) -> Iterator[Path]:
    """A temporary folder next to `target` for files that are not complete yet; it is removed afterwards.

    Errors that leave the block name `named` (default: `target`) instead of the folder. Folders for this target that
    killed processes left are removed. Raises `OSError`.
    """
    named = target if named is None else named
    target = target.absolute()
    _remove_forgotten(target)
    staged = _temporary(target)
    unlocked = staged.with_suffix(NEW)
    unlocked.mkdir(mode=0o700)
    with _locked(unlocked):
        unlocked.rename(staged)
        try:
            with renamed_in_errors(staged, named):
                yield staged
        finally:
            shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder until the block or the process ends; yield False if the file system has no such locks.

    Raises `BlockingIOError` if another process holds the lock.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _has_lock(handle)
    finally:
        os.close(handle)


def _has_lock(handle: int) -> bool:
    """Lock an open folder. Return whether its file system has locks; raise `BlockingIOError` if it is locked."""
    assert fcntl is not None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill, which becomes `target` if the block ends without an error.

    Raises `InputError` if something other than an empty folder is at `target`, `RunError` if it cannot be written.
    Errors raised in the block name files of `target`, which the user knows.
    """
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        obstacle = "a folder that is not empty" if target.is_dir() else "a file"
        raise InputError(f"{target} is {obstacle}", expected="a folder that is not there yet")
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with staging(target) as staged:
            yield from _filled(staged, target)
    except OSError as error:
        raise RunError(
            f"cannot write {target}", got=error.strerror or str(error), hint="nothing of it is left"
        ) from error


def _filled(staged: Path, target: Path) -> Iterator[Path]:
    """Yield the folder to fill, and rename it to `target` afterwards."""
    yield staged
    staged.chmod(0o755)  # a temporary folder is readable by its owner alone
    if target.is_dir():
        target.rmdir()
    staged.rename(target)
    sync_folder(target.absolute().parent)


@contextmanager
def renamed_in_errors(temporary: Path, named: Path) -> Iterator[None]:
    """Replace a temporary path by `named`, which the user knows, in the errors of the block."""
    try:
        yield
    except NetspecError as error:
        kind = InputError if isinstance(error, InputError) else RunError  # other classes take more arguments
        raise kind(_renamed(problem, str(temporary), str(named)) for problem in error.problems) from error


def _renamed(problem: Problem, temporary: str, named: str) -> Problem:
    texts = {name: getattr(problem, name) for name in ("message", "expected", "got", "hint")}
    renamed = {name: text and text.replace(temporary, named) for name, text in texts.items()}
    notes = tuple(note.replace(temporary, named) for note in problem.notes)
    return replace(problem, **renamed, notes=notes, location=_relocated(problem.location, temporary, named))


def _relocated(location: Location | None, temporary: str, named: str) -> Location | None:
    if location is None:
        return None
    calls = tuple(
        replace(call, location=_relocated(call.location, temporary, named) or call.location) for call in location.calls
    )
    return replace(location, file=location.file.replace(temporary, named), calls=calls)


def _remove_forgotten(target: Path) -> None:
    """Remove temporary files and folders next to `target` that killed processes left."""
    for path in target.parent.glob(f"{glob.escape(_beginning(target))}*"):
        if not _TEMPORARY.fullmatch(path.name):
            continue
        with suppress(OSError):
            newest = max(entry.lstat().st_mtime for entry in (path, *(path.iterdir() if path.is_dir() else ())))
            is_old = time.time() - newest > FORGOTTEN
            if path.suffix == NEW and not is_old:
                continue  # its process is about to lock it
            with _locked(path) if path.is_dir() else nullcontext(False) as has_lock:
                if has_lock or is_old:
                    _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise `InputError` if no file can be written: `path` is a folder, pipe or device, or its folder is missing."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: folder {target.parent} does not exist", hint="make the folder first")
    kind = kind_of_path(target)
    if kind is not None:  # a device or a pipe would be replaced by a file
        raise InputError(f"cannot write {path}: it is {kind}", expected="the name of a file")


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that a killed process left, in a folder that no other process writes to."""
    for path in folder.glob(".*"):
        if _TEMPORARY.fullmatch(path.name):
            _remove(path)


def sync_folder(folder: Path) -> None:
    """Force renames in the folder to disk."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # some systems cannot open folders; the content of the file is already on disk
        return
    try:
        os.fsync(handle)
    except OSError:  # some file systems cannot sync folders
        pass
    finally:
        os.close(handle)


@contextmanager
def reading(path: str | Path, expected: str) -> Iterator[tuple[BufferedReader, int]]:
    """The file opened for reading, with its size in bytes; `expected` describes the expected file.

    Raises `InputError` if it is missing, a folder, a pipe or a device, empty, or can't be read, and for whatever the
    block raises on a damaged file.
    """
    path = Path(path)
    kind = kind_of_path(path)
    if kind is not None:
        raise InputError(f"{path} is {kind}", expected=expected)
    with refuse_damage(path, expected):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise InputError(f"file {path} does not exist", expected=expected, hint=near_path(path)) from None
        with file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise InputError(f"{path} is empty", expected=expected, got="0 bytes")
            yield file, size


LFS_POINTER = b"version https://git-lfs"
"""The beginning of a Git LFS pointer, which stands for the real file."""
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
)


NO_PICKLES = "pickles run code when they are read, so netspec reads none: save the arrays as .npz or safetensors"


def sniff(head: bytes) -> tuple[str, str | None]:
    """The kind of a file by its first bytes, and a hint if there is one."""
    for signature, description, hint in _SIGNATURES:
        if head.startswith(signature):
            return description, hint
    return kind_of_file(head), NO_PICKLES if is_pickle(head) else None
