"""Data parallelism with the whole net on each worker: what is summed up, in which form, and how often."""

from __future__ import annotations

from netspec.parallel.costs.collectives import all_gather, hierarchical, reduce_scatter, to_all
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Plan, gradients, messages, update_share


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
    """Steps by each worker alone, and differences from a center summed up every so many, in the order of ranks.

    The synchronous form of Zhang, Choromanska and LeCun 2015.
    """
    work = job.work(cluster.ranks)
    nbytes = work.nbytes if job.centered is None else job.centered
    return Plan(work, after=(*to_all(nbytes, cluster), *all_gather(nbytes, cluster)), every=job.every)


def hogwild(job: Job, cluster: Cluster) -> Plan:
    """Steps by each worker alone, on weights that all of the host share (Niu et al. 2011): nothing is sent.

    What others have written to the weights comes from their caches: in each step a worker reads all of them anew.
    """
    work = job.work(cluster.ranks)
    return Plan(work, extra=work.nbytes * job.adding)


def local_sgd(job: Job, cluster: Cluster) -> Plan:
    """Steps by each worker alone, and all that a training keeps averaged every so many.

    Moritz et al. 2016, "SparkNet", average the weights alone.
    """
    work = job.work(cluster.ranks)
    nbytes = work.nbytes if job.averaged is None else job.averaged
    return Plan(work, after=job.algorithm(nbytes, cluster), every=job.every)
