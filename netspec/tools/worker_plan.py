"""What workers send each other in a step of a training, before there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netspec.compile import Compiler, ProgramKind
from netspec.distributed import Communicator
from netspec.distributed.communication_plan import step_messages
from netspec.distributed.cost_model.comm_volume import Message, uniform_cluster
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
from netspec.tools.scale import training_of
from netspec.training.compiler import training_compiler


class Imagined(Communicator):
    """One of workers that there are not."""

    def __init__(self, size: int, per_host: int, rank: int = 0) -> None:
        super().__init__()
        self.size, self.rank, self._per_host = size, rank, per_host

    def hosts(self) -> list[int]:
        """Filled one after the other."""
        return [min(self._per_host, self.size - first) for first in range(0, self.size, self._per_host)]

    def split(self, color: int) -> Communicator:
        """A part of them, of which none says anything either."""
        return self


@dataclass(frozen=True)
class WorkerTraffic:
    """What a strategy sends in a step."""

    strategy: str
    cluster: Cluster
    roles: dict[str, int]
    """How many of the workers are what."""
    messages: Sequence[Message]
    """In the order in which they are sent."""
    shared: int = 0
    """Bytes of the states in memory that all workers share, read and write."""
    remark: str | None = None
    """What else is to be known of such a training."""

    def each(self, one: Message | None = None) -> dict[str, float]:
        """Bytes that each worker of a role sends in a step, by role: the mean, where they differ."""
        wanted = self.messages if one is None else [one]
        return {role: sum(one.sent(role) / one.every for one in wanted) / ranks for role, ranks in self.roles.items()}

    @property
    def total(self) -> float:
        """Bytes of all workers together."""
        return sum(one.sent(role) / one.every for one in self.messages for role in self.roles)

    @property
    def between_hosts(self) -> float:
        """Bytes of these that leave a host."""
        return sum(one.left() / one.every for one in self.messages)

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "strategy": self.strategy,
            "workers": self.cluster.ranks,
            "workers_per_host": self.cluster.on_host,
            "roles": self.roles,
            "sent_bytes": self.each(),
            "total_bytes": self.total,
            "between_hosts_bytes": self.between_hosts,
            "shared_bytes": self.shared,
            "remark": self.remark,
            "messages": [
                {
                    "name": one.name, "holds": list(one.contents), "bytes": one.nbytes, "times": one.times,
                    "every": one.every, "starts": one.starts, "sent_bytes": self.each(one),
                    "between_hosts_bytes": one.left() / one.every,
                }
                for one in self.messages
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
    session, cluster = session_of(spec, Imagined(workers, per_host)), uniform_cluster(workers, per_host)
    name, remark = session.strategy.strategy, session.strategy.remark(session.hosts)
    if workers == 1:
        return WorkerTraffic(name, cluster, {"worker": 1}, ())
    batches = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    rows = -(-batch_size // (session.size if session.strategy.splits_batches else 1))
    compiler, read = compiler_of(spec, device, session), [(rows, batch_size)] * batches
    if session.shards is None:
        found = step_messages(compiler, session.strategy, cluster, read)
    else:
        found = fixed_order_messages(compiler, session.shards, cluster, read)
    shared = sum(kind.nbytes for kind in compiler.types(*session.strategy.shared_roles).values())
    return WorkerTraffic(name, cluster, session.strategy.roles(workers), found, shared, remark)


def check_spread(spec: NetSpec | TrainSpec, workers: int, batch_size: int, *, one_host: bool = True) -> None:
    """Raise `InputError` if a training can't be spread over `workers` workers, on one host or several."""
    if isinstance(spec, TrainSpec):
        check_workers(spec, workers, one_host=one_host)
    if parts_of_batch(spec, workers) > batch_size:
        raise InputError("a batch has fewer samples than there are workers", expected=f"--batch-size {workers} or more",
                         got=f"{batch_size}")  # fmt: skip


def parts_of_batch(spec: NetSpec | TrainSpec, workers: int) -> int:
    """How many workers share a batch."""
    return workers if session_of(spec, Communicator()).strategy.splits_batches else 1


