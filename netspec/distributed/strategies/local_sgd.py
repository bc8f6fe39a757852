"""Local SGD: workers train independently, and average their states every few steps."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from netspec.distributed.communicators.base import Communicator
from netspec.distributed.strategies.base import Replica, Sizes, Strategy, average
from netspec.schema.specs.kinds import STRATEGIES

if TYPE_CHECKING:
    from netspec.distributed.cost_model.comm_volume import CollectiveMessage
    from netspec.distributed.cost_model.networks import Cluster

AVERAGED = ("parameter", "statistic", "slot")
"""Roles of the states that are averaged."""


@STRATEGIES.register
class LocalSGD(Strategy):
    """Each worker takes `every` steps alone, then all continue from the average of their weights.

    Each worker uses the gradient of its part of the batch. States of the solver and of layers are averaged, too.
    Evaluations and checkpoints average first, and start a new round. Moritz et al. 2015, "SparkNet", arXiv:1511.06051;
    Stich 2019, "Local SGD converges fast and communicates little", arXiv:1805.09767.
    """

    strategy: Literal["local_sgd"] = "local_sgd"
    every: PositiveInt = 8
    """Steps between two averagings."""

    sums_gradients: ClassVar[bool] = False
    samples: ClassVar = ({}, {"every": 3})

    def messages(self, sizes: Sizes, cluster: Cluster, batches: int, rates: int) -> Iterator[CollectiveMessage]:
        """Yield the messages of a step, and the states that are averaged every `every` steps."""
        from netspec.distributed.cost_model.collectives import ring
        from netspec.distributed.cost_model.comm_volume import CollectiveMessage

        yield from super().messages(sizes, cluster, batches, rates)
        nbytes = sum(prod(shape) * itemsize for shape, itemsize in sizes.values())
        yield CollectiveMessage("states", tuple(sizes), nbytes, ring(nbytes, cluster), every=self.every)

    def after_step(self, step: int, group: Communicator, replica: Replica) -> None:
        """Average the states every `every` steps."""
        if self.synchronizes_at(step):
            self.before_view(group, replica)

    def before_view(self, group: Communicator, replica: Replica) -> None:
        """Average the states."""
        average(group, replica, *AVERAGED)
