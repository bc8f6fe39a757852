"""Rules: when servers move the parameters, by whose gradients, and when a worker may go on.

A rule is told of each gradient as it arrives, and says what is to be done about those that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Push:
    """A gradient of a worker that has arrived: a sum over its samples."""

    worker: int
    step: int
    """The step, from 0, whose parameters it was computed with; of those of several steps the last."""
    weight: float
    """How many samples it is of, in nominal batches of all workers."""
    loss: float
    """Their mean loss."""
    rates: tuple[float, ...]
    """The learning rates of the step."""


@dataclass(frozen=True)
class Update:
    """The parameters are to be moved by the sum of gradients times `share`."""

    pushes: Sequence[Push]
    share: float
    rates: tuple[float, ...]
    count: int
    """The number of the update, from 1."""


@dataclass(frozen=True)
class Drop:
    """A gradient is not to be used."""

    push: Push


class Rule:
    """Base of the rules."""

    late: int = 0
    """Gradients that came too late."""

    def take(self, push: Push) -> Sequence[Update | Drop]:
        """What is to be done now that this gradient has arrived, in this order."""
        raise NotImplementedError  # abstract: subclasses say

    def goes_on_at(self, step: int) -> int | None:
        """The step, from 0, with which a worker goes on who has done so many; None while it has to wait."""
        raise NotImplementedError  # abstract: subclasses say


class FirstOfAll(Rule):
    """A step is the mean over the samples of the first gradients; those that come after it has been made are dropped.

    Chen et al. 2016, "Revisiting distributed synchronous SGD", arXiv:1604.00981, algorithms 3 and 4.
    """

    def __init__(self, workers: int, backup_workers: int, step: int) -> None:
        self._workers, self._needed, self._step = workers, workers - backup_workers, step
        self._arrived: list[Push] = []

    def take(self, push: Push) -> Sequence[Update | Drop]:
        """Wait for enough of them. Without any sample, as may be at the end of an epoch, for one with some."""
        if push.step < self._step:
            self.late += 1
            return [Drop(push)]
        self._arrived.append(push)
        weight = sum(one.weight for one in self._arrived)
        if len(self._arrived) < (self._needed if weight else self._workers):
            return []
        found = sorted(self._arrived, key=lambda one: one.worker)
        self._step, self._arrived = self._step + 1, []
        return [Update(found, 1 / weight, push.rates, self._step)] if weight else list(map(Drop, found))

    def goes_on_at(self, step: int) -> int | None:
        """With the newest step: who is late passes over those that were made without it."""
        return self._step if self._step >= step else None


class EachAtOnce(Rule):
    """Each gradient moves the parameters when it arrives, by its part of the learning rate; nobody waits.

    Dean et al. 2012, "Large scale distributed deep networks", section 4.1: Downpour SGD.
    """

    def __init__(self, updates: int) -> None:
        self._updates = updates

    def take(self, push: Push) -> Sequence[Update | Drop]:
        """Use it."""
        if not push.weight:
            return [Drop(push)]
        self._updates += 1
        rates = tuple(rate * push.weight for rate in push.rates)
        return [Update([push], 1 / push.weight, rates, self._updates)]

    def goes_on_at(self, step: int) -> int | None:
        """At once."""
        return step


class Bounded(EachAtOnce):
    """As each gradient at once, but no worker begins a step while another one is more than `staleness` steps behind.

    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server", section 3.
    """

    def __init__(self, workers: int, staleness: int, step: int, updates: int) -> None:
        super().__init__(updates)
        self._staleness, self._done = staleness, [step] * workers

    def take(self, push: Push) -> Sequence[Update | Drop]:
        """Use it, and count the worker's steps."""
        self._done[push.worker] = push.step + 1
        return super().take(push)

    def goes_on_at(self, step: int) -> int | None:
        """Where the slowest has done enough."""
        return step if min(self._done) >= step - self._staleness else None
