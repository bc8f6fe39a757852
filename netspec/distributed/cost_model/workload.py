"""Time and size of the computation of one worker in a step, layer by layer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod


@dataclass(frozen=True)
class Dense:
    """A layer whose weights are one matrix, `inputs` x `units`."""

    inputs: int
    units: int
    positions: int = 1
    """Rows of a sample: 1, or the length of a sequence."""
    follows: bool = False
    """Whether all between it and the dense layer before is done element by element."""

    @property
    def nbytes(self) -> int:
        """Of the matrix in float32."""
        return 4 * self.inputs * self.units


@dataclass(frozen=True)
class Layer:
    """A layer's part of a step."""

    name: str
    parameters: tuple[tuple[int, ...], ...]
    """Shapes of what is trained."""
    forward: float
    """Seconds, as all times here."""
    backward: float
    update: float = 0.0
    output: int = 0
    """Bytes of all values, a sample, that later layers read: its own, and those that pass it by."""
    dense: Dense | None = None

    @property
    def nbytes(self) -> int:
        """Of its gradients in float32."""
        return 4 * sum(map(prod, self.parameters))


@dataclass(frozen=True)
class Work:
    """A step on `batch` samples: the layers in the order of the net; their gradients come in the opposite one."""

    batch: float
    layers: tuple[Layer, ...]
    beside: float = 0.0
    """Seconds that belong to no layer: inputs copied in, calls."""
    accumulate: int = 1
    """How many batches a step reads; the times are those of all of them."""

    @property
    def nbytes(self) -> int:
        """Of all gradients in float32."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def forward(self) -> float:
        """Seconds of all layers."""
        return sum(layer.forward for layer in self.layers)

    @property
    def backward(self) -> float:
        """Seconds of all layers."""
        return sum(layer.backward for layer in self.layers)

    @property
    def update(self) -> float:
        """Seconds of the update of all layers."""
        return sum(layer.update for layer in self.layers)

    @property
    def seconds(self) -> float:
        """Seconds of a full step on one worker."""
        return self.beside + self.forward + self.backward + self.update

    def faster(self, factor: float) -> Work:
        """The same on a machine that is `factor` times as fast."""
        layers = tuple(
            replace(
                one, forward=one.forward / factor, backward=one.backward / factor, update=one.update / factor
            )
            for one in self.layers
        )  # fmt: skip
        return replace(self, layers=layers, beside=self.beside / factor)


@dataclass(frozen=True)
class Compute:
    """Steps of some batch sizes, as measured or given: those of others lie on straight lines through them."""

    known: tuple[Work, ...]
    """By rising batch size, all of the same layers. One alone: time is in proportion to the batch."""

    def at(self, batch: float) -> Work:
        """The step of a batch size; beyond those known it goes on as between the last two."""
        first, second = self._around(batch)
        if first is second:
            share = batch / first.batch
            layers = tuple(
                replace(one, forward=one.forward * share, backward=one.backward * share) for one in first.layers
            )
            return replace(first, batch=batch, layers=layers)
        share = (batch - first.batch) / (second.batch - first.batch)

        def line(start: float, end: float) -> float:
            return max(0.0, start + share * (end - start))

        layers = tuple(
            replace(
                one,
                forward=line(one.forward, other.forward),
                backward=line(one.backward, other.backward),
                update=line(one.update, other.update),
            )
            for one, other in zip(first.layers, second.layers, strict=True)
        )
        return replace(first, batch=batch, layers=layers, beside=line(first.beside, second.beside))

    def _around(self, batch: float) -> tuple[Work, Work]:
        if len(self.known) == 1:
            return self.known[0], self.known[0]
        place = bisect_left([one.batch for one in self.known], batch)
        after = min(max(place, 1), len(self.known) - 1)
        return self.known[after - 1], self.known[after]

    def faster(self, factor: float) -> Compute:
        """The same on a machine that is `factor` times as fast."""
        return Compute(tuple(work.faster(factor) for work in self.known))

    def covers(self, batch: float) -> bool:
        """Whether a batch size lies within those known."""
        return self.known[0].batch <= batch <= self.known[-1].batch


def cut(costs: Sequence[float], parts: int) -> list[int]:
    """Where to cut a sequence into `parts` so that the most expensive part costs least: the index each part begins at.

    By dynamic programming over prefixes; the parts are not empty.
    """
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    best = [[(sums[end], 0)] for end in range(len(sums))]
    for part in range(1, parts):
        for end in range(len(sums)):
            choices = [
                (max(best[start][part - 1][0], sums[end] - sums[start]), start) for start in range(part, end)
            ] or [(float("inf"), 0)]  # fmt: skip
            best[end].append(min(choices))
    begins, end = list[int](), len(costs)
    for part in reversed(range(parts)):
        end = best[end][part][1]
        begins.append(end)
    return begins[::-1]
