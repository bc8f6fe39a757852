"""A line search for the strong Wolfe conditions.

Nocedal and Wright 2006, "Numerical Optimization", algorithms 3.5 and 3.6; trial points are minima of cubics, kept away
from the ends of the interval as in Schmidt's minFunc, and so as in torch.optim.LBFGS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

DECREASE, CURVATURE = 1e-4, 0.9
"""Constants of the Wolfe conditions: required share of the predicted decrease, and remaining share of the slope."""


@dataclass(frozen=True)
class Point:
    """A point on the line."""

    t: float
    """Step length along the direction."""
    loss: float
    slope: float
    """The loss's derivative along the direction."""


@dataclass
class LineSearch:
    """A search along a line."""

    evaluate: Callable[[float], Point]
    start: Point
    most: int
    """Maximum number of evaluations after the first."""
    shortest: float
    """Length of the shortest interval that is still searched."""
    tried: int = 0

    def run(self, t: float) -> Point:
        """Return the accepted point. The first trial is at `t`."""
        previous, point = self.start, self.evaluate(t)
        while self.tried < self.most:
            if self._too_high(point) or (self.tried > 1 and point.loss >= previous.loss):
                return self._zoom(previous, point)
            if self._flat(point):
                return point
            if point.slope >= 0:
                return self._zoom(previous, point)
            least, largest = point.t + 0.01 * (point.t - previous.t), 10 * point.t
            previous, point = point, self._try(lowest_of_cubic(previous, point, least, largest))
        return min(self.start, point, key=lambda candidate: candidate.loss)

    def _try(self, t: float) -> Point:
        self.tried += 1
        return self.evaluate(t)

    def _too_high(self, point: Point) -> bool:
        return point.loss > self.start.loss + DECREASE * point.t * self.start.slope

    def _flat(self, point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * self.start.slope

    def _zoom(self, first: Point, second: Point) -> Point:
        """Return the best point between two that enclose a point which satisfies the conditions."""
        low, high, stuck = (first, second, False) if first.loss <= second.loss else (second, first, False)
        while self.tried < self.most and abs(high.t - low.t) >= self.shortest:
            left, right = min(low.t, high.t), max(low.t, high.t)
            t, margin = lowest_of_cubic(first, second, left, right), 0.1 * (right - left)
            near = min(right - t, t - left) < margin
            if near and (stuck or t >= right or t <= left):
                t = right - margin if right - t < t - left else left + margin
                stuck = False
            else:
                stuck = near
            point = self._try(t)
            if self._too_high(point) or point.loss >= low.loss:
                first, second = (point, second) if high is first else (first, point)
                high = point
                low, high = (low, high) if low.loss <= high.loss else (high, low)
                continue
            if self._flat(point):
                return point
            other = low if point.slope * (high.t - low.t) >= 0 else high
            first, second = (point, other) if low is first else (other, point)
            low, high = point, other
        return low


def lowest_of_cubic(a: Point, b: Point, least: float, largest: float) -> float:
    """Return the minimizer of the cubic through two points with slopes, within bounds; the middle if there is none."""
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (least + largest) / 2
    d2 = sqrt(square)
    bottom = b.slope - a.slope + 2 * d2
    if bottom == 0:
        return largest
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / bottom), least), largest)
