"""Gradients sent in fewer bits than they have, what is left out being kept for the next step (error feedback)."""

from __future__ import annotations

from math import prod

from netspec.parallel.costs.collectives import all_gather
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Plan, gradients, messages
from netspec.parallel.costs.workload import Layer
from netspec.parallel.encodings import Encoding, OneBit, TopK, is_encoded

PASSES = 4
"""Over the gradients and what was left out of them, for packing and unpacking."""


def one_bit(job: Job, cluster: Cluster) -> Plan:
    """A bit a number and two float32 values a column, one for each sign (Seide et al. 2014, "1-bit SGD")."""
    return _gathered(job, cluster, OneBit())


def top_k(job: Job, cluster: Cluster) -> Plan:
    """The largest numbers with their places, 4 bytes each (Aji and Heafield 2017)."""
    return _gathered(job, cluster, TopK(job.density))


def _gathered(job: Job, cluster: Cluster, form: Encoding) -> Plan:
    """Every rank gets what all have, for sums of bits are no bits: what a rank sends grows with their number.

    Vectors, such as biases, and small parameters are summed up as they are.
    """
    work = job.work(cluster.ranks)
    found = gradients(work)

    def encoded(layer: Layer) -> float:
        return float(sum(form.nbytes(shape, 4) for shape in layer.parameters if is_encoded(shape, job.smallest)))

    def plain(layer: Layer) -> float:
        return 4.0 * sum(prod(shape) for shape in layer.parameters if not is_encoded(shape, job.smallest))

    sent = (
        *messages(job, found, lambda nbytes: all_gather(cluster.ranks * nbytes, cluster), encoded),
        *messages(job, found, lambda nbytes: job.algorithm(nbytes, cluster), plain),
    )
    in_order = tuple(sorted(sent, key=lambda one: one.ready))
    return Plan(work, in_order, extra=PASSES * work.nbytes * job.adding)
