"""A step of distributed training: what each worker computes, what it sends meanwhile and after; its bytes, its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import NormalDist

from netspec.parallel.costs.collectives import ADDING, Algorithm, Exchanges, auto, seconds
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.overlap import BUCKET, FIRST_BUCKET, bucketed, serve
from netspec.parallel.costs.workload import Compute, Layer, Work
from netspec.parallel.encodings import SMALLEST


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
        """Samples of a step of all workers."""
        return self.samples * workers if self.per_worker else self.samples

    def work(self, workers: int) -> Work:
        """What one of so many workers computes in a step; where samples are left over, one that has one more."""
        return self.compute.at(-(-self.total(workers) // workers))

    @property
    def alone(self) -> float:
        """Samples a second of one worker by itself."""
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
    """In the order in which they are served."""
    after: Exchanges = ()
    """When backward, and all that was sent during it, is done; nothing hides it."""
    every: int = 1
    """The communication is that of every so many steps."""
    extra: float = 0.0
    """Seconds of computing that one worker alone would not have."""


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
    """How long a step of so many workers takes. Only the backward of the last batch of a step hides communication."""
    work = plan.work
    last = work.backward / work.accumulate
    schedule = serve((one.ready, seconds(one.exchanges, cluster, adding)) for one in plan.during)
    after = seconds(plan.after, cluster, adding)
    exposed = (max(0.0, schedule.end - last) + after) / plan.every
    compute = work.seconds + plan.extra
    # Steps between two averages are waited for together: their deviations partly cancel out.
    waiting = jitter * compute * _slowest(workers) / plan.every**0.5
    return Times(compute + exposed + waiting, compute, (schedule.busy + after) / plan.every, exposed, waiting)


def _slowest(workers: int) -> float:
    """The largest of so many normal deviates, in the mean (Blom 1958, "Statistical Estimates and Transformed …")."""
    return NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25)) if workers > 1 else 0.0


def gradients(work: Work, layers: Iterable[Layer] | None = None) -> list[tuple[Layer, float]]:
    """The layers in backward order, each with when its gradients are there, from the begin of the last backward."""
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
