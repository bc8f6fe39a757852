"""Gradients sent in fewer bits than they have, what is left out being kept for the next step (error feedback)."""

from __future__ import annotations

from math import prod

from netspec.parallel.costs.collectives import Exchanges, all_gather, to_all
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Plan, gradients, messages
from netspec.parallel.costs.workload import Layer

PASSES = 4
"""Over the gradients and what was left out of them, for packing and unpacking."""


def one_bit_bytes(layer: Layer) -> float:
    """A bit a number and two float32 values a column, one for each sign (Seide et al. 2014, "1-bit SGD").

    A column is what belongs to one output of the layer. Vectors, such as biases, are sent as they are.
    """
    return sum(_one_bit(shape) for shape in layer.parameters)


def _one_bit(shape: tuple[int, ...]) -> float:
    if len(shape) < 2:
        return 4.0 * prod(shape)
    columns = shape[-1] if len(shape) == 2 else shape[0]
    return prod(shape) / 8 + 8 * columns


def one_bit(job: Job, cluster: Cluster) -> Plan:
    """Each rank sums up a p-th of the quantized gradients, quantizes the sum, and hands it round."""
    work = job.work(cluster.ranks)

    def send(nbytes: float) -> Exchanges:
        # Every rank needs the p-ths of the others as they are: sums of bits are no bits.
        return (*to_all(nbytes, cluster), *all_gather(nbytes, cluster))

    return Plan(work, messages(job, gradients(work), send, one_bit_bytes), extra=PASSES * work.nbytes * job.adding)


def top_k_bytes(layer: Layer, density: float) -> float:
    """The largest numbers with their places, 4 bytes each (Aji and Heafield 2017); at least one of each parameter."""
    return sum(8.0 * max(1.0, density * prod(shape)) for shape in layer.parameters)


def top_k(job: Job, cluster: Cluster) -> Plan:
    """The largest numbers of all ranks, gathered by everybody: what a rank sends grows with their number."""
    work = job.work(cluster.ranks)
    found = messages(
        job,
        gradients(work),
        lambda nbytes: all_gather(cluster.ranks * nbytes, cluster),
        lambda layer: top_k_bytes(layer, job.density),
    )
    return Plan(work, found, extra=PASSES * work.nbytes * job.adding)
