"""`Column`: one declared column while its table is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.tabular.columns.base import ColumnSetting
from netspec.errors import InputError, Problem, listing

if TYPE_CHECKING:
    from netspec.data.base import Array
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.row_errors import BlockFaults


class Column:
    """Reads the cells of a column: first as compact values, of which it learns, then as the numbers of a field.

    The values of a block are an array (N,) in which a missing one is marked. One pass over the training split calls
    `parse` and `tally` for every block, then `settle`; from there on `encode` gives what samples consist of.
    """

    vector: bool = False
    """Whether it gives a vector even where it is alone in its field."""

    def __init__(self, setting: ColumnSetting) -> None:
        self.setting = setting
        self.name = setting.name
        self.place = 0
        """Which column of the table it is, from 0."""

    @property
    def what(self) -> str:
        """How messages speak of it."""
        return f"the label `{self.name}`" if self.setting.is_label else f"column `{self.name}`"

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        """The cells as compact values (N,); those that cannot be read are noted in `faults`."""
        raise NotImplementedError  # abstract: subclasses say

    def drops(self, values: Array) -> Array | None:
        """Which rows are left out, as `missing: drop` asks for; None where that is not asked for."""
        raise NotImplementedError  # abstract: subclasses say

    def tally(self, values: Array) -> None:
        """Learn from values of rows that are used."""

    def bytes_of(self, values: Array) -> int:
        """How much memory values take."""
        return values.nbytes

    def settle(self, again: Callable[[], Iterator[Array]]) -> None:
        """Decide what is learned, after the last row; of a split that is not for training, nothing.

        `again` gives the values of all rows that are used once more, block by block.
        """

    @property
    def learned(self) -> dict[str, Any]:
        """What other splits must know, as plain JSON data."""
        return {}

    @property
    def non_integer_labels(self) -> Sequence[Problem]:
        """Rows whose label is not a 32-bit integer, if most labels are."""
        return ()

    @property
    def width(self) -> int:
        """How many numbers it gives for a row."""
        return 1

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of these numbers."""
        return "float32"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names that its numbers stand for, if each stands for one."""
        return None

    def encode(self, values: Array) -> Array:
        """The values as (N, width)."""
        raise NotImplementedError  # abstract: subclasses say

    def absent(self, cells: Cells, rows: Array) -> tuple[Array, Array]:
        """Those of the rows that say that there is no value, and the others."""
        told = np.array([not (text := cells.text(row)) or text.lower() in self.setting.absent for row in rows.tolist()])
        told = told.astype(bool)
        return rows[told], rows[~told]

    def add_absent(self, faults: BlockFaults, rows: Array, cells: Cells, *, expected: str, hint: str | None) -> None:
        """Note rows that have no value and need one."""
        if not len(rows):
            return
        message = f"there is no label `{self.name}` here" if self.setting.is_label else f"{self.what} has no value here"
        faults.add(rows, self.place, message, expected=expected, got=lambda row: quoted(cells.text(row)), hint=hint)

    def known(self, *names: str) -> Mapping[str, Any] | None:
        """What the training split learned of the column: None in that split itself. Raises InputError for gaps."""
        found = self.setting.learned
        if found is not None and not all(name in found for name in names):
            raise InputError(
                f"the training split has not learned what {self.what} needs",
                expected=f"{listing(list(names))}: the column declared alike in both splits",
                got=listing(list(found)) if found else "nothing",
            )
        return found


def quoted(text: str) -> str:
    """A cell as messages show it."""
    return repr(text) if text else "an empty cell"
