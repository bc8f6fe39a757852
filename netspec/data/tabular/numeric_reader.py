"""Reader of columns of type `numeric`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.cells import TextCells, each_distinct
from netspec.data.tabular.column import Column
from netspec.data.tabular.encodings import NumberEncoding
from netspec.data.tabular.row_errors import MAX_ALIKE
from netspec.data.tabular.source import MISSING_MARKERS
from netspec.data.tabular.statistics import NOT_NORMALIZED, ColumnStatistics, Median, normalized
from netspec.errors import InputError, Problem, SettingHint, counted

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.columns.base import ColumnSetting
    from netspec.data.tabular.columns.numeric import Numeric
    from netspec.data.tabular.row_errors import BlockFaults

FLOAT32_MAX = float(np.finfo(np.float32).max)
BOOLEANS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
"""The texts of booleans, in lower case."""
_INT32 = np.iinfo(np.int32)
_EXACT = 2 ** (np.finfo(np.float32).nmant + 1)


def _booleans(cells: Cells) -> Array:
    """Convert booleans in text form to numbers, (N,) of float64; nan for other texts."""
    numbers, rows = each_distinct(cells, lambda text: BOOLEANS.get(text.lower(), np.nan))
    return np.array(numbers, np.float64)[rows]


class NumericColumn(Column):
    """Reads numbers as float64; nan for missing ones."""

    def __init__(self, spec: Numeric, setting: ColumnSetting) -> None:
        super().__init__(setting)
        self._spec = spec
        label = setting.is_label and spec.missing is None
        self._missing = "error" if label else setting.missing if spec.missing is None else spec.missing
        self._format = replace(setting.number_format, unit=spec.unit)
        marks = TextCells([*setting.absent])
        self._has_numbers_for_missing = bool((~np.isnan(marks.numbers(self._format))).any())
        """Whether a text that stands for a missing value is a number, such as `-999`."""
        self._figures = ColumnStatistics()
        self._median = Median()
        self._may_be_integer = setting.is_label and spec.normalization == "none" and not spec.missing_indicator
        self._labels = self._fractions = self._great = 0
        """Number of labels, of labels that are not integers, and of labels too large for 32 bits."""
        self._exact = True
        """Whether float32 represents all labels exactly."""
        self._non_integers: list[Problem] = []
        self._holds_text = False
        self._is_boolean = bool((setting.learned or {}).get("boolean"))
        """Whether the file or that of the training split stores booleans."""
        self._has_rows = self._finished_learning = False
        self._fill: float | None = float(self._missing) if isinstance(self._missing, (int, float)) else None
        self._normalization: dict[str, list[float]] = {}

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        values = cells.numbers(self._format)
        self._is_boolean = self._is_boolean or cells.boolean
        if self._is_boolean and not cells.boolean:
            values = np.where(np.isnan(values), _booleans(cells), values)
        if self._has_numbers_for_missing:
            values[self.declared_missing(cells)] = np.nan
        lost = np.flatnonzero(np.isnan(values))
        if len(lost):
            absent, bad = self.absent(cells, lost)
            if self._missing == "error":
                self.add_absent(faults, absent, cells, expected=self._expected, training=self._replacements)
            begins_with_text = not self._has_rows and len(bad) and bad[0] == 0
            if begins_with_text and not (self.setting.is_label or self.setting.origin.is_predicted):
                self._report_text(cells, faults)
                bad = bad[1:]
            if len(bad) and not self._holds_text:
                self._report_unparsable(cells, bad, faults)
            faults.bad[bad] = True
        self._has_rows = True
        great = np.flatnonzero(np.abs(values) > FLOAT32_MAX)
        if len(great):
            message = f"{self.title} has a number that float32 cannot hold"
            faults.add(great, self.index, message, got=cells.text)
            values[great] = np.nan
        if self._may_be_integer and not self._finished_learning:
            self._note_non_integers(values, cells, faults)
        return values

    def _note_non_integers(self, values: Array, cells: Cells, faults: BlockFaults) -> None:
        """Count the labels that are not 32-bit integers, and record the first ones."""
        present = ~np.isnan(values)
        is_integer = present & (values == np.trunc(values))
        within = is_integer & (values >= _INT32.min) & (values <= _INT32.max)
        self._labels += int(present.sum())
        self._fractions += int((present & ~is_integer).sum())
        self._great += int((is_integer & ~within).sum())
        self._exact &= bool((np.abs(values[within]) <= _EXACT).all())
        for row in np.flatnonzero(present & ~within)[: MAX_ALIKE - len(self._non_integers)].tolist():
            great = bool(is_integer[row])
            problem = faults.problem(
                row, self.index, f"{self.title} is {'out of range' if great else 'not an integer'} here",
                expected=f"an integer from {_INT32.min:,} to {_INT32.max:,}, as the net takes it",
                got=repr(cells.text(row)),
                hint="number the classes from 0 on" if great else "labels that are not classes need an input with "
                "`dtype: float32` and a loss for real numbers such as MeanSquaredError",
            )  # fmt: skip
            self._non_integers.append(problem)

    @property
    def _all_integers(self) -> bool:
        """Whether all values so far are integers, in which case labels are too."""
        return self._may_be_integer and not self._fractions and not self._great

    @property
    def non_integer_labels(self) -> Sequence[Problem]:
        odd = self._fractions + self._great
        if not self._exact or (self._fractions and 2 * odd > self._labels):
            return ()
        more = odd - len(self._non_integers)
        return [
            *self._non_integers,
            *([Problem(f"{counted(more, 'more row')}: {self.title} has the same problem")] if more else []),
        ]

    @property
    def _expected(self) -> str:
        return "a label in every row" if self.setting.is_target else "a number"

    @property
    def _replacements(self) -> str | None:
        """The settings that replace missing numbers, for messages; None for labels."""
        return None if self.setting.is_label else "`missing: 0` (any number) or `missing: median` to replace it"

    def _expected_number(self, expected: str) -> str:
        """Return what a message expects: a number with its unit, which rows with keys may omit."""
        unit = "" if self._spec.unit is None else f" with the unit `{self._spec.unit}`"
        return f"{expected}, or text{unit}" if unit and self.setting.origin.has_keys else f"{expected}{unit}"

    def _report_text(self, cells: Cells, faults: BlockFaults) -> None:
        """Report a column that begins with text once, not for every row."""
        self._holds_text = True
        text = cells.text(0)
        declaration_hint = None
        if self.setting.learned is None:  # only in the training split can the declaration be changed
            declaration_hint = (
                "this line looks like the names of the columns: skip one more line with `skip_lines`"
                if _letters(text) and _letters(text) == _letters(self.name)
                else f"leave columns of text out, or declare what they hold: `columns: {{{self.name}: categorical, …}}`"
            )
        faults.add(
            [0],
            self.index,
            f"{self.title} holds text",
            expected=self._expected_number("numbers"),
            got=self.shown(text),
            hint=self._hint(cells, text) or declaration_hint,
        )

    def _report_unparsable(self, cells: Cells, rows: Array, faults: BlockFaults) -> None:
        def cell_text(row: int) -> str:
            return self.shown(cells.text(row))

        def hint(row: int) -> str | None:
            return self._hint(cells, cells.text(row))

        if self.setting.is_target:
            message = f"{self.title} is not a number here, as it is in other rows"
            classes = "if the labels are names of classes, declare them in `classes`"
            faults.add(
                rows, self.index, message, expected="a finite number", got=cell_text,
                hint=lambda row: hint(row) or classes,
            )  # fmt: skip
        else:
            has_keys, expected = self.setting.origin.has_keys, self._expected_number("a number")
            message = f"{self.title} {'is not a number' if has_keys else 'has text here'}"
            is_repeated = has_keys and expected == "a number"
            faults.add(
                rows, self.index, message, expected=None if is_repeated else expected, got=cell_text, hint=hint,
            )  # fmt: skip

    def _hint(self, cells: Cells, text: str) -> str | None:
        """Return a hint for a text that is not a number: maybe a row, a missing value, or a different notation."""
        if self.setting.alone and (several := self.setting.alone(text)):
            return several
        if text.lower() in MISSING_MARKERS:
            return self._hint_at_missing(text)
        regular = self._number_with_decimals(cells) if self._format.other_decimal(text) else None
        mixed = None if regular is None else (
            f"other rows have numbers such as {regular}: write all with the decimal separator `{self._format.decimal}`"
        )  # fmt: skip
        return self._format.hint(text, has_decimals=regular is not None) or mixed

    def _hint_at_missing(self, text: str) -> SettingHint:
        """Return a hint for a text that mostly means a missing value."""
        hint = f"`missing_values` of the source can declare that {text!r} means a missing value"
        if self._missing == "error":
            return SettingHint(f"{hint}; train with {self._replacements}" if self._replacements else hint)
        values = {"missing_values": [*self.setting.missing_values, text]}
        data = "null is a missing value" if self.setting.origin.has_keys else "an empty cell is a missing value"
        return SettingHint(hint, settings=values, purpose=f"to read {text!r} as a missing value", data=data)

    def _number_with_decimals(self, cells: Cells) -> str | None:
        """Return a number with the decimal separator of the column, if one of the cells is one."""
        texts = [text for text in cells.distinct()[0] if self._format.decimal in text]
        numbers = TextCells(texts).numbers(self._format).tolist()
        return next((text for text, number in zip(texts, numbers, strict=True) if np.isfinite(number)), None)

    def drops(self, values: Array) -> Array | None:
        return np.isnan(values) if self._missing == "drop" else None

    def tally(self, values: Array) -> None:
        if self.setting.learned is not None:
            return
        if self._spec.normalization != "none" or self._missing == "mean":
            self._figures.add_values(values[None])
        if self._missing == "median":
            self._median.add(values)

    def finish_learning(self, reread: Callable[[], Iterator[Array]]) -> None:
        self._finished_learning = True
        fills = self._missing in ("mean", "median")
        keys = ["fill"] * fills + ["offset", "scale"] * (self._spec.normalization != "none")
        learned = self.learned_values(*keys)
        if learned is not None:
            self._fill = float(learned["fill"]) if fills else self._fill
            self._normalization = {name: list(learned[name]) for name in keys if name != "fill"}
            return
        self._normalization = self._figures.normalization(self._spec.normalization)
        if fills:
            self._fill = self._median.value() if self._missing == "median" else self._mean()
        if fills and self._fill is None:
            raise InputError(
                f"all values of {self.title} are missing, so it has no {self._missing}",
                expected="a column with values, or a number in `missing`",
            )
        if self._spec.normalization != "none" and not self._normalization:
            raise InputError(
                f"all values of {self.title} are missing, so it cannot be normalized",
                expected="a column with values, or `normalization: none`",
            )

    def _mean(self) -> float | None:
        return float(self._figures.mean[0]) if np.all(self._figures.count) else None

    @property
    def learned(self) -> dict[str, Any]:
        fill = {"fill": self._fill} if self._missing in ("mean", "median") else {}
        return {**fill, **self._normalization, **({"boolean": True} if self._is_boolean else {})}

    @property
    def width(self) -> int:
        return 1 + self._spec.missing_indicator

    @property
    def dtype(self) -> str:
        return "int32" if self._all_integers else "float32"

    def encode(self, values: Array) -> Array:
        lost = np.isnan(values)
        filled = values if self._fill is None else np.where(lost, self._fill, values)
        if self._all_integers:
            return np.where(lost, 0, filled)[:, None].astype(np.int32)  # rows that are left out may have no value
        numbers = normalized(filled[:, None], self._normalization)
        return (
            np.concatenate([numbers, lost[:, None].astype(np.float32)], axis=1)
            if self._spec.missing_indicator
            else numbers
        )

    def encoding(self) -> NumberEncoding | None:
        if self._all_integers:
            return None
        (offset,), (scale,) = (self._normalization.get(name, [default]) for name, default in NOT_NORMALIZED)
        return NumberEncoding(
            self.name, self._fill, offset, scale, self._spec.missing_indicator, self._format, self._is_boolean,
            str(self._missing), self.missing_texts,
        )  # fmt: skip


def _letters(name: str) -> str:
    """Return a name without case and punctuation: `education-num` and `Education_Num` are alike."""
    return "".join(filter(str.isalnum, name.casefold()))
