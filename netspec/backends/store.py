"""`Store`: a folder on disk for what is found out once: compiled kernels, the winners of races."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import sys
import tempfile
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

DIGEST = 32
"""Bytes of the hash in front of the content of a file."""


def cache_store(name: str) -> Store:
    """The store called `name` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  may fail to expand
    return Store(f"{base}/netspec/{name}")


class Store:
    """Files that only their owner can have written. Where no such folder can be had, a temporary one serves.

    Several processes may write at once: a file appears whole, under its name, or not at all.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            private = os.name != "posix" or _private(self.path)
        except OSError:
            private = False
        if not (private and os.access(self.path, os.W_OK)):
            self.path = Path(tempfile.mkdtemp(prefix="netspec-"))
            atexit.register(shutil.rmtree, self.path, ignore_errors=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none, or it is not what was written."""
        try:
            data = (self.path / name).read_bytes()
        except OSError:
            return None
        content = data[DIGEST:]
        return content if sha256(content).digest() == data[:DIGEST] else None

    def write(self, name: str, content: bytes) -> None:
        """Keep a file. A full disk is no error: it is then made again the next time."""
        with contextlib.suppress(OSError):
            self._put(name, sha256(content).digest() + content)

    def module(self, name: str, text: str) -> ModuleType:
        """Import `text` as a module, from a file of the folder. Raises `OSError` where it cannot be written."""
        path = self.path / f"{name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            self._put(path.name, text.encode())
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a stale .pyc would stand for the text
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = kept
        return module

    def _put(self, name: str, data: bytes) -> None:
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)  # noqa: PTH105  a string and a path
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _private(path: Path) -> bool:
    """Whether nobody else can write there; a folder of our own that others can write is closed to them."""
    state = path.stat()
    if state.st_uid != os.getuid():
        return False
    if stat.S_IMODE(state.st_mode) & 0o022:
        path.chmod(0o700)
    return True
