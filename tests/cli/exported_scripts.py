"""Train and export nets, and run the script of an exported model in this process.

Starting Python and ONNX Runtime takes longer than most scripts.
"""

from __future__ import annotations

import io
import runpy
import shutil
import signal
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from tests.cli.conftest import Netspec, Outcome


def train_spec(netspec: Netspec, text: str, *words: str, **values: str) -> None:
    """Train in `run`; `values` replace names in capitals in the spec, `words` are further arguments."""
    for name, value in values.items():
        text = text.replace(name, value)
    Path("train.yaml").write_text(text)
    shutil.rmtree("run", ignore_errors=True)
    netspec.ok("train", "train.yaml", "--run-dir", "run", *words)


def script_lines(*arguments: str) -> list[str]:
    """Return the lines that a script prints, which must succeed."""
    done = run_script(*arguments)
    assert done.status == 0, done.err
    return done.out.splitlines()


def run_script(*arguments: str, folder: str = ".", path: str = "deployed/run.py", content: bytes = b"") -> Outcome:
    """Run `python PATH ARGUMENTS` in this folder, with `content` as the standard input.

    Exceptions of the script, except SystemExit, propagate to the test.
    """
    stdin, stdout, stderr = (io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="\n") for text in (content, b"", b""))
    on_pipe = signal.getsignal(signal.SIGPIPE)  # the script resets it, to end when the reader of its output does
    try:
        with chdir(folder), patch.multiple(sys, argv=[path, *arguments], stdin=stdin, stdout=stdout, stderr=stderr):
            runpy.run_path(str(Path(path).absolute()), run_name="__main__")  # Python passes an absolute path
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
