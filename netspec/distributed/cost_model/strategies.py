"""The strategies by name, when one is possible, and what is predicted of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from netspec.distributed.communicators.encodings import Encoding, OneBit, TopK, should_compress
from netspec.distributed.cost_model.collectives import (
    ADDING,
    Algorithm,
    Exchange,
    Exchanges,
    all_gather,
    hierarchical,
    reduce_scatter,
    seconds,
    to_all,
)
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.cost_model.plans import (
    Job,
    Message,
    Plan,
    Times,
    Traffic,
    gradients,
    messages,
    times,
    traffic,
    update_share,
)
from netspec.distributed.cost_model.workload import Dense, Layer, Work, cut


def factor_bytes(dense: Dense, batch: float) -> float:
    """Of a dense layer's factors for a worker's samples: its inputs, and the gradients of its outputs."""
    return 4.0 * batch * dense.positions * (dense.inputs + dense.units)


def factors_pay(
    parts: Sequence[Dense], batch: float, again: float, cluster: Cluster, matrix: Algorithm, adding: float = ADDING
) -> bool:
    """Whether factors take less time than the matrix that is the sum of their products, or of their product.

    `again` is the seconds in which a worker multiplies those of all others, `matrix` how the matrix would be summed up.
    """
    sent = sum(seconds(all_gather(cluster.ranks * factor_bytes(one, batch), cluster), cluster) for one in parts)
    return sent + again < seconds(matrix(parts[0].nbytes, cluster), cluster, adding)


def sufficient_factors(job: Job, cluster: Cluster) -> Plan:
    """Dense layers send the factors u, v of their gradients where that takes less than the matrix u vᵀ.

    Zhang et al. 2017, "Poseidon", section 3.2; Chilimbi et al. 2014, "Project Adam". Everybody multiplies the factors
    of all others, which is as much work again as its own half of backward for each of them.
    """
    work, p = job.work(cluster.ranks), cluster.ranks
    sent, extra, whole = list[Message](), 0.0, list[tuple[Layer, float]]()
    for layer, ready in gradients(work):
        if layer.dense is None:
            whole.append((layer, ready))
            continue
        again = (p - 1) * layer.backward / 2
        if not factors_pay([layer.dense], work.batch, again, cluster, job.algorithm, job.adding):
            whole.append((layer, ready))
            continue
        factors = all_gather(p * factor_bytes(layer.dense, work.batch), cluster)
        extra += again
        rest = layer.nbytes - layer.dense.nbytes  # the bias
        sent.append(Message(ready, (*factors, *(job.algorithm(rest, cluster) if rest else ()))))
    sent += messages(job, whole, lambda nbytes: job.algorithm(nbytes, cluster))
    return Plan(work, tuple(sorted(sent, key=lambda one: one.ready)), extra=extra)


WHOLE, COLUMNS, ROWS = "whole", "columns", "rows"
"""Ways to have a dense layer on several workers: its matrix on each of them, or a part of it."""
NOTHING = "to divide a Dense layer into equal parts is not possible, or would send more than its gradients"
_Sent: TypeAlias = tuple[float, tuple[str, ...]]
"""Number of elements that are sent, and how the layers up to here are split."""


def chosen(
    layers: Sequence[tuple[str, Dense]], samples: float, workers: int, given: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Choose how to split each dense layer so that a step of `samples` samples sends least; `given` are fixed choices.

    If a layer is not split, its gradients are summed. If it is split by columns, a worker gathers the inputs, unless
    it already has their columns; if by rows, it needs columns of the inputs, and the outputs are reduce-scattered.
    Backward sends the same amount again. All parts have equal size. Dynamic programming over whether a layer's outputs
    are split by columns.
    """
    best: dict[str, _Sent] = {WHOLE: (0.0, ())}
    """The least that is sent up to here, and how, by whether workers hold columns of the outputs or all of them."""
    before = 0.0
    for name, one in layers:
        rows = samples * one.positions
        if not one.follows:
            best = {WHOLE: _least(best, before, workers)}
        found: dict[str, _Sent] = {}
        for have, start in best.items():
            plain = _back(start, before, workers) if have == COLUMNS else start
            costs: dict[str, tuple[_Sent, float]] = {WHOLE: (plain, one.inputs * one.units)}
            if one.units % workers == 0:
                costs[COLUMNS] = start, rows * one.inputs
            if one.inputs % workers == 0:
                costs[ROWS] = start, rows * (one.units + (0 if have == COLUMNS else one.inputs / workers))
            for way, ((sent, ways), more) in costs.items():
                if given.get(name, way) == way:
                    left = COLUMNS if way == COLUMNS else WHOLE
                    made = sent + more, (*ways, way)
                    found[left] = min(found.get(left, made), made, key=lambda this: this[0])
        best, before = found, rows * one.units
    ways = _least(best, before, workers)[1]
    return dict(zip([name for name, _ in layers], ways, strict=True))


