"""`RequestError`: an error of one request, with its HTTP status."""

from __future__ import annotations

import re
from pathlib import Path

from netspec.errors import InputError, SettingHint
from netspec.training.inference.raw_samples import TEXT_FILE


class RequestError(Exception):
    """A request cannot be answered. `str(error)` is the message for the client, `status` the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def as_request_error(error: InputError, status: int, folder: Path | None = None) -> RequestError:
    """Return an error about the content of a request, with a line for each problem.

    It names the body, or one of its texts, instead of the temporary file in `folder` that contains it. Hints at
    settings of the training are left out, since clients cannot change these.
    """
    parts = []
    for problem in error.problems[:10]:
        facts = [("expected", problem.expected), ("got", problem.got)]
        hint = problem.hint.data if isinstance(problem.hint, SettingHint) else problem.hint
        names_file = folder is not None and str(folder) in problem.message
        line = "" if problem.location is None or names_file else f"line {problem.location.line}: "
        described = [f"{name} {text}" for name, text in facts if text]
        parts.append("; ".join(filter(None, [f"{line}{problem.message}", *described, hint])))
    message = "\n".join(parts)
    if folder is not None:
        file = rf"(?:image |sound )?{re.escape(str(folder))}/(?:{TEXT_FILE}(\d+)|\w+)(?:\.\w+)?"
        message = re.sub(file, lambda match: f"text {int(match[1]) + 1}" if match[1] else "the body", message)
    return RequestError(status, message)
