"""The standard streams as a shell may leave them: closed, full, unable to take all characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast


class Output:
    """The standard output, which records why writing failed."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.lost = None if stream is not None else "it is closed"
        """Reason why output was lost, if it was. A reader that ends first has read enough, so nothing is lost."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write to the stream; record in `lost` why that fails."""
        assert self._stream is not None
        with self._watched():
            return self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream; record in `lost` why that fails."""
        assert self._stream is not None
        with self._watched():
            self._stream.flush()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = (error.strerror or str(error)).lower()
            raise

    def finish(self) -> None:
        """Flush the stream; discard what cannot be written."""
        if self._stream is None:
            return
        try:
            self.flush()
        except OSError:
            _discard(self._stream)


@contextmanager
def standard_streams() -> Iterator[Output]:
    """Replace `sys.stdout` by an `Output` while the block runs; if stderr is closed, open the null device for it.

    Characters that the streams can't encode (`→` in Latin-1, undecodable bytes of file names) are escaped.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  as long as the process runs
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    before, output = sys.stdout, Output(sys.stdout)
    sys.stdout = cast(TextIO, output)
    try:
        yield output
    finally:
        output.finish()
        sys.stdout = before


def print_stderr(text: str) -> None:
    """Print on stderr; discard the text if stderr is closed."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that Python does not complain about its buffer at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
