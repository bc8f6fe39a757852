"""Strategies that divide more than the batch: factors of gradients, columns of dense layers, stages of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

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


def divides(work: Work, ranks: int) -> str | None:
    """Why dense layers can't be divided by columns among so many ranks; None where they can."""
    layers = [layer for layer in work.layers if layer.dense is not None]
    if not layers:
        return "there is no Dense layer"
    for layer in layers:
        assert layer.dense is not None
        if layer.dense.units % ranks:
            return f"the {layer.dense.units:,} units of {layer.name} do not divide by {ranks:,}"
    return None


def model(job: Job, cluster: Cluster) -> Plan:
    """Columns of dense layers on each rank, all else data-parallel (Krizhevsky 2014, "One weird trick", section 4).

    Before each dense layer every rank gathers the inputs of the whole batch, and in backward their gradients are
    summed up and scattered; after the last one each gets the outputs of its own samples from the others. Computing is
    no more than before: all samples, and a p-th of the columns.
    """
    work, p = job.work(cluster.ranks), cluster.ranks
    divided = [layer for layer in work.layers if layer.dense is not None]
    names = {layer.name for layer in divided}
    rest = [layer for layer in work.layers if layer.name not in names]
    after = list[Exchange]()
    for layer in divided:
        assert layer.dense is not None
        inputs = 4.0 * p * work.batch * layer.dense.positions * layer.dense.inputs
        after += [*all_gather(inputs, cluster), *reduce_scatter(inputs, cluster)]
    if divided and divided[-1].dense is not None:
        last = divided[-1].dense
        after += 2 * to_all(4.0 * work.batch * last.positions * last.units, cluster)
    sent = messages(job, gradients(work, rest), lambda nbytes: job.algorithm(nbytes, cluster))
    return Plan(update_share(work, 1 / p, divided), sent, after=tuple(after))


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
