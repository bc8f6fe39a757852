"""A loss that layers of the net compute."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.losses_and_metrics import ElementLosses, LossSpec
from netspec.schema.specs.kinds import LOSSES


@LOSSES.register
class ValueLoss(LossSpec):
    """Mean of a value that the net computes: for losses that are not in the catalogue.

    `from` names a single value (N, …), which is averaged over all elements, or reduced as `reduction` says.
    """

    compares = False

    type: Literal["Value"] = "Value"

    samples: ClassVar = (
        Sample.of((4, 3)),
        Sample.of((4,), weight=(4,), reduction="mean_with_sample_weight"),
        Sample.of((4, 1), reduction="sum"),
    )

    def build(self, builder: Builder, value: Value) -> Value:
        """value: (N, …) → scalar."""
        return self.reduce(builder, ElementLosses.per_feature(builder.floating(value)))
