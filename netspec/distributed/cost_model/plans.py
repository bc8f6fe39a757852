"""A model of a step of distributed training: its computation, its messages, and the bytes and seconds of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import NormalDist

from netspec.distributed.communicators.encodings import SMALLEST
from netspec.distributed.cost_model.collectives import ADDING, Algorithm, Exchanges, auto, seconds
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.cost_model.workload import ComputeModel, Layer, StepCost

FIRST_BUCKET = 256 * 2**10
"""Bytes of the first bucket: small, so that communication begins early (Li et al. 2020, "PyTorch Distributed")."""
BUCKET = 4 * 2**20
"""Bytes of the other buckets. Both are the defaults of `parallel: {strategy: all_reduce}`."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are sent together."""

    bytes: float
    """Bytes that are sent."""
    ready: float
    """Seconds from the start of backward until the last gradient is computed."""


@dataclass(frozen=True)
class ChannelSchedule:
    """Busy time and end of a channel that sends messages one after the other."""

    busy: float
    """Seconds in which the channel sends."""
    end: float
    """Seconds from the start of backward until the last message is sent; 0 without messages."""


def make_buckets(
    gradients: Iterable[tuple[float, float, float]], first: float = FIRST_BUCKET, others: float = BUCKET
) -> list[Bucket]:
    """Put gradients, in backward order, into buckets.

    Each gradient has its bytes, its encoded bytes, and the time when it is ready. Gradients are not split: a bucket may
    be larger than its nominal size.
    """
    buckets, nbytes_held, sent, ready = list[Bucket](), 0.0, 0.0, 0.0
    for nbytes, packed, at in gradients:
        if not nbytes:
            continue
        nbytes_held, sent, ready = nbytes_held + nbytes, sent + packed, max(ready, at)
        if nbytes_held >= (others if buckets else first):
            buckets.append(Bucket(sent, ready))
            nbytes_held = sent = 0.0
    return [*buckets, Bucket(sent, ready)] if nbytes_held else buckets


def schedule_channel(messages: Iterable[tuple[float, float]]) -> ChannelSchedule:
    """Send messages one after the other, in order, each as soon as it is ready and the channel is free.

    Each message has the time when it is ready, and its duration, in seconds.
    """
    free = busy = 0.0
    for ready, duration in messages:
        free, busy = max(free, ready) + duration, busy + duration
    return ChannelSchedule(busy, free)


