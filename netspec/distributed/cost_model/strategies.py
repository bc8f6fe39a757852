"""Models of the strategies by name: the messages of a step, why a strategy is impossible, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from netspec.distributed.communicators.encodings import Encoding, OneBitEncoding, TopKEncoding, should_compress
from netspec.distributed.cost_model.collectives import (
    ADDING,
    Algorithm,
    Exchange,
    Exchanges,
    all_gather,
    all_to_all,
    hierarchical,
    reduce_scatter,
    seconds,
)
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.cost_model.plans import (
    OverlappedMessage,
    StepModel,
    StepTimes,
    Traffic,
    TrainingJob,
    gradients,
    messages,
    times,
    traffic,
    update_share,
)
from netspec.distributed.cost_model.workload import DenseShape, Layer, StepCost, cut


def factor_bytes(dense: DenseShape, batch: float) -> float:
    """Return the bytes of a dense layer's factors for a worker's samples: its inputs and its output gradients."""
    return 4.0 * batch * dense.positions * (dense.inputs + dense.units)


def factors_pay(
    parts: Sequence[DenseShape],
    batch: float,
    recompute_seconds: float,
    cluster: Cluster,
    matrix: Algorithm,
    adding: float = ADDING,
) -> bool:
    """Return whether sending the factors of a matrix takes less time than an all-reduce of the matrix.

    `recompute_seconds` is the time in which a worker multiplies the factors of all others, `matrix` the all-reduce.
    """
    sent = sum(seconds(all_gather(cluster.ranks * factor_bytes(part, batch), cluster), cluster) for part in parts)
    return sent + recompute_seconds < seconds(matrix(parts[0].nbytes, cluster), cluster, adding)


def sufficient_factors(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model sufficient factors: dense layers send the factors u, v of their gradients if that is faster than u vᵀ.

    Zhang et al. 2017, "Poseidon", section 3.2; Chilimbi et al. 2014, "Project Adam". Each worker multiplies the factors
    of every other worker, which costs half of its own backward each.
    """
    work, p = job.work(cluster.ranks), cluster.ranks
    sent, extra, unfactored = list[OverlappedMessage](), 0.0, list[tuple[Layer, float]]()
    for layer, ready in gradients(work):
        if layer.dense is None:
            unfactored.append((layer, ready))
            continue
        recompute_seconds = (p - 1) * layer.backward / 2
        if not factors_pay([layer.dense], work.batch, recompute_seconds, cluster, job.algorithm, job.adding):
            unfactored.append((layer, ready))
            continue
        factors = all_gather(p * factor_bytes(layer.dense, work.batch), cluster)
        extra += recompute_seconds
        bias_bytes = layer.nbytes - layer.dense.nbytes  # the bias
        sent.append(OverlappedMessage(ready, (*factors, *(job.algorithm(bias_bytes, cluster) if bias_bytes else ()))))
    sent += messages(job, unfactored, lambda nbytes: job.algorithm(nbytes, cluster))
    return StepModel(work, tuple(sorted(sent, key=lambda message: message.ready)), extra=extra)


WHOLE, COLUMNS, ROWS = "whole", "columns", "rows"
"""Ways to store the matrix of a dense layer: in full on each worker, or split."""
NO_SPLIT = "no Dense layer can be split into equal parts, or splitting would send more than its gradients"
_Sent: TypeAlias = tuple[float, tuple[str, ...]]
"""Number of elements that are sent, and the splits of the layers so far."""


