"""`WorkerSession`: rank and share of one worker of a training run, collective decisions, and synchronized states."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.openmp import set_threads
from netspec.compile import ProcessRole, is_rate
from netspec.data.sharding import Share
from netspec.distributed import Communicator
from netspec.distributed.communication_plan import Batches, EpochBatches, step_messages
from netspec.distributed.communicators.encodings import by_host
from netspec.distributed.communicators.hierarchical import make_host_groups
from netspec.distributed.cost_model.comm_volume import uniform_cluster
from netspec.distributed.fixed_order_step import FixedOrderStepper, fixed_order_messages
from netspec.distributed.joint_call_record import JointCallRecord
from netspec.distributed.launcher.control_socket import start_arguments
from netspec.distributed.monitoring import activity
from netspec.distributed.parameter_server_worker import ParameterServerStepper, ServerConnection, connection, server
from netspec.distributed.partitioning.bucketing import BucketGradients
from netspec.distributed.partitioning.optimizer_sharding import ShardingConfig
from netspec.distributed.partitioning.pipeline.partition import PipelineConfig, balance_stages
from netspec.distributed.plans import (
    DataParallelPlan,
    FixedOrderPlan,
    ParameterServerPlan,
    PipelinePlan,
    ReplicaPlan,
    ShardedOptimizerPlan,
    SufficientFactorsPlan,
    TensorParallelPlan,
)
from netspec.distributed.sharded_states import ShardedStates
from netspec.distributed.strategies import all_reduce
from netspec.distributed.strategies.base import Strategy, SynchronousStrategy
from netspec.distributed.strategies.pipeline import Pipeline
from netspec.distributed.strategies.sharded_optimizer import ShardedOptimizer
from netspec.distributed.strategies.sufficient_factors import SufficientFactors
from netspec.distributed.strategies.tensor_parallel import TensorParallel
from netspec.distributed.worker_checks import check_workers
from netspec.distributed.world import announce_failure, join, set_timeouts
from netspec.errors import InputError, Location, Problem, RunError
from netspec.graph.types import Precision
from netspec.training.checkpoint_resharding import mean_state
from netspec.training.diagnostics.call_record import CallRecord
from netspec.training.environment import threads
from netspec.training.session import GatheredStates, NonFiniteOrigin, Session, StateLayout, StopVote
from netspec.training.signals import Signals
from netspec.training.stepper import Stepper

if TYPE_CHECKING:
    from netspec.backends.device import Device
    from netspec.compile import Compiler
    from netspec.compile.distributed_plan import DistributedPlan
    from netspec.data.loader import Loader
    from netspec.distributed.cost_model.comm_volume import CollectiveMessage
    from netspec.distributed.cost_model.networks import Cluster
    from netspec.graph.ops.all_reduce import CommEncoding
    from netspec.schema.specs.train import TrainSpec
    from netspec.training.progress import Progress
    from netspec.training.resume import StartingPoint


REGROUP_TIMEOUT = 60.0
"""Seconds that the workers have to regroup, in order to save their states, after one of them has failed."""
FAILURE_TIMEOUT = 20.0
"""Seconds that a failed worker has to report why it failed."""
HOGWILD_REASON = (
    "workers of `hogwild` change each other's weights during a step; use `strategy: all_reduce` to get a capsule"
)
"""Why workers with weights in shared memory write no capsule of a gradient that is not finite."""
UNLIMITED = 1 << 62
"""Bytes of a bucket that holds all gradients."""


@contextmanager
def open_worker_session(spec: TrainSpec) -> Iterator[WorkerSession]:
    """Join the job that this process was started for, and open its session. Raises `InputError`."""
    assert spec.parallel is None or isinstance(spec.parallel, Strategy)
    with activity.training():
        session = WorkerSession(join(), spec.parallel)
        set_timeouts(session.strategy.heartbeat, session.strategy.stall)
        session.use_own_cores()
        check_workers(spec, session.world_group.size, one_host=session.world_group.on_one_host)
        yield session


class WorkerSession(Session):
    """One of the workers of a training run."""

    def __init__(self, world_group: Communicator, strategy: Strategy | None = None) -> None:
        self.world_group, self.is_root, self.alone = world_group, world_group.is_first, world_group.size == 1
        self.strategy = strategy or all_reduce.AllReduce()
        servers = self.strategy.servers_among(world_group.size)
        self.size = world_group.size - servers
        """Number of workers, without servers."""
        self.is_server = world_group.rank >= self.size
        """Whether this rank is a server, not a worker."""
        self.workers = world_group.subgroup_below(self.size) if servers else world_group
        """Group of the workers; on a server, of the servers."""
        self.servers: ServerConnection | None = None
        """Connection to the servers, once the ranks are aligned."""
        self.rank = self.workers.rank
        self.joint_steps = self.size > 1 and self.strategy.sums_gradients
        """Whether all workers compute every step together."""
        self.own_roles: Sequence[str] = self.strategy.per_worker_roles
        reducing = self.strategy if isinstance(self.strategy, all_reduce.AllReduce) else None
        self.shards = reducing.shards if reducing is not None and reducing.deterministic else None
        """Number of parts of a batch that are added in a fixed order; None unless training is deterministic."""
        self.hosts = world_group.hosts()
        """Number of ranks of each host."""
        self.by_host = self.joint_steps and reducing is not None and reducing.is_hierarchical(self.hosts)
        """Whether gradients are summed within each host first."""
        if self.by_host and world_group.host_groups is None:
            world_group.host_groups = make_host_groups(world_group)
        self.share = Share(world_group.rank, self.size, self.shards)
        """This worker's share of work that is divided among workers, such as evaluations."""
        self.training_share = self.share if self.strategy.splits_batches else Share()
        self._expected = self._sent = 0.0
        """Bytes that this worker is expected to send per step, and bytes that it has sent in all steps."""
        self._steps = 0
        self._before: float | None = None
        """Bytes that this worker had sent before the current step."""
        self._sharded: ShardedStates | None = None

    @property
    def description(self) -> str:
        """Name of the strategy, for messages."""
        return str(self.strategy.strategy) if self.size > 1 else "one worker"

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON data of every worker, in the order of ranks."""
        return self.workers.all_gather_objects(value)

    def broadcast(self, value: Any) -> Any:
        """Return the JSON data of the root, on workers and servers."""
        return self.world_group.broadcast_object(value)

    def broadcast_arrays(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the root's arrays, on every worker."""
        received = {name: np.array(array) for name, array in arrays.items()}
        for array in received.values():
            self.workers.broadcast(array.reshape(-1).view(np.uint8))
        return received

    def barrier(self) -> None:
        """Wait for all workers."""
        self.workers.barrier()

    def host_only_reason(self) -> str | None:
        """Return why the workers can't compute on GPUs; None if they can."""
        reason = self.strategy.host_only
        return None if self.alone or reason is None else f"{self.strategy.strategy}: {reason}"

    def plan(self, spec: TrainSpec, device: Device) -> DistributedPlan:
        """Return how the compiler distributes training over the workers.

        Raises `InputError` if the workers can't compute on this device.
        """
        strategy, is_distributed = self.strategy, self.size > 1
        if device.has_collectives and self.host_only_reason() is not None:
            raise InputError(
                Problem(
                    f"the workers of {strategy.strategy} do not compute on GPUs", strategy.where("strategy"),
                    "parallel.strategy", expected="a different strategy, or `--device cpu`",
                    notes=(str(strategy.host_only),),
                )
            )  # fmt: skip
        if isinstance(strategy, Pipeline):
            return PipelinePlan(pipeline_config(spec, strategy, self.rank, self.size))
        if self.shards is not None:
            return FixedOrderPlan()
        if self.size < self.world_group.size:
            shares = [float(rank >= self.size) for rank in range(self.world_group.size)]
            role = ProcessRole.UPDATE if self.is_server else ProcessRole.GRADIENTS
            config = ShardingConfig(self.world_group.rank, shares, UNLIMITED, UNLIMITED)
            return ParameterServerPlan(config, role)
        if is_distributed and self.joint_steps and isinstance(strategy, SynchronousStrategy):
            return self._data_parallel_plan(spec, strategy)
        return ReplicaPlan(is_distributed and strategy.has_center, strategy.shared_roles if is_distributed else ())

    def _data_parallel_plan(self, spec: TrainSpec, strategy: SynchronousStrategy) -> DataParallelPlan:
        """Return the plan of workers that all use the mean of their gradients."""
        samples, size = spec.data.train.batch_size, self.size
        encoding = partial(_by_host, strategy.comm_encoding) if self.by_host else strategy.comm_encoding
        stages = [partial(strategy.comm_encoding, stage=stage) for stage in range(len(strategy.stages) - 1)]
        common = size, encoding, stages, BucketGradients(strategy.first_bucket, strategy.bucket)
        if isinstance(strategy, SufficientFactors):
            most = -(-samples // size)
            choice = partial(strategy.sends_factors, samples=most * spec.train.accumulate, workers=size)
            return SufficientFactorsPlan(*common, choice=choice, most_samples=most, check_layers=strategy.check_layers)
        if isinstance(strategy, TensorParallel):
            choose = partial(strategy.cuts, samples=samples, workers=size)
            return TensorParallelPlan(*common, rank=self.rank, samples=samples, choose=choose)
        if isinstance(strategy, ShardedOptimizer):
            config = ShardingConfig(self.rank, [1.0] * size, strategy.first_bucket, strategy.bucket)
            return ShardedOptimizerPlan(*common, config=config)
        return DataParallelPlan(*common)

    def stepper(self, spec: TrainSpec, compiler: Compiler, loader: Loader) -> Stepper:
        """Return the stepper that runs this worker's steps."""
        if self.servers is not None:
            return ParameterServerStepper(spec, compiler, loader, self.servers)
        if self.shards is not None:
            return FixedOrderStepper(spec, compiler, loader, self.workers, self.shards, self.share)
        if self.alone:
            return Stepper(spec, compiler, loader, calls=CallRecord(compiler))
        if self.joint_steps:
            calls: CallRecord = JointCallRecord(compiler, self.workers)
        else:
            reason = HOGWILD_REASON if self.strategy.shared_roles else None
            calls = CallRecord(compiler, unknown_reason=reason, processes_per_host=self.workers.host_size)
        return Stepper(spec, compiler, loader, calls=calls, stage=self.strategy.stage, restarts=True)

    def layout(self, compiler: Compiler) -> StateLayout:
        """Return which states are sharded. The first call is collective."""
        states = self.sharded_states(compiler)
        return StateLayout(states.replicated, {state.name: state for state in states.checkpointed})

    def sharded_states(self, compiler: Compiler) -> ShardedStates:
        """Return which states are sharded. The first call is collective."""
        if self._sharded is None:
            self._sharded = ShardedStates(self.world_group, compiler)
        return self._sharded

    def use_own_cores(self) -> None:
        """Set the number of threads to this worker's share of the host's cores, unless OMP_NUM_THREADS is set.

        Deterministic training uses one thread: kernels split sums by the number of threads.
        """
        if not os.environ.get("OMP_NUM_THREADS") and (self.shards is not None or self.world_group.host_size > 1):
            count = 1 if self.shards is not None else max(1, threads() // self.world_group.host_size)
            os.environ["OMP_NUM_THREADS"] = str(count)
            set_threads(count)  # for libraries that have already read the variable

    def align(self, compiler: Compiler, loader: Loader, start: StartingPoint) -> Progress:
        """Scatter the root's states, set the position in the data, and return the progress from which all start.

        Each worker gets back the states that differ between workers. If the number of workers has changed, each worker
        gets an equal part of the residuals, and the mean of all other such states.
        """
        own_states, progress = start.worker_states, start.progress
        before = 1 + int(self.workers.broadcast_object(len(own_states)))
        if before != self.size and self.is_root:
            for name in own_states[0] if own_states else compiler.names("residual"):
                if name in compiler.info:
                    _merge(compiler, name, [states[name] for states in own_states], self.size)
        if self.alone:
            return progress
        loader.seek(*self.workers.broadcast_object(loader.position))
        states = self.sharded_states(compiler)
        for name in states.replicated:
            host, role = compiler.states[name], compiler.info[name].role
            self.workers.broadcast(np.ascontiguousarray(host).reshape(-1).view(np.uint8))
            compiler.states.assign(name, host if self.is_root or role != "gradient" else np.zeros_like(host))
        compiler.reset_copies(states.sharded)
        gathered = {info.gathers: name for name, info in compiler.info.items() if info.gathers in states}
        first = {name: compiler.states[name] for name in states.copies}
        initial = {source: compiler.states[name] for source, name in gathered.items() if source}
        states.scatter({**first, **(start.sharded or initial)})
        if before == self.size > 1:
            for name in self.workers.broadcast_object(list(own_states[0]) if own_states else None):
                stacked = (
                    np.stack([compiler.states[name], *(states[name] for states in own_states)]) if own_states else None
                )
                compiler.states.assign(name, self.workers.scatter(stacked, compiler.states[name]))
        common = type(progress).from_json(self.workers.broadcast_object(asdict(progress)))
        if not self.is_root:
            common.part.weight = 0.0  # the root has the sums of an incomplete step
        if self.size < self.world_group.size:
            self.world_group.broadcast_object(common.step)
            self.servers = connection(self.world_group, self.workers, self.strategy, compiler, common.step)
            self.servers.fetch_synchronized()
        return common

    def serve(self, compiler: Compiler) -> None:
        """Run a server, from the workers' call of `align` until all workers have left."""
        states = self.sharded_states(compiler)
        states.scatter({})
        step = self.world_group.broadcast_object(None)
        server(self.world_group, self.workers, self.strategy, compiler, states, step).serve()

    def leave(self, value: Any = None) -> Any:
        """Leave the servers, and return worker 0's data on all ranks, including servers."""
        if self.servers is not None:
            self.servers.leave()
        value = self.world_group.broadcast_object(value)
        self.world_group.release_shared_memory()
        return value

    def vote_on_stop(self, signals: Signals, step: int) -> StopVote:
        """Start the vote on whether to stop or write a checkpoint, which runs while this step is computed."""
        if self._before is None:
            self._before = self._sent_so_far
        if self.servers is not None:
            self.servers.signals = signals
            return ServerStopVote(signals, self.servers, step)
        if self.size == 1:
            return super().vote_on_stop(signals, step)
        return WorkerStopVote(signals, self.workers, votes=self.strategy.synchronizes_at(step))

    @property
    def _sent_so_far(self) -> float:
        """Bytes that this rank has sent, to workers and servers."""
        return self.world_group.sent + (self.workers.sent if self.servers is not None else 0.0)

    def sends_states(self, step: int) -> bool:
        """Return whether workers that compute separate steps exchange states after this step."""
        return self.size > 1 and not self.joint_steps and self.strategy.synchronizes_at(step)

    def after_step(self, step: int, compiler: Compiler) -> None:
        """Run the strategy's communication after a step."""
        if self.size > 1:
            self.strategy.after_step(step, self.workers, _CompilerReplica(compiler))
        if self._before is not None:
            self._sent, self._steps = self._sent + self._sent_so_far - self._before, self._steps + 1
            self._before = None

    def expect_traffic(self, compiler: Compiler, loader: Loader, accumulate: int, steps: range) -> None:
        """Compute the bytes that a step sends from its compiled programs: the mean over `steps`."""
        if not self.alone:
            self.expect(compiler, EpochBatches.of(loader, accumulate), steps)

    def expect(self, compiler: Compiler, epoch: EpochBatches, steps: range) -> None:
        """Compute the bytes that a step on these batches sends: the mean over `steps`."""
        cluster = uniform_cluster(self.world_group.size, self.world_group.host_size)
        role, workers = next(iter(self.strategy.roles(cluster.ranks).items()))  # the first worker's
        total, starts = 0.0, self.strategy.stages
        for begin, end in pairwise([*starts, max(steps.stop, starts[-1])]):
            stage_steps = range(max(begin, steps.start), min(end, steps.stop))
            lasts = stage_steps.stop // epoch.steps - stage_steps.start // epoch.steps
            if not stage_steps:
                continue
            if len(stage_steps) > lasts:
                for message in self._messages(compiler, cluster, epoch.usual, begin):
                    total += (
                        (message.among(stage_steps) - message.among(stage_steps, epoch.steps))
                        * message.sent(role)
                        / workers
                    )
            if lasts:
                for message in self._messages(compiler, cluster, epoch.last, begin):
                    total += message.among(stage_steps, epoch.steps) * message.sent(role) / workers
        self._expected = total / max(len(steps), 1)

    def _messages(
        self, compiler: Compiler, cluster: Cluster, batches: Batches, step: int
    ) -> Sequence[CollectiveMessage]:
        """Return the messages of a step; in deterministic training, as if each worker sent what worker 0 sends."""
        if self.shards is None:
            return step_messages(compiler, self.strategy, cluster, batches, self.strategy.stage(step))
        return fixed_order_messages(compiler, self.shards, cluster, batches, rank=0)

    def sent_facts(self) -> dict[str, Any]:
        """Return the mean bytes per step that worker 0 is expected to send and has sent; {} for a single worker."""
        if self.alone:
            return {}
        measured = {"measured": round(self._sent / self._steps)} if self._steps else {}
        return {"bytes_per_step": {"expected": round(self._expected), **measured}}

    def step_facts(self) -> dict[str, int]:
        """Number of late gradients so far, if the servers do not wait for all."""
        return {"late_gradients": self.servers.late} if self.servers is not None and self.servers.may_be_late else {}

    def scheduled(self, rates: Mapping[str, float]) -> Mapping[str, float]:
        """Return the scheduled values of this worker's update; learning rates are divided if all updates add up."""
        if not self.strategy.divides_learning_rate:
            return rates
        return {name: rate / self.size if is_rate(name) else rate for name, rate in rates.items()}

    @contextmanager
    def synchronized_view(self, compiler: Compiler) -> Iterator[None]:
        """Give all workers the same states inside the block, for an evaluation or a checkpoint. A collective call."""
        if self.alone:
            yield
            return
        if self.servers is not None:
            self.servers.fetch_synchronized()
        self.strategy.before_view(self.workers, _CompilerReplica(compiler))
        if self.strategy.shared_roles:
            compiler.states.version += 1  # other workers have written to the shared states
        if self.sharded_states(compiler).gathered:
            if self.servers is not None:
                self.servers.gather()
            self.sharded_states(compiler).gather_full()
        for name, owner in compiler.distribution.owners.items():
            array = compiler.states[name]
            self.workers.broadcast(array, owner)
            compiler.states.assign(name, array)
        yield
        self.strategy.after_view(self.workers)

    def full_states(self, compiler: Compiler) -> Mapping[str, Any]:
        """Return the full parameters and statistics that this worker has only in part, or not at all."""
        owners = compiler.distribution.owners
        if not (compiler.gathered or owners):
            return {}
        with self.synchronized_view(compiler):
            own = {name: name for name in owners}
            return {name: compiler.states[label] for name, label in {**own, **compiler.gathered}.items()}

    def gather_states(self, compiler: Compiler) -> GatheredStates:
        """Gather the full sharded states, and the other workers' own states, on the root."""
        by_worker = self._own_states(compiler)
        if self.servers is not None:
            self.servers.assemble()
        return GatheredStates(self.sharded_states(compiler).assemble(), by_worker)

    def _own_states(self, compiler: Compiler) -> list[dict[str, Any]]:
        if self.size == 1:
            return []
        stacked_states = {name: self.workers.gather(compiler.states[name]) for name in compiler.names(*self.own_roles)}
        if not stacked_states or not self.is_root:
            return []
        return [{name: stacked[rank] for name, stacked in stacked_states.items()} for rank in range(1, self.size)]

    def can_save_after_failure(self, step: int, saved: int, *, unchanged: bool) -> bool:
        """Return whether the workers can save a new checkpoint after a worker has failed. A collective call.

        `step` is the last step that this worker has finished, `saved` the step of its last checkpoint; `unchanged` says
        that no unfinished step has changed states. Raises `PeerFailure` if a worker does not take part.
        """
        if self.servers is not None:  # servers have the parameters, and continue to serve
            self.servers.fail()
        if self.size == 1:
            return unchanged and saved != step
        announce_failure(self.size)
        self.workers.regroup(REGROUP_TIMEOUT)
        steps, saves, all_unchanged = zip(*self.workers.all_gather_objects([step, saved, unchanged]), strict=True)
        same_step = not self.joint_steps or len(set(steps)) == 1
        return same_step and all(all_unchanged) and bool(steps[0] != saves[0])

    def peer_failure(self) -> RunError:
        """Wait until the failed worker ends the job; return the error if it does not."""
        time.sleep(FAILURE_TIMEOUT)
        return RunError("another worker failed without a message")

    @property
    def losses_differ(self) -> bool:
        """Whether each worker knows only the losses of its own samples, not those of all workers."""
        return self.size > 1 and not self.joint_steps and self.servers is None

    def gather_batches(self, results: Iterator[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], ...]]:
        """Yield the workers' next results, in the order of ranks, until no worker has any left."""
        if self.size == 1:
            yield from super().gather_batches(results)
            return
        while True:
            own_batch = next(results, None)
            by_rank = self.workers.all_gather_arrays(
                {} if own_batch is None else {k: np.asarray(v) for k, v in own_batch.items()}
            )
            if not any(by_rank):
                return
            yield tuple(results_of_rank for results_of_rank in by_rank if results_of_rank)

    def agree_on_origin(self, origin: NonFiniteOrigin) -> NonFiniteOrigin:
        """Return the origin as reported by the first worker that knows it."""
        if not self.joint_steps:  # this call is not collective then
            return origin
        at = origin.location
        fields = [origin.description, origin.is_known, at and [at.file, at.line, at.column, at.text]]
        by_rank = self.workers.all_gather_objects(fields)
        rank = next((rank for rank, (_, is_known, _) in enumerate(by_rank) if is_known), 0)
        description, is_known, where = by_rank[rank]
        if is_known and self.training_share.count > 1:
            description = f"{description} (worker {rank})"
        location = None if where is None else Location(*where)
        return NonFiniteOrigin(description, location, is_known, is_own=is_known and rank == self.rank)

    def start_facts(self, batch_size: int) -> dict[str, Any]:
        """Return facts about the workers for the log; {} for a single worker."""
        if self.alone:
            return {}
        servers = self.world_group.size - self.size
        parts = [Share(number, self.size, self.shards).of(0, batch_size) for number in range(self.size)]
        return {
            **self.world_group.describe(),
            **({"servers": servers} if servers else {}),
            "parallel": self.strategy.model_dump(),
            "by_host": self.by_host,
            **({"split": [end - start for start, end in parts]} if self.strategy.splits_batches else {}),
            **self.sent_facts(),
        }

    def done_facts(self) -> dict[str, Any]:
        """Return the number of late gradients, and the bytes that a step was expected to send and has sent."""
        return {**self.step_facts(), **self.sent_facts()}

    def remark(self) -> str | None:
        """Return a remark about this strategy on these hosts, for the user; None without one."""
        return None if self.alone else self.strategy.remark(self.hosts)

    def report_activity(self, step: int, doing: str) -> None:
        """Record this worker's activity, for the watchdog."""
        activity.report_activity(step, doing)

    def report_run_dir(self, folder: Path) -> None:
        """Record the run directory, for the watchdog and the command that started the workers."""
        activity.report_run_dir(folder)

    def resume_options(self) -> list[str]:
        """Return `--workers N` if the command line started the workers."""
        return start_arguments(self.world_group.size)


def _by_host(sending: Callable[[tuple[int, ...]], CommEncoding], shape: tuple[int, ...]) -> CommEncoding:
    """Return the hierarchical form of a gradient's encoding."""
    encoding = sending(shape)
    return replace(encoding, encoding=by_host(encoding.encoding))


def pipeline_config(spec: TrainSpec, strategy: Pipeline, stage: int, stages: int) -> PipelineConfig:
    """Return the configuration of a pipeline in which each worker computes one stage."""
    begins: tuple[str, ...] = ()
    if stages > 1 and strategy.cuts == "auto":
        samples = -(-spec.data.train.batch_size // strategy.micro_batches)
        begins = balance_stages(spec.net, stages, samples, Precision(spec.train.precision))
    elif stages > 1:
        begins = tuple(strategy.cuts)
    return PipelineConfig(stages, stage, strategy.micro_batches, strategy.schedule == "1f1b", begins)


def _merge(compiler: Compiler, name: str, others: Sequence[Any], workers: int) -> None:
    """Merge a state of all previous workers into the initial value of each worker, whose number has changed."""
    parts = workers if compiler.info[name].role == "residual" else 1 + len(others)
    compiler.states.assign(name, mean_state(compiler.states[name], others, parts))


class _CompilerReplica:
    """Adapts a compiler's states to the interface `Replica` of strategies."""

    def __init__(self, compiler: Compiler) -> None:
        self.names, self.read, self.write = compiler.names, compiler.states.__getitem__, compiler.states.assign


class ServerStopVote(StopVote):
    """The servers' decision whether to stop or write a checkpoint."""

    def __init__(self, signals: Signals, servers: ServerConnection, step: int) -> None:
        super().__init__(signals)
        self._servers, self._step = servers, step

    @property
    def stop(self) -> bool:
        """Whether to stop after this step, or an earlier one."""
        return self._servers.stops(self._step)

    @property
    def snapshot(self) -> bool:
        """Whether to write a checkpoint after this step."""
        return self._servers.snapshots(self._step)


class WorkerStopVote(StopVote):
    """A pending vote of several workers on whether to stop or write a checkpoint."""

    def __init__(self, signals: Signals, workers: Communicator, *, votes: bool) -> None:
        """Start the vote; if the workers do not synchronize at this step, nobody votes, and both answers are False."""
        super().__init__(signals)
        self._workers, self._votes = workers if votes else None, np.zeros(2, np.float32)
        if votes:
            workers.finish(WorkerStopVote)  # the vote of an earlier batch of the same step
            self._votes = np.array([signals.stop is not None, signals.snapshot], np.float32)
            workers.in_flight[WorkerStopVote] = [workers.start_all_reduce(self._votes)]

    @property
    def stop(self) -> bool:
        """Whether to stop."""
        return self._voted(0)

    @property
    def snapshot(self) -> bool:
        """Whether to write a checkpoint."""
        return self._voted(1)

    def _voted(self, question: int) -> bool:
        if self._workers is not None:
            self._workers.finish(WorkerStopVote)
        return bool(self._votes[question])
