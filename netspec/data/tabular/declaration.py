"""Builds the readers of the columns that a source declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.tabular.columns.base import FEATURES, ColumnSetting, ColumnSpec, texts_for_missing
from netspec.data.tabular.columns.categorical import Categorical
from netspec.data.tabular.columns.numeric import Numeric
from netspec.data.tabular.row_origin import RowOrigin
from netspec.errors import InputError, Problem, SettingHint, did_you_mean, listing, nearest

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column
    from netspec.data.tabular.number_format import NumberFormat
    from netspec.data.tabular.table_file import TableFile


NAMES = " columns"
"""Key of the learned column names of a table without declared columns. No column has this name, since names have no
surrounding blanks."""


@dataclass(frozen=True)
class Declaration:
    """Settings of a table's columns; see the source for their meaning."""

    columns: Sequence[int | str] | Mapping[str, ColumnSpec] | None
    label: int | str | None
    classes: Sequence[str] | None
    missing: float | str
    missing_values: Sequence[str]
    number_format: NumberFormat
    learned: Mapping[str, Any] | None
    unlabeled: bool = False
    """Whether the label is not read and may be absent."""
    origin: RowOrigin = RowOrigin.DATASET

    def fills_empty_cells(self, name: str) -> bool:
        """Return whether a column has a value for cells that are empty."""
        spec = self.columns.get(name) if isinstance(self.columns, Mapping) else None
        missing = getattr(spec, "missing", None)
        return (self.missing if missing is None else missing) not in ("error", "drop")

    @property
    def names(self) -> list[str]:
        """The columns to read, as they are declared or were learned."""
        return list(map(str, self.columns or (self.learned or {}).get(NAMES, ())))

    def columns_to_add(self, names: Sequence[str]) -> list[str]:
        """Return the columns that rows with the keys `names` leave out; none if that is a mistake.

        The cells of these columns may be empty, and none of the other keys is similar, as a misspelled one would be.
        """
        absent = [name for name in self.names if index_of(name, names) is None]
        others = [name for name in names if name not in (*self.names, str(self.label))]
        may_be_absent = (self.fills_empty_cells(name) and nearest(name, others) is None for name in absent)
        return absent if len(absent) < len(self.names) and all(may_be_absent) else []

    def setting(self, file: TableFile, index: int, column: ColumnSpec | None, *, is_label: bool) -> ColumnSetting:
        """Return the settings of a column that come from the source, in addition to its own declaration."""
        name = file.names[index]
        learned = None if self.learned is None else self.learned.get(name, {})
        absent = texts_for_missing(self.missing_values, column)
        alone = file.other_delimiter if len(file.names) == 1 else None
        return ColumnSetting(
            name, is_label, self.missing, absent, learned, self.number_format, alone, self.missing_values,
            self.origin,
        )  # fmt: skip


def fields_of(file: TableFile, declared: Declaration) -> dict[str, list[Column]]:
    """Build the readers of each field's columns. Raises `InputError` with every column that the file lacks."""
    search = _Search(file)
    _refuse_duplicate_names(file, declared)
    requested: list[tuple[int, ColumnSpec | None, bool]] = []
    columns = declared.columns
    label = None
    if declared.label is not None and not (declared.unlabeled and not search.has(declared.label)):
        label = search.find_column(declared.label, "label")
        label = None if search.problems else label
    if columns is None:
        others = [index for index in range(len(file.names)) if index != label]
        requested += [
            (index, Numeric(), False) for index in _as_trained(file, others, declared.learned, search.problems)
        ]
    elif isinstance(columns, Mapping):
        for name, spec in columns.items():
            index = search.find_column(name, f"columns.{name}")
            if index != label:
                requested.append((index, spec, False))
    else:
        for number, column_name in enumerate(columns):
            index = search.find_column(column_name, f"columns.{number}")
            if index == label and search.has(column_name):
                problem = Problem(
                    f"column {column_name!r} cannot be both the label and an input", path=f"columns.{number}",
                    expected="columns other than the label", got=f"`label: {declared.label}`",
                )  # fmt: skip
                search.problems.append(problem)
            requested.append((index, Numeric(), False))
    if label is not None and not declared.unlabeled:
        label_column = columns.get(str(declared.label)) if isinstance(columns, Mapping) else None
        if label_column is None and declared.classes is not None:
            label_column = Categorical(vocabulary=list(declared.classes))
        requested.append((label, label_column, True))
    search.check(declared)
    fields: dict[str, list[Column]] = {}
    indices = [index for index, _, _ in requested]
    for index, declared_column, is_label in requested:
        setting = declared.setting(file, index, declared_column, is_label=is_label)
        spec = _infer_label_type(file, indices, index, setting) if declared_column is None else declared_column
        column = spec.reader(setting)
        column.index = index
        fields.setdefault(spec.field_of(setting.name, is_label=is_label), []).append(column)
        for name, added in spec.added_readers(column).items():
            fields.setdefault(name, []).append(added)
    return fields


def _infer_label_type(file: TableFile, columns: Sequence[int], label: int, setting: ColumnSetting) -> ColumnSpec:
    """Return the type of an undeclared label: as learned, or numeric if one of the first values is a number.

    Columns that a file stores as numbers are numeric even if all first values are missing. The first rows of all
    `columns` are read, so that all unreadable columns are reported together.
    """
    if setting.learned is not None:
        return Categorical() if "vocabulary" in setting.learned else Numeric()
    cells = file.head(columns)[0].cells[columns.index(label)]
    is_numeric = cells.is_number or np.isfinite(cells.numbers(setting.number_format)).any()
    return Numeric() if is_numeric else Categorical()


