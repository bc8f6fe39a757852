"""Failure reports of workers, combined into one message: an error that all workers raise is reported once."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netspec.errors import command

GATHER_TIMEOUT = 1.0
"""Seconds after the first failure in which the reports of other workers are awaited."""
FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
"""Exit statuses: a failure while running, wrong input, and an interruption by the user."""


@dataclass(frozen=True)
class FailureReport:
    """Exit status of one worker, and the output that a training run with a single worker would print."""

    rank: int
    host: str
    status: int
    error: str = ""
    """Text for the error stream."""
    output: str = ""
    """Text for the standard output: JSON, if that was requested."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


class FailureReports:
    """The reports that worker 0 has received."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._reports: dict[int, FailureReport] = {}
        self._first_at = 0.0

    def add(self, report: FailureReport) -> None:
        """Add the report of a worker."""
        if not self._reports:
            self._first_at = time.monotonic()
        self._reports.setdefault(report.rank, report)

    def is_complete(self, waited: float) -> bool:
        """Return whether the message can be printed. `waited`: seconds that worker 0 has waited in its current call.

        After an interruption by the user, wait for the other workers: they may still write a checkpoint.
        """
        if not self._reports or len(self._reports) == self._size:
            return bool(self._reports)
        late = time.monotonic() - self._first_at > GATHER_TIMEOUT
        stopped = all(report.status == INTERRUPTED for report in self._reports.values())
        return late and (not stopped or 0 in self._reports or waited > GATHER_TIMEOUT)

    def summarize(self, resume: str | None = None, *, started: bool = False) -> tuple[str, str, int]:
        """Return the text for the standard output and for the error stream, and the exit status.

        The message of worker 0 stands for all if all messages are equal, if the user interrupted, or if the input is
        wrong and training had not `started`. Otherwise each message includes the rank, and the hint `resume` follows.
        """
        reports = [self._reports[rank] for rank in sorted(self._reports)]
        failed = [report for report in reports if report.status != INTERRUPTED] or reports
        first, alike = failed[0], len(failed) == self._size and len({report.error for report in failed}) == 1
        if first.rank == 0 and (alike or first.status in ((INTERRUPTED,) if started else (WRONG_INPUT, INTERRUPTED))):
            lines = [first.error, *(_with_rank(report) for report in failed if report.error not in ("", first.error))]
        else:
            lines = [_with_rank(report) for report in failed if report.error]
            if lines and resume is not None and first.status != INTERRUPTED:
                lines.append(f"  hint: {resume}")
        return first.output, "\n".join(lines), first.status


def _with_rank(report: FailureReport) -> str:
    """Return a worker's error with its rank and host."""
    return f"rank {report.rank} ({report.host}): {report.error}"


def resume_hint(run_dir: str | None, options: Sequence[str]) -> str | None:
    """Return a hint with the command that resumes a run."""
    if run_dir is None:
        return None
    spec = os.path.join(run_dir, "spec.yaml")  # noqa: PTH118  keeps the path as the user wrote it
    return f"to continue: {command('train', spec, '--resume', *options)}"


def workers_arguments(workers: int) -> list[str]:
    """Return the command-line arguments that start a number of workers."""
    return ["--workers", str(workers)]
