"""A parameter server: some ranks hold the parameters, the others push gradients and fetch parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from netspec.distributed.communicators.base import Communicator
from netspec.distributed.parameter_server.rules import Asynchronous, BoundedStaleness, Rule, Synchronous
from netspec.distributed.strategies.base import Replica, Sizes, Strategy, average
from netspec.errors import Problem
from netspec.schema.specs.kinds import STRATEGIES

if TYPE_CHECKING:
    from netspec.distributed.cost_model.comm_volume import CollectiveMessage
    from netspec.distributed.cost_model.networks import Cluster

GRADIENT = "gradient"
Count = Annotated[int, Field(ge=0)]
MODE_OF_FIELD = {
    "backup_workers": "synchronous", "fetch_every": "asynchronous", "push_every": "asynchronous",
    "staleness": "stale_synchronous",
}  # fmt: skip
"""Fields that apply to a single mode, and that mode."""


@STRATEGIES.register
class ParameterServer(Strategy):
    """The last ranks are servers, which hold parts of the parameters and update them; the others are workers.

    Workers push gradients to the servers and fetch parameters from them. `synchronous`: a step is the mean over the
    samples of all gradients, except those of the slowest `backup_workers`, which are dropped. Chen et al. 2016,
    "Revisiting distributed synchronous SGD", arXiv:1604.00981. `asynchronous`: each gradient updates the parameters
    when it arrives, with its share of the learning rate, and nobody waits. Dean et al. 2012, "Large scale distributed
    deep networks". `stale_synchronous`: the same, but no worker starts a step while another one is more than
    `staleness` steps behind. Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter
    server"; Zhang et al. 2017, "Poseidon", arXiv:1706.03292.
    """

    strategy: Literal["parameter_server"] = "parameter_server"
    mode: Literal["synchronous", "asynchronous", "stale_synchronous"] = "synchronous"
    """Synchronization of workers: time at which gradients update the parameters, and workers that wait."""
    servers: PositiveInt | None = None
    """Number of ranks that are servers: the last ones; default: a quarter of them, at least one."""
    backup_workers: Count = 0
    """`synchronous`: number of gradients that a step does not wait for."""
    fetch_every: PositiveInt = 1
    """`asynchronous`: steps after which a worker fetches the parameters; in between it updates its copy by gradient
    descent."""
    push_every: PositiveInt = 1
    """`asynchronous`: steps whose gradients a worker accumulates before it pushes them."""
    staleness: Count = 1
    """`stale_synchronous`: number of steps that a worker may be ahead of the slowest one."""

    sent_roles: ClassVar[tuple[str, ...]] = (GRADIENT,)
    sums_gradients: ClassVar[bool] = False
    """The servers sum gradients, outside of the workers' graphs."""
    foreign_fields: ClassVar = {
        **Strategy.foreign_fields,
        "n_fetch": "use `fetch_every`",
        "n_push": "use `push_every`",
        "num_ps": "use `servers`",
        "ps_tasks": "use `servers`",
        "sync": "use `mode: synchronous`",
        "slack": "use `staleness`",
        "replicas_to_aggregate": "use `backup_workers`: how many of the workers a step does not wait for",
    }
    samples: ClassVar = (
        {},
        {"servers": 2, "backup_workers": 1},
        {"mode": "asynchronous", "fetch_every": 4, "push_every": 2},
        {"mode": "stale_synchronous", "staleness": 3},
    )

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield problems of fields that belong to another mode, and of dynamic loss scaling."""
        for field, mode in MODE_OF_FIELD.items():
            if mode != self.mode and getattr(self, field) != type(self).model_fields[field].default:
                yield Problem(
                    f"`{field}` has no effect with `mode: {self.mode}`",
                    self.where(field),
                    field,
                    expected=f"`mode: {mode}`",
                    got=self.mode,
                )
        scale = training.train.scaling
        if scale is not None and scale.growth_steps is not None:
            yield Problem(
                "a dynamic loss scale is not supported: workers do not know when servers skip a step",
                self.where("strategy"), "strategy", expected="a constant `loss_scale`",
                got="the default of `precision: float16`"
                if training.train.loss_scale is None else "`loss_scale: dynamic`",
            )  # fmt: skip

    def servers_among(self, ranks: int) -> int:
        """Return how many of `ranks` ranks are servers; a single rank trains without servers."""
        return 0 if ranks == 1 else self.servers or max(1, ranks // 4)

    def rank_problems(self, training: Any, ranks: int) -> Iterator[Problem]:
        """Yield a problem if there are too many servers or too many backup workers."""
        workers = ranks - self.servers_among(ranks)
        if ranks > 1 and workers < 1:
            yield Problem(
                "there are no ranks left for workers", self.where("servers"), "parallel.servers",
                expected=f"fewer than {ranks}, the number of ranks", got=str(self.servers),
            )  # fmt: skip
        elif ranks > 1 and self.backup_workers >= workers:
            yield Problem(
                "a step would not wait for any worker", self.where("backup_workers"), "parallel.backup_workers",
                expected=f"fewer than {workers}, the number of workers", got=str(self.backup_workers),
            )  # fmt: skip

    def roles(self, workers: int) -> dict[str, int]:
        """Return the numbers of workers and servers."""
        servers = self.servers_among(workers)
        return {"worker": workers - servers, "server": servers}

    def messages(self, sizes: Sizes, cluster: Cluster, batches: int, rates: int) -> Iterator[CollectiveMessage]:
        """Yield pushed gradients, fetched parameters, and their requests, replies and commands."""
        from netspec.distributed.cost_model.collectives import Exchange
        from netspec.distributed.cost_model.comm_volume import CollectiveMessage
        from netspec.distributed.cost_model.strategies import worker_server_exchange
        from netspec.distributed.parameter_server.protocol import command_record, reply_record, request_record

        names = tuple(name.removeprefix(f"{GRADIENT}/") for name in sizes)
        nbytes, roles = sum(prod(shape) * size for shape, size in sizes.values()), self.roles(cluster.ranks)
        for name, role, every in (("push", "worker", self.push_every), ("fetch", "server", self.fetch_every)):
            yield CollectiveMessage(
                name, names, nbytes, (worker_server_exchange(nbytes, role, roles, cluster),), every=every
            )
        workers, followers = roles["worker"], roles["server"] - 1

        def control(name: str, nbytes: int, role: str, number: float, every: int) -> CollectiveMessage:
            """Return `number` small messages that all ranks of a role send together."""
            leave = number if cluster.hosts > 1 else 0.0
            return CollectiveMessage(name, (), nbytes, (Exchange(1, nbytes, number, leave, role=role),), every=every)

        yield control("push requests", request_record(rates).nbytes, "worker", workers, self.push_every)
        yield control("continue requests", request_record(rates).nbytes, "worker", workers, self.fetch_every)
        yield control("replies", reply_record().nbytes, "server", workers, self.fetch_every)
        if followers:
            size, updates = command_record(rates, workers).nbytes, 1 if self.mode == "synchronous" else workers
            yield control("update commands", size, "server", followers * (workers + updates), self.push_every)
            yield control("send commands", size, "server", followers * workers, self.fetch_every)

    def before_view(self, group: Communicator, replica: Replica) -> None:
        """Average the moving statistics, which differ between workers."""
        average(group, replica, "statistic")

    @property
    def reproducible(self) -> bool:
        """Whether a step waits for the gradients of all workers."""
        return self.mode == "synchronous" and not self.backup_workers

    def remarks(self, hosts: Sequence[int]) -> Iterator[str]:
        """Yield remarks on learning rates and reproducibility."""
        remark = "training is not reproducible: each run computes different weights"
        if self.mode != "synchronous":
            yield "each gradient updates the parameters with its share of the learning rate"
            yield remark
        elif self.backup_workers:
            yield f"{remark}, since it depends on who is late"

    def rule(self, workers: int, step: int, rates: int) -> Rule:
        """Return the rule by which the servers decide, starting at `step`, counted from 0.

        The first `rates` of the scheduled values are learning rates.
        """
        updates = step * workers // self.push_every
        if self.mode == "synchronous":
            return Synchronous(workers, self.backup_workers, step)
        if self.mode == "asynchronous":
            return Asynchronous(updates, rates)
        return BoundedStaleness(workers, self.staleness, step, updates, rates)
