"""Windows in one, two or three spatial axes: one or two are three of which the first have size 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from netspec.layers.window import Window

AXES = "dhw"
T = TypeVar("T")


def of_three(values: Sequence[T], missing: T) -> tuple[T, ...]:
    """One for each of the three axes, `missing` for those that are not there."""
    return (missing,) * (len(AXES) - len(values)) + tuple(values)


def geometry(window: Window) -> dict[str, tuple[int, ...]]:
    """Sizes, steps, dilation and padding before of a window, along three axes, by the words for them in a body."""
    return {
        "KERNEL": of_three(window.size, 1),
        "STRIDE": of_three(window.strides, 1),
        "DILATION": of_three(window.dilation, 1),
        "PAD": of_three([begin for begin, _ in window.pads], 0),
    }


def extents(name: str, spatial: Sequence[int]) -> dict[str, int]:
    """The spatial sizes of an array, as numbers `NAME_d`, `NAME_h` and `NAME_w`."""
    return {f"{name}_{axis}": size for axis, size in zip(AXES, of_three(spatial, 1), strict=True)}
