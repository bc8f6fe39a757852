"""Notes for the user on a file that was read or written; notes of one kind are printed as one line."""

from __future__ import annotations

from collections.abc import Iterable

from netspec.errors import and_more

MAX_SUBJECTS = 5
"""Number of subjects that a line for several notes lists."""


class Note(str):
    """A sentence about one subject. Notes of the same kind say the same about other subjects."""

    __slots__ = ("kind", "subject")

    kind: str
    """The sentence for several subjects, with `{count}` for their number; empty for a note that occurs only once."""
    subject: str
    """Name of the subject in the line for several notes."""

    def __new__(cls, text: str, kind: str = "", subject: str = "") -> Note:
        """Make a note of one line: names in foreign files may contain line feeds."""
        note = super().__new__(cls, text.replace("\n", "\\n"))
        note.kind, note.subject = kind, subject.replace("\n", "\\n")
        return note


class Notes(list[str]):
    """Notes in the order in which they are added, without duplicates."""

    def add(self, text: str, kind: str = "", subject: str = "") -> None:
        """Add a note, unless there is one with the same text."""
        if text not in self:
            self.append(Note(text, kind, subject))


def summarized(notes: Iterable[str]) -> list[str]:
    """The notes as lines to print: one line per kind, with the number of notes and the first subjects."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(getattr(note, "kind", "") or note, []).append(note)
    return [of_kind[0] if len(of_kind) == 1 else _line(kind, of_kind) for kind, of_kind in kinds.items()]


def _line(kind: str, notes: list[str]) -> str:
    subjects = [note.subject for note in notes if isinstance(note, Note)]
    listed, omitted = subjects[:MAX_SUBJECTS], len(subjects) - MAX_SUBJECTS
    return f"{kind.format(count=f'{len(notes):,}')}: {', '.join(listed)}{and_more(omitted)}"
