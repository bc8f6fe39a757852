"""Servers: each holds a piece of the parameters and executes the commands of one of them, the coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.monitoring.activity import wait_until
from netspec.distributed.parameter_server.protocol import (
    COMMANDS,
    GRADIENTS,
    NEVER,
    PARAMETERS,
    REPLIES,
    TO_COORDINATOR,
    Command,
    WorkerRequest,
    command_record,
    reply_record,
    request_record,
)
from netspec.distributed.parameter_server.rules import Drop, Push, Rule, Update


class Shard(Protocol):
    """A server's piece of the parameters, as a flat array."""

    size: int
    dtype: str

    def read(self) -> Any:
        """Return a copy of the piece."""
        ...

    def update(self, gradient: Any, rates: Sequence[float], count: int) -> None:
        """Update the piece by a gradient; `count` is the number of the update, from 1."""
        ...

    def gather(self) -> None:
        """Take part in the collective call that gathers full states from pieces."""
        ...

    def assemble(self) -> None:
        """Take part in the collective call that assembles a checkpoint."""
        ...


class ServerLoop:
    """Base of all servers."""

    def __init__(self, group: Communicator, workers: int, shard: Shard, rates: int) -> None:
        """`group` is all ranks: the workers first, then the coordinator. `rates` is the number of scheduled values."""
        self._group, self._workers, self._shard, self._rates = group, workers, shard, rates
        self._gradients = [np.empty(shard.size, shard.dtype) for _ in range(workers)]
        self._receiving_gradients: dict[int, Pending] = {}
        self._sending: deque[Pending] = deque()
        self._copy: Any = None
        """Copy of the parameters that is sent to workers, until the parameters change."""
        self._ended = False

    def serve(self) -> None:
        """Serve until all workers are done."""
        while not self._ended:
            wait_until(self._poll, idle=True)
            while self._sending and self._sending[0].advance():
                self._sending.popleft()
        for pending in self._sending:
            pending.wait()

    def _poll(self) -> bool:
        """Handle the messages that have arrived; return whether there were any."""
        raise NotImplementedError  # subclasses implement it

    def _send(self, array: Any, to: int, tag: int) -> None:
        """Start to send an array that will not change anymore."""
        self._sending.append(self._group.start_send(array, to, tag))

    def _execute(self, command: Any) -> None:
        """Execute a command."""
        workers = [int(index) for index in np.flatnonzero(command["workers"])]
        match Command(int(command["command"])):
            case Command.RECEIVE:
                for worker in workers:
                    self._receiving_gradients[worker] = self._group.start_receive(
                        self._gradients[worker], worker, GRADIENTS
                    )
            case Command.UPDATE:
                self._shard.update(self._sum(workers, command["share"]), command["rates"], int(command["count"]))
                self._copy = None
            case Command.DROP:
                self._received(workers)
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

    def _received(self, workers: Sequence[int]) -> list[Any]:
        """Wait for the gradients of workers, which are already being received, and return them."""
        for worker in workers:
            self._receiving_gradients.pop(worker).wait()
        return [self._gradients[worker] for worker in workers]

    def _sum(self, workers: Sequence[int], share: float) -> Any:
        """Return the sum of the workers' gradients, in the order of ranks, times `share`."""
        total, *others = self._received(workers)
        for gradient in others:
            total += gradient
        total *= total.dtype.type(share)
        return total


class Follower(ServerLoop):
    """A server that follows the commands of the coordinator."""

    def __init__(self, group: Communicator, workers: int, shard: Shard, rates: int) -> None:
        super().__init__(group, workers, shard, rates)
        self._command = command_record(rates, workers)
        self._receiving = self._receive()

    def _receive(self) -> Pending:
        return self._group.start_receive(self._command, self._workers, COMMANDS)

    def _poll(self) -> bool:
        if not self._receiving.advance():
            return False
        self._execute(self._command[0])
        if not self._ended:
            self._receiving = self._receive()
        return True


