"""Dates and times in texts, as NumPy's datetime64 in UTC."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np

UNREADABLE = np.datetime64("NaT", "us")

_NUMBERS = re.compile(r"\d{1,4}([-./ ])\d{1,2}\1(\d{4}|\d{2})\b")
_DAY_NAME = re.compile(r"\d{1,2}([-. ]{1,2})[A-Za-z]{3,}([-. ]{1,2})(\d{4}|\d{2})\b")
_NAME_DAY = re.compile(r"[A-Za-z]{3,} \d{1,2}(,?) \d{4}\b")
_MONTHS = ((r"\d{1,2}/\d{4}", "%m/%Y"), (r"\d{4}/\d{1,2}", "%Y/%m"), (r"[A-Za-z]{3} \d{4}", "%b %Y"),
           (r"[A-Za-z]{3,} \d{4}", "%B %Y"), (r"\d{8}", "%Y%m%d"))  # fmt: skip
_TIME = re.compile(
    r"(?P<gap>,? |T)\d{1,2}:\d{2}(?P<second>:\d{2}(?P<fraction>\.\d{1,6})?)?(?P<half> ?[AaPp][Mm])?"
    r"(?P<zone> ?(Z|[+-]\d{2}:?\d{2}))?"
)


def moment_of(text: str, format: str | None = None) -> np.datetime64:
    """Return a date in the notation of `strptime`, by default ISO 8601 (`2026-11`, `2026-11-20T16:25+01:00`), in UTC.

    NaT if the text is not such a date.
    """
    try:
        moment = datetime.strptime(text, format) if format else datetime.fromisoformat(text)
    except ValueError:
        return UNREADABLE if format else moment_of(text, "%Y-%m")
    return np.datetime64(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None), "us")


def date_formats(texts: Iterable[str]) -> list[str]:
    """Return the formats, in the notation of `strptime`, in which all texts are dates; the likeliest first.

    `.` between numbers means that the day comes first; if both orders are possible, the month does, as in pandas.
    """
    formats: list[str] | None = None
    for text in texts:
        candidates = _candidates(text) if formats is None else formats
        formats = [format for format in candidates if not np.isnat(moment_of(text, format))]
        if not formats:
            return []
    return formats or []


def _candidates(text: str) -> list[str]:
    """Return the formats that the characters of a text allow."""
    if match := _NUMBERS.match(text):
        mark, year = match[1], "%Y" if len(match[2]) == 4 else "%y"
        orders = [f"%d{mark}%m{mark}{year}", *([] if mark == "." else [f"%m{mark}%d{mark}{year}"])]
        orders = [f"%Y{mark}%m{mark}%d"] if text[:4].isdigit() else orders[::-1]
    elif match := _DAY_NAME.match(text):
        year = "%Y" if len(match[3]) == 4 else "%y"
        orders = [f"%d{match[1]}{name}{match[2]}{year}" for name in ("%b", "%B")]
    elif match := _NAME_DAY.match(text):
        orders = [f"{name} %d{match[1]} %Y" for name in ("%b", "%B")]
    else:
        return [format for pattern, format in _MONTHS if re.fullmatch(pattern, text)]
    rest = text[match.end() :]
    if not rest:
        return orders
    time = _TIME.fullmatch(rest)
    if time is None:
        return []
    second = ":%S" * bool(time["second"]) + ".%f" * bool(time["fraction"])
    half = time["half"].replace(time["half"].strip(), "%p") if time["half"] else ""
    zone = time["zone"].replace(time["zone"].strip(), "%z") if time["zone"] else ""
    clock = f"{time['gap']}{'%I' if half else '%H'}:%M{second}{half}{zone}"
    return [order + clock for order in orders]
