"""`RequestError`: an error of one request, with its HTTP status."""

from __future__ import annotations

from pathlib import Path

from netspec.errors import InputError


class RequestError(Exception):
    """A request cannot be answered. `str(error)` is the message for the client, `status` the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def as_request_error(error: InputError, status: int, folder: Path | None = None) -> RequestError:
    """Return an error about the content of a request in one line; paths of files in `folder` become names."""
    parts = []
    for problem in error.problems[:10]:
        facts = [("expected", problem.expected), ("got", problem.got)]
        hint = [] if problem.hint is None else [problem.hint]
        parts.append("; ".join([problem.message, *(f"{name} {text}" for name, text in facts if text), *hint]))
    message = "\n".join(parts)
    return RequestError(status, message.replace(f"{folder}/", "") if folder is not None else message)