def _least(best: Mapping[str, _Sent], outputs: float, workers: int) -> _Sent:
    """The least where each worker gets all columns of its own samples."""
    ends = [_back(made, outputs, workers) if left == COLUMNS else made for left, made in best.items()]
    return min(ends, key=lambda this: this[0])


def _back(made: _Sent, outputs: float, workers: int) -> _Sent:
    """The same where each worker gets all columns of its own samples."""
    return made[0] + outputs / workers, made[1]


def uneven(name: str, dense: Dense, way: str, workers: int) -> str | None:
    """Why a dense layer can't be cut so into parts alike; None where it can."""
    count, what = (dense.units, "units") if way == COLUMNS else (dense.inputs, "inputs")
    return f"the {count:,} {what} of {name} do not divide by {workers:,}" if count % workers and way != WHOLE else None


def _dense(work: Work) -> list[tuple[str, Dense]]:
    return [(layer.name, layer.dense) for layer in work.layers if layer.dense is not None]


def divides(job: Job, workers: int) -> str | None:
    """Return why no dense layer can be split over `workers` workers, or not as the job says; None if one can."""
    layers = _dense(job.work(workers))
    if not layers:
        return "there is no Dense layer"
    for name, one in layers:
        reason = uneven(name, one, job.ways.get(name, WHOLE), workers)
        if reason is not None:
            return reason
    ways = chosen(layers, job.total(workers), workers, job.ways)
    return NOTHING if set(ways.values()) == {WHOLE} else None


def model(job: Job, cluster: Cluster) -> Plan:
    """Model tensor parallelism: each rank holds a part of each dense matrix; the rest, biases too, is data-parallel.

    Krizhevsky 2014, "One weird trick", section 4: if a matrix is split by columns, every rank gathers the inputs of the
    full batch, and in backward their gradients are reduce-scattered; unless another split layer follows, each rank
    receives the outputs of its own samples from the others. If it is split by rows, each rank receives columns of the
    inputs, unless it has them, and the outputs are reduce-scattered (Shoeybi et al. 2019, "Megatron-LM", section 3).
    The amount of computation does not change: all samples, and 1/p of the matrix.
    """
    work, p = job.work(cluster.ranks), cluster.ranks
    layers = _dense(work)
    ways = chosen(layers, job.total(p), p, job.ways)
    after, have = list[Exchange](), 0.0
    """`have`: bytes of a worker's columns of the layer before, where it has no more than these."""
    for name, one in layers:
        inputs, outputs = (4.0 * p * work.batch * one.positions * count for count in (one.inputs, one.units))
        if have and (not one.follows or ways[name] == WHOLE):
            after += 2 * to_all(have, cluster)
            have = 0.0
        if ways[name] == COLUMNS:
            after += [*all_gather(inputs, cluster), *reduce_scatter(inputs, cluster)]
        elif ways[name] == ROWS:
            after += [] if have else 2 * to_all(inputs / p, cluster)
            after += [*reduce_scatter(outputs, cluster), *all_gather(outputs, cluster)]
        have = outputs / p if ways[name] == COLUMNS else 0.0
    after += 2 * to_all(have, cluster) if have else ()
    parted = [layer for layer in work.layers if ways.get(layer.name, WHOLE) != WHOLE]
    matrices = {name: (one.inputs, one.units) for name, one in layers if ways[name] != WHOLE}
    found = [
        (replace(layer, parameters=_without(layer.parameters, matrices.get(layer.name))), ready)
        for layer, ready in gradients(work)
    ]
    sent = messages(job, found, lambda nbytes: job.algorithm(nbytes, cluster))
    return Plan(update_share(work, 1 / p, parted), sent, after=tuple(after))


