"""Training with a parameter server: the workers' pushes and fetches, and the servers' updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.process_group import PeerFailure
from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind, is_rate, scheduled_inputs
from netspec.distributed import Communicator
from netspec.distributed.monitoring.activity import report_activity
from netspec.distributed.parameter_server.client import Client
from netspec.distributed.parameter_server.server import Coordinator, Follower, ServerLoop
from netspec.distributed.partitioning.optimizer_sharding import OptimizerSharding
from netspec.distributed.plans import ParameterServerPlan
from netspec.distributed.sharded_states import ShardedStates
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.strategies.parameter_server import ParameterServer
from netspec.distributed.world import acting_as
from netspec.training.diagnostics.call_record import CallRecord
from netspec.training.stepper import PartialStep, Stepper

if TYPE_CHECKING:
    from netspec.data.batches import Batch
    from netspec.data.loader import Loader
    from netspec.layers.states import ShardSpec
    from netspec.schema.specs.train import TrainSpec
    from netspec.training.signals import Signals


def scheduled_names(compiler: Compiler) -> list[str]:
    """Return the scheduled inputs of an update, learning rates first, in the same order on all ranks."""
    assert compiler.solver is not None
    return list(scheduled_inputs(compiler.solver))


def server_sharding(compiler: Compiler) -> OptimizerSharding:
    """Return which server updates which pieces of the parameters."""
    plan = compiler.distribution
    assert isinstance(plan, ParameterServerPlan)
    return plan.sharding


def pieces_of(compiler: Compiler, rank: int) -> dict[str, ShardSpec]:
    """Return the pieces of the trained parameters that a rank holds, in the order of messages."""
    pieces = {name: piece.for_rank(rank) for name, piece in server_sharding(compiler).pieces.items()}
    return {name: piece for name, piece in pieces.items() if not piece.is_empty}


def message_slices(pieces: Mapping[str, ShardSpec]) -> Iterator[tuple[str, ShardSpec, slice]]:
    """Yield each piece with its name and its slice of a message."""
    at = 0
    for name, piece in pieces.items():
        count = piece.stop - piece.start
        yield name, piece, slice(at, at + count)
        at += count


def element_count(pieces: Mapping[str, ShardSpec]) -> int:
    """Return the total number of elements of pieces."""
    return sum(piece.stop - piece.start for piece in pieces.values())


class ServerConnection:
    """Connects a worker to the servers: pushes gradients and fetches parameters."""

    def __init__(
        self, world_group: Communicator, workers: Communicator, strategy: ParameterServer, compiler: Compiler, step: int
    ) -> None:
        """`workers` are the ranks of `world_group` that are not servers; they begin with `step`."""
        self._workers, self._strategy, self._compiler = workers, strategy, compiler
        self._rates, self._loss_scale = scheduled_names(compiler), _scale(compiler)
        first = workers.size
        self._pieces = [pieces_of(compiler, rank) for rank in range(first, world_group.size)]
        sizes, dtype = [element_count(piece) for piece in self._pieces], str(compiler.dtype)
        self._client = Client(world_group, first, sizes, dtype, len(self._rates))
        self._client.step = step
        self._sum = [np.zeros(size, dtype) for size in sizes]
        """Sums of the gradients not pushed yet, one array per server."""
        self._weight = self._loss = 0.0
        self._scheduled: tuple[float, ...] = ()
        """The scheduled values of the last step."""
        self.signals: Signals | None = None

    @property
    def step(self) -> int:
        """Step, from 0, with which this worker continues."""
        return self._client.step

    @property
    def late(self) -> int:
        """Number of gradients, of all workers, that arrived too late."""
        return self._client.late

    @property
    def may_be_late(self) -> bool:
        """Whether gradients can arrive too late: only with backup workers."""
        return bool(self._strategy.backup_workers)

    def stops(self, step: int) -> bool:
        """Return whether all workers stop after `step` steps. Raises `PeerFailure` if a worker has failed."""
        if self._client.failed:
            raise PeerFailure
        return self._client.stop <= step

    def snapshots(self, step: int) -> bool:
        """Return whether all workers write a checkpoint after `step` steps."""
        return self._client.snapshot == step

    def done(self, step: int, weight: float, loss: float, rates: Mapping[str, float]) -> float:
        """Push the gradients of a step, counted from 0, and fetch parameters; return the loss that the servers report.

        `weight` is the weight of this worker's samples, in nominal batches, and `loss` their mean loss.
        """
        self._add(weight, loss)
        self._scheduled = tuple(float(rates[name]) for name in self._rates)
        strategy = self._strategy
        if (step + 1) % strategy.push_every == 0:
            self._push(step)
        if (step + 1) % strategy.fetch_every:
            self._step_locally(self._scheduled[self._rates.index(LEARNING_RATE)])
            return loss
        signals = self.signals
        stop, snapshot = signals is not None and signals.stop is not None, signals is not None and signals.snapshot
        self._take(self._client.wait_to_continue(step + 1, stop=stop, snapshot=snapshot))
        return loss if self._client.loss is None else self._client.loss

    def fetch_synchronized(self) -> None:
        """Fetch the parameters after all workers have pushed their remaining gradients."""
        if self._strategy.mode != "synchronous":
            if self._weight:
                self._push(self._client.step)
            self._client.fetch()  # its reply shows that earlier pushes have arrived
            self._workers.barrier()
        self._take(self._client.fetch())
        self._workers.barrier()

    def gather(self) -> None:
        """Make the servers take part when all workers gather full tensors from pieces."""
        if self._workers.is_first:
            self._client.gather()

    def assemble(self) -> None:
        """Make the servers take part when worker 0 gathers the states of a checkpoint."""
        if self._workers.is_first:
            self._client.assemble()

    def fail(self) -> None:
        """Make the servers release the workers that wait for a failed worker."""
        self._client.fail()

    def leave(self) -> None:
        """Report that this worker is done."""
        self._client.leave()

    def _add(self, weight: float, loss: float) -> None:
        states = self._compiler.states
        for total, pieces in zip(self._sum, self._pieces, strict=True):
            for name, piece, span in message_slices(pieces):
                gradient = piece.slice_of(states[f"gradient/{name}"]).reshape(-1)
                total[span] = total[span] + gradient if self._weight else gradient
        self._loss = (self._loss * self._weight + loss * weight) / (self._weight + weight or 1.0)
        self._weight += weight

    def _push(self, step: int) -> None:
        self._client.push(self._sum, step, self._weight, self._loss, self._scheduled)
        self._weight = self._loss = 0.0

    def _take(self, parts: Sequence[Any]) -> None:
        """Set this worker's parameters to the pieces received from the servers."""
        by_server = [
            {name: part[span] for name, _, span in message_slices(pieces)}
            for part, pieces in zip(parts, self._pieces, strict=True)
        ]
        for name, piece in server_sharding(self._compiler).pieces.items():
            flat = np.concatenate([pieces[name] for pieces in by_server if name in pieces])
            self._compiler.states.assign(name, flat.reshape(piece.shape))

    def _step_locally(self, rate: float) -> None:
        """Move this worker's parameters by its gradient of the step (Dean et al. 2012, algorithm 7.1)."""
        states = self._compiler.states
        for name in server_sharding(self._compiler).pieces:
            old = states[name]
            factor = rate * self._compiler.info[name].learning_rate_multiplier / self._loss_scale
            states.assign(name, old - old.dtype.type(factor) * states[f"gradient/{name}"])


