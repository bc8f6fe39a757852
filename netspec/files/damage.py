"""The guard of all readers: any exception that a library raises on a damaged file becomes an `InputError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netspec.errors import InputError, NetspecError

LONGEST_REASON = 200
"""Number of characters of a library's message that are shown."""
MAX_DEFLATE_RATIO = 1100
"""Upper bound of deflate's compression ratio (1032): a file that claims more is damaged, or exhausts the memory."""
RUST_PANIC_MODULE = "pyo3_runtime"
"""Module of the exception for a panic in a library written in Rust; its class derives only from `BaseException`."""
COPY_AGAIN = "copy or download it again; if it is intact, please report this: --debug shows where it fails"


@contextmanager
def refuse_damage(name: str | Path, expected: str | None = None, hint: str = COPY_AGAIN) -> Iterator[None]:
    """Turn any exception in the block that is not netspec's own into an `InputError` that names the file.

    `ImportError` passes: a package that is not installed says nothing about the file.
    """
    try:
        yield
    except (NetspecError, ImportError):
        raise
    except BaseException as error:  # parsers may raise anything on damaged files
        if not isinstance(error, Exception) and type(error).__module__ != RUST_PANIC_MODULE:
            raise
        system = isinstance(error, OSError) and bool(error.strerror)  # a lost disk, no permission
        raise InputError(
            f"cannot read {name}", expected=expected, got=reason(error), hint=None if system else hint
        ) from error


def reason(error: BaseException) -> str:
    """The message of a library's exception, in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(text.split())[:LONGEST_REASON]
    if isinstance(error, (OSError, ValueError)) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
