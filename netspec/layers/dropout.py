"""Dropout: random zeros in training."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import GreaterOrEqual, Where, elementwise
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.schema.kinds import LAYERS


def dropped(net: Builder, x: Value, rate: float) -> Value:
    """In training `x` with a share `rate` of its numbers set to 0 and the others scaled up; else `x` itself."""
    if not net.training or rate == 0:
        return x
    kept = elementwise(GreaterOrEqual(), net.uniform(x.shape), rate)
    return elementwise(Where(), kept, x * (1 / (1 - rate)), 0.0)


@LAYERS.register
class Dropout(LayerSpec):
    """In training, set each number to 0 with probability `rate`, and scale the others by 1 / (1 - rate).

    Input (N, …), output the same; in inference nothing changes. The zeros depend on the run's seed, the step, the
    layer's name and the place of the number in the global batch, and on nothing else. Srivastava et al. 2014, JMLR 15.
    """

    type: Literal["Dropout"] = "Dropout"
    rate: float = Field(ge=0, lt=1)
    """share of the numbers that become 0"""

    passes_mask: ClassVar = True
    samples: ClassVar = (Sample.of((4, 3, 5), rate=0.5), Sample.of((4, 6), rate=0.2), Sample.of((2, 3), rate=0.0))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        return dropped(net, net.floating(x), self.rate)