def choose_splits(
    layers: Sequence[tuple[str, DenseShape]],
    samples: float,
    workers: int,
    fixed: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Choose the splits of dense layers for which a step of `samples` samples sends least; keep `fixed` choices.

    If a layer is not split, its gradients are summed. If it is split by columns, a worker gathers the inputs, unless
    it already has their columns; if by rows, it needs columns of the inputs, and the outputs are reduce-scattered.
    Backward sends the same amount again. All parts have equal size. Dynamic programming over whether a layer's outputs
    are split by columns.
    """
    best: dict[str, _Sent] = {WHOLE: (0.0, ())}
    """Fewest elements sent so far, and the splits, by whether workers hold columns of the outputs or all of them."""
    before = 0.0
    for name, layer in layers:
        rows = samples * layer.positions
        if not layer.follows:
            best = {WHOLE: _cheapest(best, before, workers)}
        next_best: dict[str, _Sent] = {}
        for have, start in best.items():
            plain = _regathered(start, before, workers) if have == COLUMNS else start
            costs: dict[str, tuple[_Sent, float]] = {WHOLE: (plain, layer.inputs * layer.units)}
            if layer.units % workers == 0:
                costs[COLUMNS] = start, rows * layer.inputs
            if layer.inputs % workers == 0:
                costs[ROWS] = start, rows * (layer.units + (0 if have == COLUMNS else layer.inputs / workers))
            for way, ((sent, ways), more) in costs.items():
                if fixed.get(name, way) == way:
                    layout = COLUMNS if way == COLUMNS else WHOLE
                    candidate = sent + more, (*ways, way)
                    next_best[layout] = min(next_best.get(layout, candidate), candidate, key=lambda this: this[0])
        best, before = next_best, rows * layer.units
    ways = _cheapest(best, before, workers)[1]
    return dict(zip([name for name, _ in layers], ways, strict=True))


def _cheapest(best: Mapping[str, _Sent], outputs: float, workers: int) -> _Sent:
    """Return the cheapest choice after which each worker has all columns of its own samples."""
    ends = [_regathered(choice, outputs, workers) if layout == COLUMNS else choice for layout, choice in best.items()]
    return min(ends, key=lambda this: this[0])


def _regathered(choice: _Sent, outputs: float, workers: int) -> _Sent:
    """Add the cost of gathering all columns of each worker's own samples to a choice."""
    return choice[0] + outputs / workers, choice[1]


def uneven_split_reason(name: str, dense: DenseShape, way: str, workers: int) -> str | None:
    """Return why a dense layer can't be split into equal parts; None if it can."""
    count, dimension = (dense.units, "units") if way == COLUMNS else (dense.inputs, "inputs")
    return (
        f"the {count:,} {dimension} of {name} do not divide by {workers:,}"
        if count % workers and way != WHOLE
        else None
    )


def _dense(work: StepCost) -> list[tuple[str, DenseShape]]:
    return [(layer.name, layer.dense) for layer in work.layers if layer.dense is not None]


def unsplittable_reason(job: TrainingJob, workers: int) -> str | None:
    """Return why no dense layer can be split over `workers` workers, or not as the job says; None if one can."""
    layers = _dense(job.work(workers))
    if not layers:
        return "there is no Dense layer"
    for name, layer in layers:
        reason = uneven_split_reason(name, layer, job.ways.get(name, WHOLE), workers)
        if reason is not None:
            return reason
    ways = choose_splits(layers, job.total(workers), workers, job.ways)
    return NO_SPLIT if set(ways.values()) == {WHOLE} else None


def model(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model tensor parallelism: each rank holds a part of each dense matrix; the rest, biases too, is data-parallel.

    Krizhevsky 2014, "One weird trick", section 4: if a matrix is split by columns, every rank gathers the inputs of the
    full batch, and in backward their gradients are reduce-scattered; unless another split layer follows, each rank
    receives the outputs of its own samples from the others. If it is split by rows, each rank receives columns of the
    inputs, unless it has them, and the outputs are reduce-scattered (Shoeybi et al. 2019, "Megatron-LM", section 3).
    The amount of computation does not change: each rank multiplies all samples by 1/p of the matrix.
    """
    work, p = job.work(cluster.ranks), cluster.ranks
    layers = _dense(work)
    ways = choose_splits(layers, job.total(p), p, job.ways)
    after, have = list[Exchange](), 0.0
    """`have`: bytes of a worker's columns of the previous layer's outputs if it has no others; otherwise 0."""
    for name, dense in layers:
        inputs, outputs = (4.0 * p * work.batch * dense.positions * count for count in (dense.inputs, dense.units))
        if have and (not dense.follows or ways[name] == WHOLE):
            after += 2 * all_to_all(have, cluster)
            have = 0.0
        if ways[name] == COLUMNS:
            after += [*all_gather(inputs, cluster), *reduce_scatter(inputs, cluster)]
        elif ways[name] == ROWS:
            after += [] if have else 2 * all_to_all(inputs / p, cluster)
            after += [*reduce_scatter(outputs, cluster), *all_gather(outputs, cluster)]
        have = outputs / p if ways[name] == COLUMNS else 0.0
    after += 2 * all_to_all(have, cluster) if have else ()
    parted = [layer for layer in work.layers if ways.get(layer.name, WHOLE) != WHOLE]
    matrices = {name: (layer.inputs, layer.units) for name, layer in layers if ways[name] != WHOLE}
    ready_layers = [
        (replace(layer, parameters=_shapes_without(layer.parameters, matrices.get(layer.name))), ready)
        for layer, ready in gradients(work)
    ]
    sent = messages(job, ready_layers, lambda nbytes: job.algorithm(nbytes, cluster))
    return StepModel(update_share(work, 1 / p, parted), sent, after=tuple(after))


def _shapes_without(shapes: Sequence[tuple[int, ...]], matrix: tuple[int, int] | None) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a layer's parameters except the matrix."""
    remaining = list(shapes)
    if matrix is not None:
        remaining.remove(matrix)
    return tuple(remaining)


def micro_batches(job: TrainingJob, stages: int) -> int:
    """Return the number of micro-batches of a batch."""
    return job.micro_batches if job.micro_batches is not None else max(1, min(4 * stages, job.total(stages)))


def pipeline(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model a pipeline of p balanced stages, one per rank, with m micro-batches.

    Forward and backward of m micro-batches take m + p - 1 times as long as those of one in the slowest stage.
    Activations and their gradients are sent to the neighbor; computation does not hide that.
    """
    stages, parts = cluster.ranks, micro_batches(job, cluster.ranks)
    part = job.compute.at(-(-job.total(stages) // parts))
    begins = cut([layer.forward + layer.backward for layer in part.layers], stages)
    cuts = [*begins, len(part.layers)]
    spans = [part.layers[start:end] for start, end in pairwise(cuts)]
    slowest = max(spans, key=lambda span: sum(layer.forward + layer.backward for layer in span))
    turns = parts + stages - 1
    stage = Layer(
        "stage", (),
        forward=turns * sum(layer.forward for layer in slowest),
        backward=turns * sum(layer.backward for layer in slowest),
        update=max(sum(layer.update for layer in span) for span in spans),
    )  # fmt: skip
    work = replace(part, batch=job.total(stages), layers=(stage,), overhead=part.overhead * parts)
    return StepModel(work, after=_stage_exchanges(part, begins[1:], parts, turns - 1, cluster))


def _stage_exchanges(part: StepCost, begins: Sequence[int], parts: int, rounds: int, cluster: Cluster) -> Exchanges:
    """Return the messages between stages, forward and backward; the largest message determines the time."""
    carried = [part.batch * part.layers[begin - 1].output for begin in begins]
    if not any(carried):
        return ()
    senders = parts * sum(carried) / (rounds * max(carried))  # so that the total is the bytes of all cuts
    leave = senders * (cluster.hosts - 1) / len(carried)
    return 2 * (Exchange(rounds, max(carried), senders, leave),)


def split_ranks(job: TrainingJob, ranks: int) -> dict[str, int]:
    """Return the number of workers and of servers among `ranks` ranks."""
    servers = job.servers if job.servers is not None else max(1, ranks // 4)
    return {"worker": ranks - servers, "server": servers}


def worker_server_exchange(nbytes: float, role: str, roles: Mapping[str, int], cluster: Cluster) -> Exchange:
    """Return the exchange of `nbytes` bytes between each worker and all servers, a part per server; `role` sends.

    In a round, every worker exchanges with a different server; there are as many rounds as workers, or as servers if
    these are more.
    """
    meeting, rounds = min(roles.values()), max(roles.values())
    crossing = meeting if cluster.hosts > 1 else 0
    flows = max(1.0, meeting / cluster.hosts) if crossing else 1.0
    return Exchange(rounds, nbytes / roles["server"], meeting, crossing, flows, adds=role == "worker", role=role)


def parameter_server(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model parameter servers: each of S servers has 1/S of every bucket.

    Gradients are pushed while backward continues, and new weights are fetched afterwards: n bytes each for each worker.
    """
    roles = split_ranks(job, cluster.ranks)
    work = job.work(roles["worker"])
    pushed: tuple[OverlappedMessage, ...] = messages(
        job, gradients(work), lambda nbytes: (worker_server_exchange(nbytes, "worker", roles, cluster),)
    )
    full_sizes = [sum(exchange.bytes for exchange in message.exchanges) * roles["server"] for message in pushed]
    pulled = tuple(worker_server_exchange(nbytes, "server", roles, cluster) for nbytes in full_sizes)
    # The servers update, each its own part, when the last gradient has arrived.
    layers = tuple(replace(layer, update=layer.update / roles["server"]) for layer in work.layers)
    return StepModel(replace(work, layers=layers), pushed, after=pulled)


def all_reduce(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model all-reduce: gradients are summed in float32, in buckets, while backward continues."""
    work = job.work(cluster.ranks)
    return StepModel(work, messages(job, gradients(work), lambda nbytes: job.algorithm(nbytes, cluster)))


def all_reduce_bfloat16(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model all-reduce in 16 bits: half the bytes, and a pass over the gradients before and after."""
    work = job.work(cluster.ranks)
    sent = messages(job, gradients(work), lambda nbytes: job.algorithm(nbytes, cluster), lambda layer: layer.nbytes / 2)
    return StepModel(work, sent, extra=2 * work.nbytes * job.adding)


def hierarchical_all_reduce(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model hierarchical all-reduce: within hosts, then between hosts (Goyal et al. 2017, section 4)."""
    work = job.work(cluster.ranks)
    return StepModel(work, messages(job, gradients(work), lambda nbytes: hierarchical(nbytes, cluster)))


def sharded_optimizer(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model a sharded optimizer: each rank reduces 1/p of the gradients, updates 1/p of the weights; all gather.

    ZeRO-1 (Rajbhandari et al. 2020): the bytes of a ring, 1/p of the update and of the solver's states. The all-gather
    follows the update, so computation does not hide it.
    """
    work = job.work(cluster.ranks)
    sent = messages(job, gradients(work), lambda nbytes: reduce_scatter(nbytes, cluster))
    return StepModel(update_share(work, 1 / cluster.ranks), sent, after=all_gather(work.nbytes, cluster))


def elastic_averaging(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model elastic averaging: each worker steps alone; every N steps differences from a center are summed.

    The synchronous form of Zhang, Choromanska and LeCun 2015.
    """
    work = job.work(cluster.ranks)
    nbytes = work.nbytes if job.centered is None else job.centered
    return StepModel(work, after=(*all_to_all(nbytes, cluster), *all_gather(nbytes, cluster)), every=job.every)


def hogwild(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model Hogwild: each worker steps alone, on weights shared by all workers of the host (Niu et al. 2011).

    Nothing is sent. A worker rereads all weights in each step, since other workers have updated them in their caches.
    """
    work = job.work(cluster.ranks)
    return StepModel(work, extra=work.nbytes * job.adding)


def local_sgd(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model local SGD: each worker steps alone; every N steps all states are averaged.

    Moritz et al. 2016, "SparkNet", average only the weights.
    """
    work = job.work(cluster.ranks)
    nbytes = work.nbytes if job.averaged is None else job.averaged
    return StepModel(work, after=job.algorithm(nbytes, cluster), every=job.every)


PASSES = 4
"""Passes over the gradients and their residuals, for packing and unpacking."""


def one_bit(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model 1-bit SGD: one bit per element, and two float32 values per column (Seide et al. 2014)."""
    return _gathered(job, cluster, OneBitEncoding())


def top_k(job: TrainingJob, cluster: Cluster) -> StepModel:
    """Model top-k compression: the largest elements with their indices, 4 bytes each (Aji and Heafield 2017)."""
    return _gathered(job, cluster, TopKEncoding(job.density))


def _gathered(job: TrainingJob, cluster: Cluster, form: Encoding) -> StepModel:
    """Model encodings that are all-gathered, because sums can't be encoded: traffic grows with the number of ranks.

    Vectors, such as biases, and small parameters are all-reduced unencoded.
    """
    work = job.work(cluster.ranks)
    ready_layers = gradients(work)

    def encoded(layer: Layer) -> float:
        return float(sum(form.nbytes(shape, 4) for shape in layer.parameters if should_compress(shape, job.smallest)))

    def plain(layer: Layer) -> float:
        return 4.0 * sum(prod(shape) for shape in layer.parameters if not should_compress(shape, job.smallest))

    sent = (
        *messages(job, ready_layers, lambda nbytes: all_gather(cluster.ranks * nbytes, cluster), encoded),
        *messages(job, ready_layers, lambda nbytes: job.algorithm(nbytes, cluster), plain),
    )
    in_order = tuple(sorted(sent, key=lambda message: message.ready))
    return StepModel(work, in_order, extra=PASSES * work.nbytes * job.adding)


@dataclass(frozen=True)
class StrategyModel:
    """The model of a strategy."""

    plan: Callable[[TrainingJob, Cluster], StepModel]
    reject_reason: Callable[[TrainingJob, Cluster], str | None]
    """Returns why the strategy can't run on a cluster; None if it can."""
    roles: Callable[[TrainingJob, int], dict[str, int]] = lambda _, ranks: {"worker": ranks}
    """Returns the number of ranks by role."""


def _samples_for_all(job: TrainingJob, cluster: Cluster) -> str | None:
    if job.total(cluster.ranks) < cluster.ranks:
        return f"a batch of {job.total(cluster.ranks):,} is too small for {cluster.ranks:,} workers"
    return None


def _several_a_host(job: TrainingJob, cluster: Cluster) -> str | None:
    return _samples_for_all(job, cluster) or (
        None if 1 < cluster.on_host < cluster.ranks else "it needs several hosts with several ranks each"
    )


def _one_host(job: TrainingJob, cluster: Cluster) -> str | None:
    return _samples_for_all(job, cluster) or ("its workers are on one host" if cluster.hosts > 1 else None)


def _factors(job: TrainingJob, cluster: Cluster) -> str | None:
    reason = _samples_for_all(job, cluster)
    if reason is None and not any(layer.dense for layer in job.work(cluster.ranks).layers):
        return "there is no Dense layer"
    return reason


def _columns(job: TrainingJob, cluster: Cluster) -> str | None:
    return _samples_for_all(job, cluster) or unsplittable_reason(job, cluster.ranks)


def _ranks_of_both_kinds(job: TrainingJob, cluster: Cluster) -> str | None:
    roles = split_ranks(job, cluster.ranks)
    if roles["worker"] < 1:
        return f"{roles['server']:,} servers leave no worker among {cluster.ranks:,} ranks"
    return _samples_for_all(job, cluster.of(roles["worker"]))


def _layers_for_all(job: TrainingJob, cluster: Cluster) -> str | None:
    layers, parts = len(job.compute.steps[0].layers), micro_batches(job, cluster.ranks)
    if layers < cluster.ranks:
        return f"{layers:,} layers cannot form {cluster.ranks:,} stages"
    if job.total(cluster.ranks) < parts:
        return f"a batch of {job.total(cluster.ranks):,} cannot be split into {parts:,} parts"
    return None


STRATEGIES = {
    "all_reduce": StrategyModel(all_reduce, _samples_for_all),
    "all_reduce_bfloat16": StrategyModel(all_reduce_bfloat16, _samples_for_all),
    "hierarchical": StrategyModel(hierarchical_all_reduce, _several_a_host),
    "sharded_optimizer": StrategyModel(sharded_optimizer, _samples_for_all),
    "local_sgd": StrategyModel(local_sgd, _samples_for_all),
    "elastic_averaging": StrategyModel(elastic_averaging, _samples_for_all),
    "hogwild": StrategyModel(hogwild, _one_host),
    "one_bit": StrategyModel(one_bit, _samples_for_all),
    "top_k": StrategyModel(top_k, _samples_for_all),
    "parameter_server": StrategyModel(parameter_server, _ranks_of_both_kinds, split_ranks),
    "sufficient_factors": StrategyModel(sufficient_factors, _factors),
    "model": StrategyModel(model, _columns),
    "pipeline": StrategyModel(pipeline, _layers_for_all),
}


@dataclass(frozen=True)
class StepPrediction:
    """Predicted time and bytes of a step."""

    workers: int
    """Number of ranks, including servers."""
    batch: int
    """Samples of a step of all workers."""
    times: StepTimes
    traffic: Traffic
    speedup: float
    """Samples per second, relative to a single worker."""

    @property
    def efficiency(self) -> float:
        """Speedup divided by the number of workers."""
        return self.speedup / self.workers

    @property
    def samples_per_second(self) -> float:
        """Samples per second of all workers."""
        return self.batch / self.times.step


def predict(name: str, job: TrainingJob, cluster: Cluster) -> StepPrediction | str:
    """Predict a strategy's step, or return why the strategy is impossible. One rank sends nothing."""
    strategy = STRATEGIES[name]
    roles = {"worker": 1}
    if cluster.ranks == 1:
        plan = StepModel(job.work(1))
    else:
        reason = strategy.reject_reason(job, cluster)
        if reason is not None:
            return reason
        plan, roles = strategy.plan(job, cluster), strategy.roles(job, cluster.ranks)
    step_times, batch = (
        times(plan, cluster, roles["worker"], adding=job.adding, jitter=job.jitter),
        job.total(roles["worker"]),
    )
    return StepPrediction(cluster.ranks, batch, step_times, traffic(plan, roles), batch / step_times.step / job.alone)
