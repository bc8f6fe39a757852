"""The scalars of YAML 1.2's core schema (https://yaml.org/spec/1.2.2/, section 10.3).

`1e-4` is a number, `no` and `on` are text, `012` is twelve, `0o17` is octal, and nothing is a date.
"""

from __future__ import annotations

import math
import re

NULL = frozenset({"", "~", "null", "Null", "NULL"})
TRUE = frozenset({"true", "True", "TRUE"})
FALSE = frozenset({"false", "False", "FALSE"})
DECIMAL = re.compile(r"[-+]?[0-9]+\Z")
OCTAL = re.compile(r"0o[0-7]+\Z")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z")
NAN = frozenset({".nan", ".NaN", ".NAN"})

MAX_DIGITS = 400
MAX_INT = 2**63 - 1
"""The largest integer, of 64 bits, which arrays and counters can hold."""
_NUMBER_START = frozenset("+-.0123456789")

Scalar = None | bool | int | float | str


def resolve(text: str) -> Scalar:
    """Return the value of a plain (unquoted) scalar. Raises `ValueError` for a number out of range."""
    if text[:1] not in _NUMBER_START:  # true for empty text
        if text in NULL:
            return None
        if text in TRUE:
            return True
        return False if text in FALSE else text
    if DECIMAL.match(text):
        return _integer(text, 10)
    if FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"{text[:40]} is too large for a 64-bit floating point number")
        return value
    if OCTAL.match(text):
        return _integer(text[2:], 8)
    if HEXADECIMAL.match(text):
        return _integer(text[2:], 16)
    if INFINITE.match(text):
        return -math.inf if text[0] == "-" else math.inf
    return math.nan if text in NAN else text


def _integer(digits: str, base: int) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is longer than {MAX_DIGITS}")
    value = int(digits, base)
    if abs(value) > MAX_INT:
        raise ValueError(f"{digits[:40]} is too large for a 64-bit integer")
    return value


def resolve_as(tag: str, text: str) -> Scalar:
    """Return the value of a scalar with one of YAML's own tags, such as `float` for `!!float 1`.

    Raises `ValueError` if the text is not of that type.
    """
    if tag == "str":
        return text
    value = resolve(text)
    if tag == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    actual = "null" if value is None else type(value).__name__
    if actual != tag:
        raise ValueError(f"{text[:40]!r} is not of YAML's type `!!{tag}`")
    return value


def looks_quoted(text: str) -> bool:
    """Whether a text must be quoted, because it would otherwise have another type: `"5"`, `"true"`."""
    try:
        return not isinstance(resolve(text), str)
    except ValueError:
        return True


def number(value: float) -> str:
    """Format a float for YAML, in which infinity and NaN begin with a point."""
    return repr(value) if math.isfinite(value) else repr(value).replace("inf", ".inf").replace("nan", ".nan")
