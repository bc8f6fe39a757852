"""The command line: one file a command. `main` is the only place that turns what went wrong into an exit status."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from netspec.cli.streams import Output, standard_streams, tell
from netspec.cli.workers import enter, leave

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses. 130 is the shell's for a program that Ctrl-C ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments` (default: those of the process); the exit status.

    User errors are printed on stderr, with `--json` also as JSON on stdout, and never as a traceback:
    `--debug` or NETSPEC_DEBUG=1 prints tracebacks.
    """
    try:
        enter()
        status = _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # while something is loaded or told; a training that runs sees to it itself
        status = INTERRUPTED
    return leave(status)


def _main(words: list[str]) -> int:
    with standard_streams() as output:
        status = FAILED if output.lost else _run(words, output)
        output.finish()
        if output.lost:
            tell(f"error: cannot write to the standard output: {output.lost}")
            return FAILED
    return status


def _show_notices() -> None:
    """Print notes and warnings about the device; to a terminal also why a command is waiting."""
    from netspec.backends.notices import device_notices, wait_notices

    device_notices.set_listener(tell)
    if sys.stderr.isatty():
        wait_notices.set_listener(tell)


def _run(words: list[str], output: Output) -> int:
    debug = "--debug" in words or os.environ.get("NETSPEC_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"] or ["--help"]
    warnings.filterwarnings("ignore", module="PIL")  # of what is odd in an image and makes no difference to its pixels
    try:
        from netspec.cli.app import run

        _show_notices()
        status = run(words)
        output.flush()
    except BrokenPipeError:  # whoever read has read enough: nothing to tell
        return FAILED
    except Exception as error:
        from netspec.cli.failures import report

        return FAILED if output.lost else report(error, words, debug=debug)
    return status
