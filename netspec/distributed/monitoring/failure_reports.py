"""Failure reports of workers, and the one message made from them: an error that all find is reported once."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netspec.errors import command

GATHERED_WITHIN = 1.0
"""Seconds after the first failure in which the reports of others are awaited."""
FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
"""Exit statuses: what went wrong while running, a mistake of the user's, and what the user stopped."""


@dataclass(frozen=True)
class FailureReport:
    """How one worker ended: its exit status, and what its command would print if it were alone."""

    rank: int
    host: str
    status: int
    error: str = ""
    """For the error stream."""
    output: str = ""
    """For the standard output: JSON, if that was requested."""

    def as_json(self) -> dict[str, Any]:
        """Plain data, from which `Words(**data)` makes them again."""
        return asdict(self)


class FailureReports:
    """The reports that worker 0 has received."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[int, FailureReport] = {}
        self._first_at = 0.0

    def take(self, words: FailureReport) -> None:
        """Add the report of a worker."""
        if not self._said:
            self._first_at = time.monotonic()
        self._said.setdefault(words.rank, words)

    def complete(self, waited: float) -> bool:
        """Return whether the message can be printed. `waited`: seconds that worker 0 has waited in its current call.

        After an interruption by the user the others are awaited: they may still write a checkpoint.
        """
        if not self._said or len(self._said) == self._size:
            return bool(self._said)
        late = time.monotonic() - self._first_at > GATHERED_WITHIN
        stopped = all(one.status == INTERRUPTED for one in self._said.values())
        return late and (not stopped or 0 in self._said or waited > GATHERED_WITHIN)

    def tell(self, again: str | None = None, *, begun: bool = False) -> tuple[str, str, int]:
        """What goes to the standard output and to the error stream, and the exit status of all.

        Worker 0 speaks for all where the others say the same, of what its user stopped, and of what he did wrong unless
        the work had `begun`: it may be alone in that then. `again` is how to go on, told where it does not.
        """
        said = [self._said[rank] for rank in sorted(self._said)]
        failed = [one for one in said if one.status != INTERRUPTED] or said
        first, alike = failed[0], len(failed) == self._size and len({one.error for one in failed}) == 1
        if first.rank == 0 and (alike or first.status in ((INTERRUPTED,) if begun else (WRONG_INPUT, INTERRUPTED))):
            lines = [first.error, *(_marked(one) for one in failed if one.error not in ("", first.error))]
        else:
            lines = [_marked(one) for one in failed if one.error]  # nothing where nobody reads what it would say
            if lines and again is not None and first.status != INTERRUPTED:
                lines.append(f"  hint: {again}")
        return first.output, "\n".join(lines), first.status


def _marked(words: FailureReport) -> str:
    """Return a worker's error with its rank and host."""
    return f"rank {words.rank} ({words.host}): {words.error}"


def resume_hint(run_dir: str | None, options: Sequence[str]) -> str | None:
    """Return a hint with the command that resumes a run."""
    if run_dir is None:
        return None
    spec = os.path.join(run_dir, "spec.yaml")  # noqa: PTH118  a string, as it was given
    return f"to go on: {command('train', spec, '--resume', *options)}"


def workers_arguments(workers: int) -> list[str]:
    """Return the command-line arguments that start a number of workers."""
    return ["--workers", str(workers)]
