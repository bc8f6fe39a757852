"""Layers that pass on what they get: Identity and ActivityRegularization."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.regularizers import L1L2
from netspec.schema.kinds import LAYERS


@LAYERS.register
class Identity(LayerSpec):
    """Pass on what comes in: a place to read from, or to put another layer later.

    Input (N, …), output the same.
    """

    type: Literal["Identity"] = "Identity"

    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3)),
        Sample.of((2, 3), activity_regularizer={"type": "L2", "l2": 0.3}),
        Sample.of((2, 3, 2), dtypes=("int32",)),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → the same."""
        return x


@LAYERS.register
class ActivityRegularization(LayerSpec):
    """Add a penalty on what passes through to the loss: l1 · Σ|x| + l2 · Σx², divided by the number of samples.

    Input (N, …), output the same.
    """

    type: Literal["ActivityRegularization"] = "ActivityRegularization"
    l1: float = Field(default=0.0, ge=0)
    """factor of the absolute values"""
    l2: float = Field(default=0.0, ge=0)
    """factor of the squares"""

    passes_mask: ClassVar = True
    samples: ClassVar = (Sample.of((2, 3), l1=0.3), Sample.of((3, 2, 2), l1=0.1, l2=0.2))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → the same."""
        net.penalize_activity(L1L2(l1=self.l1, l2=self.l2), x)
        return x
