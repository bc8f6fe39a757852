"""The strategies by name, when one is possible, and what is predicted of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netspec.parallel.costs.compressed import one_bit, top_k
from netspec.parallel.costs.divided import divides, micro_batches, model, pipeline, sufficient_factors
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Plan, Times, Traffic, times, traffic
from netspec.parallel.costs.replicated import (
    all_reduce,
    all_reduce_bfloat16,
    elastic_averaging,
    hierarchical_all_reduce,
    hogwild,
    local_sgd,
    sharded_optimizer,
)
from netspec.parallel.costs.servers import parameter_server, split_ranks


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
    """Samples a second, as a multiple of one worker's alone."""

    @property
    def efficiency(self) -> float:
        """Of the speedup that so many workers could have."""
        return self.speedup / self.workers

    @property
    def samples_per_second(self) -> float:
        """Of all workers."""
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
