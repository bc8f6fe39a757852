"""Report exceptions to the user: as text, as JSON, and by the exit status."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from netspec.cli.app import COMMANDS, USAGE_ERROR
from netspec.cli.streams import print_stderr
from netspec.cli.workers import end_job, reported_by_another
from netspec.errors import InputError, Problem, as_netspec_error, did_you_mean
from netspec.schema.plain_json import json_text


def report(error: Exception, words: Sequence[str], *, debug: bool) -> int:
    """Print an error on stderr, with `--json` in `words` also as JSON on stdout; return the exit status."""
    reported = InputError(_usage_problem(error)) if isinstance(error, USAGE_ERROR) else as_netspec_error(error)
    trace = "".join(traceback.format_exception(error)) if debug else ""
    command = next((word for word in words if word in COMMANDS), "")
    text, output = trace + reported.render(), _output(reported.problems, command) if "--json" in words else ""
    end_job(reported.exit_status, error=text, output=output)
    if reported_by_another(command):
        return reported.exit_status
    if output:
        with suppress(OSError):  # stdout is closed, which `main` reports
            print(output, flush=True)
    print_stderr(text)
    return reported.exit_status


def _output(problems: Sequence[Problem], command: str) -> str:
    return json_text(as_json(command, problems), indent=None if command == "train" else 2)


def as_json(command: str, problems: Sequence[Problem]) -> Any:
    """Return the problems in the form of a command's `--json` results."""
    data = [problem.as_json() for problem in problems]
    match command:
        case "check":
            return data
        case "train":
            return {"event": "error", "problems": data}
    return {"problems": data}


def _usage_problem(error: Any) -> Problem:
    """Describe an error of the option parser, with the nearest option's name."""
    message = error.format_message().split(" (Possible options")[0].rstrip(".")
    context, hint = error.ctx, None
    if context is not None:
        named = getattr(error, "option_name", None)
        if named is not None:
            hint = did_you_mean(named, [option for param in context.command.params for option in param.opts])
        if hint is None and named is not None and any(param.name == "overrides" for param in context.command.params):
            hint = f"settings of a spec are written `train.max_epochs=3`; see `{context.command_path} --help`"
        hint = hint or f"`{context.command_path} --help` lists the options"
    message, _, expected = message.partition(": Input should be ")
    expected = expected.removesuffix(", unable to parse string as an integer").replace("valid integer", "whole number")
    return Problem(message[:1].lower() + message[1:], expected=expected or None, hint=hint)
