"""A step of distributed training: what each worker computes, what it sends meanwhile and after; its bytes, its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import NormalDist

from netspec.distributed.communicators.encodings import SMALLEST
from netspec.distributed.cost_model.collectives import ADDING, Algorithm, Exchanges, auto, seconds
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.cost_model.workload import Compute, Layer, Work

FIRST_BUCKET = 256 * 2**10
"""Bytes of the first bucket: small, so that communication begins early (Li et al. 2020, "PyTorch Distributed")."""
BUCKET = 4 * 2**20
"""Bytes of the others; both as `parallel: {strategy: all_reduce}` has them by default."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are sent together."""

    bytes: float
    """That are sent."""
    ready: float
    """Seconds from the begin of backward until the last of them is there."""


@dataclass(frozen=True)
class Schedule:
    """When a channel had done its work."""

    busy: float
    """Seconds that it worked."""
    end: float
    """Seconds from the begin of backward until the last bucket is through; 0 where there is none."""


def bucketed(
    gradients: Iterable[tuple[float, float, float]], first: float = FIRST_BUCKET, others: float = BUCKET
) -> list[Bucket]:
    """Gradients in backward order put together until a bucket is full.

    Of each: its bytes, the bytes that it is sent in, and when it is ready. None is split: a bucket is at least as large
    as its largest one.
    """
    found, held, sent, ready = list[Bucket](), 0.0, 0.0, 0.0
    for nbytes, packed, at in gradients:
        if not nbytes:
            continue
        held, sent, ready = held + nbytes, sent + packed, max(ready, at)
        if held >= (others if found else first):
            found.append(Bucket(sent, ready))
            held = sent = 0.0
    return [*found, Bucket(sent, ready)] if held else found


def serve(messages: Iterable[tuple[float, float]]) -> Schedule:
    """One message after the other, in their order, each when it is ready and the channel free.

    Of each: when it is ready, and the seconds that it takes.
    """
    free = busy = 0.0
    for ready, taken in messages:
        free, busy = max(free, ready) + taken, busy + taken
    return Schedule(busy, free)


