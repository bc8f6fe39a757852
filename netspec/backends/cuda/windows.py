"""Windows with one to three spatial axes, as three axes of which the first ones may have size 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from netspec.graph.ops.window import Window

AXES = "dhw"
T = TypeVar("T")


def of_three(values: Sequence[T], missing: T) -> tuple[T, ...]:
    """Values for three axes, with `missing` for absent axes."""
    return (missing,) * (len(AXES) - len(values)) + tuple(values)


def geometry(window: Window) -> dict[str, tuple[int, ...]]:
    """Size, strides, dilation and padding of a window along three axes, by their placeholders in a body."""
    return {
        "KERNEL": of_three(window.size, 1),
        "STRIDE": of_three(window.strides, 1),
        "DILATION": of_three(window.dilation, 1),
        "PAD": of_three([begin for begin, _ in window.pads], 0),
    }


def extents(name: str, spatial: Sequence[int]) -> dict[str, int]:
    """Spatial sizes of an array as `NAME_d`, `NAME_h` and `NAME_w`."""
    return {f"{name}_{axis}": size for axis, size in zip(AXES, of_three(spatial, 1), strict=True)}
