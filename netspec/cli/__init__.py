"""The command line: one file a command. `main` is the only place that turns what went wrong into an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses. 130 is the shell's for a program that Ctrl-C ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments` (default: those of the process); the exit status.

    A user's mistake is told on stderr, as JSON on stdout too where `--json` asks for it, and never as a traceback:
    those are for `--debug`, or NETSPEC_DEBUG=1.
    """
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # while something is loaded or told; a training that runs sees to it itself
        return INTERRUPTED


def _main(words: list[str]) -> int:
    debug = "--debug" in words or os.environ.get("NETSPEC_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"] or ["--help"]
    _never_fail_to_print(sys.stdout, sys.stderr)
    try:
        from netspec.cli.app import run

        status = run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        return FAILED
    except Exception as error:
        from netspec.cli.failures import report

        return report(error, words, debug=debug)
    return status


def _never_fail_to_print(*streams: TextIO) -> None:
    """Characters that a terminal or a pipe can't take (`→` in Latin-1, a file name of odd bytes) are escaped."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _discard(stream: TextIO) -> None:
    """Let what is still buffered for a closed pipe go nowhere, so that the interpreter ends without a complaint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
