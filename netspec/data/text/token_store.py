"""All tokens of a corpus as one array: in memory if it is small, else in a memory-mapped file of the cache folder.

The file is named by a fingerprint of its sources, so later runs reuse it. It is written atomically.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from netspec.data.base import Array
from netspec.errors import InputError
from netspec.files.cache_folder import cache_folder, make_folder

IN_MEMORY = 2**26
"""Largest size in bytes of tokens that are kept in memory."""
_FOLDER = "tokens"


class TokenStore(NamedTuple):
    """The tokens of several texts, one after another; text `i` is `tokens[bounds[i]:bounds[i + 1]]`."""

    tokens: Array
    bounds: Array


class _File(NamedTuple):
    """A file that is being written."""

    stream: BinaryIO
    path: Path


def token_store(texts: Sequence[Iterator[Array]], size: int, key: str) -> TokenStore:
    """Store the tokens of all texts, each an iterator of its parts, with indices below `size`.

    `key` is a fingerprint of all that determines the tokens. Raises InputError if the cache folder is not writable.
    """
    dtype = np.dtype(np.uint8 if size <= 2**8 else np.uint16 if size <= 2**16 else np.int32)
    name = f"{key}-{dtype.name}-{len(texts)}"
    stored = _mapped(cache_folder(_FOLDER) / name, dtype, len(texts))
    if stored is not None:
        return stored
    with contextlib.ExitStack() as stack:
        parts: list[Array] = []
        bounds, held_bytes, written = [0], 0, 0
        file: _File | None = None
        for text in texts:
            for part in text:
                small = part.astype(dtype)
                parts.append(small)
                held_bytes += small.nbytes
                written += len(small)
                if held_bytes > IN_MEMORY:
                    file = file or _create_file(stack)
                    _put(file, parts)
                    parts, held_bytes = [], 0
            bounds.append(written)
        if file is None:
            return TokenStore(np.concatenate([np.zeros(0, dtype), *parts]), np.array(bounds))
        _put(file, [*parts, np.array(bounds, np.int64).view(np.uint8)])
        return _store(file, name, dtype, len(texts))


def _create_file(stack: contextlib.ExitStack) -> _File:
    descriptor, path = tempfile.mkstemp(prefix=".making-", dir=make_folder(cache_folder(_FOLDER)))
    stack.callback(Path(path).unlink, missing_ok=True)  # unless it was renamed
    return _File(stack.enter_context(os.fdopen(descriptor, "wb")), Path(path))


def _put(file: _File, parts: Sequence[Array]) -> None:
    try:
        for part in parts:
            file.stream.write(part.data)
        file.stream.flush()
    except OSError as error:
        raise InputError(
            f"cannot keep the tokens of a text in {file.path.parent}",
            got=error.strerror or str(error),
            hint="choose another cache folder with XDG_CACHE_HOME=FOLDER",
        ) from None


def _store(file: _File, name: str, dtype: np.dtype[np.generic], texts: int) -> TokenStore:
    """Move the finished file to its name and map it."""
    os.fsync(file.stream.fileno())
    target = file.path.replace(file.path.with_name(name))
    stored = _mapped(target, dtype, texts)
    assert stored is not None
    return stored


def _mapped(path: Path, dtype: np.dtype[np.generic], texts: int) -> TokenStore | None:
    """Open the store in a file: the tokens, then the end of each text as int64. None if the file does not exist."""
    tail = 8 * (texts + 1)
    try:
        size = path.stat().st_size - tail
        with path.open("rb") as file:
            file.seek(size)
            bounds = np.frombuffer(file.read(tail), np.int64)
        tokens = np.memmap(path, dtype, "r", shape=(size // dtype.itemsize,))
    except (OSError, ValueError):
        return None
    return TokenStore(tokens.view(np.ndarray), bounds) if bounds[-1] == len(tokens) else None
