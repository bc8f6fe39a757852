"""A synchronous parameter server, sharded, on ranks of its own (Li et al. 2014, OSDI)."""

from __future__ import annotations

from dataclasses import replace

from netspec.parallel.costs.collectives import Exchange
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.costs.plans import Job, Message, Plan, gradients, messages


def split_ranks(job: Job, ranks: int) -> dict[str, int]:
    """How many ranks are workers, and how many servers."""
    servers = job.servers if job.servers is not None else max(1, ranks // 4)
    return {"worker": ranks - servers, "server": servers}


def parameter_server(job: Job, cluster: Cluster) -> Plan:
    """Each of S servers has an S-th of every bucket: gradients go there while backward goes on, new weights come back.

    A step moves n bytes to the servers and n back for each worker. In a round every worker talks to another server;
    there are as many rounds as there are workers, or servers where these are more.
    """
    roles = split_ranks(job, cluster.ranks)
    workers, servers = roles["worker"], roles["server"]
    work = job.work(workers)

    def exchange(nbytes: float, role: str) -> Exchange:
        meeting = min(workers, servers)
        crossing = meeting if cluster.hosts > 1 else 0
        flows = max(1.0, meeting / cluster.hosts) if crossing else 1.0
        rounds = max(workers, servers)
        return Exchange(rounds, nbytes / servers, meeting, crossing, flows, adds=role == "worker", role=role)

    pushed: tuple[Message, ...] = messages(job, gradients(work), lambda nbytes: (exchange(nbytes, "worker"),))
    pulled = tuple(exchange(sum(one.bytes for one in message.exchanges) * servers, "server") for message in pushed)
    # The servers update, each its own part, when the last gradient is there.
    layers = tuple(replace(layer, update=layer.update / servers) for layer in work.layers)
    return Plan(replace(work, layers=layers), pushed, after=pulled)
