"""One case of the corpus: a broken spec, and in the comments it begins with, all that netspec is to say of it.

Each file below tests/bad_specs is wrong by itself. Those in tests/bad_overrides are wrong with the changes of their
`with:` line; the right files that cases name are in tests/bad_specs_parts.

    # What is wrong, in a sentence.
    # with: solver.momentum=0.5 ~train.seed     changes given on the command line (optional)
    #
    # 14:29 num_output: 3                       line:column, and the text that stands there
    #   message: `Dense` has no field `num_output`
    #   expected: one of …, units, …            `…` stands for any text
    #   got: …
    #   hint: …
    #   note: …                                 of the notes only those that matter here

What a problem has besides notes must all be said. A problem in another file than this one begins with its path from
here: `parts/net.yaml:3:1 layer: []`. The text that stands at the place is left out where there is none: at the end of a
line. Characters that no editor shows are left out of it too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent
"""Every spec in here is broken as it stands."""
BAD_OVERRIDES = CORPUS.parent / "bad_overrides"
"""Every spec in here is right; what is wrong are the changes that its case gives on the command line."""
FACTS = ("message", "expected", "got", "hint")
COMMAND_LINE = "<command line>"
REPLACED = "\ufffd"
"""Stands for a byte that is not UTF-8."""

_PLACE = re.compile(r"(?:(?P<file>\S+|<[^>]*>):)?(?P<line>\d+):(?P<column>\d+)(?: (?P<text>.+))?\Z")


@dataclass
class Expected:
    """A problem that must be found."""

    file: str
    line: int
    column: int
    text: str
    """What stands at the place, or the beginning of it."""
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def differences(self, found: Mapping[str, Any], case: Case) -> Iterator[str]:
        """How `found`, an object of `netspec check --json`, is another problem than this one."""
        place, wanted = (found["file"], found["line"], found["column"]), (self.file, self.line, self.column)
        if place != wanted:
            yield f"place: {_colons(*place)}, not {_colons(*wanted)}"
            return
        there = case.text_at(*place)
        if not there.startswith(self.text) or bool(self.text) != bool(there):
            yield f"text at {_colons(*place)}: {there!r}, not {self.text!r}"
        for fact in FACTS:
            if not matches(self.facts.get(fact), found[fact]):
                yield f"{fact}: {found[fact]!r}, not {self.facts.get(fact)!r}"
        for note in self.notes:
            if not any(matches(note, one) for one in found["notes"]):
                yield f"notes: {found['notes']!r}, without {note!r}"


@dataclass
class Case:
    """A file of the corpus."""

    path: Path
    title: str
    overrides: list[str]
    problems: list[Expected]
    body: str
    """The spec, without the comments it begins with."""

    @property
    def name(self) -> str:
        """`topic/case`."""
        root = CORPUS if self.path.is_relative_to(CORPUS) else BAD_OVERRIDES.parent
        return self.path.relative_to(root).with_suffix("").as_posix()

    def text_at(self, file: str, line: int, column: int) -> str:
        """What stands from a place on to the end of the line; nothing where there is no such place."""
        path = self.path.parent / file
        known = self.overrides if file == COMMAND_LINE else text_of(path).splitlines() if path.is_file() else []
        text = known[line - 1][column - 1 :] if 0 < line <= len(known) else ""
        return "".join(char for char in text if char.isprintable() and char != REPLACED).strip()


def _colons(*parts: object) -> str:
    return ":".join(map(str, parts))


def matches(pattern: str | None, text: str | None) -> bool:
    """Whether `text` is as the pattern says; `…` in it stands for any text."""
    if pattern is None or text is None:
        return pattern is text
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), text, re.DOTALL) is not None


def text_of(path: Path) -> str:
    """The file as text; some files of the corpus are not UTF-8, which is what is wrong with them."""
    data = path.read_bytes()
    utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode("utf-16" if utf16 else "utf-8-sig", errors="replace")


def corpus() -> list[Path]:
    """All files that are cases; those in a folder `parts`, broken too, are there to be named by others."""
    files = [*CORPUS.rglob("*.yaml"), *BAD_OVERRIDES.glob("*.yaml")]
    return sorted(path for path in files if path.parent.name != "parts")


def read_case(path: Path) -> Case:
    """The case in a file. Raises `ValueError` where its comments are not as they have to be."""
    lines = text_of(path).splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    head = [line[1:].removeprefix(" ") for line in lines[:count]]
    case = Case(path, head[0].strip() if head else "", [], [], "\n".join(lines[count:]))
    for line in head[1:]:
        words = line.strip()
        if not words:
            continue
        name, colon, value = words.partition(": ")
        if line.startswith("  ") and colon and case.problems:
            expected = case.problems[-1]
            if name == "note":
                expected.notes.append(value)
            elif name in FACTS and name not in expected.facts:
                expected.facts[name] = value
            else:
                raise ValueError(f"{path}: `{line}` is no fact of a problem")
        elif name == "with" and not case.problems:
            case.overrides += shlex.split(value)
        elif found := _PLACE.match(words):
            file = found["file"] or path.name
            case.problems.append(Expected(file, int(found["line"]), int(found["column"]), found["text"] or ""))
        else:
            raise ValueError(f"{path}: `{line}` says neither a place nor a fact")
    return case
