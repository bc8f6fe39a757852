"""A step of several GPUs that need not be there: what each allocates, how long it takes at best, what exchange adds.

Computation and communication of a worker are simulated in the order of the plan, with one clock for each. A bucket is
sent in parallel with computation until a node joins it; other messages block. Kernels take the time of their
bottleneck (`gpu_costs.py`), messages that of the α–β model (`distributed/cost_model`). Communication through the
CPU does not overlap and adds the copies from the GPU and back.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from netspec.tools.plain_data import PlainData
from netspec.tools.planning.gpu_plan import bounded
from netspec.tools.planning.worker_plan import CompiledWorker, compile_distinct_workers

OF_A_HOST = 8
"""Default number of GPUs per host."""


@dataclass(frozen=True)
class GpuWorkers(PlainData):
    """A step of all GPUs of a training."""

    name: str
    workers: int
    per_host: int
    batch: int
    """Samples of a step, of all workers."""
    samples: int
    """Largest number of samples of a worker in a batch."""
    memory_bytes: int
    needed_bytes: int
    """Bytes of the worker that needs most."""
    step: float
    """Seconds."""
    compute: float
    """Seconds that the slowest worker computes; in a pipeline including the wait for other stages."""
    exchange: float
    """Seconds that something is sent, hidden or not."""
    exposed: float
    """Seconds that the step waits for communication."""
    hosted: int
    """Operations of a step that go through the CPU."""
    within: str
    between: str
    """The network between hosts, with its figures."""
    notes: tuple[str, ...]
    """Remarks of the device about the step."""

    @property
    def title(self) -> str:
        """The full name of the GPU."""
        return GPUS[self.name].title


def gpu_workers(spec: NetSpec | TrainSpec, name: str, workers: int, per_host: int, batch_size: int) -> GpuWorkers:
    """Compile the training as workers on such GPUs do. Raises the errors of `compile_distinct_workers`."""
    gpu, compiled = GPUS[name], compile_distinct_workers(spec, workers, batch_size, name, per_host)
    clocks = [_clock(worker, gpu, workers, per_host) for worker in compiled]
    clock = max(clocks, key=lambda candidate: candidate.now)
    compute = clock.now - clock.exposed
    if isinstance(strategy := compiled[0].session.strategy, Pipeline) and workers > 1:
        # The pipeline fills before the last stage has work.
        compute *= (strategy.micro_batches + workers - 1) / strategy.micro_batches
    batches = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    worker, memory = compiled[clocks.index(clock)], max(compiled_worker.memory().nbytes for compiled_worker in compiled)
    hosted = sum(
        choice.kernel.runs_on_host * times for plan, times in worker.programs for choice in plan.choices.values()
    )
    notes = dict.fromkeys(note for plan, _ in worker.programs for note in worker.compiler.device.notes(plan))
    return GpuWorkers(
        name, workers, per_host, batches * batch_size, worker.samples, gpu.memory, memory, compute + clock.exposed,
        compute, clock.busy, clock.exposed, hosted,
        _describe_network(gpu.links.within), _describe_network(gpu.links.between), tuple(notes),
    )  # fmt: skip


def _describe_network(network: str) -> str:
    return NETWORKS[network].describe()


class _Clock:
    """Simulated clocks of a worker and of its messages."""

    def __init__(self, gpu: Gpu, workers: int, per_host: int) -> None:
        between = NETWORKS[gpu.links.between]
        self.gpu = gpu
        self.cluster = Cluster(workers, between, NETWORKS[gpu.links.within], per_host)
        self.hosts = Cluster(workers, between, NETWORKS["shared-memory"], per_host)
        """Hosts for messages through host memory."""
        self.copies: Network = NETWORKS[gpu.links.host]
        self.now = self.sent = self.busy = self.exposed = 0.0
        """Seconds since the start: of computation and of messages; seconds of sending, and of waiting."""

    def run(self, plan: ExecutionPlan) -> None:
        """Simulate a program."""
        invariant, under_way = set(plan.order[: plan.invariant_count]), dict[Node, float]()
        for node in plan.order:
            if node in invariant or node not in plan.choices:
                continue
            if plan.choices[node].kernel.runs_on_host:
                self._through_host(node)
            elif isinstance(node.op, CommunicationOp):
                self._communicate(node, under_way)
            else:
                self.now += bounded(node, plan, self.gpu)[1]

    def wait(self, duration: float) -> None:
        """Simulate a blocking message, which nothing hides."""
        self._wait_until(max(self.now, self.sent) + duration)
        self.sent, self.busy = self.now, self.busy + duration

    def _communicate(self, node: Node, under_way: dict[Node, float]) -> None:
        """Simulate an operation that starts a message over NCCL, or that waits for one."""
        message = node_message(node, self.cluster)
        if message is None:
            self._wait_until(max((under_way.get(value.node, 0.0) for value in node.inputs), default=0.0))
            return
        duration = seconds(message.exchanges, self.cluster)
        if node.op.traits.async_start:
            self.sent, self.busy = max(self.now, self.sent) + duration, self.busy + duration
            under_way[node] = self.sent
        else:
            self.wait(duration)

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
        """Seconds to copy a buffer to the CPU and back."""
        return 2 * self.copies.seconds(nbytes)

    def _wait_until(self, until: float) -> None:
        self.exposed += max(0.0, until - self.now)
        self.now = max(self.now, until)


def _clock(worker: CompiledWorker, gpu: Gpu, workers: int, per_host: int) -> _Clock:
    """Return the clock of a worker after a step."""
    clock = _Clock(gpu, workers, per_host)
    for plan, times in worker.programs:
        for _ in range(times):
            clock.run(plan)
    session, compiler = worker.session, worker.compiler
    messages = [*strategy_messages(compiler, session.strategy, clock.hosts, batches=1)] if workers > 1 else []
    if session.shards is not None:
        batches = worker.programs[0][1] // -(-session.shards // session.size)
        read = [(worker.samples, worker.samples * session.size)] * batches
        messages = fixed_order_messages(compiler, session.shards, clock.hosts, read)
    for message in messages:
        if message.starts != 0.0:  # the stop vote is sent while the step is computed
            duration = clock.copied(message.nbytes) + seconds(message.exchanges, clock.hosts)
            clock.wait(message.times / message.every * duration)
    return clock
