"""Hogwild: workers of one host train the same weights, in memory that they share, and nobody waits for a lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from netspec.errors import Problem
from netspec.parallel.base import Communicator
from netspec.parallel.strategies.averaging import average
from netspec.parallel.strategies.base import Replica, Strategy
from netspec.schema.kinds import STRATEGIES


@STRATEGIES.register
class Hogwild(Strategy):
    """All workers move the same weights, which lie in memory that they share: each when it is ready, without locks.

    Each follows the gradient of its part of the batch, at a p-th of the learning rate: the p updates of a step move the
    weights as far as that of the whole batch would. What another worker writes in the meantime may be read in part, and
    a number that two write at once keeps what one of them wrote. So no two trainings are alike, not even with the same
    seed. What the solver and the layers remember each worker has of its own; it is averaged where all meet for an
    evaluation or a checkpoint, during which nobody writes. All workers must be on one host. Niu, Recht, Ré, Wright
    2011, "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent", arXiv:1106.5730.
    """

    strategy: Literal["hogwild"] = "hogwild"
    every: PositiveInt = 16
    """steps after which workers wait for each other: none is further ahead; and so soon all hear of a wish to stop"""

    shared: ClassVar[tuple[str, ...]] = ("parameter",)
    one_host: ClassVar[bool] = True
    host_only: ClassVar = "its workers write to one memory, which GPUs do not share"
    adds_up: ClassVar[bool] = True
    repeatable: ClassVar[bool] = False
    foreign_fields: ClassVar = {
        **Strategy.foreign_fields,
        "staleness": "here it is `every`: no worker is so many steps ahead of another",
        "max_staleness": "here it is `every`: no worker is so many steps ahead of another",
        "num_processes": Strategy.foreign_fields["num_workers"],
    }
    samples: ClassVar = ({}, {"every": 3})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """A solver that makes the weights of others, which it keeps, would undo what other workers do."""
        solvers = [training.solver, *(one.solver for one in training.solver.groups if one.solver is not None)]
        for one in solvers:
            if one.averages:
                yield Problem(
                    f"{one.type} makes the weights anew from others that each worker has of its own", self.where(),
                    "parallel", expected="a solver that adds to the weights, such as SGD or AdamW", got=one.type,
                    hint="strategies that sum the gradients of every step take any solver",
                )  # fmt: skip

    @property
    def sums_gradients(self) -> bool:
        """Each worker follows its own."""
        return False

    @property
    def period(self) -> int:
        """After so many steps they wait for each other."""
        return self.every

    def before_looking(self, group: Communicator, replica: Replica) -> None:
        """Wait until nobody writes, and average what each has of its own."""
        group.barrier()
        average(group, replica, "statistic", "slot")

    def after_looking(self, group: Communicator) -> None:
        """Go on together, so that nobody writes while another one looks."""
        group.barrier()