@dataclass(frozen=True)
class Job:
    """A training to be spread: what one worker computes, the batch, and how strategies are set."""

    compute: Compute
    samples: int
    """Of a step: of all workers together, or of each of them."""
    per_worker: bool = False
    """Which of the two: more workers then see more samples a step (weak scaling) instead of fewer each (strong)."""
    algorithm: Algorithm = auto
    first_bucket: float = FIRST_BUCKET
    bucket: float = BUCKET
    adding: float = ADDING
    """Seconds a byte that is added up, or packed."""
    jitter: float = 0.0
    """Standard deviation of a worker's computing time, as a share of it."""
    every: int = 8
    """Steps between averages of `local_sgd`."""
    averaged: float | None = None
    """Bytes of what `local_sgd` averages: what solver and layers remember too. None: as many as gradients."""
    centered: float | None = None
    """Bytes of the states that have a center in `elastic_averaging`. None: as many as gradients."""
    density: float = 0.01
    """Share of a gradient's numbers that `top_k` sends."""
    smallest: int = SMALLEST
    """Gradients with fewer numbers are sent as they are by `one_bit` and `top_k`."""
    ways: Mapping[str, str] = field(default_factory=dict)
    """How `model` has dense layers, by their names: by `columns`, by `rows`, or `whole`; the others as sends least."""
    servers: int | None = None
    """Ranks that are servers of `parameter_server`; default: a quarter, at least one."""
    micro_batches: int | None = None
    """Micro-batches of `pipeline`; default: four times as many as stages (Huang et al. 2019), or as samples."""

    def total(self, workers: int) -> int:
        """Return the number of samples that all workers together compute in a step."""
        return self.samples * workers if self.per_worker else self.samples

    def work(self, workers: int) -> Work:
        """Return the work of the worker with the most samples in a step of `workers` workers."""
        return self.compute.at(-(-self.total(workers) // workers))

    @property
    def alone(self) -> float:
        """Samples per second of a single worker."""
        return self.samples / self.compute.at(self.samples).seconds


@dataclass(frozen=True)
class Message:
    """What is sent as soon as it is ready, while backward goes on."""

    ready: float
    """Seconds from the begin of the last backward."""
    exchanges: Exchanges


@dataclass(frozen=True)
class Plan:
    """A step of a strategy."""

    work: Work
    during: tuple[Message, ...] = ()
    """Messages that are sent during backward, in the order in which they are sent."""
    after: Exchanges = ()
    """Exchanges after backward and its messages; no computation hides them."""
    every: int = 1
    """Number of steps from one communication to the next."""
    extra: float = 0.0
    """Seconds of computation that a single worker would not need."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of a step."""

    by_role: dict[str, float]
    """What a rank sends, by its role: `worker`, `server`; the mean where they differ."""
    total: float
    """What all ranks send together."""
    between_hosts: float
    """Of these, what leaves a host."""


@dataclass(frozen=True)
class Times:
    """Seconds of a step."""

    step: float
    compute: float
    """Of a worker, the update and what is packed and unpacked included."""
    communication: float
    """That the network is at work."""
    exposed: float
    """Of these, what computation does not hide."""
    waiting: float
    """For the slowest worker."""


def traffic(plan: Plan, ranks: dict[str, int]) -> Traffic:
    """What a step sends; `ranks` is how many there are of each role. Needs no network."""
    exchanges = [one for message in plan.during for one in message.exchanges] + list(plan.after)
    by_role = dict.fromkeys(ranks, 0.0)
    for one in exchanges:
        by_role[one.role] += one.sent / ranks[one.role] / plan.every
    total, left = (sum(getattr(one, part) for one in exchanges) / plan.every for part in ("sent", "left"))
    return Traffic(by_role, total, left)


def times(plan: Plan, cluster: Cluster, workers: int, *, adding: float = ADDING, jitter: float = 0.0) -> Times:
    """Estimate the time of a step of `workers` workers. Only the backward of its last batch hides communication."""
    work = plan.work
    last = work.backward / work.accumulate
    schedule = serve((one.ready, seconds(one.exchanges, cluster, adding)) for one in plan.during)
    after = seconds(plan.after, cluster, adding)
    exposed = (max(0.0, schedule.end - last) + after) / plan.every
    compute = work.seconds + plan.extra
    # Workers wait once per communication: the deviations of the steps before it partly cancel out.
    waiting = jitter * compute * _slowest(workers) / plan.every**0.5
    return Times(compute + exposed + waiting, compute, (schedule.busy + after) / plan.every, exposed, waiting)


def _slowest(workers: int) -> float:
    """Return the expected maximum of `workers` standard normal values (Blom 1958, "Statistical Estimates and …")."""
    return NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0


def gradients(work: Work, layers: Iterable[Layer] | None = None) -> list[tuple[Layer, float]]:
    """Return the layers in backward order, each with the time at which its gradients are ready in the last backward."""
    backwards = work.layers[::-1]
    ends = accumulate(layer.backward / work.accumulate for layer in backwards)
    wanted = None if layers is None else {layer.name for layer in layers}
    return [(one, end) for one, end in zip(backwards, ends, strict=True) if wanted is None or one.name in wanted]


def messages(
    job: Job,
    found: Iterable[tuple[Layer, float]],
    send: Callable[[float], Exchanges],
    nbytes: Callable[[Layer], float] = lambda layer: layer.nbytes,
) -> tuple[Message, ...]:
    """Gradients in buckets, each sent as `send` says of its bytes; `nbytes` is what a layer's are sent in."""
    parts = ((layer.nbytes, nbytes(layer), ready) for layer, ready in found)
    buckets = bucketed(parts, job.first_bucket, job.bucket)
    return tuple(Message(one.ready, send(one.bytes)) for one in buckets)


def update_share(work: Work, share: float, layers: Iterable[Layer] | None = None) -> Work:
    """The work with a share of the update of some layers (default: of all)."""
    wanted = {layer.name for layer in (work.layers if layers is None else layers)}
    changed = tuple(replace(one, update=one.update * share) if one.name in wanted else one for one in work.layers)
    return replace(work, layers=changed)
