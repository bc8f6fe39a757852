"""A package as somebody else writes it: a layer, a loss, a solver, a callback and a data source for netspec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

import netspec
from netspec.data.base import Dataset, FieldType, Source
from netspec.graph.ops.unary import Sigmoid
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.initializers.base import Initializer, Ones
from netspec.layers.losses_and_metrics import ElementLosses, PairLoss
from netspec.solvers.base import SolverSpec
from netspec.solvers.scaling import Descend
from netspec.solvers.transform import Transform
from netspec.training.loop import TrainingLoop


class Gate(LayerSpec):
    """Let each number pass as far as it is large: x · sigmoid(scale · x), with a learned `scale` for each feature.

    Input (N, F), output the same.
    """

    type: Literal["Gate"] = "Gate"
    scale_initializer: Initializer = Ones()
    """first values of `scale` (F)"""

    samples: ClassVar = (Sample.of((2, 3)),)

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, F) → (N, F)."""
        return x * Sigmoid()(x * builder.parameter("scale", x.shape[1:], self.scale_initializer))


class FourthPower(PairLoss):
    """The mean of (prediction - target)⁴."""

    type: Literal["FourthPower"] = "FourthPower"
    samples: ClassVar = (Sample.of((4, 3), (4, 3)),)

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …)."""
        square = (prediction - target) * (prediction - target)
        return ElementLosses.per_feature(square * square)


class StepCounter(netspec.CallbackSpec):
    """Reports the number of steps."""

    type: Literal["StepCounter"] = "StepCounter"
    every: int = 1
    """steps between two reports"""

    def build(self) -> netspec.Callback:
        """The callback for one training."""
        return _StepCounter(self.every)


class _StepCounter(netspec.Callback):
    def __init__(self, every: int) -> None:
        self._every = every

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.step % self._every == 0:
            training.emit("note", message=f"{training.step} steps")


class Plain(SolverSpec):
    """w ← w - lr · ∂loss/∂w."""

    type: Literal["Plain"] = "Plain"
    samples: ClassVar = ({},)

    def transforms(self) -> Sequence[Transform]:
        return [Descend()]


class _Waves(Dataset):
    """Points of a wave, and the same points a step later."""

    def __init__(self, count: int, length: int) -> None:
        self._count, self._length = count, length
        self.fields = {name: FieldType((length,), "float32") for name in ("now", "later")}
        self.digest = f"waves {count} {length}"

    def __len__(self) -> int:
        return self._count

    def read(self, indices: NDArray[Any]) -> dict[str, NDArray[Any]]:
        phase = indices[:, None] + np.arange(self._length + 1) / self._length
        wave = np.sin(phase).astype(np.float32)
        return {"now": wave[:, :-1], "later": wave[:, 1:]}

    def describe(self, index: int) -> str:
        return f"wave {index}"


class WaveSource(Source):
    """Waves that are made up."""

    source: Literal["waves"] = "waves"
    count: int
    """how many"""
    length: int = 8
    """points of each"""
    samples: ClassVar = ({"count": 10},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The waves; the seed changes nothing."""
        return _Waves(self.count, self.length)
