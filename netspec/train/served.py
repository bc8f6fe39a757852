"""A training whose parameters are on servers: what a worker pushes and fetches, and what a server moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import LEARNING_RATE, STEP, Compiler, Purpose, rate_inputs
from netspec.parallel import Communicator
from netspec.parallel.activity import at_work
from netspec.parallel.base import Broken
from netspec.parallel.servers.client import Client
from netspec.parallel.servers.server import Coordinator, Follower, Server
from netspec.parallel.strategies.base import Strategy
from netspec.parallel.strategies.parameter_server import ParameterServer
from netspec.parallel.world import acting_as
from netspec.train.wholes import Wholes

if TYPE_CHECKING:
    from netspec.layers.states import Piece
    from netspec.train.interrupt import Signals


def rate_names(compiler: Compiler) -> list[str]:
    """The inputs of an update that are learning rates, in an order that is the same on all ranks."""
    assert compiler.solver is not None
    return list(rate_inputs(compiler.solver))


def pieces_of(compiler: Compiler, rank: int) -> dict[str, Piece]:
    """What a rank has of the trained parameters, in the order in which it lies in a message."""
    assert compiler.division is not None
    found = {name: piece.at(rank) for name, piece in compiler.division.pieces.items()}
    return {name: piece for name, piece in found.items() if not piece.is_empty}


def laid_out(pieces: Mapping[str, Piece]) -> Iterator[tuple[str, Piece, slice]]:
    """Names, pieces, and where each lies."""
    at = 0
    for name, piece in pieces.items():
        count = piece.stop - piece.start
        yield name, piece, slice(at, at + count)
        at += count


def size_of(pieces: Mapping[str, Piece]) -> int:
    """How many numbers they are."""
    return sum(piece.stop - piece.start for piece in pieces.values())


class Connection:
    """What a worker does with the servers."""

    def __init__(
        self, everyone: Communicator, workers: Communicator, strategy: ParameterServer, compiler: Compiler, step: int
    ) -> None:
        """`workers` are those of `everyone` that are no servers; they begin with `step`."""
        self._workers, self._strategy, self._compiler = workers, strategy, compiler
        self._rates, self._loss_scale = rate_names(compiler), _scale(compiler)
        first = workers.size
        self._pieces = [pieces_of(compiler, rank) for rank in range(first, everyone.size)]
        sizes, dtype = [size_of(one) for one in self._pieces], str(compiler.dtype)
        self._client = Client(everyone, first, sizes, dtype, len(self._rates))
        self._client.step = step
        self._sum = [np.zeros(size, dtype) for size in sizes]
        """Of the gradients that are not pushed yet, by servers; of so many nominal batches, and their mean loss."""
        self._weight = self._loss = 0.0
        self._given: tuple[float, ...] = ()
        """The learning rates of the last step."""
        self.signals: Signals | None = None

    @property
    def step(self) -> int:
        """The step, from 0, with which this worker goes on."""
        return self._client.step

    @property
    def late(self) -> int:
        """Gradients of all workers that came too late."""
        return self._client.late

    @property
    def may_be_late(self) -> bool:
        """Whether there is such a thing."""
        return bool(self._strategy.backup_workers)

    def stops(self, step: int) -> bool:
        """Whether all stop after so many steps. Raises `Broken` where a worker has failed."""
        if self._client.failed:
            raise Broken
        return self._client.stop <= step

    def snapshots(self, step: int) -> bool:
        """Whether all meet for a checkpoint after so many steps."""
        return self._client.snapshot == step

    def done(self, step: int, weight: float, loss: float, rates: Mapping[str, float]) -> float:
        """Give away the gradients of a step, from 0, and go on with what comes back; the loss, as the servers know it.

        `weight` is what the samples of this worker count, in nominal batches, and `loss` their mean loss.
        """
        self._add(weight, loss)
        self._given = tuple(float(rates[name]) for name in self._rates)
        strategy = self._strategy
        if (step + 1) % strategy.push_every == 0:
            self._push(step)
        if (step + 1) % strategy.fetch_every:
            self._descend(self._given[self._rates.index(LEARNING_RATE)])
            return loss
        signals = self.signals
        stop, snapshot = signals is not None and signals.stop is not None, signals is not None and signals.snapshot
        self._take(self._client.go_on(step + 1, stop=stop, snapshot=snapshot))
        return loss if self._client.loss is None else self._client.loss

    def look(self) -> None:
        """Fetch the parameters when all workers have come here, and all that they had to push is pushed."""
        if self._strategy.mode != "synchronous":
            if self._weight:
                self._push(self._client.step)
            self._client.look()  # what was pushed before it has arrived then
            self._workers.barrier()
        self._take(self._client.look())
        self._workers.barrier()

    def gather(self) -> None:
        """Have the servers take part when all gather the wholes of pieces."""
        if self._workers.is_first:
            self._client.gather()

    def assemble(self) -> None:
        """Have the servers take part when the first worker is given all that a checkpoint holds."""
        if self._workers.is_first:
            self._client.assemble()

    def fail(self) -> None:
        """Have the servers let all workers go that wait for one that has failed."""
        self._client.fail()

    def leave(self) -> None:
        """Say that this worker is done."""
        self._client.leave()

    def _add(self, weight: float, loss: float) -> None:
        states = self._compiler.states
        for total, pieces in zip(self._sum, self._pieces, strict=True):
            for name, piece, place in laid_out(pieces):
                mine = piece.of(states[f"gradient/{name}"]).reshape(-1)
                total[place] = total[place] + mine if self._weight else mine
        self._loss = (self._loss * self._weight + loss * weight) / (self._weight + weight or 1.0)
        self._weight += weight

    def _push(self, step: int) -> None:
        self._client.push(self._sum, step, self._weight, self._loss, self._given)
        self._weight = self._loss = 0.0

    def _take(self, parts: Sequence[Any]) -> None:
        """Make what the servers have this worker's parameters."""
        assert self._compiler.division is not None
        found = [
            {name: part[place] for name, _, place in laid_out(pieces)}
            for part, pieces in zip(parts, self._pieces, strict=True)
        ]
        for name, piece in self._compiler.division.pieces.items():
            whole = np.concatenate([one[name] for one in found if name in one])
            self._compiler.states.assign(name, whole.reshape(piece.shape))

    def _descend(self, rate: float) -> None:
        """Move this worker's parameters by its gradient of the step (Dean et al. 2012, algorithm 7.1)."""
        assert self._compiler.division is not None
        states = self._compiler.states
        for name in self._compiler.division.pieces:
            old = states[name]
            factor = rate * self._compiler.info[name].learning_rate_multiplier / self._loss_scale
            states.assign(name, old - old.dtype.type(factor) * states[f"gradient/{name}"])