def _without(shapes: Sequence[tuple[int, ...]], matrix: tuple[int, int] | None) -> tuple[tuple[int, ...], ...]:
    """The shapes of a layer's parameters but for one."""
    left = list(shapes)
    if matrix is not None:
        left.remove(matrix)
    return tuple(left)


def micro_batches(job: Job, stages: int) -> int:
    """How many parts the batch is cut into."""
    return job.micro_batches if job.micro_batches is not None else max(1, min(4 * stages, job.total(stages)))


def bubble(stages: int, parts: int) -> float:
    """The share of time that a stage has nothing to do: (p - 1)/(m + p - 1) (Huang et al. 2019, "GPipe")."""
    return (stages - 1) / (parts + stages - 1)


def pipeline(job: Job, cluster: Cluster) -> Plan:
    """The layers in p stages, one a rank, cut so that the slowest is fastest; the batch passes in m micro-batches.

    Forward and backward of m micro-batches take m + p - 1 times those of the slowest stage. Activations and their
    gradients go to the neighbour; nothing hides that.
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
    work = replace(part, batch=job.total(stages), layers=(stage,), beside=part.beside * parts)
    return Plan(work, after=_handed(part, begins[1:], parts, turns - 1, cluster))


def _handed(part: Work, begins: Sequence[int], parts: int, rounds: int, cluster: Cluster) -> Exchanges:
    """What goes over the cuts, there and back; the largest sets the pace."""
    carried = [part.batch * part.layers[begin - 1].output for begin in begins]
    if not any(carried):
        return ()
    senders = parts * sum(carried) / (rounds * max(carried))  # so that the bytes are those of all cuts
    leave = senders * (cluster.hosts - 1) / len(carried)
    return 2 * (Exchange(rounds, max(carried), senders, leave),)


def split_ranks(job: Job, ranks: int) -> dict[str, int]:
    """Return the numbers of ranks that are workers and servers."""
    servers = job.servers if job.servers is not None else max(1, ranks // 4)
    return {"worker": ranks - servers, "server": servers}


def exchange(nbytes: float, role: str, roles: Mapping[str, int], cluster: Cluster) -> Exchange:
    """Return the exchange of `nbytes` bytes between each worker and all servers, a part per server; `role` sends.

    In a round every worker exchanges with a different server; the number of rounds is the larger of the numbers of
    workers and servers.
    """
    meeting, rounds = min(roles.values()), max(roles.values())
    crossing = meeting if cluster.hosts > 1 else 0
    flows = max(1.0, meeting / cluster.hosts) if crossing else 1.0
    return Exchange(rounds, nbytes / roles["server"], meeting, crossing, flows, adds=role == "worker", role=role)


def parameter_server(job: Job, cluster: Cluster) -> Plan:
    """Each of S servers has an S-th of every bucket: gradients go there while backward goes on, new weights come back.

    A step moves n bytes to the servers and n back for each worker.
    """
    roles = split_ranks(job, cluster.ranks)
    work = job.work(roles["worker"])
    pushed: tuple[Message, ...] = messages(
        job, gradients(work), lambda nbytes: (exchange(nbytes, "worker", roles, cluster),)
    )
    whole = [sum(one.bytes for one in message.exchanges) * roles["server"] for message in pushed]
    pulled = tuple(exchange(nbytes, "server", roles, cluster) for nbytes in whole)
    # The servers update, each its own part, when the last gradient is there.
    layers = tuple(replace(layer, update=layer.update / roles["server"]) for layer in work.layers)
    return Plan(replace(work, layers=layers), pushed, after=pulled)


def all_reduce(job: Job, cluster: Cluster) -> Plan:
    """Gradients summed up in float32, bucket by bucket, while backward goes on."""
    work = job.work(cluster.ranks)
    return Plan(work, messages(job, gradients(work), lambda nbytes: job.algorithm(nbytes, cluster)))


def all_reduce_bfloat16(job: Job, cluster: Cluster) -> Plan:
    """The same in 16 bits: half the bytes, and a pass over the gradients before and after."""
    work = job.work(cluster.ranks)
    found = messages(
        job, gradients(work), lambda nbytes: job.algorithm(nbytes, cluster), lambda layer: layer.nbytes / 2
    )
    return Plan(work, found, extra=2 * work.nbytes * job.adding)


def hierarchical_all_reduce(job: Job, cluster: Cluster) -> Plan:
    """Gradients summed up within hosts, then among them (Goyal et al. 2017, section 4)."""
    work = job.work(cluster.ranks)
    return Plan(work, messages(job, gradients(work), lambda nbytes: hierarchical(nbytes, cluster)))


def sharded_optimizer(job: Job, cluster: Cluster) -> Plan:
    """Each rank gets the sum of a p-th of the gradients, updates that, and hands the new weights round.

    ZeRO-1 (Rajbhandari et al. 2020): the bytes of a ring, a p-th of the update and of the solver's states. The
    all-gather follows the update, so nothing hides it.
    """
    work = job.work(cluster.ranks)
    found = messages(job, gradients(work), lambda nbytes: reduce_scatter(nbytes, cluster))
    return Plan(update_share(work, 1 / cluster.ranks), found, after=all_gather(work.nbytes, cluster))


def elastic_averaging(job: Job, cluster: Cluster) -> Plan:
    """Model elastic averaging: each worker steps alone; every N steps differences from a center are summed.

    The synchronous form of Zhang, Choromanska and LeCun 2015.
    """
    work = job.work(cluster.ranks)
    nbytes = work.nbytes if job.centered is None else job.centered
    return Plan(work, after=(*to_all(nbytes, cluster), *all_gather(nbytes, cluster)), every=job.every)


def hogwild(job: Job, cluster: Cluster) -> Plan:
    """Model Hogwild: each worker steps alone, on weights shared by all workers of the host (Niu et al. 2011).

    Nothing is sent. Updates of other workers come from their caches: in each step a worker rereads all weights.
    """
    work = job.work(cluster.ranks)
    return Plan(work, extra=work.nbytes * job.adding)


def local_sgd(job: Job, cluster: Cluster) -> Plan:
    """Model local SGD: each worker steps alone; every N steps all states are averaged.

    Moritz et al. 2016, "SparkNet", average only the weights.
    """
    work = job.work(cluster.ranks)
    nbytes = work.nbytes if job.averaged is None else job.averaged
    return Plan(work, after=job.algorithm(nbytes, cluster), every=job.every)


PASSES = 4
"""Over the gradients and what was left out of them, for packing and unpacking."""


def one_bit(job: Job, cluster: Cluster) -> Plan:
    """A bit a number and two float32 values a column, one for each sign (Seide et al. 2014, "1-bit SGD")."""
    return _gathered(job, cluster, OneBit())


def top_k(job: Job, cluster: Cluster) -> Plan:
    """Model top-k compression: the largest elements with their indices, 4 bytes each (Aji and Heafield 2017)."""
    return _gathered(job, cluster, TopK(job.density))


def _gathered(job: Job, cluster: Cluster, form: Encoding) -> Plan:
    """Model encodings that are all-gathered, because sums can't be encoded: traffic grows with the number of ranks.

    Vectors, such as biases, and small parameters are all-reduced unencoded.
    """
    work = job.work(cluster.ranks)
    found = gradients(work)

    def encoded(layer: Layer) -> float:
        return float(sum(form.nbytes(shape, 4) for shape in layer.parameters if should_compress(shape, job.smallest)))

    def plain(layer: Layer) -> float:
        return 4.0 * sum(prod(shape) for shape in layer.parameters if not should_compress(shape, job.smallest))

    sent = (
        *messages(job, found, lambda nbytes: all_gather(cluster.ranks * nbytes, cluster), encoded),
        *messages(job, found, lambda nbytes: job.algorithm(nbytes, cluster), plain),
    )
    in_order = tuple(sorted(sent, key=lambda one: one.ready))
    return Plan(work, in_order, extra=PASSES * work.nbytes * job.adding)


@dataclass(frozen=True)
class Strategy:
    """A way to spread a training."""

    plan: Callable[[Job, Cluster], Plan]
    why_not: Callable[[Job, Cluster], str | None]
    """What keeps it from this cluster; None where nothing does."""
    roles: Callable[[Job, int], dict[str, int]] = lambda _, ranks: {"worker": ranks}
    """How many of the ranks are what."""


def _samples_for_all(job: Job, cluster: Cluster) -> str | None:
    if job.total(cluster.ranks) < cluster.ranks:
        return f"a batch of {job.total(cluster.ranks):,} has no sample for each of {cluster.ranks:,} workers"
    return None


def _several_a_host(job: Job, cluster: Cluster) -> str | None:
    return _samples_for_all(job, cluster) or (
        None if 1 < cluster.on_host < cluster.ranks else "it needs several hosts with several ranks each"
    )


def _one_host(job: Job, cluster: Cluster) -> str | None:
    return _samples_for_all(job, cluster) or ("its workers are on one host" if cluster.hosts > 1 else None)


def _factors(job: Job, cluster: Cluster) -> str | None:
    found = _samples_for_all(job, cluster)
    if found is None and not any(layer.dense for layer in job.work(cluster.ranks).layers):
        return "there is no Dense layer"
    return found


def _columns(job: Job, cluster: Cluster) -> str | None:
    return _samples_for_all(job, cluster) or divides(job, cluster.ranks)


def _ranks_of_both_kinds(job: Job, cluster: Cluster) -> str | None:
    roles = split_ranks(job, cluster.ranks)
    if roles["worker"] < 1:
        return f"{roles['server']:,} servers leave no worker among {cluster.ranks:,} ranks"
    return _samples_for_all(job, cluster.of(roles["worker"]))


def _layers_for_all(job: Job, cluster: Cluster) -> str | None:
    layers, parts = len(job.compute.known[0].layers), micro_batches(job, cluster.ranks)
    if layers < cluster.ranks:
        return f"{layers:,} layers make no {cluster.ranks:,} stages"
    if job.total(cluster.ranks) < parts:
        return f"a batch of {job.total(cluster.ranks):,} has no {parts:,} parts"
    return None


STRATEGIES = {
    "all_reduce": Strategy(all_reduce, _samples_for_all),
    "all_reduce_bfloat16": Strategy(all_reduce_bfloat16, _samples_for_all),
    "hierarchical": Strategy(hierarchical_all_reduce, _several_a_host),
    "sharded_optimizer": Strategy(sharded_optimizer, _samples_for_all),
    "local_sgd": Strategy(local_sgd, _samples_for_all),
    "elastic_averaging": Strategy(elastic_averaging, _samples_for_all),
    "hogwild": Strategy(hogwild, _one_host),
    "one_bit": Strategy(one_bit, _samples_for_all),
    "top_k": Strategy(top_k, _samples_for_all),
    "parameter_server": Strategy(parameter_server, _ranks_of_both_kinds, split_ranks),
    "sufficient_factors": Strategy(sufficient_factors, _factors),
    "model": Strategy(model, _columns),
    "pipeline": Strategy(pipeline, _layers_for_all),
}


@dataclass(frozen=True)
class Prediction:
    """What a step is expected to be like."""

    workers: int
    """Ranks, servers included."""
    batch: int
    """Samples of a step, of all workers together."""
    times: Times
    traffic: Traffic
    speedup: float
    """Samples per second, as a multiple of those of a single worker."""

    @property
    def efficiency(self) -> float:
        """Speedup divided by the number of workers."""
        return self.speedup / self.workers

    @property
    def samples_per_second(self) -> float:
        """Samples per second of all workers."""
        return self.batch / self.times.step


def predict(name: str, job: Job, cluster: Cluster) -> Prediction | str:
    """A strategy's step, or why there is none. One rank has nobody to send to, whatever the strategy."""
    strategy = STRATEGIES[name]
    roles = {"worker": 1}
    if cluster.ranks == 1:
        plan = Plan(job.work(1))
    else:
        reason = strategy.why_not(job, cluster)
        if reason is not None:
            return reason
        plan, roles = strategy.plan(job, cluster), strategy.roles(job, cluster.ranks)
    found, batch = (
        times(plan, cluster, roles["worker"], adding=job.adding, jitter=job.jitter),
        job.total(roles["worker"]),
    )
    return Prediction(cluster.ranks, batch, found, traffic(plan, roles), batch / found.step / job.alone)
