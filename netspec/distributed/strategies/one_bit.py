"""1-bit SGD: of each number of a gradient its sign is sent."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from netspec.distributed.communicators.encodings import SMALLEST, should_compress
from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.graph.ops.all_reduce import CommEncoding
from netspec.graph.ops.gradient_compression import OneBitQuantize
from netspec.schema.specs.kinds import STRATEGIES


@STRATEGIES.register
class OneBit(SynchronousStrategy):
    """Send a bit for each number of a gradient, and keep what that leaves out for the next step.

    Each worker sends the signs of its gradient, and two numbers for each output of a layer: the means of what is
    positive there and of what is not. What that misses is added to its next gradient, so that nothing is lost. Every
    worker gets what all have, and adds it up: what is sent grows with their number. Biases and small parameters are
    sent as they are. Seide et al. 2014, "1-bit stochastic gradient descent and its application to data-parallel
    distributed training of speech DNNs", Interspeech.
    """

    strategy: Literal["one_bit"] = "one_bit"
    smallest: PositiveInt = SMALLEST
    """gradients with fewer elements, and those of vectors, are sent as they are"""

    warm_up_steps: NonNegativeInt = 0
    """number of first steps that send gradients in full: gradients of an untrained net are large, and harm when delayed
    (Tang et al. 2021, "1-bit Adam", arXiv:2102.02888)"""

    foreign_fields: ClassVar = {
        **SynchronousStrategy.foreign_fields,
        "freeze_step": "here it is `warm_up_steps`",
        "start_powerSGD_iter": "here it is `warm_up_steps`",
    }
    samples: ClassVar = ({}, {"smallest": 1, "bucket": "1MB"}, {"warm_up_steps": 100})

    @property
    def stages(self) -> tuple[int, ...]:
        """Return the first stage, unencoded, and the second, one-bit."""
        return (0, self.warm_up_steps) if self.warm_up_steps else (0,)

    def comm_encoding(self, shape: tuple[int, ...], stage: int | None = None) -> CommEncoding:
        """Send large gradients in one bit per element, but unencoded before the last stage."""
        return (
            CommEncoding("one_bit", OneBitQuantize())
            if stage is None and should_compress(shape, self.smallest)
            else CommEncoding()
        )