@dataclass(frozen=True)
class TrainingJob:
    """The training run to model: computation of one worker, batch size, and settings of the strategies."""

    compute: ComputeModel
    samples: int
    """Samples of a step: of all workers together, or of each worker."""
    per_worker: bool = False
    """Whether `samples` is per worker (weak scaling) instead of for all workers (strong scaling)."""
    algorithm: Algorithm = auto
    first_bucket: float = FIRST_BUCKET
    bucket: float = BUCKET
    adding: float = ADDING
    """Seconds per byte that is added or packed."""
    jitter: float = 0.0
    """Standard deviation of a worker's computing time, relative to that time."""
    every: int = 8
    """Steps between averages of `local_sgd`."""
    averaged: float | None = None
    """Bytes of the states that `local_sgd` averages, including slots and statistics. None: as many as gradients."""
    centered: float | None = None
    """Bytes of the states that have a center in `elastic_averaging`. None: as many as gradients."""
    density: float = 0.01
    """Share of a gradient's elements that `top_k` sends."""
    smallest: int = SMALLEST
    """Gradients with fewer elements are sent unencoded by `one_bit` and `top_k`."""
    ways: Mapping[str, str] = field(default_factory=dict)
    """Ways in which `model` splits dense layers, by name: `columns`, `rows`, or `whole`; by default the cheapest."""
    servers: int | None = None
    """Number of server ranks of `parameter_server`; default: a quarter, at least one."""
    micro_batches: int | None = None
    """Micro-batches of `pipeline`; default: four per stage (Huang et al. 2019), at most one per sample."""

    def total(self, workers: int) -> int:
        """Return the number of samples that all workers together compute in a step."""
        return self.samples * workers if self.per_worker else self.samples

    def work(self, workers: int) -> StepCost:
        """Return the work of the worker that has the most samples in a step of `workers` workers."""
        return self.compute.at(-(-self.total(workers) // workers))

    @property
    def alone(self) -> float:
        """Samples per second of a single worker."""
        return self.samples / self.compute.at(self.samples).seconds


@dataclass(frozen=True)
class OverlappedMessage:
    """A message that is sent when it is ready, while backward continues."""

    ready: float
    """Seconds from the start of the last backward."""
    exchanges: Exchanges


@dataclass(frozen=True)
class StepModel:
    """Computation and messages of a step of a strategy."""

    work: StepCost
    during: tuple[OverlappedMessage, ...] = ()
    """Messages that are sent during backward, in the order in which they are sent."""
    after: Exchanges = ()
    """Exchanges after backward and its messages; no computation hides them."""
    every: int = 1
    """Number of steps from one communication to the next."""
    extra: float = 0.0
    """Seconds of computation that a single worker would not need."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that are sent in a step."""

    by_role: dict[str, float]
    """Mean bytes that a rank sends, by its role: `worker`, `server`."""
    total: float
    """Bytes that all ranks send together."""
    between_hosts: float
    """Bytes sent to other hosts."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step."""

    step: float
    compute: float
    """Computation of a worker, including the update, packing and unpacking."""
    communication: float
    """Time in which the network is busy."""
    exposed: float
    """Part of the communication that computation does not hide."""
    waiting: float
    """Time spent waiting for the slowest worker."""


def traffic(plan: StepModel, ranks: dict[str, int]) -> Traffic:
    """Return the bytes of a step; `ranks` is the number of ranks of each role."""
    exchanges = [exchange for message in plan.during for exchange in message.exchanges] + list(plan.after)
    by_role = dict.fromkeys(ranks, 0.0)
    for exchange in exchanges:
        by_role[exchange.role] += exchange.sent / ranks[exchange.role] / plan.every
    total, leaving = (sum(getattr(exchange, part) for exchange in exchanges) / plan.every for part in ("sent", "left"))
    return Traffic(by_role, total, leaving)


def times(plan: StepModel, cluster: Cluster, workers: int, *, adding: float = ADDING, jitter: float = 0.0) -> StepTimes:
    """Estimate the time of a step of `workers` workers. Only backward of the last batch hides communication."""
    work = plan.work
    last = work.backward / work.accumulate
    schedule = schedule_channel((message.ready, seconds(message.exchanges, cluster, adding)) for message in plan.during)
    after = seconds(plan.after, cluster, adding)
    exposed = (max(0.0, schedule.end - last) + after) / plan.every
    compute = work.seconds + plan.extra
    # Workers wait once per communication; the deviations of the steps between two communications partly cancel out.
    waiting = jitter * compute * _expected_maximum(workers) / plan.every**0.5
    return StepTimes(compute + exposed + waiting, compute, (schedule.busy + after) / plan.every, exposed, waiting)


def _expected_maximum(workers: int) -> float:
    """Return the expected maximum of `workers` standard normal values (Blom 1958, "Statistical Estimates and …")."""
    return NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0


def gradients(work: StepCost, layers: Iterable[Layer] | None = None) -> list[tuple[Layer, float]]:
    """Return the layers in backward order, each with the time in the last backward when its gradients are ready."""
    backwards = work.layers[::-1]
    ends = accumulate(layer.backward / work.accumulate for layer in backwards)
    names = None if layers is None else {layer.name for layer in layers}
    return [(layer, end) for layer, end in zip(backwards, ends, strict=True) if names is None or layer.name in names]


def messages(
    job: TrainingJob,
    ready_layers: Iterable[tuple[Layer, float]],
    send: Callable[[float], Exchanges],
    nbytes: Callable[[Layer], float] = lambda layer: layer.nbytes,
) -> tuple[OverlappedMessage, ...]:
    """Put gradients into buckets; `send` returns a bucket's exchanges, `nbytes` the encoded bytes of a layer."""
    parts = ((layer.nbytes, nbytes(layer), ready) for layer, ready in ready_layers)
    buckets = make_buckets(parts, job.first_bucket, job.bucket)
    return tuple(OverlappedMessage(bucket.ready, send(bucket.bytes)) for bucket in buckets)


def update_share(work: StepCost, share: float, layers: Iterable[Layer] | None = None) -> StepCost:
    """Return the costs with the update of some layers (default: all) multiplied by `share`."""
    names = {layer.name for layer in (work.layers if layers is None else layers)}
    changed = tuple(
        replace(layer, update=layer.update * share) if layer.name in names else layer for layer in work.layers
    )
    return replace(work, layers=changed)