def _scale(compiler: Compiler) -> float:
    """Return the loss scale, by which gradients are multiplied."""
    scaling = compiler.loop.scaling if compiler.loop is not None else None
    return 1.0 if scaling is None else scaling.initial


class ServerShard:
    """The pieces of the parameters that a server holds."""

    def __init__(self, servers: Communicator, compiler: Compiler, sharded_states: ShardedStates) -> None:
        """`servers` is the group over which the update computes norms."""
        self._compiler, self._sharded_states, self._rates = compiler, sharded_states, scheduled_names(compiler)
        self._pieces = {name: server_sharding(compiler).pieces[name] for name in server_sharding(compiler).owned()}
        self.size, self.dtype = element_count(self._pieces), str(compiler.dtype)
        with acting_as(servers):
            self._program = compiler.program(ProgramKind.UPDATE, 1)

    def read(self) -> Any:
        """Return a flat copy of the pieces."""
        states = self._compiler.states
        return np.concatenate([np.zeros(0, self.dtype), *(states[name].reshape(-1) for name in self._pieces)])

    def update(self, gradient: Any, rates: Sequence[float], count: int) -> None:
        """Run update number `count`, from 1, with a flat gradient and the scheduled values."""
        report_activity(count, "updating")
        for name, piece, span in message_slices(self._pieces):
            self._compiler.states.assign(f"gradient/{name}", gradient[span].reshape(piece.local_shape))
        scheduled = {name: np.array(rate) for name, rate in zip(self._rates, rates, strict=True)}
        self._program.write({**scheduled, STEP: np.array(float(count))})
        self._program.run()

    def gather(self) -> None:
        """Send this server's pieces of the states that are evaluated."""
        self._sharded_states.gather_full()

    def assemble(self) -> None:
        """Send worker 0 this server's pieces of a checkpoint."""
        self._sharded_states.assemble()