def session_of(spec: NetSpec | TrainSpec, workers: Communicator) -> WorkerSession:
    """Those who train as the file says; by all-reduce where it says nothing."""
    strategy = spec.parallel if isinstance(spec, TrainSpec) else None
    assert strategy is None or isinstance(strategy, Strategy)
    return WorkerSession(workers, strategy)


def compiler_of(spec: NetSpec | TrainSpec, device: str, session: WorkerSession) -> Compiler:
    """That of one of several workers; a net is trained by SGD with momentum."""
    if isinstance(spec, TrainSpec):
        return training_compiler(spec, device, session)
    plan = DataParallelPlan(session.size) if session.size > 1 else None
    return Compiler(spec, solver=training_of(spec), device=device, distribution=plan)


@dataclass(frozen=True)
class OneWorker:
    """The memory of the first worker: of the one that needs most, where they compute different stages."""

    samples: int
    """Of a batch, at most."""
    programs_bytes: int
    """Bytes of the programs of training steps, in addition to the states."""
    states_bytes: dict[str, int]
    """By role, as `netspec plan` names them."""

    @property
    def nbytes(self) -> int:
        """In all."""
        return self.programs_bytes + sum(self.states_bytes.values())

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**asdict(self), "bytes": self.nbytes}


@dataclass(frozen=True)
class Compiled:
    """The programs of one of several workers."""

    session: WorkerSession
    compiler: Compiler
    samples: int
    """Of a batch, at most."""
    programs: list[tuple[ExecutionPlan, int]]
    """Those of a step, each with how often it runs."""

    def memory(self) -> OneWorker:
        """What it allocates."""
        states = Counter[str]()
        for one in self.compiler.info.values():
            states[one.role] += align_up(one.value.type.nbytes)
        return OneWorker(self.samples, sum(plan.memory.nbytes for plan, _ in self.programs), dict(states))


def one_worker(spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null") -> OneWorker:
    """What `each_kind` finds of the one that needs most memory."""
    return max((one.memory() for one in each_kind(spec, workers, batch_size, device)), key=lambda one: one.nbytes)


def each_kind(
    spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null", per_host: int | None = None
) -> list[Compiled]:
    """Compile the training for its strategy as each worker does that differs, all on one host by default.

    Nothing is allocated. `workers` includes the servers. Raises `InputError` if the training can't be spread over
    that many.
    """
    staged = isinstance(spec, TrainSpec) and isinstance(spec.parallel, Pipeline)
    ranks = range(workers) if staged else (0,)  # else they are alike, but for a few numbers of what is divided
    return [_of_rank(spec, Imagined(workers, per_host or workers, rank), batch_size, device) for rank in ranks]


def _of_rank(spec: NetSpec | TrainSpec, workers: Imagined, batch_size: int, device: str) -> Compiled:
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
    return Compiled(session, compiler, samples, plans)


@dataclass(frozen=True)
class StageCost:
    """What one worker computes of a step, and needs for it."""

    stage: int
    layers: tuple[str, ...]
    parameters: int
    """Numbers that it moves."""
    flops: int
    """Of its part of a step, the update included."""
    memory_bytes: int
    """Bytes of its program, in addition to the states."""


def stage_costs(spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null") -> list[StageCost]:
    """Return the costs of each stage of a pipeline on `workers` workers; empty for other strategies."""
    if not isinstance(spec, TrainSpec) or not isinstance(spec.parallel, Pipeline) or workers == 1:
        return []
    return [_cost(spec, spec.parallel, workers, stage, batch_size, device) for stage in range(workers)]


def _cost(spec: TrainSpec, strategy: Pipeline, workers: int, stage: int, batch_size: int, device: str) -> StageCost:
    compiler = training_compiler(spec, device, WorkerSession(Imagined(workers, workers, stage), strategy))
    plan, pipeline = compiler.plan(ProgramKind.TRAIN, batch_size), compiler.distribution
    assert isinstance(pipeline, PipelinePlan)
    own = [name for name in compiler.names("parameter") if pipeline.owners[name] == stage]
    return StageCost(
        stage, tuple(pipeline.stages_of(1).layers[stage]), sum(compiler.info[name].value.type.size for name in own),
        sum(node.op.flops(*(one.type for one in node.inputs)) for node in plan.order), plan.memory.nbytes,
    )  # fmt: skip
