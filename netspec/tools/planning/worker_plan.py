"""Messages and memory of several workers in a training step, planned before there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netspec.compile import Compiler, ProgramKind
from netspec.compile.layer_costs import flops_of
from netspec.distributed import Communicator
from netspec.distributed.communication_plan import step_messages
from netspec.distributed.cost_model.comm_volume import CollectiveMessage, uniform_cluster
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.fixed_order_step import fixed_order_messages
from netspec.distributed.plans import DataParallelPlan, PipelinePlan
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.strategies.pipeline import Pipeline
from netspec.distributed.worker_checks import check_workers
from netspec.errors import InputError, RunError
from netspec.graph.execution_plan import ExecutionPlan, align_up
from netspec.graph.kernel import NoKernelError
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.compilers import required_solver
from netspec.training.compiler import training_compiler
from netspec.training.session import LOCAL


class SimulatedCommunicator(Communicator):
    """A communicator for planning: it has ranks and hosts, but sends nothing."""

    def __init__(self, size: int, per_host: int, rank: int = 0) -> None:
        super().__init__()
        self.size, self.rank, self._per_host = size, rank, per_host

    def hosts(self) -> list[int]:
        """Return the number of workers of each host; hosts are filled in order."""
        return [min(self._per_host, self.size - first) for first in range(0, self.size, self._per_host)]

    def split(self, color: int) -> Communicator:
        """Return a communicator that sends nothing either."""
        return self


@dataclass(frozen=True)
class WorkerTraffic:
    """Messages of a strategy in a step."""

    strategy: str
    cluster: Cluster
    roles: dict[str, int]
    """Number of workers, by role."""
    messages: Sequence[CollectiveMessage]
    """Messages in the order in which they are sent."""
    shared: int = 0
    """Bytes of the states in memory that all workers share, read and write."""
    remark: str | None = None
    """Remark of the strategy."""

    def sent_bytes(self, message: CollectiveMessage | None = None) -> dict[str, float]:
        """Bytes that a worker sends in a step, by role; the mean if workers differ."""
        messages = self.messages if message is None else [message]
        return {
            role: sum(sent_message.sent(role) / sent_message.every for sent_message in messages) / ranks
            for role, ranks in self.roles.items()
        }

    @property
    def total(self) -> float:
        """Bytes that all workers send in a step."""
        return sum(message.sent(role) / message.every for message in self.messages for role in self.roles)

    @property
    def between_hosts(self) -> float:
        """Bytes that all workers send to other hosts in a step."""
        return sum(message.left() / message.every for message in self.messages)

    def as_json(self) -> dict[str, Any]:
        """The traffic as plain data."""
        return {
            "strategy": self.strategy,
            "workers": self.cluster.ranks,
            "workers_per_host": self.cluster.on_host,
            "roles": self.roles,
            "sent_bytes": self.sent_bytes(),
            "total_bytes": self.total,
            "between_hosts_bytes": self.between_hosts,
            "shared_bytes": self.shared,
            "remark": self.remark,
            "messages": [
                {
                    "name": message.name, "holds": list(message.contents), "bytes": message.nbytes,
                    "times": message.times, "every": message.every, "starts": message.starts,
                    "sent_bytes": self.sent_bytes(message), "between_hosts_bytes": message.left() / message.every,
                }
                for message in self.messages
            ],
        }  # fmt: skip


def worker_traffic(
    spec: NetSpec | TrainSpec, workers: int, per_host: int | None, batch_size: int, device: str = "null"
) -> WorkerTraffic:
    """Return what the training's strategy (default: all-reduce) sends in a step compiled for a device.

    `per_host` is the number of workers per host; None takes the number that the strategy needs, one if possible.
    Raises `InputError` if the training can't be spread over that many workers or hosts.
    """
    check_spread(spec, workers, batch_size, one_host=per_host is None or per_host >= workers)
    if per_host is None:
        per_host = workers if session_of(spec, Communicator()).strategy.one_host else 1
    session, cluster = session_of(spec, SimulatedCommunicator(workers, per_host)), uniform_cluster(workers, per_host)
    name, remark = session.strategy.strategy, session.strategy.remark(session.hosts)
    if workers == 1:
        return WorkerTraffic(name, cluster, {"worker": 1}, ())
    batches = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    rows = -(-batch_size // (session.size if session.strategy.splits_batches else 1))
    compiler, read = compiler_of(spec, device, session), [(rows, batch_size)] * batches
    if session.shards is None:
        messages = step_messages(compiler, session.strategy, cluster, read)
    else:
        messages = fixed_order_messages(compiler, session.shards, cluster, read)
    shared = sum(kind.nbytes for kind in compiler.types(*session.strategy.shared_roles).values())
    return WorkerTraffic(name, cluster, session.strategy.roles(workers), messages, shared, remark)


def check_spread(spec: NetSpec | TrainSpec, workers: int, batch_size: int, *, one_host: bool = True) -> None:
    """Raise `InputError` if a training can't be spread over `workers` workers, on one host or several."""
    if isinstance(spec, TrainSpec):
        check_workers(spec, workers, one_host=one_host)
    if parts_of_batch(spec, workers) > batch_size:
        raise InputError("a batch has fewer samples than there are workers", expected=f"--batch-size {workers} or more",
                         got=f"{batch_size}")  # fmt: skip


def parts_of_batch(spec: NetSpec | TrainSpec, workers: int) -> int:
    """Number of workers that share a batch."""
    return workers if session_of(spec, Communicator()).strategy.splits_batches else 1


