"""`TableSource`: base of the sources of tables, for any file format."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from netspec.data.base import ClassNames, Dataset, FieldType, Source, Survey, located_at
from netspec.data.tabular.columns.base import LABEL, AnyColumn, ColumnSpec, MissingNumber, Texts
from netspec.data.tabular.number_format import PLAIN, NumberFormat
from netspec.data.tabular.row_origin import RowOrigin
from netspec.data.tabular.row_windows import PAST, RowWindows, windowed_fields
from netspec.schema.specs.data import ShuffleWindow
from netspec.schema.specs.hold_out import HoldOut
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import describe, problem

if TYPE_CHECKING:
    from netspec.data.tabular.declaration import Declaration
    from netspec.data.tabular.table_file import TableFile

MEGABYTE = 2**20
MISSING_VALUES = ("?", "NA", "N/A", "NaN", "null")
"""Texts that mean a missing value by default, in any case."""
MISSING_MARKERS = frozenset({
    "-", "--", ".", "n.a.", "n.a", "#n/a", "#value!", "none", "nil", "unknown", "missing", "not available", "undefined",
    "k.a.", "k. a.", "keine angabe", "n.v.", "unbekannt", "fehlt",
})  # fmt: skip
"""Further texts, in lower case, that mostly mean a missing value among numbers or dates."""


@dataclass(frozen=True)
class RowKeys:
    """The keys of rows in memory: JSON objects, mappings, or the rows of a data frame."""

    absent: Mapping[str, Sequence[int]]
    """Indices of the rows that do not have a key, by key."""
    unread: Sequence[str] = ()
    """Keys that are not columns of the training."""


def _as_column(value: Any) -> Any:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, str))
        or value == ""
        or (isinstance(value, int) and value < 1)
    ):
        raise problem(
            "not a column", expected="a name from the header, or a number counted from 1", got=describe(value)
        )
    return value


def _refuse_mapping(value: Any) -> Any:
    """Refuse a mapping from columns, as pandas takes it."""
    if isinstance(value, dict):
        name = next(iter(value), "NAME")
        raise problem(
            "`missing_values` of the source applies to all columns", expected="a list of texts",
            got="a mapping from columns to texts",
            hint=f"set it in the column: `columns: {{{name}: {{type: numeric, missing_values: […]}}}}`",
        )  # fmt: skip
    return value


Column = Annotated[int | str, BeforeValidator(_as_column)]


class TableSource(Source):
    """Base of sources of tables: one sample per row."""

    path: FilePath
    """Path of the file, relative to this file."""
    columns: dict[str, AnyColumn] | list[Column] | None = Field(default=None, min_length=1)
    """The columns to use, by name or by number counted from 1, with the type of each, as in `{age: numeric, color:
    {type: categorical, output_mode: int}}`; or, if all are numeric, a list of them. By default all but the label, as
    numbers; in other splits those of the training split, by name."""
    label: Column | None = None
    """The column of the label, by name or by number; by default there is no label."""
    classes: ClassNames | None = None
    """The class names in the order of their indices, if `columns` does not describe the label. By default those of the
    training split, sorted, if the labels are not numbers."""
    missing: MissingNumber = "error"
    """Handling of missing numbers in columns that do not define it: an error, the `mean` or `median` of the training
    split, or this number; or the row is left out (`drop`)."""
    missing_values: Annotated[Texts, BeforeValidator(_refuse_mapping)] = Field(
        default_factory=lambda: list(MISSING_VALUES)
    )
    """Cells that mean a missing value, in addition to empty ones; case is ignored. A column can have further ones:
    `{age: {type: numeric, missing_values: [-1]}}`."""
    cache: Annotated[int, Field(ge=0)] = 512
    """Megabytes of rows to keep in memory. Parts of a larger table are read again when needed.

    A larger `window` of `shuffle` is kept nevertheless.
    """

    windows: RowWindows | None = None
    """Windows of consecutive rows as samples, for time series: `{length: 48, horizon: 24}`. By default each row is a
    sample."""

    divides_itself: ClassVar[bool] = True

    _unlabeled: bool = PrivateAttr(default=False)
    """Whether the label is not read and may be absent."""
    _origin: RowOrigin = PrivateAttr(default=RowOrigin.DATASET)
    _without_targets: bool = PrivateAttr(default=False)
    """Whether windows need no rows after them."""

    _division: HoldOut | None = PrivateAttr(default=None)
    """The division of the training data, in a source for other files."""

    _row_keys: RowKeys | None = PrivateAttr(default=None)
    """The keys of rows in memory; None if rows are not given by key."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        declared: dict[str, ColumnSpec] = self.columns if isinstance(self.columns, dict) else {}
        if self.classes is not None and str(self.label) in declared:
            raise problem(
                "the label is described by both `columns` and `classes`",
                field="classes",
                expected="only one of them",
                hint=f"remove `classes`, and list the names as the `vocabulary` of `{self.label}` in `columns`",
            )
        if self.classes is not None and self.label is None:
            raise problem("`classes` has no effect without a label", field="classes", expected="`label: COLUMN`")
        if self.windows is not None:
            self._check_windows()
        fields: dict[str, set[str]] = {}
        for name, spec in declared.items():
            is_label = name == str(self.label)
            kind = "the label" if is_label else "integers" if spec.whole else "floats"
            fields.setdefault(spec.field_of(name, is_label=is_label), set()).add(kind)
        for name, spec in declared.items():
            for field in spec.added_fields:
                if field in fields:
                    raise problem(
                        f"`decoder_input` of the column `{name}` names the field `{field}`, which exists already",
                        field="columns",
                        expected="a name that is not the field of any column",
                    )
                fields[field] = {"integers"}
        for field, kinds in fields.items():
            if len(kinds) > 1:
                raise problem(
                    f"the field `{field}` cannot hold {' and '.join(sorted(kinds))}",
                    field="columns",
                    expected="a different `field` for one of them",
                )
        return self

    def _check_windows(self) -> None:
        """Raise a problem if windows would mix training samples with held-out ones, or have no order."""
        if self.hold_out is not None and self.hold_out.time is None and self.hold_out.group is None:
            raise problem(
                "windows of consecutive rows cannot be split at random", field="split",
                expected="in `split`, `time: COLUMN` (the time of a row), or `group: COLUMN` (the series of a row)",
            )  # fmt: skip

    def file(self, path: Path) -> TableFile:
        """Return the file at `path` with the settings of this source."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its file is opened")

    def other_file(self, path: Path) -> TableFile:
        """Return a file of rows to predict, which may be in another format than the training data."""
        return self.file(path)

    def opened_file(self) -> TableFile:
        """Return the file at `path` of this source."""
        path = resolve_path(self, "path")
        return self.other_file(path) if self._origin.is_predicted else self.file(path)

    @property
    def division(self) -> HoldOut | None:
        """The division of the training data, which names the column of the time; also in a source for other files."""
        return self.hold_out or self._division

    @property
    def number_format(self) -> NumberFormat:
        """The notation of numbers in cells that are texts."""
        return PLAIN

    def number_formats(self, names: Sequence[str]) -> dict[int, NumberFormat]:
        """Return the notation of each column of numbers in a table with these names, by the index of the column."""
        from netspec.data.tabular.columns.numeric import Numeric
        from netspec.data.tabular.declaration import index_of

        columns: Iterable[tuple[str | int, ColumnSpec]]
        if isinstance(self.columns, Mapping):
            columns = self.columns.items()
        else:
            columns = ((name, Numeric()) for name in self.columns or names if name != self.label)
        indices = ((index_of(name, names), spec) for name, spec in columns)
        return {
            index: replace(self.number_format, unit=spec.unit)
            for index, spec in indices
            if index is not None and isinstance(spec, Numeric)
        }

    def _declaration(self, learned: Mapping[str, Any] | None) -> Declaration:
        from netspec.data.tabular.declaration import Declaration

        return Declaration(
            self.columns, self.label, self.classes, self.missing, self.missing_values, self.number_format, learned,
            self._unlabeled, self._origin,
        )  # fmt: skip

    def with_files(self, paths: Sequence[Path], fields: Collection[str]) -> list[Source]:
        """Return a source for the rows of each file. Only the columns of `fields` must exist."""
        return [self._of_file(path, fields) for path in paths if not path.is_dir()]

    def fills_empty_cells(self, name: str) -> bool:
        """Return whether a column has a value for cells that are empty."""
        return self._declaration(None).fills_empty_cells(name)

    def fields_read(self, fields: Collection[str]) -> set[str]:
        """Return the fields of rows from which fields of samples are computed: `past` comes from the label."""
        return {*fields, LABEL} if PAST in fields and self.windows is not None else set(fields)

    def _of_file(self, path: Path, fields: Collection[str]) -> Self:
        from netspec.data.tabular.rows import with_time_format

        without_targets = LABEL not in fields
        fields = self.fields_read(fields)
        columns = self.columns
        if isinstance(columns, dict):
            columns = {
                name: spec
                for name, spec in columns.items()
                if not spec.fields_of(name, is_label=name == str(self.label)).isdisjoint(fields)
            }
        changed = {"path": FilePath(path.absolute()), "columns": columns, "split": None, "limit": None}
        source = self.model_copy(update={**changed, "shuffle": False, "on_error": "error"})
        source._unlabeled = LABEL not in fields and not (isinstance(columns, dict) and str(self.label) in columns)
        source._origin = self._origin if self._origin.in_memory else RowOrigin.FILE
        source._without_targets = without_targets
        source._division = None if self.division is None else with_time_format(self.division, self)
        source._tree = None  # problems must not point to the spec
        return source

    def of_rows_in_memory(self, origin: RowOrigin = RowOrigin.TABLE, keys: RowKeys | None = None) -> Self:
        """Return the source for temporary files, whose names messages do not mention.

        `keys` are those of the rows if they are given by key.
        """
        source = self.model_copy()
        source._origin, source._row_keys = origin, keys
        return source

    @property
    def origin(self) -> RowOrigin:
        """Origin of the rows."""
        return self._origin

    @property
    def unread_keys(self) -> Sequence[str]:
        """The keys of JSON objects or mappings that are not columns of the training."""
        return self._row_keys.unread if self._row_keys is not None and self._origin.has_keys else ()

    def unread_columns(self, names: Sequence[str]) -> list[str]:
        """Return which of the columns of a table this source does not mention; none if it reads all columns."""
        from netspec.data.tabular.declaration import index_of

        if self.columns is None:
            return []
        division = self.division
        others = [] if division is None else [division.time, division.group, division.stratify]
        mentioned = (*self.columns, self.label, None if self.windows is None else self.windows.group, *others)
        read = {index_of(column, names) for column in mentioned if column is not None}
        return [name for index, name in enumerate(names) if index not in read]

    def known_classes(self) -> Mapping[str, int]:
        """Return the length of the label's vocabulary, if it is declared."""
        spec = self.columns.get(str(self.label)) if isinstance(self.columns, dict) else None
        vocabulary = getattr(spec, "vocabulary", None)
        return {LABEL: len(vocabulary)} if vocabulary else super().known_classes()

    def file_suffix(self) -> str:
        """Return the suffix of the table."""
        return Path(self.path).suffix

    def text_column(self) -> str | None:
        """Return the name of the text that a sample consists of; None if samples have other columns or several."""
        columns = self.columns if isinstance(self.columns, dict) else {}
        inputs = [
            (name, spec)
            for name, spec in columns.items()
            if spec.fields_of(name, is_label=name == str(self.label)) - {LABEL}
        ]
        return inputs[0][0] if len(inputs) == 1 and inputs[0][1].holds_text and self.windows is None else None

    def survey(self) -> Survey:
        """Read the header and the first rows, and return their fields and columns."""
        import numpy as np

        from netspec.data.tabular.dataset import open_table
        from netspec.data.tabular.declaration import fields_of
        from netspec.data.tabular.head import TableHead
        from netspec.data.tabular.rows import check_group

        declared = self._declaration(None)
        with located_at(self, "path"):
            head = TableHead(self.opened_file())
            columns = fields_of(head, declared)
            check_group(self, head.names)
            table, _ = open_table(head, columns, skip=self.on_error == "skip", limit=self.limit, cache=2**62)
        grows = [name for name, used in columns.items() if any(column.learns_width for column in used)]
        exact = dict(self.known_classes())
        least: dict[str, int] = {}
        for name, names in table.classes.items():
            (exact if head.is_whole else least).setdefault(name, len(names))
        if LABEL not in table.classes and table.fields.get(LABEL) == FieldType((), "int32"):
            labels = np.asarray(table.values_of(LABEL))
            least[LABEL] = int(labels.max()) + 1
        read = "" if head.is_whole else f"the first {head.rows:,} rows of {head.path.name}"
        fields = table.fields if self.windows is None else windowed_fields(table.fields, self.windows)
        names = (*head.names, *([] if self.label is None else [LABEL]))
        samples = len(table) if head.is_whole and self.windows is None else None
        complete = head.is_whole and self.hold_out is None
        return Survey(fields, grows, exact, least, names, complete, read, samples=samples)

    def check_division(self) -> None:
        """Look at the first rows. Raises `InputError` if `split` or `windows` does not fit them."""
        from netspec.data.tabular.head import TableHead
        from netspec.data.tabular.rows import check_rows

        if self.division is not None:
            check_rows(self, TableHead(self.opened_file()))

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the table, reading all rows once."""
        from netspec.data.tabular.dataset import open_table
        from netspec.data.tabular.declaration import fields_of, learned_names
        from netspec.data.tabular.row_times import TIME_STEPS
        from netspec.data.tabular.rows import groups_of_windows, rows_of_part, times_of_windows
        from netspec.data.tabular.table_file import RowsInMemory, WithEmptyColumns
        from netspec.data.tabular.windowed_table import WindowedTable

        declared = self._declaration(learned)
        with located_at(self, "path"):
            file = self.opened_file()
            may_add = self._row_keys is not None or (self._origin.is_predicted and file.named)
            added_columns = declared.columns_to_add(file.names) if may_add else []
            if self._origin.in_memory:
                file = RowsInMemory(file, added_columns, has_keys=self._origin.has_keys)
            elif added_columns:
                file = WithEmptyColumns(file, added_columns)
            fields = fields_of(file, declared)
            groups = groups_of_windows(self, self.opened_file())
            times = times_of_windows(self, self.opened_file(), groups, file.title)
            rows = rows_of_part(self, self.opened_file(), times)
            usual = None if times is None else times.usual_steps
            steps = {} if usual is None else {TIME_STEPS: usual.as_learned()}
            history = rows is not None and self.windows is not None and self.split_name != "train"
            table, rows_of = open_table(
                file,
                fields,
                learned=learned_names(file, declared, fields) | steps,
                skip=self.on_error == "skip",
                limit=self.limit if self.windows is None else None,
                rows=None if history else rows,
                cache=self.cache * MEGABYTE,
                window=self.shuffle.window if isinstance(self.shuffle, ShuffleWindow) else 0,
            )
        if self._row_keys is not None or added_columns:
            names_read = {column.name for columns in fields.values() for column in columns}
            absent = {} if self._row_keys is None else self._row_keys.absent
            rows_without = {**absent, **dict.fromkeys(added_columns, range(int(file.pages()[-1])))}
            table.rows_without_key = {name: rows for name, rows in rows_without.items() if rows and name in names_read}
        if self.windows is None:
            return table
        with located_at(self, "windows"):
            windows = WindowedTable(
                table, self.windows, rows_of, groups=groups, targets=not self._without_targets,
                part=rows if history else None, limit=self.limit,
            )  # fmt: skip
        windows.row_times = times if self.hold_out is None else None  # only predictions need them
        return windows
