"""What workers send each other in a step of a training, before there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netspec.cli.output import count, size, table
from netspec.cli.scaling import training_of
from netspec.compile import Compiler
from netspec.errors import InputError, counted, listing
from netspec.parallel import Communicator
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.messages import Message, hosts_of
from netspec.parallel.strategies.base import Strategy
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec
from netspec.train.crew import Crew
from netspec.train.fitting import check_workers
from netspec.train.sending import messages
from netspec.train.shards import messages_of_parts
from netspec.train.trainer import trainer


class Imagined(Communicator):
    """One of workers that there are not."""

    def __init__(self, size: int, per_host: int, rank: int = 0) -> None:
        super().__init__()
        self.size, self.rank, self._per_host = size, rank, per_host

    def hosts(self) -> list[int]:
        """Filled one after the other."""
        return [min(self._per_host, self.size - first) for first in range(0, self.size, self._per_host)]

    def split(self, color: int) -> Communicator:
        """A part of them, of which none says anything either."""
        return self


@dataclass(frozen=True)
class Sending:
    """What a strategy sends in a step."""

    strategy: str
    cluster: Cluster
    roles: dict[str, int]
    """How many of the workers are what."""
    messages: Sequence[Message]
    """In the order in which they are sent."""
    shared: int = 0
    """Bytes of the states that lie in memory which all workers share: each reads and writes them."""
    remark: str | None = None
    """What else is to be known of such a training."""

    def each(self, one: Message | None = None) -> dict[str, float]:
        """Bytes that each worker of a role sends in a step, by role: the mean, where they differ."""
        wanted = self.messages if one is None else [one]
        return {role: sum(one.sent(role) / one.every for one in wanted) / ranks for role, ranks in self.roles.items()}

    @property
    def total(self) -> float:
        """Bytes of all workers together."""
        return sum(one.sent(role) / one.every for one in self.messages for role in self.roles)

    @property
    def between_hosts(self) -> float:
        """Bytes of these that leave a host."""
        return sum(one.left() / one.every for one in self.messages)

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "strategy": self.strategy,
            "workers": self.cluster.ranks,
            "workers_per_host": self.cluster.on_host,
            "roles": self.roles,
            "sent_bytes": self.each(),
            "total_bytes": self.total,
            "between_hosts_bytes": self.between_hosts,
            "shared_bytes": self.shared,
            "remark": self.remark,
            "messages": [
                {
                    "name": one.name, "holds": list(one.holds), "bytes": one.nbytes, "times": one.times,
                    "every": one.every, "starts": one.starts, "sent_bytes": self.each(one),
                    "between_hosts_bytes": one.left() / one.every,
                }
                for one in self.messages
            ],
        }  # fmt: skip

    def show(self) -> None:
        """Print it."""
        self._show_messages()
        if self.shared:
            print(f"each worker reads and writes {size(self.shared)} of memory that all share")
        if self.remark is not None:
            print(self.remark)

    def _show_messages(self) -> None:
        hosts = self.cluster.hosts
        where = "one host" if hosts == 1 else f"{count(hosts)} hosts"
        who = " and ".join(counted(number, role) for role, number in self.roles.items())
        print(f"{self.strategy} on {who} of {where}: what a step sends\n")
        titles = [f"a {role} sends" for role in self.roles]
        rows = [
            [
                one.name, _listed(one.holds), *([_often(one)] if self._repeats else []), size(round(one.nbytes)),
                *(size(round(nbytes)) for nbytes in self.each(one).values()), size(round(one.left() / one.every)),
                _begin(one),
            ]
            for one in self.messages
        ]  # fmt: skip
        times = ["times"] * self._repeats
        whole = sum(one.times * one.nbytes / one.every for one in self.messages)
        last = ["in all", "", *([""] * len(times)), size(round(whole))]
        last += [*(size(round(nbytes)) for nbytes in self.each().values()), size(round(self.between_hosts)), ""]
        columns = ["message", "of", *times, "bytes", *titles, "between hosts", "starts"]
        table(columns, [*rows, last], right=range(2, len(columns) - 1))
        print(f"\nall together {size(round(self.total))} a step, {size(round(self.between_hosts))} of it between hosts")

    @property
    def _repeats(self) -> bool:
        return any((one.times, one.every) != (1, 1) for one in self.messages)


def _listed(names: Sequence[str]) -> str:
    return listing(names, 3) if names else ""


def _often(one: Message) -> str:
    """How often in a step: `3`, `1/8`."""
    return count(one.times) + (f"/{count(one.every)}" if one.every > 1 else "")


def _begin(one: Message) -> str:
    """When it is sent."""
    if one.starts is None:
        return "between steps"
    share = round(100 * one.starts)
    return "before backward" if share == 0 else "after backward" if share == 100 else f"{share} % of backward done"


def sending(
    spec: NetSpec | TrainSpec, workers: int, per_host: int | None, batch_size: int, device: str = "null"
) -> Sending:
    """What the training's strategy sends, all-reduce where none is named, of the step as it is compiled for a device.

    With so many workers a host; None: as many as the strategy wants, one where it can do with that. Raises `InputError`
    where the training can't be spread over so many workers, or over so many hosts.
    """
    check_spread(spec, workers, batch_size, one_host=per_host is None or per_host >= workers)
    if per_host is None:
        per_host = workers if crew_of(spec, Communicator()).strategy.one_host else 1
    crew, cluster = crew_of(spec, Imagined(workers, per_host)), hosts_of(workers, per_host)
    name, remark = crew.strategy.strategy, crew.strategy.remark(crew.hosts)
    if workers == 1:
        return Sending(name, cluster, {"worker": 1}, ())
    batches = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    rows = -(-batch_size // (crew.size if crew.strategy.splits_batches else 1))
    compiler, read = compiler_of(spec, device, crew), [(rows, batch_size)] * batches
    if crew.shards is None:
        found = messages(compiler, crew.strategy, cluster, read)
    else:
        found = messages_of_parts(compiler, crew.shards, cluster, read)
    shared = sum(kind.nbytes for kind in compiler.types(*crew.strategy.shared).values())
    return Sending(name, cluster, crew.strategy.roles(workers), found, shared, remark)


def check_spread(spec: NetSpec | TrainSpec, workers: int, batch_size: int, *, one_host: bool = True) -> None:
    """Raise `InputError` where a training can't be spread over so many workers, who are on one host or not."""
    if isinstance(spec, TrainSpec):
        check_workers(spec, workers, one_host=one_host)
    if parts_of_batch(spec, workers) > batch_size:
        raise InputError("a batch has fewer samples than there are workers", expected=f"--batch-size {workers} or more",
                         got=f"{batch_size}")  # fmt: skip


def parts_of_batch(spec: NetSpec | TrainSpec, workers: int) -> int:
    """How many workers share a batch."""
    return workers if crew_of(spec, Communicator()).strategy.splits_batches else 1


def crew_of(spec: NetSpec | TrainSpec, workers: Communicator) -> Crew:
    """Those who train as the file says; by all-reduce where it says nothing."""
    strategy = spec.parallel if isinstance(spec, TrainSpec) else None
    assert strategy is None or isinstance(strategy, Strategy)
    return Crew(workers, strategy)


def compiler_of(spec: NetSpec | TrainSpec, device: str, crew: Crew) -> Compiler:
    """That of one of several workers; a net is trained by SGD with momentum."""
    if isinstance(spec, TrainSpec):
        return trainer(spec, device, crew)
    return Compiler(spec, solver=training_of(spec), device=device, workers=crew.size)
