"""A server: it holds a piece of the parameters, and does in turn what the coordinator orders, which is one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from netspec.parallel.base import Communicator, Pending
from netspec.parallel.servers.letters import (
    ANSWERS,
    GRADIENTS,
    NEVER,
    ORDERS,
    PARAMETERS,
    TO_COORDINATOR,
    Act,
    Wish,
    answer,
    letter,
    order,
)
from netspec.parallel.servers.rules import Drop, Push, Rule, Update
from netspec.parallel.waiting import wait_until


class Shard(Protocol):
    """The piece of the parameters that a server has, in one row."""

    size: int
    dtype: str

    def read(self) -> Any:
        """A copy of it."""
        ...

    def move(self, gradient: Any, rates: Sequence[float], count: int) -> None:
        """Move it by a gradient; `count` is the number of the update, from 1."""
        ...

    def gather(self) -> None:
        """Take its part in the collective call that gathers wholes of pieces of states."""
        ...

    def assemble(self) -> None:
        """Take its part in the collective call that assembles what a checkpoint holds."""
        ...


class Server:
    """What all servers do."""

    def __init__(self, group: Communicator, workers: int, shard: Shard, rates: int) -> None:
        """`group` is all ranks, the workers first, and then the coordinator; there are so many learning rates."""
        self._group, self._workers, self._shard, self._rates = group, workers, shard, rates
        self._gradients = [np.empty(shard.size, shard.dtype) for _ in range(workers)]
        self._arriving: dict[int, Pending] = {}
        self._sending: deque[Pending] = deque()
        self._copy: Any = None
        """The parameters as they are sent to workers, until they change."""
        self._ended = False

    def serve(self) -> None:
        """Until all workers are done."""
        while not self._ended:
            wait_until(self._turn, idle=True)
            while self._sending and self._sending[0].advance():
                self._sending.popleft()
        for one in self._sending:
            one.wait()

    def _turn(self) -> bool:
        """Do what there is to do; whether there was anything."""
        raise NotImplementedError  # abstract: subclasses say

    def _send(self, array: Any, to: int, tag: int) -> None:
        """Send an array that nobody changes any more."""
        self._sending.append(self._group.start_send(array, to, tag))

    def _do(self, told: Any) -> None:
        """What an order says."""
        workers = [int(one) for one in np.flatnonzero(told["workers"])]
        match Act(int(told["act"])):
            case Act.RECEIVE:
                for worker in workers:
                    self._arriving[worker] = self._group.start_receive(self._gradients[worker], worker, GRADIENTS)
            case Act.UPDATE:
                self._shard.move(self._sum(workers, told["share"]), told["rates"], int(told["count"]))
                self._copy = None
            case Act.DROP:
                self._arrived(workers)
            case Act.SEND:
                self._copy = self._shard.read() if self._copy is None else self._copy
                for worker in workers:
                    self._send(self._copy, worker, PARAMETERS)
            case Act.GATHER:
                self._shard.gather()
            case Act.ASSEMBLE:
                self._shard.assemble()
            case Act.END:
                self._ended = True

    def _arrived(self, workers: Sequence[int]) -> list[Any]:
        """The gradients of workers, when they are there: they are on their way."""
        for worker in workers:
            self._arriving.pop(worker).wait()
        return [self._gradients[worker] for worker in workers]

    def _sum(self, workers: Sequence[int], share: float) -> Any:
        """Of their gradients, in the order of ranks, times `share`."""
        total, *others = self._arrived(workers)
        for one in others:
            total += one
        total *= total.dtype.type(share)
        return total


class Follower(Server):
    """A server beside the coordinator."""

    def __init__(self, group: Communicator, workers: int, shard: Shard, rates: int) -> None:
        super().__init__(group, workers, shard, rates)
        self._order = order(rates, workers)
        self._told = self._next()

    def _next(self) -> Pending:
        return self._group.start_receive(self._order, self._workers, ORDERS)

    def _turn(self) -> bool:
        if not self._told.advance():
            return False
        self._do(self._order[0])
        if not self._ended:
            self._told = self._next()
        return True


class Coordinator(Server):
    """The server that the workers ask, and that decides by a rule."""

    def __init__(
        self, group: Communicator, workers: int, shard: Shard, rates: int, rule: Rule, step: int, fetch_every: int = 1
    ) -> None:
        """Workers begin with `step`, and ask to go on after steps that are multiples of `fetch_every`."""
        super().__init__(group, workers, shard, rates)
        self._rule, self._every = rule, fetch_every
        self._letters = [letter(rates) for _ in range(workers)]
        self._told: list[Pending | None] = [self._next(worker) for worker in range(workers)]
        self._asking: dict[int, int] = {}
        """Workers that wait to go on, and how many steps they have done."""
        self._granted = [step] * workers
        """The steps with which the workers went on last."""
        self._stop = self._snapshot = NEVER
        self._failed = False
        """Whether a worker has failed."""
        self._losses, self._seen = np.zeros(2), np.zeros((workers, 2))
        """Of all gradients that were used: the sum of the losses of their samples, and what these count; as it was when
        each worker last went on."""

    def _next(self, worker: int) -> Pending:
        return self._group.start_receive(self._letters[worker], worker, TO_COORDINATOR)

    def _turn(self) -> bool:
        heard = False
        for worker, told in enumerate(self._told):
            if told is not None and told.advance():
                heard, self._told[worker] = True, None
                self._take(worker, self._letters[worker][0])
        if heard:
            self._let_go_on()
        return heard

    def _take(self, worker: int, told: Any) -> None:
        """What a worker wishes; then the next letter of it may come."""
        wish = Wish(int(told["wish"]))
        match wish:
            case Wish.PUSH:
                self._order(Act.RECEIVE, [worker])
                self._arriving[worker].wait()
                rates = tuple(map(float, told["rates"]))
                push = Push(worker, int(told["step"]), float(told["weight"]), float(told["loss"]), rates)
                for one in self._rule.take(push):
                    self._decide(one)
            case Wish.GO_ON:
                self._asking[worker] = int(told["step"])
                self._plan(int(told["step"]), stop=bool(told["stop"]), snapshot=bool(told["snapshot"]))
            case Wish.LOOK:
                self._answer(worker, int(told["step"]))
            case Wish.GATHER:
                self._order(Act.GATHER)
            case Wish.ASSEMBLE:
                self._order(Act.ASSEMBLE)
            case Wish.FAIL:
                self._failed = True
            case Wish.LEAVE:
                if not any(self._told):
                    self._order(Act.END)
        if wish is not Wish.LEAVE:
            self._told[worker] = self._next(worker)

    def _decide(self, one: Update | Drop) -> None:
        if isinstance(one, Drop):
            self._order(Act.DROP, [one.push.worker])
            return
        for push in one.pushes:
            self._losses += (push.loss * push.weight, push.weight)
        self._order(Act.UPDATE, [push.worker for push in one.pushes], one.share, one.rates, one.count)

    def _plan(self, step: int, *, stop: bool, snapshot: bool) -> None:
        """Find a step that all workers come to, and ask before, for what they are to do together."""
        soonest = max((granted // self._every + 1) * self._every for granted in self._granted)
        if stop and self._stop == NEVER:
            self._stop = soonest
        if snapshot and (self._snapshot == NEVER or step > self._snapshot):
            self._snapshot = soonest

    def _let_go_on(self) -> None:
        for worker, done in sorted(self._asking.items()):
            step = self._rule.goes_on_at(done)
            if step is None and self._failed:  # it would wait for ever
                step = NEVER
            if step is not None:
                del self._asking[worker]
                self._granted[worker] = step
                self._answer(worker, step)
                self._seen[worker] = self._losses

    def _answer(self, worker: int, step: int) -> None:
        """Tell a worker where it goes on, and send it the parameters."""
        told = answer()
        loss, weight = self._losses - self._seen[worker]
        mean = loss / weight if weight else 0.0
        told[0] = (step, self._failed, self._stop, self._snapshot, mean, weight, self._rule.late)
        self._send(told, worker, ANSWERS)
        self._order(Act.SEND, [worker])

    def _order(
        self, act: Act, workers: Sequence[int] = (), share: float = 0.0, rates: Sequence[float] = (), count: int = 0
    ) -> None:
        """Have all servers do something, this one at once."""
        told = order(self._rates, self._workers)
        told["act"], told["share"], told["count"] = act, share, count
        told["rates"] = rates or np.zeros(self._rates)
        told["workers"][0, list(workers)] = True
        for follower in range(self._workers + 1, self._group.size):
            self._send(told, follower, ORDERS)
        self._do(told[0])
