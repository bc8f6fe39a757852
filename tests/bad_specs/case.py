"""The corpus of broken specs: each case with all problems that netspec must report for it.

A file `tests/bad_specs/TOPIC.yaml` is a multi-document YAML file with one case a document, in any order:

    --- # name_of_the_case
    # What is wrong, in a sentence.
    # with: solver.momentum=0.5 ~train.seed     changes given on the command line (optional)
    #
    # 4:29 num_output: 3                        line:column in the spec below these comments, and the text there
    #   message: `Dense` has no field `num_output`
    #   expected: one of …, units, …            `…` stands for any text
    #   got: …
    #   hint: …
    #   note: …                                 only the notes that matter here
    netspec: 1

All problems must be listed, and each with all its facts. A problem in another file begins with the path of that file:
`parts/net.yaml:3:1 layer: []`. Cases may refer to the files in `parts`. The text is left out at the end of a line, and
characters that editors do not show are left out of it. Each file in `encodings` is a case of its own, because its bytes
matter; there, lines are those of the file.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from netspec.cli import main

CORPUS = Path(__file__).parent
OVERRIDES = "overrides"
"""The topic whose specs are right: only the changes on the command line are wrong."""
FACTS = ("message", "expected", "got", "hint")
COMMAND_LINE = "<command line>"
REPLACED = "\ufffd"
"""Stands for a byte that is not UTF-8."""

_START = re.compile(r"^--- # (\w+)\n", re.MULTILINE)
_PLACE = re.compile(r"(?:(?P<file>\S+|<[^>]*>):)?(?P<line>\d+):(?P<column>\d+)(?: (?P<text>.+))?\Z")


@dataclass
class Expected:
    """A problem that netspec must report."""

    file: str
    line: int
    column: int
    text: str
    """The text at the location, or its beginning."""
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def differences(self, reported: Mapping[str, Any], case: Case) -> Iterator[str]:
        """Yield the differences from `reported`, an object of `netspec check --json`."""
        location, expected = (
            (reported["file"], reported["line"], reported["column"]),
            (self.file, self.line, self.column),
        )
        if location != expected:
            yield f"location: {_colons(*location)}, not {_colons(*expected)}"
            return
        text = case.text_at(*location)
        if not text.startswith(self.text) or bool(self.text) != bool(text):
            yield f"text at {_colons(*location)}: {text!r}, not {self.text!r}"
        for fact in FACTS:
            if not matches(self.facts.get(fact), reported[fact]):
                yield f"{fact}: {reported[fact]!r}, not {self.facts.get(fact)!r}"
        for note in self.notes:
            if not any(matches(note, text) for text in reported["notes"]):
                yield f"notes: {reported['notes']!r}, without {note!r}"


@dataclass(frozen=True)
class Report:
    """The output of a check."""

    status: int
    problems: list[dict[str, Any]]
    stderr: str


@dataclass
class Case:
    """A broken spec."""

    topic: str
    stem: str
    comments: str
    """The lines of comments above the spec."""
    content: bytes
    """The file that is checked."""
    title: str = ""
    overrides: list[str] = field(default_factory=list)
    problems: list[Expected] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read the comments. Raises `ValueError` if they do not follow the format."""
        lines = [line[1:].removeprefix(" ") for line in self.comments.splitlines()]
        self.title = lines[0].strip() if lines else ""
        for line in filter(str.strip, lines[1:]):
            self._read(line)

    def _read(self, line: str) -> None:
        words = line.strip()
        name, colon, value = words.partition(": ")
        if line.startswith("  ") and colon and self.problems:
            expected = self.problems[-1]
            if name == "note":
                expected.notes.append(value)
            elif name in FACTS and name not in expected.facts:
                expected.facts[name] = value
            else:
                raise ValueError(f"{self.name}: `{line}` is not a fact of a problem")
        elif name == "with" and not self.problems:
            self.overrides += shlex.split(value)
        elif match := _PLACE.match(words):
            file = match["file"] or self.file
            self.problems.append(Expected(file, int(match["line"]), int(match["column"]), match["text"] or ""))
        else:
            raise ValueError(f"{self.name}: `{line}` is neither a location nor a fact")

    @property
    def name(self) -> str:
        """`topic/case`."""
        return f"{self.topic}/{self.stem}"

    @property
    def file(self) -> str:
        """Name of the file that is checked."""
        return f"{self.stem}.yaml"

    @property
    def text(self) -> str:
        """The file as text, without a byte order mark."""
        utf16 = self.content[:2] in (b"\xff\xfe", b"\xfe\xff")
        return self.content.decode("utf-16" if utf16 else "utf-8-sig", errors="replace")

    def text_at(self, file: str, line: int, column: int) -> str:
        """Return the text from a location to the end of its line, or "" if there is no such location."""
        part = CORPUS / file
        if file == COMMAND_LINE:
            lines = self.overrides
        elif file == self.file:
            lines = self.text.splitlines()
        else:
            lines = part.read_text(encoding="utf-8").splitlines() if part.is_file() else []
        text = lines[line - 1][column - 1 :] if 0 < line <= len(lines) else ""
        return "".join(char for char in text if char.isprintable() and char != REPLACED).strip()

    def write(self, folder: Path) -> None:
        """Write the spec and the files that it may refer to."""
        shutil.copytree(CORPUS / "parts", folder / "parts", dirs_exist_ok=True)
        (folder / self.file).write_bytes(self.content)

    def check(self, overrides: list[str] | None = None) -> Report:
        """Run `netspec check --json` in this process, by default with the case's own changes."""
        out, err = io.StringIO(), io.StringIO()
        with TemporaryDirectory() as folder:
            self.write(Path(folder))
            with chdir(folder), redirect_stdout(out), redirect_stderr(err):
                status = main(["check", self.file, *(self.overrides if overrides is None else overrides), "--json"])
        return Report(status, json.loads(out.getvalue()), err.getvalue())


def read_cases() -> list[Case]:
    """Return all cases of the corpus."""
    cases = [case for path in sorted(CORPUS.glob("*.yaml")) for case in read_topic(path)]
    for path in sorted((CORPUS / "encodings").glob("*.yaml")):
        content = path.read_bytes()
        whole = Case(path.parent.name, path.stem, "", content)
        whole = Case(whole.topic, whole.stem, _comments(whole.text), content)
        cases.append(whole)
    return cases


def read_topic(path: Path) -> list[Case]:
    """Return the cases of a file."""
    _, *parts = _START.split(path.read_text(encoding="utf-8"))
    cases = []
    for stem, text in zip(parts[::2], parts[1::2], strict=True):
        comments = _comments(text)
        cases.append(Case(path.stem, stem, comments, text.removeprefix(comments).encode()))
    return cases


def write_topic(path: Path, cases: list[Case]) -> None:
    """Write cases to a file."""
    text = "".join(f"--- # {case.stem}\n{case.comments}{case.text}" for case in cases)
    path.write_text(text, encoding="utf-8", newline="")


def _comments(text: str) -> str:
    """Return the lines of comments at the beginning of a text."""
    match = re.match(r"(?:#.*\n)*", text)
    return match[0] if match else ""


def _colons(*parts: object) -> str:
    return ":".join(map(str, parts))


def matches(pattern: str | None, text: str | None) -> bool:
    """Return whether `text` fits the pattern, in which `…` stands for any text."""
    if pattern is None or text is None:
        return pattern is text
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), text, re.DOTALL) is not None
