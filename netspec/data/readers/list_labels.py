"""Labels of a list of files: integers or names of classes; and which of them are invalid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from netspec.errors import Problem, did_you_mean, listing

CLASSES = "classes"
"""Key of the class names that the training split learns; empty if its labels are numbers without names."""

_MAX_CLASSES = 2**31


class Line(NamedTuple):
    """A line of a list."""

    number: int
    path: str
    label: str | None
    """Empty if this line has no label, None if no line has one."""
    name: str | None = None
    """Name of the class, if the label is its number."""
    values: Mapping[str, str] = MappingProxyType({})
    """Cells of the columns by which `split` divides the files, by column."""


@dataclass
class ListLabels:
    """The labels of all lines."""

    numbers: list[int] | None
    """The label of each line, 0 if it is wrong; None if there are no labels."""
    classes: tuple[str, ...] = ()
    """Names of the classes, if the labels have names."""
    wrong: dict[int, Problem] = field(default_factory=dict)
    """Lines with a missing or invalid label, by their index."""


def list_labels(
    path: Path, lines: Sequence[Line], declared: Sequence[str] | None, learned: Mapping[str, Any] | None
) -> ListLabels:
    """Return the labels of the list at `path`.

    If most of them are numbers, all others are errors: a single name must not turn all numbers into names, which are
    indexed in alphabetical order.
    """
    texts = [line.label for line in lines if line.label is not None]
    if len(texts) < len(lines) or not lines:
        return ListLabels(None)
    learned_classes = _trained(learned)
    classes = learned_classes if declared is None else tuple(declared)
    reader = _Labels(path, lines, texts)
    if classes == () or reader.are_numbers(classes):
        numbers = reader.numbers(classes or None, are_declared=declared is not None)
        names = tuple(declared) if declared is not None else reader.names_of_numbers(numbers, classes or ())
        return ListLabels(numbers, names, reader.wrong)
    names = classes or reader.names()
    return ListLabels(reader.class_indices(names), names, reader.wrong)


def _trained(learned: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return the classes of the training split; empty if its labels are numbers, None if unknown."""
    classes = None if learned is None else learned.get(CLASSES)
    return tuple(map(str, classes)) if isinstance(classes, list) else None


class _Labels:
    """The labels of a list as text; each problem is recorded once."""

    def __init__(self, path: Path, lines: Sequence[Line], texts: Sequence[str]) -> None:
        self._path, self._lines, self._texts = path, lines, texts
        self.wrong: dict[int, Problem] = {
            index: Problem(f"{self._where(index)} has no label", expected="a label in each line")
            for index, text in enumerate(texts)
            if not text
        }

    def _where(self, index: int) -> str:
        return f"{self._path.name}, line {self._lines[index].number}"

    def are_numbers(self, classes: Sequence[str] | None) -> bool:
        """Whether most labels are numbers, other than those that are names of classes."""
        present = [text for text in self._texts if text]
        if all(map(_is_integer, present)):
            return True
        names = frozenset(classes or ())
        return 2 * sum(_is_number(text) and text not in names for text in present) >= len(present)

    def numbers(self, classes: Sequence[str] | None, *, are_declared: bool) -> list[int]:
        """Return the labels as integers."""
        most = _MAX_CLASSES if classes is None else len(classes)
        whose = "" if classes is None else f", since there are {most} `classes`"
        if classes is not None and not are_declared:
            whose = f", since the training split has {most} classes"
        numbers = []
        for index, text in enumerate(self._texts):
            number = int(text) if _is_integer(text) and len(text) < len(str(_MAX_CLASSES)) + 1 else None
            numbers.append(number if number is not None and number < most else 0)
            if index in self.wrong:
                continue
            where = self._where(index)
            if not _is_integer(text):
                self.wrong[index] = Problem(
                    f"{where}: the label `{text}` is not an integer ≥ 0", expected="a number, as in other lines",
                    hint="if the labels are names, declare them in `classes`",
                )  # fmt: skip
            elif number is None or number >= most:
                self.wrong[index] = Problem(
                    f"{where}: label {text} is out of range", expected=f"0 to {most - 1}{whose}"
                )
        return numbers

    def names_of_numbers(self, numbers: Sequence[int], trained: Sequence[str]) -> tuple[str, ...]:
        """Return the names of numeric labels, from the training split and the list; empty if a number has no name."""
        names: dict[int, str] = dict(enumerate(trained))
        for index, (line, number) in enumerate(zip(self._lines, numbers, strict=True)):
            if line.name is None:
                return tuple(trained)
            if index not in self.wrong and names.setdefault(number, line.name) != line.name:
                whose = "of the training split" if number < len(trained) else "as in the lines before"
                self.wrong[index] = Problem(
                    f"{self._where(index)}: label {number} has two names", expected=f"`{names[number]}`, {whose}",
                    got=f"`{line.name}`",
                )  # fmt: skip
        complete = sorted(names) == list(range(len(names)))
        return tuple(names[number] for number in range(len(names))) if complete else ()

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted. Numbers are recorded as wrong, since they are most likely mistakes."""
        for index, text in enumerate(self._texts):
            if text and _is_number(text):
                self.wrong[index] = Problem(
                    f"{self._where(index)}: the label `{text}` is a number", expected="a name, as in other lines",
                    hint=f"if `{text}` is the name of a class, declare all of them in `classes`",
                )  # fmt: skip
        return tuple(sorted({text for index, text in enumerate(self._texts) if index not in self.wrong}))

    def class_indices(self, names: Sequence[str]) -> list[int]:
        """Return the index of each label in the names."""
        index = {name: number for number, name in enumerate(names)}
        for label_index, text in enumerate(self._texts):
            if text not in index and label_index not in self.wrong:
                self.wrong[label_index] = Problem(
                    f"{self._where(label_index)}: there is no class `{text}`", expected=f"one of {listing(names)}",
                    hint=did_you_mean(text, names),
                )  # fmt: skip
        return [index.get(text, 0) for text in self._texts]


def _is_integer(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_number(text: str) -> bool:
    """Whether a text is a finite number, an integer or not."""
    try:
        return isfinite(float(text))
    except ValueError:
        return False
