"""A synchronous parameter server, sharded, on ranks of its own (Li et al. 2014, OSDI)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from netspec.parallel.costs.collectives import Exchange
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Message, Plan, gradients, messages


def split_ranks(job: Job, ranks: int) -> dict[str, int]:
    """How many ranks are workers, and how many servers."""
    servers = job.servers if job.servers is not None else max(1, ranks // 4)
    return {"worker": ranks - servers, "server": servers}


def exchange(nbytes: float, role: str, roles: Mapping[str, int], cluster: Cluster) -> Exchange:
    """So many bytes between each worker and all servers, a part each; those of `role` send.

    In a round every worker talks to another server; there are as many rounds as there are workers, or servers where
    these are more.
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