def session_of(spec: NetSpec | TrainSpec, workers: Communicator) -> WorkerSession:
    """Return the session of the training file's strategy; of all-reduce if it has none."""
    strategy = spec.parallel if isinstance(spec, TrainSpec) else None
    assert strategy is None or isinstance(strategy, Strategy)
    return WorkerSession(workers, strategy)


def compiler_of(spec: NetSpec | TrainSpec, device: str, session: WorkerSession) -> Compiler:
    """Return the compiler of one of several workers; a net is trained by SGD with momentum."""
    if isinstance(spec, TrainSpec):
        return training_compiler(spec, device, session if session.size > 1 else LOCAL)
    plan = DataParallelPlan(session.size) if session.size > 1 else None
    return Compiler(spec, solver=required_solver(spec), device=device, distribution=plan)


@dataclass(frozen=True)
class WorkerMemory:
    """Memory of a worker; of the stage that needs most in a pipeline."""

    samples: int
    """Largest number of samples of a worker in a batch."""
    programs_bytes: int
    """Bytes of the programs of training steps, in addition to the states."""
    states_bytes: dict[str, int]
    """Bytes of states, by role as in `netspec plan`."""

    @property
    def nbytes(self) -> int:
        """Total bytes."""
        return self.programs_bytes + sum(self.states_bytes.values())

    def as_json(self) -> dict[str, Any]:
        """The memory as plain data."""
        return {**asdict(self), "bytes": self.nbytes}


@dataclass(frozen=True)
class CompiledWorker:
    """The programs of one of several workers."""

    session: WorkerSession
    compiler: Compiler
    samples: int
    """Largest number of samples of a worker in a batch."""
    programs: list[tuple[ExecutionPlan, int]]
    """Programs of a step, each with the number of times that it runs."""

    def memory(self) -> WorkerMemory:
        """Memory that the worker allocates."""
        states = Counter[str]()
        for state in self.compiler.info.values():
            states[state.role] += align_up(state.value.type.nbytes)
        return WorkerMemory(self.samples, sum(plan.memory.nbytes for plan, _ in self.programs), dict(states))


def worker_memory(spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null") -> WorkerMemory:
    """Return the memory of the worker that needs most."""
    return max(
        (worker.memory() for worker in compile_distinct_workers(spec, workers, batch_size, device)),
        key=lambda memory: memory.nbytes,
    )


def compile_distinct_workers(
    spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null", per_host: int | None = None
) -> list[CompiledWorker]:
    """Compile the training for each worker whose programs differ, on one host by default. Nothing is allocated.

    Only the stages of a pipeline differ. `workers` includes the servers. Raises `InputError` if the training can't be
    spread over that many.
    """
    staged = isinstance(spec, TrainSpec) and isinstance(spec.parallel, Pipeline)
    # With other strategies, worker 0 stands for all: their shards differ by a few elements at most.
    ranks = range(workers) if staged else (0,)
    groups = [SimulatedCommunicator(workers, per_host or workers, rank) for rank in ranks]
    return [_compile_worker(spec, group, batch_size, device) for group in groups]


def _compile_worker(
    spec: NetSpec | TrainSpec, workers: SimulatedCommunicator, batch_size: int, device: str
) -> CompiledWorker:
    session = session_of(spec, workers)
    compiler = compiler_of(spec, device, session)
    samples = -(-batch_size // session.size) if session.strategy.splits_batches else batch_size
    rows, times = samples, spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    if session.shards is not None:
        rows, times = -(-batch_size // session.shards), times * -(-session.shards // session.size)
    try:
        plans = [(compiler.plan(compiler.batch_program, rows), times)]
        plans += [(compiler.plan(ProgramKind.UPDATE, 1), 1)] if compiler.updates else []
    except NoKernelError as error:
        raise RunError(f"there is no kernel for a part of this net: {error}") from None
    return CompiledWorker(session, compiler, samples, plans)


@dataclass(frozen=True)
class StageCost:
    """Costs of a pipeline stage in a step."""

    stage: int
    layers: tuple[str, ...]
    parameters: int
    """Number of parameter elements that the stage trains."""
    flops: int
    """Floating-point operations of its part of a step, update included."""
    memory_bytes: int
    """Bytes of its program, in addition to the states."""


def stage_costs(spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null") -> list[StageCost]:
    """Return the costs of each stage of a pipeline on `workers` workers; empty for other strategies."""
    if not isinstance(spec, TrainSpec) or not isinstance(spec.parallel, Pipeline) or workers == 1:
        return []
    return [_cost(spec, spec.parallel, workers, stage, batch_size, device) for stage in range(workers)]


def _cost(spec: TrainSpec, strategy: Pipeline, workers: int, stage: int, batch_size: int, device: str) -> StageCost:
    compiler = training_compiler(spec, device, WorkerSession(SimulatedCommunicator(workers, workers, stage), strategy))
    plan, pipeline = compiler.plan(ProgramKind.TRAIN, batch_size), compiler.distribution
    assert isinstance(pipeline, PipelinePlan)
    owned = [name for name in compiler.names("parameter") if pipeline.owners[name] == stage]
    return StageCost(
        stage, tuple(pipeline.stages_of(1).layers[stage]), sum(compiler.info[name].value.type.size for name in owned),
        sum(map(flops_of, plan.order)), plan.memory.nbytes,
    )  # fmt: skip
