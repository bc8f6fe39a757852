"""Strategies that divide more than the batch: factors of gradients, columns of dense layers, stages of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from netspec.parallel.costs.collectives import (
    ADDING,
    Algorithm,
    Exchange,
    Exchanges,
    all_gather,
    reduce_scatter,
    seconds,
    to_all,
)
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Message, Plan, gradients, messages, update_share
from netspec.parallel.costs.workload import Dense, Layer, Work, cut


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
"""How many numbers are sent, and the ways of the layers up to here."""


def chosen(
    layers: Sequence[tuple[str, Dense]], samples: float, workers: int, given: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """How each dense layer is had so that least is sent in a step of so many samples; `given` are fixed already.

    Whole, its gradients are summed up. With columns of its matrix a worker gathers the inputs, unless it has columns
    of these; with rows it wants columns of the inputs, and the outputs are summed up and scattered. Backward sends as
    much again. What is cut is cut into equal parts. By dynamic programming over what there is of a layer's outputs.
    """
    best: dict[str, _Sent] = {WHOLE: (0.0, ())}
    """The least that is sent up to here, and how, by whether columns of the outputs are there or all of them."""
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
    """Why no dense layer is divided among so many workers, or not as the job says; None where one is."""
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
    """Dense layers with a part of their matrix on each rank, all else data-parallel, biases too.

    Krizhevsky 2014, "One weird trick", section 4: with columns of a matrix every rank gathers the inputs of the whole
    batch, and in backward their gradients are summed up and scattered; where anything but such a layer follows, each
    gets the outputs of its own samples from the others. With rows each gets columns of the inputs, unless it has them,
    and the outputs are summed up and scattered (Shoeybi et al. 2019, "Megatron-LM", section 3). Computing is no more
    than before: all samples, and a p-th of the matrix.
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
