"""Lock of a run directory, so that two processes never write the same run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from netspec.errors import InputError, RunError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` as the only writer while the block runs. Raises `InputError` if another process holds it.

    The file `lock` names the holder. If the system has `flock`, the lock ends with its process, even after a crash,
    and the file stays; otherwise the file itself is the lock, and is removed at the end.
    """
    path = folder / LOCK
    handle = _by_system(path) if fcntl is not None else _by_existence(path)
    try:
        with suppress(OSError):  # on a full disk, the file stays empty
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)
        if fcntl is None:
            path.unlink(missing_ok=True)


def is_locked(folder: Path) -> bool:
    """Return whether a process writes the run in `folder`.

    Takes the lock for an instant, so ask only about a run whose log has no end.
    """
    path = folder / LOCK
    if fcntl is None:
        return path.exists()
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def _by_system(path: Path) -> int:
    assert fcntl is not None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"cannot write {path}", got=error.strerror) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise _held(path, "wait for it or end it, or choose another folder with --run-dir") from None
    except OSError as error:
        os.close(handle)
        raise RunError(
            f"cannot lock {path}", got=error.strerror, hint="choose a folder on a local disk with --run-dir"
        ) from None
    os.ftruncate(handle, 0)
    return handle


def _by_existence(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise _held(path, f"if that process was killed, remove {path}") from None
    except OSError as error:
        raise RunError(f"cannot write {path}", got=error.strerror) from None


def _held(path: Path, hint: str) -> InputError:
    try:
        holder = path.read_text(encoding="utf-8").strip()
    except OSError:
        holder = ""
    holder_text = f"process {holder}" if holder.isdigit() else "another process"
    return InputError(f"{path.parent} is being written by {holder_text}", hint=hint)
