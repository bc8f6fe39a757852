"""Elastic averaging: workers train independently, and are pulled towards a common center that follows them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from netspec.distributed.communicators.base import Communicator
from netspec.distributed.communicators.encodings import IN_FULL
from netspec.distributed.strategies.base import Replica, Sizes, Strategy
from netspec.schema.specs.kinds import STRATEGIES

if TYPE_CHECKING:
    from netspec.distributed.cost_model.comm_volume import CollectiveMessage
    from netspec.distributed.cost_model.networks import Cluster

CENTER = "center"


@STRATEGIES.register
class ElasticAveraging(Strategy):
    """Each worker trains its own weights; every few steps these and a common center move towards each other.

    Each worker uses the gradient of its part of the batch. With center x̃, weights x of a worker and p workers, x
    becomes x - α (x - x̃), and x̃ becomes x̃ + α Σ (x - x̃), where α = `beta` / p. The center is evaluated, exported
    and saved as the weights, even if the solver computes averages; the center of moving statistics is the mean over
    workers. Checkpoints contain the states of all workers. Zhang, Choromanska, LeCun 2015, "Deep learning with elastic
    averaging SGD", arXiv:1412.6651: the synchronous form.
    """

    strategy: Literal["elastic_averaging"] = "elastic_averaging"
    every: PositiveInt = 8
    """Steps between two updates of the center."""
    beta: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the distance to the workers' mean that the center moves."""

    per_worker_roles: ClassVar[tuple[str, ...]] = ("parameter", "statistic", "slot")
    sent_roles: ClassVar[tuple[str, ...]] = (CENTER,)
    has_center: ClassVar[bool] = True
    sums_gradients: ClassVar[bool] = False
    foreign_fields: ClassVar = {
        **Strategy.foreign_fields,
        "alpha": "use `beta`, the number of workers times alpha",
        "rho": "use `beta`: the learning rate times `rho` times the number of workers",
        "tau": "use `every`",
        "communication_period": "use `every`",
    }
    samples: ClassVar = ({}, {"every": 3, "beta": 0.5})

    def messages(self, sizes: Sizes, cluster: Cluster, batches: int, rates: int) -> Iterator[CollectiveMessage]:
        """Yield the messages of a step, and the differences from the center that are sent every `every` steps."""
        from netspec.distributed.cost_model.comm_volume import CollectiveMessage, compressed_exchanges

        yield from super().messages(sizes, cluster, batches, rates)
        nbytes = sum(prod(shape) * itemsize for shape, itemsize in sizes.values())
        sent = compressed_exchanges(nbytes, IN_FULL, next(itemsize for _, itemsize in sizes.values()), cluster)
        yield CollectiveMessage("differences", tuple(sizes), nbytes, sent, every=self.every)

    def after_step(self, step: int, group: Communicator, replica: Replica) -> None:
        """Move the workers and the center towards each other every `every` steps."""
        if not self.synchronizes_at(step):
            return
        from netspec.distributed.communicators.compressed_allreduce import compressed_all_reduce

        centers = {name.removeprefix(f"{CENTER}/"): replica.read(name) for name in replica.names(CENTER)}
        differences = {name: replica.read(name) - center for name, center in centers.items()}
        total: dict[str, Any] = {name: difference.copy() for name, difference in differences.items()}
        compressed_all_reduce(group, IN_FULL, list(total.values())).start().wait()
        moved = set(replica.names("parameter"))
        for name, center in centers.items():
            rate = center.dtype.type((self.beta if name in moved else 1.0) / group.size)
            replica.write(f"{CENTER}/{name}", center + rate * total[name])
            if name in moved:
                replica.write(name, replica.read(name) - rate * differences[name])
