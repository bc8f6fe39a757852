"""Commands that answer requests until a signal ends them, in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a command on a free port; yield the process and the URL that it prints once it accepts requests."""
    command = [sys.executable, "-m", "netspec", *words, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            while (match := re.search(r" at (http://127\.0\.0\.1:\d+)", lines[-1] if lines else "")) is None:
                lines.append(process.stderr.readline())
                assert lines[-1], "".join(lines)
            yield process, match[1]
        finally:
            process.kill()
