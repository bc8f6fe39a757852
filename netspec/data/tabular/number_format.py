"""The notation of numbers in a table: decimal and thousands separators, and units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from netspec.errors import SettingHint

_UNIT = re.compile(
    r"[+-]?(?P<before>[$€£¥₹]|[A-Z]{3}(?= ))? *[+-]?\d[\d.,' ]*"
    r"(?P<after>[%‰°€$£¥₹]\w*"
    r"|(?:[A-Za-zµ]{2,}(?: [A-Za-z]{2,})?(?:\^?[23]|[²³])?|[A-Za-zµ](?:\^?[23]|[²³])|(?<= )[ghlmst])(?:/[a-z]+)?)?"
)


def unit_of(text: str) -> str | None:
    """Return the unit before or after a number, such as `%`, `$`, `EUR`, `m²` or `sq ft`; None if there is none.

    A single letter is a unit only after a space, and only a common one: `g`, `h`, `l`, `m`, `s`, `t`.
    """
    match = _UNIT.fullmatch(text)
    units = [unit for unit in match.groups() if unit] if match else []
    return units[0] if len(units) == 1 else None


def with_plain_spaces(text: str) -> str:
    """Return a text with spaces in the place of no-break spaces, which separate thousands too."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")


@dataclass(frozen=True)
class NumberFormat:
    """The notation of numbers in a column; see `decimal` and `thousands` of the source, and `unit` of the column."""

    decimal: str = "."
    thousands: str | None = None
    unit: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether Python's `float` reads the numbers unchanged."""
        return (self.decimal, self.thousands, self.unit) == (".", None, None)

    @cached_property
    def grouped(self) -> re.Pattern[str]:
        """The pattern of a number with thousands separators."""
        assert self.thousands is not None
        return re.compile(
            rf"[+-]?\d{{1,3}}(?:{re.escape(self.thousands)}\d{{3}})+(?:{re.escape(self.decimal)}\d*)?", re.ASCII
        )

    def plain(self, text: str) -> str:
        """Convert a number from this notation to Python's; return an empty text if it is in another notation."""
        if self.unit is not None:
            sign, rest = (text[0], text[1:].lstrip()) if text[:1] in ("+", "-") else ("", text)
            if rest.startswith(self.unit) == rest.endswith(self.unit):
                return ""
            text = sign + rest.removeprefix(self.unit).removesuffix(self.unit).strip()
        if self.thousands is not None:
            text = with_plain_spaces(text) if self.thousands == " " else text
            if self.thousands in text:
                if not self.grouped.fullmatch(text):
                    return ""
                text = text.replace(self.thousands, "")
        if self.decimal != ".":
            return "" if "." in text else text.replace(self.decimal, ".")
        return text

    def written(self, text: str) -> str:
        """Convert a number from Python's notation to this one."""
        return text.replace(".", self.decimal) + (self.unit or "")

    def hint(self, text: str, *, has_decimals: bool = False) -> SettingHint | None:
        """Return a hint if a text that is not a number here is one in a different notation.

        With `has_decimals`, the column has numbers with this decimal separator, so the hint does not suggest another.
        """
        thousands, settings = r"[+-]?\d{{1,3}}({}\d{{3}})+({}\d+)?", {}
        if not has_decimals and (other := self.other_decimal(text)):
            settings["decimal"] = other
        for mark, point in ((",", r"\."), (".", ","), (" ", "[.,]"), ("'", "[.,]")):
            if re.fullmatch(thousands.format(re.escape(mark), point), text, re.ASCII) and self.thousands != mark:
                settings["thousands"] = mark
        if settings:
            fields = [f'`{name}: "{mark}"`' for name, mark in settings.items()]
            return SettingHint(
                f"the source reads such numbers with {' or '.join(fields)}", settings=settings,
                purpose="to read such numbers", data=self.description,
            )  # fmt: skip
        unit = unit_of(text) if self.unit is None else None
        if unit is None:
            return None
        return SettingHint(
            f'`unit: "{unit}"` of the column reads numbers with this unit',
            data=f"write numbers of this column without `{unit}`",
        )

    def other_decimal(self, text: str) -> str | None:
        """Return the other decimal separator if a number has it, such as `1,5` in a column of numbers like `1.5`."""
        other = "," if self.decimal == "." else "."
        return other if re.fullmatch(rf"[+-]?\d+{re.escape(other)}\d+", text, re.ASCII) else None

    @property
    def description(self) -> str:
        """The notation as a hint: "write numbers such as 1234.5"."""
        return f"write numbers such as 1{self.thousands or ''}234{self.decimal}5"


PLAIN = NumberFormat()
