"""What there is to say of a file while it is read: problems, which refuse it, and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from netspec.errors import InputError, Problem
from netspec.exchange.caffe.proto.message import Message


@dataclass
class Remarks:
    """Problems and notes, in the order in which they were found."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(
        self, message: str, at: Message, name: str | None = None, *,
        expected: str | None = None, got: object = None, hint: str | None = None,
    ) -> None:  # fmt: skip
        """Refuse the file for what a field of `at` says."""
        told = None if got is None else str(got)
        self.problems.append(Problem(message, at.location(name), expected=expected, got=told, hint=hint))

    def note(self, text: str) -> None:
        """Tell the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def check(self) -> None:
        """Raise `InputError` with all problems there are."""
        if self.problems:
            raise InputError(self.problems)
