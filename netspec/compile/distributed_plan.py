"""`DistributedPlan`: how the compiler changes training steps that are distributed over several workers.

The base class stands for training in one process and changes nothing. `netspec.distributed.plans` has a subclass for
each strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from netspec.compile.purposes import ProcessRole

if TYPE_CHECKING:
    from netspec.compile.build import NetGraph
    from netspec.compile.compiler import Compiler
    from netspec.compile.training import Training
    from netspec.passes.base import Pass


class DistributedPlan:
    """Changes to the training steps of one process in a run with several workers."""

    workers: int = 1
    """Number of workers over whose samples each step averages."""
    role: ProcessRole = ProcessRole.ALL
    accumulates: ClassVar[bool] = False
    """True if gradients are summed in states and applied by a separate program, even with one batch per step."""
    splits_net: ClassVar[bool] = False
    """True if each worker computes only some layers of the net."""
    logs_steps: ClassVar[bool] = True
    """True if steps can compute the metrics of this worker's samples, and the norm of all gradients."""
    shared_roles: Sequence[str] = ()
    """Roles of the states in memory that all workers of a host share."""
    owners: Mapping[str, int] = MappingProxyType({})
    """Rank of the only worker that updates a state, by the state's name."""

    def prepare(self, training: Training, net_of: Callable[[int], NetGraph]) -> None:
        """Decide what depends on the net, before any graph of a training step is built.

        `net_of` builds the full net for a number of samples. Raises `SpecError` or `InputError` if the net can't be
        trained this way.
        """

    def global_batch(self, batch_size: int) -> int:
        """Return the usual number of samples on all workers; 0 if programs don't depend on it."""
        return 0

    def partition(self, net: NetGraph, batch_size: int, global_batch: int) -> NetGraph:
        """Return the part of the net that this worker computes in a training step."""
        return net

    def training(self, training: Training, encoding_stage: int | None) -> Training:
        """Return the builder of this worker's training steps, given the builder for a single worker.

        `encoding_stage` is the index of a stage of training; stages encode communication differently. None is the last
        one.
        """
        return training

    def passes(self) -> Sequence[Pass]:
        """Return the graph passes that only distributed training steps need."""
        return ()

    def add_states(self, compiler: Compiler) -> None:
        """Add states that are not in any program of a training step to `compiler.info` and `compiler.evaluated`."""
