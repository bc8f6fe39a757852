"""Rules: when servers update the parameters, with which gradients, and when a worker may continue.

A rule receives each gradient as it arrives, and decides whether to apply or drop the gradients that have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Push:
    """A gradient that has arrived from a worker: a sum over the worker's samples."""

    worker: int
    step: int
    """Step, from 0, whose parameters it was computed with; the last one if it sums gradients of several steps."""
    weight: float
    """Number of its samples, in nominal batches of all workers."""
    loss: float
    """Mean loss of its samples."""
    rates: tuple[float, ...]
    """The scheduled values of the step: learning rates, then momenta."""


@dataclass(frozen=True)
class Update:
    """Decision to update the parameters with the sum of some gradients, times `share`."""

    pushes: Sequence[Push]
    share: float
    rates: tuple[float, ...]
    count: int
    """Number of the update, from 1."""


@dataclass(frozen=True)
class Drop:
    """Decision to drop a gradient."""

    push: Push


class Rule:
    """Base of the rules."""

    late: int = 0
    """Number of gradients that arrived too late."""

    def decide(self, push: Push) -> Sequence[Update | Drop]:
        """Return the decisions, in order, now that this gradient has arrived."""
        raise NotImplementedError  # subclasses implement it

    def next_step(self, step: int) -> int | None:
        """Return the step, from 0, with which a worker continues after `step` steps; None while it must wait."""
        raise NotImplementedError  # subclasses implement it


class Synchronous(Rule):
    """A step uses the mean, over samples, of the first gradients to arrive; later gradients are dropped.

    Chen et al. 2016, "Revisiting distributed synchronous SGD", arXiv:1604.00981, algorithms 3 and 4.
    """

    def __init__(self, workers: int, backup_workers: int, step: int) -> None:
        self._workers, self._needed, self._step = workers, workers - backup_workers, step
        self._received: list[Push] = []

    def decide(self, push: Push) -> Sequence[Update | Drop]:
        """Wait for enough gradients, at least one of which has samples: at the end of an epoch, some have none."""
        if push.step < self._step:
            self.late += 1
            return [Drop(push)]
        self._received.append(push)
        weight = sum(push.weight for push in self._received)
        if len(self._received) < (self._needed if weight else self._workers):
            return []
        pushes = sorted(self._received, key=lambda push: push.worker)
        self._step, self._received = self._step + 1, []
        return [Update(pushes, 1 / weight, push.rates, self._step)] if weight else list(map(Drop, pushes))

    def next_step(self, step: int) -> int | None:
        """Continue with the newest step: a late worker skips the steps that were done without it."""
        return self._step if self._step >= step else None


class Asynchronous(Rule):
    """Each gradient updates the parameters when it arrives, at its share of the learning rate; nobody waits.

    Dean et al. 2012, "Large scale distributed deep networks", section 4.1: Downpour SGD.
    """

    def __init__(self, updates: int, rates: int) -> None:
        """The first `rates` of the scheduled values are learning rates."""
        self._updates, self._rates = updates, rates

    def decide(self, push: Push) -> Sequence[Update | Drop]:
        """Use the gradient."""
        if not push.weight:
            return [Drop(push)]
        self._updates += 1
        parts = (rate * push.weight for rate in push.rates[: self._rates])
        rates = (*parts, *push.rates[self._rates :])
        return [Update([push], 1 / push.weight, rates, self._updates)]

    def next_step(self, step: int) -> int | None:
        """Continue at once."""
        return step


class BoundedStaleness(Asynchronous):
    """Asynchronous, but no worker begins a step while another one is more than `staleness` steps behind.

    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server", section 3.
    """

    def __init__(self, workers: int, staleness: int, step: int, updates: int, rates: int) -> None:
        super().__init__(updates, rates)
        self._staleness, self._done = staleness, [step] * workers

    def decide(self, push: Push) -> Sequence[Update | Drop]:
        """Use the gradient, and count the worker's steps."""
        self._done[push.worker] = push.step + 1
        return super().decide(push)

    def next_step(self, step: int) -> int | None:
        """Continue once the slowest worker has done enough steps."""
        return step if min(self._done) >= step - self._staleness else None