class Coordinator(ServerLoop):
    """The server that receives the workers' requests, and decides by a rule."""

    def __init__(
        self, group: Communicator, workers: int, shard: Shard, rates: int, rule: Rule, step: int, fetch_every: int = 1
    ) -> None:
        """Workers begin with `step`, and ask to continue after steps that are multiples of `fetch_every`."""
        super().__init__(group, workers, shard, rates)
        self._rule, self._every = rule, fetch_every
        self._requests = [request_record(rates) for _ in range(workers)]
        self._receiving: list[Pending | None] = [self._receive(worker) for worker in range(workers)]
        self._waiting: dict[int, int] = {}
        """Workers that wait to continue, and the number of steps that they have done."""
        self._continued_at = [step] * workers
        """Steps at which the workers last continued."""
        self._stop = self._snapshot = NEVER
        self._failed = False
        """Whether a worker has failed."""
        self._losses = np.zeros((workers, 2))
        """For each worker, over the gradients used since it last continued: the sum of the losses of their samples, and
        the samples' weight. Sums over the whole run would round differently after a resume."""

    def _receive(self, worker: int) -> Pending:
        return self._group.start_receive(self._requests[worker], worker, TO_COORDINATOR)

    def _poll(self) -> bool:
        heard = False
        for worker, pending in enumerate(self._receiving):
            if pending is not None and pending.advance():
                heard, self._receiving[worker] = True, None
                self._handle(worker, self._requests[worker][0])
        if heard:
            self._release_workers()
        return heard

    def _handle(self, worker: int, request: Any) -> None:
        """Handle a worker's request, then start to receive its next one."""
        kind = WorkerRequest(int(request["request"]))
        match kind:
            case WorkerRequest.PUSH:
                self._command(Command.RECEIVE, [worker])
                self._receiving_gradients[worker].wait()
                rates = tuple(map(float, request["rates"]))
                push = Push(worker, int(request["step"]), float(request["weight"]), float(request["loss"]), rates)
                for decision in self._rule.decide(push):
                    self._apply(decision)
            case WorkerRequest.CONTINUE:
                self._waiting[worker] = int(request["step"])
                self._schedule(int(request["step"]), stop=bool(request["stop"]), snapshot=bool(request["snapshot"]))
            case WorkerRequest.FETCH:
                self._reply(worker, int(request["step"]))
            case WorkerRequest.GATHER:
                self._command(Command.GATHER)
            case WorkerRequest.ASSEMBLE:
                self._command(Command.ASSEMBLE)
            case WorkerRequest.FAIL:
                self._failed = True
            case WorkerRequest.LEAVE:
                if not any(self._receiving):
                    self._command(Command.END)
        if kind is not WorkerRequest.LEAVE:
            self._receiving[worker] = self._receive(worker)

    def _apply(self, decision: Update | Drop) -> None:
        if isinstance(decision, Drop):
            self._command(Command.DROP, [decision.push.worker])
            return
        for push in decision.pushes:
            self._losses += (push.loss * push.weight, push.weight)
        self._command(
            Command.UPDATE, [push.worker for push in decision.pushes], decision.share, decision.rates, decision.count
        )

    def _schedule(self, step: int, *, stop: bool, snapshot: bool) -> None:
        """Schedule a stop or a checkpoint at a step that all workers will reach after their next request."""
        soonest = max((granted // self._every + 1) * self._every for granted in self._continued_at)
        if stop and self._stop == NEVER:
            self._stop = soonest
        if snapshot and (self._snapshot == NEVER or step > self._snapshot):
            self._snapshot = soonest

    def _release_workers(self) -> None:
        for worker, finished in sorted(self._waiting.items()):
            step = self._rule.next_step(finished)
            if step is None and self._failed:  # the worker would wait forever
                step = NEVER
            if step is not None:
                del self._waiting[worker]
                self._continued_at[worker] = step
                self._reply(worker, step)
                self._losses[worker] = 0.0

    def _reply(self, worker: int, step: int) -> None:
        """Send a worker the step at which it continues, and the parameters."""
        record = reply_record()
        loss, weight = self._losses[worker]
        mean = loss / weight if weight else 0.0
        record[0] = (step, self._failed, self._stop, self._snapshot, mean, weight, self._rule.late)
        self._send(record, worker, REPLIES)
        self._command(Command.SEND, [worker])

    def _command(
        self,
        command: Command,
        workers: Sequence[int] = (),
        share: float = 0.0,
        rates: Sequence[float] = (),
        count: int = 0,
    ) -> None:
        """Send a command to the other servers, and execute it here."""
        record = command_record(self._rates, self._workers)
        record["command"], record["share"], record["count"] = command, share, count
        record["rates"] = rates or np.zeros(self._rates)
        record["workers"][0, list(workers)] = True
        for follower in range(self._workers + 1, self._group.size):
            self._send(record, follower, COMMANDS)
        self._execute(record[0])
