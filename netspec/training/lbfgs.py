"""L-BFGS on the states of a compiler: the host chooses the next parameters, and programs evaluate the loss there.

The number of evaluations in a step depends on their results, so the step is not one graph. Vectors are the concatenated
parameters, in NumPy; the history of earlier steps is stored in states, and so in checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.program import NonFiniteLoss
from netspec.compile import Compiler
from netspec.solvers.lbfgs import CHANGES, DIRECTION, GRADIENT, LBFGS, MOVES, NUMBERS
from netspec.training.line_search import LineSearch, Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[Any]


class LbfgsMinimizer:
    """Runs steps of L-BFGS on the trainable parameters of a compiler."""

    def __init__(self, solver: LBFGS, compiler: Compiler) -> None:
        self._solver, self._states = solver, compiler.states
        self._names = [name for name, info in compiler.info.items() if info.trainable]
        self.gradient_norm: float | None = None
        """L2 norm of the gradient from which the last step started."""

    def step(self, evaluate: Callable[[], float], share: float, rate: float) -> float:
        """Run one step; return the loss that it started from.

        `evaluate` returns the loss of the current parameters, and stores its gradient, divided by `share`, in the
        states that sum gradients.
        """
        states, solver = self._states, self._solver
        loss, gradient = evaluate(), self._gradient(share)
        self.gradient_norm = float(np.linalg.norm(gradient))
        if np.abs(gradient).max() <= solver.tolerance_grad:
            return loss
        steps, history, length, scale = states[NUMBERS]
        moves, changes, used = states[MOVES], states[CHANGES], int(history)
        if steps == 0:
            direction, scale = -gradient, 1.0
        else:
            move, change = states[DIRECTION] * length, gradient - states[GRADIENT]
            curvature = float(change @ move)
            if curvature > 1e-10:
                if used == solver.history_size:
                    moves[:-1], changes[:-1], used = moves[1:].copy(), changes[1:].copy(), used - 1
                moves[used], changes[used], used = move, change, used + 1
                scale = curvature / float(change @ change)
            direction = _direction(gradient, moves[:used], changes[:used], scale)
        length = min(1.0, 1.0 / float(np.abs(gradient).sum())) * rate if steps == 0 else rate
        slope = float(gradient @ direction)
        if slope <= -solver.tolerance_change:
            length = self._move(Point(0.0, loss, slope), direction, length, evaluate, share)
        for name, value in ((DIRECTION, direction), (GRADIENT, gradient), (MOVES, moves), (CHANGES, changes)):
            states.assign(name, value)
        states.assign(NUMBERS, np.array([steps + 1, used, length, scale]))
        return loss

    def _move(
        self, start: Point, direction: Vector, length: float, evaluate: Callable[[], float], share: float
    ) -> float:
        """Move the parameters along the direction; return the step length."""
        origin = np.concatenate([self._states[name].reshape(-1) for name in self._names])
        if self._solver.line_search is not None:

            def at(t: float) -> Point:
                self._set_parameters(origin + direction.dtype.type(t) * direction)
                try:
                    loss, gradient = evaluate(), self._gradient(share)
                except NonFiniteLoss:  # too far: any other loss is lower
                    return Point(t, inf, inf)
                return Point(t, loss, float(gradient @ direction))

            shortest = self._solver.tolerance_change / float(np.abs(direction).max())
            length = LineSearch(at, start, self._solver.max_evaluations, shortest).run(length).t
        self._set_parameters(origin + direction.dtype.type(length) * direction)
        return length

    def _gradient(self, share: float) -> Vector:
        sums = [self._states[f"gradient/{name}"].reshape(-1) for name in self._names]
        gradient: Vector = np.concatenate(sums)
        gradient *= share
        return gradient

    def _set_parameters(self, vector: Vector) -> None:
        """Assign the concatenated parameters."""
        start = 0
        for name in self._names:
            kind = self._states.types[name]
            self._states.assign(name, vector[start : start + kind.size].reshape(kind.shape))
            start += kind.size


def _direction(gradient: Vector, moves: Vector, changes: Vector, scale: float) -> Vector:
    """Return -H · g by the two-loop recursion: Nocedal and Wright 2006, algorithm 7.4."""
    kind = gradient.dtype.type
    direction: Vector = -gradient
    weights = list[Any]()
    curvatures = [kind(1) / (change @ move) for move, change in zip(moves, changes, strict=True)]
    for move, change, curvature in zip(moves[::-1], changes[::-1], curvatures[::-1], strict=True):
        weights.append((move @ direction) * curvature)
        direction = direction - weights[-1] * change
    direction = direction * kind(scale)
    for move, change, curvature, weight in zip(moves, changes, curvatures, weights[::-1], strict=True):
        direction = direction + move * (weight - (change @ direction) * curvature)
    return direction
