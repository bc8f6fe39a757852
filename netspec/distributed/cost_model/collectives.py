"""Collective operations as sequences of messages, and their time on a cluster.

The algorithms and their costs: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 19(1); the ring: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", JPDC 69(2). Ranks fill one host after the other, so that partners at a short distance are on
the same host, and a ring leaves each host once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from netspec.distributed.cost_model.networks import Cluster
from netspec.errors import InputError, did_you_mean, listing

ADDING = 0.0
"""Default of the seconds that adding a byte takes: adding is hidden while bytes arrive."""


@dataclass(frozen=True)
class Exchange:
    """Rounds of messages of one size; the senders of a round send at the same time."""

    rounds: float
    """Number of rounds, one after the other."""
    bytes: float
    """Bytes of each message."""
    senders: float
    """Ranks that send in a round."""
    leave: float = 0.0
    """Senders of a round whose message leaves its host; 0: all messages stay within hosts."""
    flows: float = 1.0
    """Number of messages that share the connection of a host."""
    adds: bool = False
    """Whether the receiver adds the message to its data."""
    role: str = "worker"
    """Role of the senders: `worker`, or `server`."""

    def seconds(self, cluster: Cluster, adding: float = ADDING) -> float:
        """Return the seconds of all rounds; `adding` is the seconds per byte that is added."""
        network = cluster.between if self.leave else cluster.within
        return self.rounds * (network.seconds(self.bytes, self.flows) + self.bytes * adding * self.adds)

    @property
    def sent(self) -> float:
        """Bytes that all senders send."""
        return self.rounds * self.bytes * self.senders

    @property
    def left(self) -> float:
        """Bytes sent to other hosts."""
        return self.rounds * self.bytes * self.leave


def seconds(exchanges: Iterable[Exchange], cluster: Cluster, adding: float = ADDING) -> float:
    """Return the seconds of exchanges, one after the other."""
    return sum(exchange.seconds(cluster, adding) for exchange in exchanges)


Exchanges: TypeAlias = tuple[Exchange, ...]
Algorithm: TypeAlias = Callable[[float, Cluster], Exchanges]
"""An all-reduce: returns the exchanges for the bytes of every rank on a cluster."""


def ring_pass(nbytes: float, cluster: Cluster, *, adds: bool) -> Exchange:
    """Return one pass around the ring: each rank sends 1/p of the bytes to its neighbor, p - 1 times."""
    p = cluster.ranks
    return Exchange(p - 1, nbytes / p, p, cluster.hosts if cluster.hosts > 1 else 0, adds=adds)


def reduce_scatter(nbytes: float, cluster: Cluster) -> Exchanges:
    """Reduce-scatter `nbytes` of each rank: (p - 1)/p n (β + γ), and α for each round.

    A ring has p - 1 rounds, recursive halving log2 p for powers of two; the faster of the two is used.
    """
    around = (ring_pass(nbytes, cluster, adds=True),)
    if cluster.ranks & (cluster.ranks - 1):
        return around
    halves = halving(nbytes, cluster)
    return min(around, halves[: len(halves) // 2], key=lambda exchanges: seconds(exchanges, cluster))


def all_gather(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-gather `nbytes` in total: (p - 1)/p n β, and α for each round.

    A ring has p - 1 rounds; the algorithm of Bruck et al. 1997 has ⌈log2 p⌉, in which a rank sends all that it has to
    ranks at distance 1, 2, 4, …
    """
    return min((ring_pass(nbytes, cluster, adds=False),), tuple(_bruck(nbytes, cluster)),
               key=lambda exchanges: seconds(exchanges, cluster))  # fmt: skip


def _bruck(nbytes: float, cluster: Cluster) -> Iterator[Exchange]:
    p, w = cluster.ranks, cluster.on_host
    for distance in _distances(p):
        flows = min(distance, w)  # ranks of a host whose partner at this distance is on another host
        leave = p * flows / w if cluster.hosts > 1 else 0.0
        yield Exchange(1, min(distance, p - distance) * nbytes / p, p, leave, flows if leave else 1)


