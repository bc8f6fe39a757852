"""`Strategy`: base of the strategies that `parallel:` accepts, with the interface that training uses."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias

from pydantic import Field

from netspec.errors import Problem
from netspec.schema.specs.spec import Spec

if TYPE_CHECKING:
    from netspec.distributed.communicators.base import Communicator
    from netspec.distributed.cost_model.comm_volume import CollectiveMessage
    from netspec.distributed.cost_model.networks import Cluster


from netspec.distributed.communicators.base import Communicator
from netspec.graph.ops.all_reduce import CommEncoding
from netspec.schema.specs.field_types import Bytes

Sizes: TypeAlias = dict[str, tuple[tuple[int, ...], int]]
"""Shape and bytes per element of states, by name."""


MAX_WAIT = 86400.0
"""Largest accepted wait for another worker, in seconds."""


class Replica(Protocol):
    """The states of one worker, by name, as NumPy arrays."""

    def names(self, *roles: str) -> list[str]:
        """Return the states with one of these roles: `parameter`, `statistic`, `slot`, …"""
        ...

    def read(self, name: str) -> Any:
        """Return a copy of a state."""
        ...

    def write(self, name: str, array: Any) -> None:
        """Set a state."""
        ...


class Strategy(Spec):
    """Base of the strategies by which several workers train one net."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "type": "use `strategy`",
        "workers": "the number of workers is an option of the command line: `netspec train … --workers 4`",
        "num_workers": "the number of workers is an option of the command line: `netspec train … --workers 4`",
        "world_size": "the number of workers is an option of the command line: `netspec train … --workers 4`",
        "backend": "not needed: CPU workers communicate through MPI, GPU workers also through NCCL",
        "bucket_cap_mb": "`bucket_cap_mb` is PyTorch's name: use `bucket`, such as `25MB`",
    }
    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Small configurations for the registry-wide tests."""

    strategy: str
    """Strategy by which workers train together."""
    heartbeat: Annotated[float, Field(ge=3, le=MAX_WAIT)] = 20.0
    """Seconds without an answer after which a worker counts as failed (it was stopped, or its host is down), and the
    training ends."""
    stall: Annotated[float, Field(ge=1, le=MAX_WAIT)] = 600.0
    """Seconds that workers wait for a worker that answers but does not reach the operation that they wait for, before
    the training ends."""

    per_worker_roles: ClassVar[tuple[str, ...]] = ("residual",)
    """Roles of the states that differ between workers even in an evaluation or a checkpoint."""

    sent_roles: ClassVar[tuple[str, ...]] = ("parameter", "statistic", "slot", "center")
    """Roles of the states that the strategy may send between steps."""

    splits_batches: ClassVar[bool] = True
    """Whether each worker reads a part of every batch; otherwise each worker reads all of it."""

    sums_gradients: ClassVar[bool] = True
    """Whether every step follows the mean of all workers' gradients."""

    has_center: ClassVar[bool] = False
    """Whether there is a `center/NAME` for each parameter and moving statistic, which is evaluated in its place."""

    shared_roles: ClassVar[tuple[str, ...]] = ()
    """Roles of the states that are stored in memory shared by all workers of a host."""

    one_host: ClassVar[bool] = False
    """Whether all workers must be on one host."""

    host_only: ClassVar[str | None] = None
    """Reason why its workers can't compute on GPUs; None if they can."""

    divides_learning_rate: ClassVar[bool] = False
    """Whether the updates of all p workers add up, so that each uses 1/p of the learning rate."""

    @property
    def stages(self) -> tuple[int, ...]:
        """First steps, from 0, of the stages between which the encoding of gradients changes."""
        return (0,)

    def stage(self, step: int) -> int | None:
        """Return the index of the stage that a step belongs to; None for the last stage."""
        index = bisect(self.stages, step) - 1
        return None if index == len(self.stages) - 1 else index

    def servers_among(self, ranks: int) -> int:
        """Return how many of `ranks` ranks, the last ones, are parameter servers."""
        return 0

    def rank_problems(self, training: Any, ranks: int) -> Iterator[Problem]:
        """Yield the problems that prevent the strategy from running on `ranks` ranks."""
        yield from ()

    @property
    def period(self) -> int:
        """Number of steps from one synchronization of all workers to the next: the field `every`, if there is one."""
        return int(getattr(self, "every", 1))

    def synchronizes_at(self, step: int) -> bool:
        """Return whether all workers wait for each other at this step, counted from 1."""
        return step % self.period == 0

    def messages(self, sizes: Sizes, cluster: Cluster, batches: int, rates: int) -> Iterator[CollectiveMessage]:
        """Yield the messages that workers send outside of their programs, for states of these shapes and element sizes.

        The step has `batches` batches and `rates` scheduled values.
        """
        from netspec.distributed.cost_model.comm_volume import stop_vote

        yield stop_vote(cluster, batches, self.period)

    @property
    def reproducible(self) -> bool:
        """Whether repeated training yields the same weights."""
        return True

    def roles(self, workers: int) -> dict[str, int]:
        """Return the number of ranks by role."""
        return {"worker": workers}

    def after_step(self, step: int, group: Communicator, replica: Replica) -> None:
        """Communicate after a step, counted from 1."""

    def before_view(self, group: Communicator, replica: Replica) -> None:
        """Bring all workers to the same state before an evaluation or a checkpoint."""

    def after_view(self, group: Communicator) -> None:
        """Run after an evaluation or a checkpoint, before any worker continues."""

    def remarks(self, hosts: Sequence[int]) -> Iterator[str]:
        """Yield remarks for the user; `hosts` holds the number of workers of each host."""
        workers = sum(hosts)
        if self.divides_learning_rate:
            yield f"each of {workers} workers updates the weights with 1/{workers} of the learning rate"
        if len(self.stages) > 1:
            yield f"more data is sent in the first {self.stages[-1]:,} steps, to warm up"
        if not self.reproducible:
            yield "training is not reproducible: each run computes different weights"

    def remark(self, hosts: Sequence[int]) -> str | None:
        """Return the remarks in one line; None if there are none."""
        text = "; ".join(self.remarks(hosts))
        return f"{self.strategy}: {text}" if text else None


def average(group: Communicator, replica: Replica, *roles: str) -> None:
    """Average the floating-point states with one of these roles over all workers."""
    for name in replica.names(*roles):
        array = replica.read(name)
        if array.dtype.kind == "f":
            group.all_reduce(array)
            array /= array.dtype.type(group.size)
            replica.write(name, array)


class SynchronousStrategy(Strategy):
    """Base of the strategies that sum the gradients of all workers in every step, in buckets."""

    bucket: Bytes = 4 << 20
    """Bytes of gradients that are sent together: smaller buckets overlap more, larger ones need fewer calls."""
    first_bucket: Bytes = 256 << 10
    """Bytes of the first bucket, which is small so that communication starts early."""

    def comm_encoding(self, shape: tuple[int, ...], stage: int | None = None) -> CommEncoding:
        """Return the encoding of a gradient of this shape in a stage, by default the last one."""
        return CommEncoding()
