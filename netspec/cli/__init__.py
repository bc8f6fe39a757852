"""The command line, with a module for each command. `main` alone converts exceptions to exit statuses."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from netspec.cli.streams import Output, print_stderr, standard_streams
from netspec.cli.workers import join_job, leave_job

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses. 130 is the shell's for a program that Ctrl-C ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments`, by default those of the process; return the exit status.

    User errors are printed on stderr, with `--json` also as JSON on stdout, and never as a traceback: `--debug` or
    NETSPEC_DEBUG=1 prints tracebacks.
    """
    try:
        join_job()
        status = _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # during imports or output; a running training handles Ctrl-C itself
        status = INTERRUPTED
    return leave_job(status)


def _main(words: list[str]) -> int:
    with standard_streams() as output:
        status = FAILED if output.lost else _run(words, output)
        output.finish()
        if output.lost:
            print_stderr(f"error: cannot write to the standard output: {output.lost}")
            return FAILED
    return status


def _show_notices() -> None:
    """Print notes and warnings about the device; to a terminal also why a command is waiting."""
    from netspec.backends.notices import device_notices, wait_notices

    device_notices.set_listener(print_stderr)
    if sys.stderr.isatty():
        wait_notices.set_listener(print_stderr)


def _run(words: list[str], output: Output) -> int:
    debug = "--debug" in words or os.environ.get("NETSPEC_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"] or ["--help"]
    warnings.filterwarnings("ignore", module="PIL")  # Pillow warns of oddities that don't change pixels
    try:
        from netspec.cli.app import run

        _show_notices()
        status = run(words)
        output.flush()
    except BrokenPipeError:  # the reader has closed the pipe, which is not an error
        return FAILED
    except Exception as error:
        from netspec.cli.failures import report

        return FAILED if output.lost else report(error, words, debug=debug)
    return status
