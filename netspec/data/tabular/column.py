"""`Column`: one declared column while its table is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.columns.base import ColumnSetting
from netspec.errors import InputError, Problem, SettingHint

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.encodings import ColumnEncoding
    from netspec.data.tabular.row_errors import BlockFaults


_LEARNED = {"fill": "replacement of missing values", "offset": "normalization", "scale": "normalization"}
"""Names of learned values in messages."""
MAX_SHOWN = 100
"""Number of characters of a cell in messages."""


class Column:
    """Base of readers of a column: first as compact values, from which it learns, then as the values of a field.

    The values of a block are an array (N,) in which missing ones are marked. One pass over the training split calls
    `parse` and `tally` for every block, then `finish_learning`; afterwards `encode` returns the values of samples.
    """

    vector: bool = False
    """Whether the column is a vector even if it is the only one in its field."""
    is_derived: bool = False
    """Whether it reads the cells of another reader's column for an additional field."""

    def __init__(self, setting: ColumnSetting) -> None:
        self.setting = setting
        self.name = setting.name
        self.index = 0
        """Index of the column in the table."""

    @property
    def title(self) -> str:
        """Name of the column in messages."""
        if self.setting.origin.has_keys:
            return f"`{self.name}`"
        return f"the label `{self.name}`" if self.setting.is_target else f"column `{self.name}`"

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        """Return the cells as compact values (N,); those that cannot be read are recorded in `faults`."""
        raise NotImplementedError  # abstract

    def drops(self, values: Array) -> Array | None:
        """Return which rows `missing: drop` leaves out; None without this option."""
        raise NotImplementedError  # abstract

    def tally(self, values: Array) -> None:
        """Learn from values of rows that are used."""

    def bytes_of(self, values: Array) -> int:
        """Return the memory that values take, in bytes."""
        return values.nbytes

    def finish_learning(self, reread: Callable[[], Iterator[Array]]) -> None:
        """Finish learning after the last row; splits other than the training split learn nothing.

        `reread` yields the values of all used rows once more, block by block.
        """

    @property
    def learned(self) -> dict[str, Any]:
        """Return the values that other splits need, as plain JSON data."""
        return {}

    @property
    def non_integer_labels(self) -> Sequence[Problem]:
        """The rows whose label is not a 32-bit integer, if most labels are."""
        return ()

    @property
    def unknown_values(self) -> Mapping[str, int]:
        """Number of rows with each value that does not occur in the training data, if such values are allowed."""
        return {}

    @property
    def width(self) -> int:
        """Number of values that the column gives for a row."""
        return 1

    @property
    def learns_width(self) -> bool:
        """Whether the width depends on the values in the training split."""
        return False

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of these values."""
        return "float32"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The class names that the values are indices of; None if they are not class indices."""
        return None

    def encode(self, values: Array) -> Array:
        """Return the values as (N, width)."""
        raise NotImplementedError  # abstract

    def encoding(self) -> ColumnEncoding | None:
        """Return the encoding of cells, after learning; None if it cannot be expressed as plain data."""
        return None

    def absent(self, cells: Cells, rows: Array) -> tuple[Array, Array]:
        """Return which rows have a missing value."""
        is_missing = np.array(
            [not (text := cells.text(row)) or text.lower() in self.setting.absent for row in rows.tolist()]
        )
        is_missing = is_missing.astype(bool)
        return rows[is_missing], rows[~is_missing]

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """The texts that stand for a missing value, in lower case, in alphabetical order."""
        return tuple(sorted(self.setting.absent))

    def declared_missing(self, cells: Cells) -> Array:
        """Return the rows whose cell is a text that stands for a missing value."""
        texts, text_indices = cells.distinct()
        marks = [index for index, text in enumerate(texts) if text.lower() in self.setting.absent]
        return np.flatnonzero(np.isin(text_indices, marks))

    def add_absent(
        self, faults: BlockFaults, rows: Array, cells: Cells, *, expected: str, training: str | None
    ) -> None:
        """Record rows that need a value and have none; `training` says which fields would replace it."""
        hint = None if training is None else SettingHint(f"fill the cell, or train with {training}")
        if not len(rows):
            return
        message = f"{self.title} has no value here"
        faults.add(rows, self.index, message, expected=expected, got=lambda row: self.shown(cells.text(row)), hint=hint)

    def shown(self, text: str) -> str:
        """Format a cell for messages; in rows with keys, as in JSON."""
        if self.setting.origin.has_keys and text in ("", "true", "false"):
            return text or "null"
        return f"{text[:MAX_SHOWN]!r} …" if len(text) > MAX_SHOWN else repr(text) if text else "an empty cell"

    def learned_values(self, *names: str) -> Mapping[str, Any] | None:
        """Return the values learned by the training split; None in that split itself. Raises `InputError` for gaps."""
        learned = self.setting.learned
        missing = [_LEARNED.get(name, name) for name in names if learned is not None and name not in learned]
        if missing:
            raise InputError(
                f"{self.title} is not declared as in the training split, which did not learn its "
                f"{' and '.join(dict.fromkeys(missing))}",
                expected="the same declaration of the column in both splits",
                hint="train again after a change of the declaration",
            )
        return learned
