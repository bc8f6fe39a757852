"""Top-k compression: workers send the largest elements of gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from netspec.distributed.communicators.encodings import SMALLEST, TOP_K, TopKEncoding, should_compress
from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.errors import Problem
from netspec.graph.ops.all_reduce import CommEncoding
from netspec.graph.ops.gradient_compression import TopKSparsify
from netspec.schema.specs.kinds import STRATEGIES


@STRATEGIES.register
class TopK(SynchronousStrategy):
    """Send the largest elements of each gradient with their indices, and keep the others for the next step.

    Small elements are accumulated until they are large, so nothing is lost. Every worker receives the messages of all
    others, so the bytes grow with the number of workers. Biases and small parameters are sent in full. Aji and Heafield
    2017, "Sparse communication for distributed gradient descent", arXiv:1704.05021; Lin et al. 2018, "Deep gradient
    compression", arXiv:1712.01887.
    """

    strategy: Literal["top_k"] = "top_k"
    density: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share of the elements of a gradient that are sent; at least one element of each gradient is sent."""
    smallest: PositiveInt = SMALLEST
    """Gradients with fewer elements, and gradients of vectors, are sent in full."""

    warm_up_steps: NonNegativeInt = 0
    """Number of first steps that send more: a quarter of the elements, then a quarter of that, and so on down to
    `density`."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum that each worker accumulates before it selects elements, in place of the solver's, which must be 0.
    Elements that were sent lose their velocity ("momentum correction")."""

    foreign_fields: ClassVar = {
        **SynchronousStrategy.foreign_fields,
        "k": "use `density`, the share of the elements that are sent",
        "ratio": "use `density`",
        "sparsity": "use `density`, the share of the elements that are sent: 1 − sparsity",
        "compress_ratio": "use `density`",
        "warmup_epochs": "use `warm_up_steps`, a number of steps",
    }
    samples: ClassVar = (
        {},
        {"density": 0.1, "smallest": 1},
        {"warm_up_steps": 40, "momentum": 0.9},
    )

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield a problem if both the workers and the solver use momentum."""
        solver_momentum = getattr(training.solver, "momentum", None)
        if self.momentum and solver_momentum != 0:
            yield Problem(
                "`momentum` cannot be set both here and in the solver", self.where("momentum"),
                "momentum", expected="a solver without momentum, such as `{type: SGD}`",
                got=" with momentum ".join([training.solver.type, *_shown(solver_momentum)]),
            )  # fmt: skip

    @property
    def _densities(self) -> tuple[float, ...]:
        """Density of each stage: a quarter of the one before."""
        if not self.warm_up_steps:
            return (self.density,)
        return (*takewhile(lambda density: density > self.density, (0.25**n for n in count(1))), self.density)

    @property
    def stages(self) -> tuple[int, ...]:
        """Return warm-up stages of equal length, and the last stage."""
        before = len(self._densities) - 1
        return (0, *(self.warm_up_steps * n // before for n in range(1, before + 1))) if before else (0,)

    def comm_encoding(self, shape: tuple[int, ...], stage: int | None = None) -> CommEncoding:
        """Send the largest elements of large gradients."""
        if not should_compress(shape, self.smallest):
            return CommEncoding(momentum=self.momentum)
        density = self._densities[-1 if stage is None else stage]
        return CommEncoding(f"{TOP_K}{density!r}", TopKSparsify(TopKEncoding(density).count(shape)), self.momentum)


def _shown(momentum: Any) -> Iterator[str]:
    """Yield the momentum of a solver, if it has one: a number, or the type of its schedule."""
    if momentum is not None:
        yield f"{momentum:g}" if isinstance(momentum, float) else momentum.type
