"""A server: it holds a piece of the parameters, and does in turn what the coordinator orders, which is one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.monitoring.activity import wait_until
from netspec.distributed.parameter_server.protocol import (
    ANSWERS,
    GRADIENTS,
    NEVER,
    ORDERS,
    PARAMETERS,
    TO_COORDINATOR,
    Command,
    WorkerRequest,
    command_record,
    reply_record,
    request_record,
)
from netspec.distributed.parameter_server.rules import Drop, Push, Rule, Update


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
    """Base of all servers."""

    def __init__(self, group: Communicator, workers: int, shard: Shard, rates: int) -> None:
        """`group` is all ranks: the workers first, then the coordinator. `rates` is the number of scheduled values."""
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
        match Command(int(told["act"])):
            case Command.RECEIVE:
                for worker in workers:
                    self._arriving[worker] = self._group.start_receive(self._gradients[worker], worker, GRADIENTS)
            case Command.UPDATE:
                self._shard.move(self._sum(workers, told["share"]), told["rates"], int(told["count"]))
                self._copy = None
            case Command.DROP:
                self._arrived(workers)
            case Command.SEND:
                self._copy = self._shard.read() if self._copy is None else self._copy
                for worker in workers:
                    self._send(self._copy, worker, PARAMETERS)
            case Command.GATHER:
                self._shard.gather()
            case Command.ASSEMBLE:
                self._shard.assemble()
            case Command.END:
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
    """A server that follows the commands of the coordinator."""

    def __init__(self, group: Communicator, workers: int, shard: Shard, rates: int) -> None:
        super().__init__(group, workers, shard, rates)
        self._order = command_record(rates, workers)
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
        self._letters = [request_record(rates) for _ in range(workers)]
        self._told: list[Pending | None] = [self._next(worker) for worker in range(workers)]
        self._asking: dict[int, int] = {}
        """Workers that wait to go on, and how many steps they have done."""
        self._granted = [step] * workers
        """The steps with which the workers went on last."""
        self._stop = self._snapshot = NEVER
        self._failed = False
        """Whether a worker has failed."""
        self._losses = np.zeros((workers, 2))
        """For each worker, over the gradients used since it last continued: the sum of the losses of their samples, and
        the samples' weight. Sums over the whole run would round differently after a resume."""

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
        wish = WorkerRequest(int(told["wish"]))
        match wish:
            case WorkerRequest.PUSH:
                self._order(Command.RECEIVE, [worker])
                self._arriving[worker].wait()
                rates = tuple(map(float, told["rates"]))
                push = Push(worker, int(told["step"]), float(told["weight"]), float(told["loss"]), rates)
                for one in self._rule.take(push):
                    self._decide(one)
            case WorkerRequest.GO_ON:
                self._asking[worker] = int(told["step"])
                self._plan(int(told["step"]), stop=bool(told["stop"]), snapshot=bool(told["snapshot"]))
            case WorkerRequest.LOOK:
                self._answer(worker, int(told["step"]))
            case WorkerRequest.GATHER:
                self._order(Command.GATHER)
            case WorkerRequest.ASSEMBLE:
                self._order(Command.ASSEMBLE)
            case WorkerRequest.FAIL:
                self._failed = True
            case WorkerRequest.LEAVE:
                if not any(self._told):
                    self._order(Command.END)
        if wish is not WorkerRequest.LEAVE:
            self._told[worker] = self._next(worker)

    def _decide(self, one: Update | Drop) -> None:
        if isinstance(one, Drop):
            self._order(Command.DROP, [one.push.worker])
            return
        for push in one.pushes:
            self._losses += (push.loss * push.weight, push.weight)
        self._order(Command.UPDATE, [push.worker for push in one.pushes], one.share, one.rates, one.count)

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
                self._losses[worker] = 0.0

    def _answer(self, worker: int, step: int) -> None:
        """Send a worker the step at which it continues, and the parameters."""
        told = reply_record()
        loss, weight = self._losses[worker]
        mean = loss / weight if weight else 0.0
        told[0] = (step, self._failed, self._stop, self._snapshot, mean, weight, self._rule.late)
        self._send(told, worker, ANSWERS)
        self._order(Command.SEND, [worker])

    def _order(
        self, act: Command, workers: Sequence[int] = (), share: float = 0.0, rates: Sequence[float] = (), count: int = 0
    ) -> None:
        """Have all servers do something, this one at once."""
        told = command_record(self._rates, self._workers)
        told["act"], told["share"], told["count"] = act, share, count
        told["rates"] = rates or np.zeros(self._rates)
        told["workers"][0, list(workers)] = True
        for follower in range(self._workers + 1, self._group.size):
            self._send(told, follower, ORDERS)
        self._do(told[0])
