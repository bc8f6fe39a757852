"""Where in an image the places of parts are that RoiAlign looks at, and which elements are around them."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.ops.elementwise import GreaterOrEqual, Maximum, Minimum, Where, cast, elementwise
from netspec.graph.ops.functions import Abs
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.rounding import Ceil, Floor
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.checks import need_countable
from netspec.layers.looking_up import clipped, column, within

NEAR = 6
"""Places that may be less than one away from an element: they are more than ½ apart, or there is only one."""


def sides(rois: Value, spatial_scale: float, aligned: bool) -> list[tuple[Value, Value]]:
    """Begin and length (N, R) of parts (N, R, 4) along the rows and along the columns, counted in elements."""
    rois = rois * spatial_scale
    rois = rois - 0.5 if aligned else rois
    made = []
    for axis in range(2):
        begin, end = column(rois, 1 - axis), column(rois, 3 - axis)
        made.append((begin, end - begin if aligned else elementwise(Maximum(), end - begin, 1.0)))
    return made


def counts(at: Value, size: int) -> Value:
    """1 where a place is not further than one beyond the border, and 0 elsewhere."""
    return within(at * 0.0 + 1.0, at, -1, size)


@dataclass(frozen=True)
class Around:
    """Along an axis, where cells have as many places as elements: all that may be near each element, or counted.

    A cell of length s has ⌈s⌉ places, evenly spread. Of those that may be near an element the first is computed, so
    that it does not matter how many there are.
    """

    count: Value
    """How many there are (N, R, 1, 1, 1)."""
    at: Value
    """Where those are that may be near (N, R, cells, size, `NEAR`), as far as there are."""
    counted: Value
    """Which of them there are, and count: 1 or 0."""
    weight: Value
    """What the element counts at each."""
    ends: tuple[Value, Value]
    """The first and the last place of each cell (N, R, cells, 1, 1)."""

    @classmethod
    def of(cls, begin: Value, length: Value, cells: int, size: int) -> Around:
        """Of parts whose begin and length (N, R) are given."""
        import numpy as np

        for places in (cells, size):
            need_countable(places, -1)
        dtype = str(begin.dtype)

        def along(number: int, axis: int) -> Value:
            shape = [1] * 5
            shape[axis] = number
            return constant(np.arange(number, dtype=dtype).reshape(shape))

        begin, cell = (reshape_to(one, (*one.shape, 1, 1, 1)) for one in (begin, length * (1 / cells)))
        count = elementwise(Maximum(), Ceil()(cell), 0.0)
        there = elementwise(GreaterOrEqual(), count, 1.0)
        apart = elementwise(Where(), there, cell / elementwise(Maximum(), count, 1.0), 1.0)
        begin, element = begin + cell * along(cells, 2) + apart * 0.5, along(size, 3)
        first = Floor()((element - 1.0 - begin) / apart)
        first = elementwise(Maximum(), elementwise(Minimum(), first, count - 1.0), 0.0)
        number = first + along(NEAR, 4)
        at = begin + number * apart
        near = elementwise(Maximum(), 1.0 - Abs()(clipped(at, 0, size - 1) - element), 0.0)
        counted = counts(at, size) * cast(elementwise(GreaterOrEqual(), count - 1.0, number), begin.dtype)
        return cls(count, at, counted, near * counted, (begin, begin + (count - 1.0) * apart))
