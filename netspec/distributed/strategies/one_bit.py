"""1-bit SGD: workers send the sign of each element of a gradient."""

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
    """Send one bit for each element of a gradient, and add the rounding error to the next gradient.

    Each worker sends the signs of its gradient, and two values for each output of a layer: the means of its positive
    and of its other elements. The error is added to the worker's next gradient, so nothing is lost. Every worker
    receives the messages of all others, so the bytes grow with the number of workers. Biases and small parameters are
    sent in full. Seide et al. 2014, "1-bit stochastic gradient descent and its application to data-parallel distributed
    training of speech DNNs", Interspeech.
    """

    strategy: Literal["one_bit"] = "one_bit"
    smallest: PositiveInt = SMALLEST
    """Gradients with fewer elements, and gradients of vectors, are sent in full."""

    warm_up_steps: NonNegativeInt = 0
    """Number of first steps that send gradients in full: gradients of an untrained net are large, and delaying them is
    harmful (Tang et al. 2021, "1-bit Adam", arXiv:2102.02888)."""

    foreign_fields: ClassVar = {
        **SynchronousStrategy.foreign_fields,
        "freeze_step": "use `warm_up_steps`",
        "start_powerSGD_iter": "use `warm_up_steps`",
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