def _scale(compiler: Compiler) -> float:
    """What gradients are multiplied by."""
    scaling = compiler.loop.scaling if compiler.loop is not None else None
    return 1.0 if scaling is None else scaling.initial


class Pieces:
    """What a server has of the parameters."""

    def __init__(self, servers: Communicator, compiler: Compiler, wholes: Wholes) -> None:
        """What the update sums up is summed up over the `servers`."""
        self._compiler, self._wholes, self._rates = compiler, wholes, rate_names(compiler)
        assert compiler.division is not None
        self._pieces = {name: compiler.division.pieces[name] for name in compiler.division.own()}
        self.size, self.dtype = size_of(self._pieces), str(compiler.dtype)
        with acting_as(servers):
            self._program = compiler.program(Purpose.UPDATE, 1)

    def read(self) -> Any:
        """A copy, in one row."""
        states = self._compiler.states
        return np.concatenate([np.zeros(0, self.dtype), *(states[name].reshape(-1) for name in self._pieces)])

    def move(self, gradient: Any, rates: Sequence[float], count: int) -> None:
        """Move them by a gradient in one row, as the solver does in its `count`-th update."""
        at_work(count, "updating")
        for name, piece, place in laid_out(self._pieces):
            self._compiler.states.assign(f"gradient/{name}", gradient[place].reshape(piece.part))
        given = {name: np.array(rate) for name, rate in zip(self._rates, rates, strict=True)}
        self._program.write({**given, STEP: np.array(float(count))})
        self._program.run()

    def gather(self) -> None:
        """Give the workers their part of what is evaluated."""
        self._wholes.gather()

    def assemble(self) -> None:
        """Give the first worker its part of a checkpoint."""
        self._wholes.assembled()


def connection(
    everyone: Communicator, workers: Communicator, strategy: Strategy, compiler: Compiler, step: int
) -> Connection:
    """That of this worker with the servers; `workers` are those of `everyone` who begin with `step`."""
    assert isinstance(strategy, ParameterServer)
    return Connection(everyone, workers, strategy, compiler, step)


def server(
    everyone: Communicator, servers: Communicator, strategy: Strategy, compiler: Compiler, wholes: Wholes, step: int
) -> Server:
    """The server that this rank is; the workers, who are those of `everyone` beside `servers`, begin with `step`."""
    assert isinstance(strategy, ParameterServer)
    workers, pieces, rates = everyone.size - servers.size, Pieces(servers, compiler, wholes), len(rate_names(compiler))
    if not servers.is_first:
        return Follower(everyone, workers, pieces, rates)
    rule = strategy.rule(workers, step)
    return Coordinator(everyone, workers, pieces, rates, rule, step, strategy.fetch_every)
