"""`Strategy`: what the members of `parallel:` have in common, and what a training asks of them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias

from pydantic import Field

from netspec.errors import Problem
from netspec.schema.spec import Spec

if TYPE_CHECKING:
    from netspec.parallel.base import Communicator
    from netspec.parallel.costs.networks import Cluster
    from netspec.parallel.messages import Message

Sizes: TypeAlias = dict[str, tuple[tuple[int, ...], int]]
"""Shapes of states, and bytes an element, by name."""


LONGEST = 86400.0
"""Seconds of the longest wait for another worker."""


class Replica(Protocol):
    """What one worker has of a training: its states, by name, as NumPy arrays."""

    def names(self, *roles: str) -> list[str]:
        """The states with one of these roles: `parameter`, `statistic`, `slot`, …"""
        ...

    def read(self, name: str) -> Any:
        """A copy of a state."""
        ...

    def write(self, name: str, array: Any) -> None:
        """Give a state a value."""
        ...


class Strategy(Spec):
    """Base of the ways in which several workers train one net."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "type": "here it is `strategy`",
        "workers": "how many they are is said when they are started: `netspec train … --workers 4`",
        "num_workers": "how many they are is said when they are started: `netspec train … --workers 4`",
        "world_size": "how many they are is said when they are started: `netspec train … --workers 4`",
        "backend": "not needed: workers of the processor speak by MPI, those of GPUs by NCCL too",
        "bucket_cap_mb": "`bucket_cap_mb` is PyTorch's name: here it is `bucket`, such as `25MB`",
    }
    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Small configurations for the registry-wide tests."""

    strategy: str
    """how the workers train together"""
    heartbeat: Annotated[float, Field(ge=3, le=LONGEST)] = 20.0
    """seconds after which a worker that no longer answers (it was stopped, or its host is gone) is given up, and the
    training ends"""
    stall: Annotated[float, Field(ge=1, le=LONGEST)] = 600.0
    """seconds that workers wait for one that answers, and does nothing that they wait for, before the training ends"""

    own: ClassVar[tuple[str, ...]] = ("residual",)
    """Roles of the states of which each worker has values of its own, where all find a common state otherwise."""

    sends: ClassVar[tuple[str, ...]] = ("parameter", "statistic", "slot", "center")
    """Roles of the states that it may send between steps."""

    splits_batches: ClassVar[bool] = True
    """Whether each worker has a part of every batch, where each reads all of it otherwise."""

    has_center: ClassVar[bool] = False
    """Whether there is a `center/NAME` for each parameter and moving statistic, which is evaluated in its place."""

    shared: ClassVar[tuple[str, ...]] = ()
    """Roles of the states that lie in memory which all workers of a host have in common."""

    one_host: ClassVar[bool] = False
    """Whether all workers must be on one host."""

    host_only: ClassVar[str | None] = None
    """Why its workers can't compute on GPUs, where they can't: what they send each other that no GPU does."""

    adds_up: ClassVar[bool] = False
    """Whether the updates of all workers add up, so that each makes its own at a p-th of the learning rate."""

    repeatable: ClassVar[bool] = True
    """Whether the same training finds the same weights again."""

    @property
    def sums_gradients(self) -> bool:
        """Whether every step follows the mean of all workers' gradients."""
        return True

    @property
    def stages(self) -> tuple[int, ...]:
        """Steps from which on workers send in another form than before; the first step is 0."""
        return (0,)

    def stage(self, step: int) -> int | None:
        """The number of the stage that a step is of; None for the last one, which is as all others where all agree."""
        found = bisect(self.stages, step) - 1
        return None if found == len(self.stages) - 1 else found

    def servers_among(self, ranks: int) -> int:
        """How many of so many ranks, the last ones, do not train, but move the parameters that others train."""
        return 0

    def misfits(self, training: Any, ranks: int) -> Iterator[Problem]:
        """What keeps the strategy from so many ranks."""
        yield from ()

    @property
    def period(self) -> int:
        """Of so many steps workers wait for each other at the last one."""
        return 1

    def meets(self, step: int) -> bool:
        """Whether all workers wait for each other at this step, the first being 1."""
        return step % self.period == 0

    def messages(self, sizes: Sizes, cluster: Cluster, batches: int, rates: int) -> Iterator[Message]:
        """What workers send beside what their programs do, for states of these shapes and bytes an element.

        Of a step of so many batches, in a training with so many learning rates.
        """
        from netspec.parallel.messages import wish_to_stop

        yield wish_to_stop(cluster, batches, self.period)

    def roles(self, workers: int) -> dict[str, int]:
        """How many of the workers are what, where not all do the same."""
        return {"worker": workers}

    def after_step(self, step: int, group: Communicator, replica: Replica) -> None:
        """What the workers do after each step, the first being 1."""

    def before_looking(self, group: Communicator, replica: Replica) -> None:
        """What they do before an evaluation or a checkpoint, which are those of all: both find one state on all."""

    def after_looking(self, group: Communicator) -> None:
        """What they do after it, before anybody goes on."""

    def remarks(self, hosts: Sequence[int]) -> Iterator[str]:
        """What is to be known of a training on hosts with so many workers each that its figures do not show."""
        workers = sum(hosts)
        if self.adds_up:
            yield f"each of {workers} workers moves the weights at 1/{workers} of the learning rate"
        if len(self.stages) > 1:
            yield f"more is sent in the first {self.stages[-1]:,} steps, to warm up"
        if not self.repeatable:
            yield "the same training finds other weights each time"

    def remark(self, hosts: Sequence[int]) -> str | None:
        """The same in one line."""
        told = "; ".join(self.remarks(hosts))
        return f"{self.strategy}: {told}" if told else None
