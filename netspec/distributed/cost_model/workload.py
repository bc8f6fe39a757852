"""Time and size of the computation of one worker in a step, layer by layer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod


@dataclass(frozen=True)
class DenseShape:
    """Sizes of a layer whose weights are one matrix, `inputs` x `units`."""

    inputs: int
    units: int
    positions: int = 1
    """Rows per sample: 1, or the length of a sequence."""
    follows: bool = False
    """Whether all ops between it and the previous dense layer are element-wise."""

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix in float32."""
        return 4 * self.inputs * self.units


@dataclass(frozen=True)
class Layer:
    """Costs of a layer in a step."""

    name: str
    parameters: tuple[tuple[int, ...], ...]
    """Shapes of the trained parameters."""
    forward: float
    """Seconds, like all times here."""
    backward: float
    update: float = 0.0
    output: int = 0
    """Bytes per sample of all values that later layers read, computed by this layer or by earlier ones."""
    dense: DenseShape | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its gradients in float32."""
        return 4 * sum(map(prod, self.parameters))


@dataclass(frozen=True)
class StepCost:
    """Costs of a step on `batch` samples, with layers in the order of the net; backward runs in the opposite order."""

    batch: float
    layers: tuple[Layer, ...]
    overhead: float = 0.0
    """Seconds outside of layers: copying inputs, calls."""
    accumulate: int = 1
    """Number of batches that a step reads; times are those of all batches."""

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients in float32."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def forward(self) -> float:
        """Seconds of forward for all layers."""
        return sum(layer.forward for layer in self.layers)

    @property
    def backward(self) -> float:
        """Seconds of backward for all layers."""
        return sum(layer.backward for layer in self.layers)

    @property
    def update(self) -> float:
        """Seconds of the update of all layers."""
        return sum(layer.update for layer in self.layers)

    @property
    def seconds(self) -> float:
        """Seconds of a full step on one worker."""
        return self.overhead + self.forward + self.backward + self.update

    def faster(self, factor: float) -> StepCost:
        """Return the costs on a machine that is `factor` times as fast."""
        layers = tuple(
            replace(
                layer, forward=layer.forward / factor, backward=layer.backward / factor, update=layer.update / factor
            )
            for layer in self.layers
        )  # fmt: skip
        return replace(self, layers=layers, overhead=self.overhead / factor)


@dataclass(frozen=True)
class ComputeModel:
    """Costs of steps of some batch sizes, measured or given; other batch sizes are interpolated linearly."""

    steps: tuple[StepCost, ...]
    """Costs of the same layers by rising batch size. If there is one, time is proportional to the batch."""

    def at(self, batch: float) -> StepCost:
        """Return the costs of a batch size, interpolated, or extrapolated from the nearest two."""
        first, second = self._around(batch)
        if first is second:
            share = batch / first.batch
            layers = tuple(
                replace(layer, forward=layer.forward * share, backward=layer.backward * share) for layer in first.layers
            )
            return replace(first, batch=batch, layers=layers)
        share = (batch - first.batch) / (second.batch - first.batch)

        def line(start: float, end: float) -> float:
            return max(0.0, start + share * (end - start))

        layers = tuple(
            replace(
                low,
                forward=line(low.forward, high.forward),
                backward=line(low.backward, high.backward),
                update=line(low.update, high.update),
            )
            for low, high in zip(first.layers, second.layers, strict=True)
        )
        return replace(first, batch=batch, layers=layers, overhead=line(first.overhead, second.overhead))

    def _around(self, batch: float) -> tuple[StepCost, StepCost]:
        if len(self.steps) == 1:
            return self.steps[0], self.steps[0]
        index = bisect_left([work.batch for work in self.steps], batch)
        after = min(max(index, 1), len(self.steps) - 1)
        return self.steps[after - 1], self.steps[after]

    def faster(self, factor: float) -> ComputeModel:
        """Return the model of a machine that is `factor` times as fast."""
        return ComputeModel(tuple(work.faster(factor) for work in self.steps))

    def covers(self, batch: float) -> bool:
        """Return whether a batch size is within the known range."""
        return self.steps[0].batch <= batch <= self.steps[-1].batch


def cut(costs: Sequence[float], parts: int) -> list[int]:
    """Cut a sequence into non-empty parts so that the most expensive costs least; return each part's first index.

    Dynamic programming over prefixes.
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
