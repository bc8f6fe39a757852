"""Columns of a table as inputs of an exported model: encodings of numbers, names and dates as operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.tabular.encodings import CategoricalEncoding, ColumnEncoding, DateEncoding, NumberEncoding
from netspec.data.timestamps import moment_of
from netspec.errors import and_more
from netspec.exchange.formats.onnx.wrapper import ML, NodeWriter, RawTensor, Wrapper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class RawColumns:
    """The table columns from which the inputs of a model are computed."""

    columns: Mapping[str, Sequence[ColumnEncoding]]
    """Encodings of the columns of each input of the net, in the order of the input's elements."""
    vectors: Collection[str]
    """The inputs that have a vector for each row; the others have one number."""
    length: int | None = None
    """Number of rows of a sample; None if a sample is one row."""

    @property
    def encodings(self) -> dict[str, ColumnEncoding]:
        """The encoding of each column, by its name."""
        return {encoding.column: encoding for columns in self.columns.values() for encoding in columns}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample of each column."""
        return () if self.length is None else (self.length,)

    @property
    def remarks(self) -> list[str]:
        """Checks of `netspec predict` that an exported model cannot do, a line each."""
        encodings = self.encodings
        checks = {
            "errors for missing values": [name for name, encoding in encodings.items() if encoding.missing == "error"],
            "errors for unknown categories": [
                name
                for name, encoding in encodings.items()
                if isinstance(encoding, CategoricalEncoding) and not encoding.is_open
            ],
            "leaving out rows with missing values": self.dropping,
        }
        return [
            f"{check} in {', '.join(f'`{name}`' for name in names[:10])}{and_more(len(names) - 10)}"
            for check, names in checks.items()
            if names
        ]

    @property
    def dropping(self) -> list[str]:
        """The columns whose missing values leave rows out."""
        return [name for name, encoding in self.encodings.items() if encoding.missing == "drop"]

    def arrays(self, cells: Mapping[str, Sequence[str]]) -> dict[str, Array]:
        """Return the cells (N) of each column as values that the exported model takes."""
        return {name: self._array(encoding, cells[name]) for name, encoding in self.encodings.items()}

    def _array(self, encoding: ColumnEncoding, cells: Sequence[str]) -> Array:
        texts = [text.strip() for text in cells]
        if isinstance(encoding, CategoricalEncoding):
            return np.array(texts, object)
        read = _number_reader(encoding) if isinstance(encoding, NumberEncoding) else _date_reader(encoding.format)
        numbers = [np.nan if not text or text.lower() in encoding.missing_values else read(text) for text in texts]
        return np.array(numbers, np.float64)

    def add_to(self, wrapper: Wrapper) -> None:
        """Add the operators that compute the inputs of the net from the columns."""
        wrapper.computed += self.columns
        for name, encodings in self.columns.items():
            parts = []
            for encoding in encodings:
                is_text = isinstance(encoding, CategoricalEncoding)
                wrapper.inputs[encoding.column] = RawTensor("string" if is_text else "float64", self.shape)
                parts += _ColumnWriter(wrapper, encoding.column, (-1, *self.shape, 1)).parts(encoding)
            writer = NodeWriter(wrapper, wrapper.before, f"columns/{name}")
            if name in self.vectors:
                writer.node("Concat", *parts, output=name, axis=1 + len(self.shape))
            else:
                writer.node("Reshape", parts[0], writer.constant((-1, *self.shape)), output=name)


def _number_reader(encoding: NumberEncoding) -> Callable[[str], float]:
    if encoding.boolean:
        return lambda text: float(text == "true")
    return lambda text: float(encoding.format.plain(text))


def _date_reader(format_: str | None) -> Callable[[str], float]:
    """Return the function that reads a date as seconds since 1970, in UTC; a time without an offset is UTC."""
    return lambda text: moment_of(text, format_).astype(np.int64) / 1e6


class _ColumnWriter(NodeWriter):
    """Adds the operators of one column; `shape` is that of its values."""

    def __init__(self, wrapper: Wrapper, column: str, shape: tuple[int, ...]) -> None:
        super().__init__(wrapper, wrapper.before, f"columns/{column}")
        self._column, self._shape = column, shape

    def parts(self, encoding: ColumnEncoding) -> list[str]:
        """Return the tensors of the column's values, of equal shapes except for the last axis."""
        if isinstance(encoding, NumberEncoding):
            return self._number(encoding)
        if isinstance(encoding, DateEncoding):
            return self._date(encoding)
        return [self._category(encoding)]

    def _values(self, tensor: str) -> str:
        return self.node("Reshape", tensor, self.constant(self._shape))

    def _normalized(self, x: str, offset: float, scale: float) -> str:
        if offset:
            x = self.node("Sub", x, self.constant(offset, "float64"))
        if scale != 1:
            x = self.node("Div", x, self.constant(scale, "float64"))
        return self.cast(x, "float32")

    def _number(self, encoding: NumberEncoding) -> list[str]:
        x = self._values(self._column)
        missing = self.node("IsNaN", x) if encoding.fill is not None or encoding.indicator else ""
        if encoding.fill is not None:
            x = self.node("Where", missing, self.constant(encoding.fill, "float64"), x)
        number = self._normalized(x, encoding.offset, encoding.scale)
        return [number, *([self.cast(missing, "float32")] if encoding.indicator else [])]

    def _category(self, encoding: CategoricalEncoding) -> str:
        index = self.node(
            "LabelEncoder", self._column, domain=ML, keys_strings=list(encoding.indices),
            values_int64s=list(encoding.indices.values()), default_int64=encoding.default,
        )  # fmt: skip
        index = self._values(index)
        if not encoding.width:
            return self.cast(index, "int32")
        indices = self.constant(np.arange(encoding.width).reshape(*(1,) * (len(self._shape) - 1), -1))
        return self.cast(self.node("Equal", index, indices), "float32")

    def _date(self, encoding: DateEncoding) -> list[str]:
        timestamp = self._values(self._column)
        values = self._date_parts(timestamp)
        parts = [values[part] for part in encoding.parts]
        missing = self.node("IsNaN", timestamp) if encoding.fills is not None else ""
        if encoding.fills is not None:
            fills = [self.constant(fill, "float64") for fill in encoding.fills]
            parts = [self.node("Where", missing, fill, part) for fill, part in zip(fills, parts, strict=True)]
        normalization = zip(parts, encoding.offsets, encoding.scales, strict=True)
        normalized = [self._normalized(part, offset, scale) for part, offset, scale in normalization]
        return [*normalized, *([self.cast(missing, "float32")] if encoding.indicator else [])]

    def _date_parts(self, timestamp: str) -> dict[str, str]:
        """Return the parts of times, in float64, in which whole numbers are exact.

        The calendar is that of Hinnant, "chrono-compatible low-level date algorithms": years begin in March, in eras of
        400 years.
        """
        node = self.node

        def number(value: int) -> str:
            return self.constant(value, "float64")

        def over(x: str, divisor: int) -> str:
            return node("Floor", node("Div", x, number(divisor)))

        def plus(x: str, value: int) -> str:
            return node("Add", x, number(value))

        def times(x: str, factor: int) -> str:
            return node("Mul", x, number(factor))

        def rest(x: str, quotient: str, divisor: int) -> str:
            return node("Sub", x, times(quotient, divisor))

        days = over(timestamp, 86400)
        seconds = node("Floor", rest(timestamp, days, 86400))
        hour, minutes = over(seconds, 3600), over(seconds, 60)
        since_march = plus(days, 719468)  # days since 0000-03-01
        era = over(since_march, 146097)
        day_of_era = rest(since_march, era, 146097)
        without_leap_days = node("Sub", day_of_era, over(day_of_era, 1460))
        without_leap_days = node("Add", without_leap_days, over(day_of_era, 36524))
        year_of_era = over(node("Sub", without_leap_days, over(day_of_era, 146096)), 365)
        leap_days = node("Sub", over(year_of_era, 4), over(year_of_era, 100))
        day = node("Sub", rest(day_of_era, year_of_era, 365), leap_days)  # from 0, March 1
        march_month = over(plus(times(day, 5), 2), 153)  # from 0, March
        is_new_year = node("Greater", march_month, number(9))  # January or February
        year = node("Add", times(era, 400), year_of_era)
        year = node("Where", is_new_year, plus(year, 1), year)
        leap_days = node("Sub", over(plus(year, -1), 4), over(plus(year, -1), 100))
        leap_days = node("Add", leap_days, over(plus(year, -1), 400))
        year_starts = plus(node("Add", times(plus(year, -1), 365), leap_days), -719162)  # days since 1970
        return {
            "year": year,
            "month": plus(node("Where", is_new_year, plus(march_month, -12), march_month), 3),
            "day": plus(node("Sub", day, over(plus(times(march_month, 153), 2), 5)), 1),
            "weekday": rest(plus(days, 3), over(plus(days, 3), 7), 7),  # 1970 began on a Thursday
            "day_of_year": plus(node("Sub", days, year_starts), 1),
            "hour": hour,
            "minute": rest(minutes, hour, 60),
            "second": rest(seconds, minutes, 60),
            "timestamp": timestamp,
        }
