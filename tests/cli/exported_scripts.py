"""Run the script of an exported model in this process: starting Python and ONNX Runtime takes longer than most."""

from __future__ import annotations

import io
import runpy
import signal
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from tests.cli.conftest import Outcome


def run_script(*arguments: str, folder: str = ".", path: str = "deployed/run.py", content: bytes = b"") -> Outcome:
    """Do what `python PATH ARGUMENTS` does in this folder, with `content` as the standard input.

    Exceptions of the script, except SystemExit, propagate to the test.
    """
    stdin, stdout, stderr = (io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="\n") for text in (content, b"", b""))
    on_pipe = signal.getsignal(signal.SIGPIPE)  # the script ends with the reader of its output
    try:
        with chdir(folder), patch.multiple(sys, argv=[path, *arguments], stdin=stdin, stdout=stdout, stderr=stderr):
            runpy.run_path(str(Path(path).absolute()), run_name="__main__")  # absolute, as Python has it
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        signal.signal(signal.SIGPIPE, on_pipe)
    return Outcome(status, *(_written(stream) for stream in (stdout, stderr)))


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
