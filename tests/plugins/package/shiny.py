"""A package by another author: a layer, a loss, a solver, a callback and a data source for netspec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from netspec.graph import Sigmoid, Value
from netspec.layers import Builder, ElementLosses, Initializer, LayerSpec, Ones, PairLoss, Sample, require
from netspec.training import (
    Callback,
    CallbackSpec,
    Dataset,
    Descend,
    FieldType,
    SolverSpec,
    Source,
    TrainingLoop,
    UpdateTransform,
)


class Gate(LayerSpec):
    """Multiplies each feature by sigmoid(scale · x), with a learned scale. Input (N, F), output the same."""

    type: Literal["Gate"] = "Gate"
    scale_initializer: Initializer = Ones()
    """Initializer of the scale (F)."""

    samples: ClassVar = (Sample.of((2, 3)),)

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, F) → (N, F)."""
        require(len(x.shape) == 2, "the input is not a vector of features", expected="(batch, features)", got=x.type)
        gate: Value = Sigmoid()(x * builder.parameter("scale", x.shape[1:], self.scale_initializer))
        return x * gate


class FourthPower(PairLoss):
    """The mean of (prediction - target)⁴."""

    type: Literal["FourthPower"] = "FourthPower"
    samples: ClassVar = (Sample.of((4, 3), (4, 3)),)

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …)."""
        square = (prediction - target) * (prediction - target)
        return ElementLosses.per_feature(square * square)


class StepCounter(CallbackSpec):
    """Reports the number of steps."""

    type: Literal["StepCounter"] = "StepCounter"
    every: PositiveInt = 1
    """Steps between two reports."""
    samples: ClassVar = ({"every": 10},)

    def build(self) -> Callback:
        """Return the callback for one training."""
        return _StepCounter(self.every)


class _StepCounter(Callback):
    def __init__(self, every: int) -> None:
        self._every = every

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.step % self._every == 0:
            training.emit("note", message=f"{training.step} steps")


class Plain(SolverSpec):
    """w ← w - lr · ∂loss/∂w."""

    type: Literal["Plain"] = "Plain"
    samples: ClassVar = ({},)

    def transforms(self) -> Sequence[UpdateTransform]:
        return [Descend()]


class _Waves(Dataset):
    """Samples of a sine wave, and the same samples one step later."""

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
    """Synthetic sine waves."""

    source: Literal["waves"] = "waves"
    count: int
    """Number of samples."""
    length: int = 8
    """Points per sample."""
    samples: ClassVar = ({"count": 10},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Return the samples; the seed has no effect."""
        return _Waves(self.count, self.length)
