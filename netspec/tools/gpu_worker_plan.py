"""A step of several GPUs that need not be there: what each allocates, how long it takes at best, what exchange adds.

Computation and communication of a worker are simulated in the order of the plan, with one clock for each. A bucket is
sent in parallel with computation until a node joins it; other messages block. Kernels take the time of their
bottleneck (`gpu_costs.py`), messages that of the α–β model (`distributed/cost_model`). Communication through the
processor does not overlap and adds the copies from the GPU and back.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from netspec.backends.cuda.gpus import GPUS, Gpu
from netspec.distributed.communication_plan import strategy_messages
from netspec.distributed.cost_model.collectives import seconds
from netspec.distributed.cost_model.comm_volume import node_message
from netspec.distributed.cost_model.networks import NETWORKS, Cluster, Network
from netspec.distributed.fixed_order_step import fixed_order_messages
from netspec.distributed.strategies.pipeline import Pipeline
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.ops.all_reduce import CommunicationOp
from netspec.graph.ops.send_recv import Send
from netspec.graph.value import Node
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.gpu_plan import bounded
from netspec.tools.worker_plan import Compiled, each_kind

OF_A_HOST = 8
"""GPUs of a host, where nobody says how many."""


@dataclass(frozen=True)
class GpuWorkers:
    """A step of all of them."""

    name: str
    workers: int
    per_host: int
    batch: int
    """Samples of a step, of all workers."""
    samples: int
    """Of a batch, that a worker has at most."""
    memory_bytes: int
    needed_bytes: int
    """Of the worker that needs most."""
    step: float
    """Seconds."""
    compute: float
    """Of these, what the slowest worker computes; of a pipeline the waiting for other stages too."""
    exchange: float
    """Seconds that something is sent, hidden or not."""
    exposed: float
    """Of these, what is waited for."""
    hosted: int
    """Operations of a step that go through the processor."""
    within: str
    between: str
    """What connects them, with its figures."""
    notes: tuple[str, ...]
    """What the device says of how the step runs."""

    @property
    def title(self) -> str:
        """The full name of the GPU."""
        return GPUS[self.name].title

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def gpu_workers(spec: NetSpec | TrainSpec, name: str, workers: int, per_host: int, batch_size: int) -> GpuWorkers:
    """Compile the training as workers on such GPUs do. Raises as `each_kind`."""
    gpu, found = GPUS[name], each_kind(spec, workers, batch_size, name, per_host)
    clocks = [_clock(one, gpu, workers, per_host) for one in found]
    clock = max(clocks, key=lambda one: one.now)
    compute = clock.now - clock.exposed
    if isinstance(strategy := found[0].session.strategy, Pipeline) and workers > 1:
        compute *= (strategy.micro_batches + workers - 1) / strategy.micro_batches  # until the last stage has work
    batches = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    worker, memory = found[clocks.index(clock)], max(one.memory().nbytes for one in found)
    hosted = sum(
        choice.kernel.runs_on_host * times for plan, times in worker.programs for choice in plan.choices.values()
    )
    notes = dict.fromkeys(note for plan, _ in worker.programs for note in worker.compiler.device.notes(plan))
    return GpuWorkers(
        name, workers, per_host, batches * batch_size, worker.samples, gpu.memory, memory, compute + clock.exposed,
        compute, clock.busy, clock.exposed, hosted, _told(gpu.links.within), _told(gpu.links.between), tuple(notes),
    )  # fmt: skip


def _told(network: str) -> str:
    return NETWORKS[network].told()


class _Clock:
    """How far a worker is, and what it sends."""

    def __init__(self, gpu: Gpu, workers: int, per_host: int) -> None:
        between = NETWORKS[gpu.links.between]
        self.gpu = gpu
        self.cluster = Cluster(workers, between, NETWORKS[gpu.links.within], per_host)
        self.hosts = Cluster(workers, between, NETWORKS["shared-memory"], per_host)
        """By the processors."""
        self.copies: Network = NETWORKS[gpu.links.host]
        self.now = self.sent = self.busy = self.exposed = 0.0
        """Seconds from the begin: until which is computed, and sent; that something was sent, and waited for."""

    def run(self, plan: ExecutionPlan) -> None:
        """Follow a program."""
        steady, under_way = set(plan.order[: plan.invariant_count]), dict[Node, float]()
        for node in plan.order:
            if node in steady or node not in plan.choices:
                continue
            if plan.choices[node].kernel.runs_on_host:
                self._through_host(node)
            elif isinstance(node.op, CommunicationOp):
                self._sends(node, under_way)
            else:
                self.now += bounded(node, plan, self.gpu)[1]

    def wait(self, taken: float) -> None:
        """For a message that nothing hides."""
        self._wait_until(max(self.now, self.sent) + taken)
        self.sent, self.busy = self.now, self.busy + taken

    def _sends(self, node: Node, under_way: dict[Node, float]) -> None:
        """By NCCL: an operation that sends, or joins what was sent."""
        message = node_message(node, self.cluster)
        if message is None:
            self._wait_until(max((under_way.get(value.node, 0.0) for value in node.inputs), default=0.0))
            return
        taken = seconds(message.exchanges, self.cluster)
        if node.op.traits.async_start:
            self.sent, self.busy = max(self.now, self.sent) + taken, self.busy + taken
            under_way[node] = self.sent
        else:
            self.wait(taken)

    def _through_host(self, node: Node) -> None:
        message = node_message(node, self.hosts) if isinstance(node.op, CommunicationOp) else None
        if message is not None:
            self.wait(self.copied(message.nbytes) + seconds(message.exchanges, self.hosts))
        elif isinstance(node.op, Send):
            nbytes, network = node.inputs[0].type.nbytes, self.hosts.between
            if self.hosts.hosts == 1:
                network = self.hosts.within
            self.wait(self.copied(nbytes) + network.seconds(nbytes))

    def copied(self, nbytes: float) -> float:
        """Seconds to the processor and back."""
        return 2 * self.copies.seconds(nbytes)

    def _wait_until(self, then: float) -> None:
        self.exposed += max(0.0, then - self.now)
        self.now = max(self.now, then)


def _clock(one: Compiled, gpu: Gpu, workers: int, per_host: int) -> _Clock:
    """A worker's, after a step."""
    clock = _Clock(gpu, workers, per_host)
    for plan, times in one.programs:
        for _ in range(times):
            clock.run(plan)
    session, compiler = one.session, one.compiler
    told = [*strategy_messages(compiler, session.strategy, clock.hosts, batches=1)] if workers > 1 else []
    if session.shards is not None:
        batches = one.programs[0][1] // -(-session.shards // session.size)
        read = [(one.samples, one.samples * session.size)] * batches
        told = fixed_order_messages(compiler, session.shards, clock.hosts, read)
    for message in told:
        if message.starts != 0.0:  # the stop vote is sent while the step is computed
            taken = clock.copied(message.nbytes) + seconds(message.exchanges, clock.hosts)
            clock.wait(message.times / message.every * taken)
    return clock