def connection(
    world_group: Communicator, workers: Communicator, strategy: Strategy, compiler: Compiler, step: int
) -> ServerConnection:
    """Connect this worker to the servers; `workers` are the ranks of `world_group` that begin with `step`."""
    assert isinstance(strategy, ParameterServer)
    return ServerConnection(world_group, workers, strategy, compiler, step)


def server(
    world_group: Communicator,
    servers: Communicator,
    strategy: Strategy,
    compiler: Compiler,
    sharded_states: ShardedStates,
    step: int,
) -> ServerLoop:
    """Create this rank's server; the workers, the ranks of `world_group` other than `servers`, begin with `step`."""
    assert isinstance(strategy, ParameterServer)
    workers, pieces, names = (
        world_group.size - servers.size,
        ServerShard(servers, compiler, sharded_states),
        scheduled_names(compiler),
    )
    if not servers.is_first:
        return Follower(world_group, workers, pieces, len(names))
    rule = strategy.rule(workers, step, sum(map(is_rate, names)))
    return Coordinator(world_group, workers, pieces, len(names), rule, step, strategy.fetch_every)


class ParameterServerStepper(Stepper):
    """Runs the steps of a worker whose parameters are on servers."""

    def __init__(self, spec: TrainSpec, compiler: Compiler, loader: Loader, servers: ServerConnection) -> None:
        calls = CallRecord(compiler, unknown_reason="the servers computed the value, which no worker can repeat")
        super().__init__(spec, compiler, loader, calls=calls, restarts=True)
        self._servers, self._loss = servers, 0.0
        self._sum = 0.0
        """Sum of the losses of this worker's samples in the current step."""

    def _add(self, batch: Batch, step: int, part: PartialStep) -> tuple[float, int]:
        """Add a batch to the step; skip it if the other workers have already finished this step without this one."""
        loss = 0.0
        if step >= self._servers.step:
            loss, samples = super()._add(batch, step, part)
            self.calls.check_gradients()  # before the servers get them
            self._sum += loss * samples
        return loss, batch.end - batch.position

    def _update(self, step: int, rates: Mapping[str, float], part: PartialStep) -> tuple[float, int]:
        """Push the gradients, and continue with the parameters that come back."""
        if step >= self._servers.step:
            loss = self._sum / (part.weight * self._loader.batch_size) if part.weight else 0.0
            self._loss, self._sum = self._servers.done(step, part.weight, loss, rates), 0.0
        return self._loss, 1
