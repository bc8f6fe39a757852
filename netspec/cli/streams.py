"""The standard streams as a shell may leave them: closed, full, unable to take all characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast


class Output:
    """The standard output, which remembers why it could not be written."""

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
        """Write out what is still buffered; where that can't be done, let it go nowhere."""
        if self._stream is None:
            return
        try:
            self.flush()
        except OSError:
            _discard(self._stream)


@contextmanager
def standard_streams() -> Iterator[Output]:
    """The standard output, in place of `sys.stdout` while the block runs; a closed error stream leads nowhere then.

    Characters that a terminal or a pipe can't take (`→` in Latin-1, a file name of odd bytes) are escaped.
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


def tell(text: str) -> None:
    """Print on the error stream, if anything takes it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Let what is still buffered for a stream go nowhere, so that the interpreter ends without a complaint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
