"""Hogwild: workers of one host train the same weights, in shared memory, without locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from netspec.distributed.communicators.base import Communicator
from netspec.distributed.strategies.base import Replica, Strategy, average
from netspec.errors import Problem
from netspec.schema.specs.kinds import STRATEGIES


@STRATEGIES.register
class Hogwild(Strategy):
    """All workers update the same weights in shared memory, each when it is ready, without locks.

    Each worker uses the gradient of its part of the batch, at 1/p of the learning rate on p workers: the p updates of a
    step move the weights as far as one update with the full batch. A worker may read an update of another worker in
    part, and an element that two workers write at once keeps the value of one of them. So no two trainings are
    identical, even with the same seed. Each worker has its own solver states and statistics; they are averaged for an
    evaluation or a checkpoint, while no worker writes. All workers must be on one host. Niu, Recht, Ré, Wright
    2011, "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent", arXiv:1106.5730.
    """

    strategy: Literal["hogwild"] = "hogwild"
    every: PositiveInt = 16
    """Steps after which workers wait for each other, which limits how far one is ahead; requests to stop are exchanged
    then, too."""

    shared_roles: ClassVar[tuple[str, ...]] = ("parameter",)
    one_host: ClassVar[bool] = True
    sums_gradients: ClassVar[bool] = False
    host_only: ClassVar = "its workers share CPU memory"
    divides_learning_rate: ClassVar[bool] = True
    foreign_fields: ClassVar = {
        **Strategy.foreign_fields,
        "staleness": "use `every`: no worker is that many steps ahead of another",
        "max_staleness": "use `every`: no worker is that many steps ahead of another",
        "num_processes": Strategy.foreign_fields["num_workers"],
    }
    samples: ClassVar = ({}, {"every": 3})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Reject solvers that recompute the weights from their own states: they would undo updates of other workers."""
        solvers = [training.solver, *(group.solver for group in training.solver.groups if group.solver is not None)]
        for solver in solvers:
            if solver.averages:
                yield Problem(
                    f"{solver.type} computes the weights from other states, which workers do not share", self.where(),
                    "parallel", expected="a solver that updates the weights in place, such as SGD or AdamW",
                    got=solver.type,
                    hint="strategies that sum the gradients of each step support all solvers",
                )  # fmt: skip

    @property
    def reproducible(self) -> bool:
        """Return False: which update is lost depends on the speed of the workers."""
        return False

    def before_view(self, group: Communicator, replica: Replica) -> None:
        """Wait until no worker writes, then average the states that are not shared."""
        group.barrier()
        average(group, replica, "statistic", "slot")

    def after_view(self, group: Communicator) -> None:
        """Wait for all workers, so that none writes while another one reads."""
        group.barrier()
