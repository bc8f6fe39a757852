"""`DiskCache`: a folder for results that are computed once: compiled kernels, autotuning."""

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

from netspec.files.cache_folder import cache_folder

DIGEST = 32
"""Bytes of the hash at the start of a file."""


def open_cache(name: str) -> DiskCache:
    """The cache called `name` in the user's cache folder."""
    return DiskCache(cache_folder(name))


class DiskCache:
    """Files that only their owner can have written. If such a folder cannot be created, a temporary one is used.

    Several processes may write at once: a file appears complete under its name, or not at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            private = os.name != "posix" or _private(self.path)
        except OSError:
            private = False
        if not (private and os.access(self.path, os.W_OK)):
            self.path = Path(tempfile.mkdtemp(prefix="netspec-"))
            atexit.register(shutil.rmtree, self.path, ignore_errors=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist or is damaged."""
        try:
            data = (self.path / name).read_bytes()
        except OSError:
            return None
        content = data[DIGEST:]
        return content if sha256(content).digest() == data[:DIGEST] else None

    def write(self, name: str, content: bytes) -> None:
        """Store a file. A full disk is not an error: the content is computed again the next time."""
        with contextlib.suppress(OSError):
            self._put(name, sha256(content).digest() + content)

    def module(self, name: str, text: str) -> ModuleType:
        """Import `text` as a module, from a file in the folder. Raises `OSError` if it cannot be written."""
        path = self.path / f"{name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            self._put(path.name, text.encode())
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        previous, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a stale .pyc would replace the text
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = previous
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
    """Return whether only the user can write to a folder; deny others write permission if the user owns it."""
    state = path.stat()
    if state.st_uid != os.getuid():
        return False
    if stat.S_IMODE(state.st_mode) & 0o022:
        path.chmod(0o700)
    return True