def learned_names(file: TableFile, declared: Declaration, fields: Mapping[str, Sequence[Column]]) -> dict[str, Any]:
    """Return the column names that other splits must have, if all columns are used by name."""
    if declared.columns is not None or not file.named:
        return {}
    return {NAMES: [column.name for column in fields.get(FEATURES, ())]}


def _as_trained(
    file: TableFile, columns: Sequence[int], learned: Mapping[str, Any] | None, problems: list[Problem]
) -> Sequence[int]:
    """Return the columns of an undeclared table, by name, in the order of the training split's columns."""
    names = None if learned is None else learned.get(NAMES)
    if not file.named or not isinstance(names, list):
        return columns
    by_name: dict[str, list[int]] = {}
    for column in columns:
        by_name.setdefault(file.names[column], []).append(column)
    matched = [by_name[name].pop(0) for name in names if by_name.get(name)]
    missing = list((Counter(names) - Counter(file.names[column] for column in matched)).elements())
    unknown = [file.names[column] for indices in by_name.values() for column in indices]
    if missing or unknown:
        facts = [f"lacks {listing(missing, 5)}"] * bool(missing) + [f"also has {listing(unknown, 5)}"] * bool(unknown)
        problems.append(
            Problem(
                f"the columns of {file.title} are not those of the training split", file.heading(0),
                expected=listing(names, 10), got="; ".join(facts),
                hint=SettingHint("list the columns to read under `columns` in both splits"),
            )
        )  # fmt: skip
    return matched


def index_of(column: int | str, names: Sequence[str]) -> int | None:
    """Return the index of a column, given by name or by number from 1; None if there is none."""
    if isinstance(column, str) and column in names:
        return names.index(column)
    number = int(column) if isinstance(column, int) or column.isdecimal() else 0
    return number - 1 if 0 < number <= len(names) else None


def _quoted(noun: str, names: Sequence[str]) -> str:
    """Return names as `column 'a'` or `columns 'a', 'b'`."""
    return f"{noun}{'s' * (len(names) != 1)} {listing(list(map(repr, names)))}"


@dataclass
class _Search:
    """Finds columns in a table and records the missing ones."""

    file: TableFile
    problems: list[Problem] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Names of columns that the table does not have."""

    def check(self, declared: Declaration) -> None:
        """Raise `InputError` with all problems; for rows to predict, one for all missing names."""
        is_predicted = declared.origin.is_predicted
        if is_predicted and self.missing:
            others = [name for name in self.file.names if name not in declared.names]
            near = {name: nearest(name, others) for name in self.missing}
            renamed = [f"`{other}` as `{name}`" for name, other in near.items() if other is not None]
            requested = declared.names
            absent = [name for name in self.missing if near[name] is None and len(self.missing) < len(requested)]
            filled = [f"`{name}`" for name in absent if declared.fills_empty_cells(name)]
            hints = [f"did you mean {listing(renamed)}?"] * bool(renamed)
            noun, table, owner = "column", "a table", f"{self.file.title} has no"
            if declared.origin.has_keys:
                noun, table, owner = "key", "rows", "no row has the"
            hints += [f"{listing(filled)} may be left out"] * bool(filled)
            raise InputError(
                f"{owner} {_quoted(noun, self.missing)}", expected=f"{table} with the {_quoted(noun, requested)}",
                got=f"the {_quoted(noun, self.file.names)}", hint=self._other_delimiter() or " ".join(hints) or None,
            )  # fmt: skip
        if self.problems:
            raise InputError([replace(problem, path="") if is_predicted else problem for problem in self.problems])

    def _other_delimiter(self) -> str | None:
        """Return a hint if the header is a single cell that contains the name of a missing column."""
        names = self.file.names
        alone = len(names) == 1 and any(name.lower() in names[0].lower() for name in self.missing)
        return self.file.other_delimiter(names[0]) if alone else None

    def has(self, column: int | str) -> bool:
        """Return whether the table has a column of this name or number."""
        return column <= len(self.file.names) if isinstance(column, int) else column in self.file.names

    def find_column(self, column: int | str, path: str) -> int:
        """Return the index of a column, given by name or by number from 1; 0 for a missing one, which is recorded."""
        names = self.file.names
        index = index_of(column, names)
        if index is not None:
            return index
        if isinstance(column, int) or column.isdecimal():
            problem = Problem(f"{self.file.title} has no column {column}", expected=f"a number from 1 to {len(names)}")
        elif not self.file.named:
            problem = Problem(
                f"column {column!r} is named, but the table has no header",
                expected=f"a number from 1 to {len(names)}",
                hint="if the first line holds names, set `header: true`; otherwise list them in `header: [...]`",
            )
        else:
            if column not in self.missing:
                self.missing.append(column)
            problem = Problem(
                f"{self.file.title} has no column {column!r}",
                expected=f"one of {listing(names)}",
                hint=self._other_delimiter() or did_you_mean(column, names),
            )
        self.problems.append(replace(problem, path=path))
        return 0


def _refuse_duplicate_names(file: TableFile, declared: Declaration) -> None:
    """Raise `InputError` if two columns have the same name; blank names, as of a table's index, are ignored.

    Names do not matter if the spec refers to columns by number.
    """
    requested = [*(declared.columns or ["all"]), *([] if declared.label is None else [declared.label])]
    if not file.named or all(isinstance(column, int) for column in requested):
        return
    duplicates = [name for name, number in Counter(file.names).items() if number > 1 and name]
    problems = []
    for name in duplicates:
        last = len(file.names) - 1 - list(file.names)[::-1].index(name)
        problems.append(
            Problem(
                f"two columns are called {name!r}",
                file.heading(last),
                expected="a different name for each column",
                hint=SettingHint("or select columns by number in `columns` and `label`"),
            )
        )
    if problems:
        raise InputError(problems)
