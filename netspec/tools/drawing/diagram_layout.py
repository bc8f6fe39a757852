"""Lays out the boxes of a diagram in rows, from top to bottom, with arrows that pass between them.

After Sugiyama, Tagawa and Toda 1981, "Methods for Visual Understanding of Hierarchical System Structures": rows by the
longest path, order within a row by the mean position of neighbors, and positions by priority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from netspec.tools.drawing.net_diagram import NetDiagram

GAP_ACROSS, GAP_DOWN = 24.0, 30.0
"""Least distance between boxes of a row, and between rows."""
SWEEPS = 4
"""Number of times that orders and positions are improved, down and up."""
Size = tuple[float, float]
"""Width and height."""


@dataclass(frozen=True)
class PlacedDiagram:
    """Positions in a drawing."""

    width: float
    height: float
    boxes: dict[str, tuple[float, float]]
    """Center of the top edge of each box."""
    arrows: tuple[tuple[tuple[float, float], ...], ...]
    """The points of each arrow, in the order of the diagram's."""


@dataclass
class _Slot:
    """A box, or the part of an arrow that passes a row."""

    width: float
    row: int
    is_box: bool
    before: list[int]
    after: list[int]
    x: float = 0.0


def layout_diagram(diagram: NetDiagram, sizes: Mapping[str, Size]) -> PlacedDiagram:
    """Lay out the boxes of a diagram, given their sizes."""
    slots, index, paths = _slots(diagram, sizes)
    rows: list[list[int]] = [[] for _ in range(1 + max((each.row for each in slots), default=0))]
    for number, each in enumerate(slots):
        rows[each.row].append(number)
    _order(rows, slots)
    for sweep in range(SWEEPS):
        _position(rows if sweep % 2 == 0 else rows[::-1], slots, down=sweep % 2 == 0)
    left = min((each.x - each.width / 2 for each in slots), default=0.0)
    right = max((each.x + each.width / 2 for each in slots), default=0.0)
    heights = [0.0] * len(rows)
    for name, number in index.items():
        heights[slots[number].row] = max(heights[slots[number].row], sizes[name][1])
    tops = [sum(heights[:row]) + GAP_DOWN * row for row in range(len(rows))]
    boxes = {name: (slots[number].x - left, tops[slots[number].row]) for name, number in index.items()}
    arrows = []
    for (source, target), path in zip(diagram.arrows, paths, strict=True):
        x, y = boxes[source]
        points = [(x, y + sizes[source][1])]
        for number in path:
            row = slots[number].row
            points += [(slots[number].x - left, tops[row]), (slots[number].x - left, tops[row] + heights[row])]
        arrows.append((*points, boxes[target]))
    return PlacedDiagram(right - left, tops[-1] + heights[-1] if rows else 0.0, boxes, tuple(arrows))


def _slots(diagram: NetDiagram, sizes: Mapping[str, Size]) -> tuple[list[_Slot], dict[str, int], list[list[int]]]:
    """Return the slots, the slot of each box, and for each arrow the slots between its ends."""
    row_of: dict[str, int] = {}
    for box in diagram.boxes:  # sources come first
        row_of[box.name] = 1 + max((row_of[a] for a, b in diagram.arrows if b == box.name), default=-1)
    for box in reversed(diagram.boxes):  # inputs move down to the first box that reads them
        readers = [row_of[b] for a, b in diagram.arrows if a == box.name]
        if box.kind == "input" and readers:
            row_of[box.name] = min(readers) - 1
    slots = [_Slot(sizes[box.name][0], row_of[box.name], True, [], []) for box in diagram.boxes]
    index = {box.name: number for number, box in enumerate(diagram.boxes)}
    paths = []
    for source, target in diagram.arrows:
        before, path = index[source], list[int]()
        for row in range(row_of[source] + 1, row_of[target]):
            slots.append(_Slot(0.0, row, False, [before], []))
            path.append(len(slots) - 1)
            slots[before].after.append(path[-1])
            before = path[-1]
        slots[before].after.append(index[target])
        slots[index[target]].before.append(before)
        paths.append(path)
    return slots, index, paths


def _order(rows: Sequence[list[int]], slots: Sequence[_Slot]) -> None:
    """Order each row by the mean position of its neighbors in the row above, then below, in turn."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            at = {number: position for each in rows for position, number in enumerate(each)}

            def mean(number: int, at: Mapping[int, int] = at, down: bool = down) -> float:
                neighbors = slots[number].before if down else slots[number].after
                return sum(at[each] for each in neighbors) / len(neighbors) if neighbors else float(at[number])

            row.sort(key=mean)


def _position(rows: Sequence[Sequence[int]], slots: Sequence[_Slot], *, down: bool) -> None:
    """Move each slot as close to the mean of its neighbors as its row allows; boxes are placed first."""
    for row in rows:
        offsets = [0.0]  # least distance of each slot from the first one
        for a, b in pairwise(row):
            offsets.append(offsets[-1] + (slots[a].width + slots[b].width) / 2 + GAP_ACROSS)
        placed: list[int] = []
        for at in sorted(range(len(row)), key=lambda at: (not slots[row[at]].is_box, at)):
            each = slots[row[at]]
            neighbors = each.before if down else each.after
            # Prefer boxes as neighbors: a chain of boxes becomes a straight line, and arrows bend around it.
            neighbors = [number for number in neighbors if slots[number].is_box] or neighbors
            target = sum(slots[number].x for number in neighbors) / len(neighbors) if neighbors else each.x
            for other in placed:
                limit = slots[row[other]].x + offsets[at] - offsets[other]
                target = max(target, limit) if other < at else min(target, limit)
            each.x = target
            placed.append(at)
