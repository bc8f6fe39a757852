"""Field types of image transforms: ranges from which factors are drawn, in Keras's forms. Does not import NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from netspec.schema.specs.spec import describe, problem

Span: TypeAlias = tuple[float, float]

Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
FillMode: TypeAlias = Literal["reflect", "wrap", "constant", "nearest"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return str(value)[:60] if isinstance(value, (list, tuple)) else describe(value)


def _span(low: float, high: float, least: Callable[[float], float], *, ordered: bool = True) -> Callable[[Any], Span]:
    """Return a validator that accepts `f`, for the range from `least(f)` to |f|, or `[f, g]`, within `low` … `high`."""

    def read(value: Any) -> Span:
        numbers = [value] if _is_number(value) else list(value) if isinstance(value, (list, tuple)) else []
        expected = f"a number or [lowest, highest], from {low:g} to {high:g}"
        if not all(map(_is_number, numbers)) or len(numbers) != (1 if _is_number(value) else 2):
            raise problem("has an invalid value", expected=expected, got=_shown(value))
        if not all(low <= number <= high for number in numbers):
            raise problem(f"not within {low:g} to {high:g}", expected=expected, got=f"{value}")
        if len(numbers) == 1:
            return least(float(numbers[0])), abs(float(numbers[0]))
        if ordered and numbers[0] > numbers[1]:
            raise problem("has its lowest value last", expected=f"[{numbers[1]:g}, {numbers[0]:g}]", got=f"{value}")
        return float(numbers[0]), float(numbers[1])

    return read


def _zero(value: float) -> float:
    return 0.0


_Written: TypeAlias = float | Annotated[list[float], Field(min_length=2, max_length=2)]

Fraction = Annotated[Span, BeforeValidator(_span(0, 1, _zero), json_schema_input_type=_Written)]
"""`f` means 0 to f; within 0 … 1."""
Signed = Annotated[Span, BeforeValidator(_span(-1, 1, lambda high: -abs(high)), json_schema_input_type=_Written)]
"""`f` means −f to f; within −1 … 1."""
Around = Annotated[Span, BeforeValidator(_span(0, 1, abs, ordered=False), json_schema_input_type=_Written)]
"""`f` means [f, f]: how far below and above; within 0 … 1."""
Width = Annotated[Span, BeforeValidator(_span(0, 1000, _zero), json_schema_input_type=_Written)]
"""`f` means 0 to f; at least 0."""


def _zoom(value: Any) -> Span:
    read = _span(-1, 1, lambda high: -abs(high))(value)
    if read[0] <= -1:
        raise problem("not above -1", expected="more than -1: sizes are multiplied by 1 + factor", got=f"{value}")
    return read


Zoom = Annotated[Span, BeforeValidator(_zoom, json_schema_input_type=_Written)]
"""`f` means −f to f; above −1, up to 1."""


def _bits(value: Any) -> tuple[int, int]:
    bounds = [value, value] if isinstance(value, int) else list(value) if isinstance(value, (list, tuple)) else []
    integers = len(bounds) == 2 and all(isinstance(number, int) and not isinstance(number, bool) for number in bounds)
    if not integers or not 1 <= bounds[0] <= bounds[1] <= 8:
        raise problem("has an invalid value", expected="1 to 8, or [fewest, most]", got=_shown(value))
    return bounds[0], bounds[1]


Bits = Annotated[tuple[int, int], BeforeValidator(_bits, json_schema_input_type=int | list[int])]
"""`n` means [n, n]; within 1 … 8."""


def _positive(high: float, most: str) -> Callable[[Any], Span]:
    """Return a validator that accepts `[lowest, highest]`, both above 0 and up to `high`."""

    def read(value: Any) -> Span:
        bounds = list(value) if isinstance(value, (list, tuple)) else []
        if len(bounds) != 2 or not all(map(_is_number, bounds)) or not 0 < bounds[0] <= bounds[1] <= high:
            raise problem("has an invalid value", expected=f"[lowest, highest], above 0{most}", got=_shown(value))
        return float(bounds[0]), float(bounds[1])

    return read


Shares = Annotated[Span, BeforeValidator(_positive(1, " and up to 1"), json_schema_input_type=list[float])]
"""`[lowest, highest]` fraction, above 0 and up to 1."""
Ratios = Annotated[Span, BeforeValidator(_positive(float("inf"), ""), json_schema_input_type=list[float])]
"""`[lowest, highest]` ratio, above 0."""


def _values(value: Any) -> Span:
    bounds = list(value) if isinstance(value, (list, tuple)) else []
    if len(bounds) != 2 or not all(map(_is_number, bounds)) or not bounds[0] < bounds[1]:
        raise problem("has an invalid value", expected="[lowest, highest]", got=_shown(value))
    return float(bounds[0]), float(bounds[1])


Values = Annotated[Span, BeforeValidator(_values, json_schema_input_type=list[float])]
"""The lowest and the highest value of an image."""


def _odd(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value % 2 == 0:
        raise problem("not an odd number", expected="1, 3, 5, …", got=describe(value))
    return value


Odd = Annotated[int, BeforeValidator(_odd, json_schema_input_type=int)]