def ring(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-reduce around a ring: 2 (p - 1) α + 2 (p - 1)/p n β. No algorithm sends fewer bytes."""
    return (ring_pass(nbytes, cluster, adds=True), ring_pass(nbytes, cluster, adds=False))


def all_to_all(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-to-all: each rank sends 1/p of its `nbytes` to each rank: (p - 1) α + (p - 1)/p n β, w ranks a connection."""
    p, w = cluster.ranks, cluster.on_host
    outside = p * (p - w) / (p - 1) if cluster.hosts > 1 else 0.0
    return (Exchange(p - 1, nbytes / p, p, outside, flows=w if outside else 1),)


def broadcast(nbytes: float, cluster: Cluster) -> Exchanges:
    """Broadcast along a binomial tree: ⌈log2 p⌉ (α + n β)."""
    return tuple(_tree(nbytes, cluster, adds=False))


def gather(nbytes: float, cluster: Cluster) -> Exchanges:
    """Gather `nbytes` in total along a binomial tree: ⌈log2 p⌉ α + (p - 1)/p n β; message sizes double each round."""
    share = nbytes / cluster.ranks
    return tuple(
        Exchange(1, min(distance, cluster.ranks - distance) * share, -(-(cluster.ranks - distance) // (2 * distance)),
                 leave=_senders_off_host(-(-(cluster.ranks - distance) // (2 * distance)), distance, cluster))
        for distance in _distances(cluster.ranks)
    )  # fmt: skip


def tree(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-reduce along a binomial tree, by reduce and broadcast: 2 ⌈log2 p⌉ (α + n β)."""
    return (*_tree(nbytes, cluster, adds=True), *_tree(nbytes, cluster, adds=False))


def _tree(nbytes: float, cluster: Cluster, *, adds: bool) -> Iterator[Exchange]:
    for distance in _distances(cluster.ranks):
        senders = -(-(cluster.ranks - distance) // (2 * distance))
        yield Exchange(1, nbytes, senders, _senders_off_host(senders, distance, cluster), adds=adds)


def _distances(ranks: int) -> Iterator[int]:
    """Yield 1, 2, 4, … below the number of ranks."""
    distance = 1
    while distance < ranks:
        yield distance
        distance *= 2


def _senders_off_host(senders: float, distance: int, cluster: Cluster) -> float:
    """Return the number of senders whose partner at this distance is on another host."""
    return 0 if cluster.hosts == 1 or 2 * distance <= cluster.on_host else senders


def doubling(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-reduce by recursive doubling, with partners at distance 1, 2, 4, …: log2 p (α + n β + n γ)."""
    return _butterfly(cluster, nbytes, [(distance, nbytes, True) for distance in _distances(_power(cluster.ranks))])


def halving(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-reduce by recursive halving, then doubling (Rabenseifner): 2 log2 p α + 2 (p - 1)/p n β.

    The first exchange, of half the bytes, is with the neighbor, as in MPICH.
    """
    parts = [(distance, nbytes / (2 * distance)) for distance in _distances(_power(cluster.ranks))]
    return _butterfly(
        cluster, nbytes, [*((*part, True) for part in parts), *((*part, False) for part in reversed(parts))]
    )


def _power(ranks: int) -> int:
    """Return the largest power of two that is at most `ranks`."""
    return 1 << (ranks.bit_length() - 1)


def _butterfly(cluster: Cluster, nbytes: float, stages: Iterable[tuple[int, float, bool]]) -> Exchanges:
    """Return exchanges between 2^k ranks; each stage has a distance, the bytes, and whether they are added.

    Each of the other p - 2^k ranks sends its bytes to a neighbor first, and receives the result at the end.
    """
    power, w = _power(cluster.ranks), cluster.on_host
    among = []
    for distance, size, adds in stages:
        leave = _senders_off_host(power, distance, cluster)
        among.append(Exchange(1, size, power, leave, flows=w if leave else 1, adds=adds))
    surplus = cluster.ranks - power
    if not surplus:
        return tuple(among)
    leave = _senders_off_host(surplus, 1, cluster)
    return (Exchange(1, nbytes, surplus, leave, adds=True), *among, Exchange(1, nbytes, surplus, leave))


def hierarchical(nbytes: float, cluster: Cluster, between: Iterable[Algorithm] | None = None) -> Exchanges:
    """All-reduce by reduce-scatter within hosts, all-reduce of each 1/w between hosts, and all-gather within hosts.

    Used by Goyal et al. 2017 and Horovod if hosts have several ranks. Between hosts, the fastest of `between` is used,
    by default of a ring and halving and doubling.
    """
    w, hosts = cluster.on_host, cluster.hosts
    if w == 1 or hosts == 1:
        return cheapest(nbytes, cluster, FLAT)
    inside, outside = cluster.of(w), Cluster(hosts, cluster.between, cluster.between)
    crossed = cheapest(nbytes / w, outside, between or (ring, halving), flows=w)
    return (
        *_on_all_hosts(reduce_scatter(nbytes, inside), hosts),
        *crossed,
        *_on_all_hosts(all_gather(nbytes, inside), hosts),
    )


def _on_all_hosts(exchanges: Exchanges, times: int) -> Exchanges:
    """Return the exchanges made on `times` hosts at the same time."""
    return tuple(replace(exchange, senders=exchange.senders * times) for exchange in exchanges)


def cheapest(nbytes: float, cluster: Cluster, algorithms: Iterable[Algorithm], flows: int = 1) -> Exchanges:
    """Return the exchanges of the fastest algorithm, run by `flows` groups of ranks at once."""
    candidates = (
        tuple(
            replace(
                exchange, senders=exchange.senders * flows, leave=exchange.leave * flows, flows=exchange.flows * flows
            )
            for exchange in algorithm(nbytes, cluster)
        )
        for algorithm in algorithms
    )
    return min(candidates, key=lambda exchanges: seconds(exchanges, cluster))


FLAT: tuple[Algorithm, ...] = (tree, ring, doubling, halving)
"""Algorithms that ignore hosts."""


def auto(nbytes: float, cluster: Cluster) -> Exchanges:
    """All-reduce by the fastest algorithm, as MPI libraries choose by size and number of ranks."""
    return cheapest(nbytes, cluster, (*FLAT, hierarchical) if 1 < cluster.on_host < cluster.ranks else FLAT)


ALGORITHMS: dict[str, Algorithm] = {
    "auto": auto, "tree": tree, "ring": ring, "doubling": doubling, "halving": halving, "hierarchical": hierarchical,
}  # fmt: skip


def parse_algorithm(name: str) -> Algorithm:
    """Return an all-reduce by its name, the value of the option `--algorithm`."""
    if name not in ALGORITHMS:
        expected = f"one of {listing(list(ALGORITHMS))}"
        hint = did_you_mean(name, ALGORITHMS)
        raise InputError("--algorithm: unknown algorithm", expected=expected, got=repr(name), hint=hint)
    return ALGORITHMS[name]
