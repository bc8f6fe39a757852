"""Collective operations as sequences of messages, and their time on a cluster.

The algorithms and their costs: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 19(1); the ring: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", JPDC 69(2). Ranks fill one host after the other, so that the partners of short distance are
on one host, and a ring leaves each host once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from netspec.distributed.cost_model.networks import Cluster
from netspec.errors import InputError, did_you_mean, listing

ADDING = 0.0
"""Seconds that adding up a byte takes where nothing is known of it: as if it were done while bytes come in."""


@dataclass(frozen=True)
class Exchange:
    """Rounds of messages of one size, which all senders of a round send at once."""

    rounds: float
    """How many, one after the other."""
    bytes: float
    """Of each message."""
    senders: float
    """Ranks that send in a round."""
    leave: float = 0.0
    """Of these, those whose message leaves its host; 0: all stay within hosts."""
    flows: float = 1.0
    """Messages that share the connection of a host."""
    adds: bool = False
    """Whether the receiver adds what comes to what it has."""
    role: str = "worker"
    """Who sends: `worker`, or `server`."""

    def seconds(self, cluster: Cluster, adding: float = ADDING) -> float:
        """How long it takes; `adding` is seconds a byte that is added up."""
        network = cluster.between if self.leave else cluster.within
        return self.rounds * (network.seconds(self.bytes, self.flows) + self.bytes * adding * self.adds)

    @property
    def sent(self) -> float:
        """Bytes that all senders send together."""
        return self.rounds * self.bytes * self.senders

    @property
    def left(self) -> float:
        """Bytes of these that leave a host."""
        return self.rounds * self.bytes * self.leave


def seconds(exchanges: Iterable[Exchange], cluster: Cluster, adding: float = ADDING) -> float:
    """How long exchanges take that follow each other."""
    return sum(one.seconds(cluster, adding) for one in exchanges)


Exchanges: TypeAlias = tuple[Exchange, ...]
Algorithm: TypeAlias = Callable[[float, Cluster], Exchanges]
"""An all-reduce: from the bytes that every rank has and the cluster to what is sent."""


def around(nbytes: float, cluster: Cluster, *, adds: bool) -> Exchange:
    """One turn around the ring: everybody hands a p-th of the bytes to its neighbour, p - 1 times."""
    p = cluster.ranks
    return Exchange(p - 1, nbytes / p, p, cluster.hosts if cluster.hosts > 1 else 0, adds=adds)


def reduce_scatter(nbytes: float, cluster: Cluster) -> Exchanges:
    """The sum of all ranks' bytes, of which each rank gets its p-th: (p - 1)/p n (β + γ), and α for each round.

    Around a ring, p - 1 rounds, or for powers of two by recursive halving, log2 p: whichever takes less.
    """
    turn = (around(nbytes, cluster, adds=True),)
    if cluster.ranks & (cluster.ranks - 1):
        return turn
    halves = halving(nbytes, cluster)
    return min(turn, halves[: len(halves) // 2], key=lambda made: seconds(made, cluster))


def all_gather(nbytes: float, cluster: Cluster) -> Exchanges:
    """Every rank gets the p-ths of all, `nbytes` in all: (p - 1)/p n β, and α for each round.

    Around a ring, p - 1 rounds, or as Bruck et al. 1997 do, ⌈log2 p⌉, all that is there to a rank at 1, 2, 4, …
    """
    return min((around(nbytes, cluster, adds=False),), tuple(_bruck(nbytes, cluster)),
               key=lambda made: seconds(made, cluster))  # fmt: skip


def _bruck(nbytes: float, cluster: Cluster) -> Iterator[Exchange]:
    p, w = cluster.ranks, cluster.on_host
    for distance in _distances(p):
        flows = min(distance, w)  # the ranks of a host whose peer at this distance is on another host
        leave = p * flows / w if cluster.hosts > 1 else 0.0
        yield Exchange(1, min(distance, p - distance) * nbytes / p, p, leave, flows if leave else 1)


def ring(nbytes: float, cluster: Cluster) -> Exchanges:
    """Reduce-scatter, then all-gather, around a ring: 2 (p - 1) α + 2 (p - 1)/p n β. No algorithm sends fewer bytes."""
    return (around(nbytes, cluster, adds=True), around(nbytes, cluster, adds=False))


def to_all(nbytes: float, cluster: Cluster) -> Exchanges:
    """Of `nbytes` every rank sends another p-th to each other: (p - 1) α + (p - 1)/p n β, w ranks a connection."""
    p, w = cluster.ranks, cluster.on_host
    outside = p * (p - w) / (p - 1) if cluster.hosts > 1 else 0.0
    return (Exchange(p - 1, nbytes / p, p, outside, flows=w if outside else 1),)


def broadcast(nbytes: float, cluster: Cluster) -> Exchanges:
    """A binomial tree from one rank to all: ⌈log2 p⌉ (α + n β)."""
    return tuple(_tree(nbytes, cluster, adds=False))


def gather(nbytes: float, cluster: Cluster) -> Exchanges:
    """A binomial tree to one rank, `nbytes` in all: ⌈log2 p⌉ α + (p - 1)/p n β; messages double on the way."""
    share = nbytes / cluster.ranks
    return tuple(
        Exchange(1, min(distance, cluster.ranks - distance) * share, -(-(cluster.ranks - distance) // (2 * distance)),
                 leave=_crossing(-(-(cluster.ranks - distance) // (2 * distance)), distance, cluster))
        for distance in _distances(cluster.ranks)
    )  # fmt: skip


def tree(nbytes: float, cluster: Cluster) -> Exchanges:
    """Summed up along a binomial tree, and broadcast along it: 2 ⌈log2 p⌉ (α + n β)."""
    return (*_tree(nbytes, cluster, adds=True), *_tree(nbytes, cluster, adds=False))


def _tree(nbytes: float, cluster: Cluster, *, adds: bool) -> Iterator[Exchange]:
    for distance in _distances(cluster.ranks):
        senders = -(-(cluster.ranks - distance) // (2 * distance))
        yield Exchange(1, nbytes, senders, _crossing(senders, distance, cluster), adds=adds)


def _distances(ranks: int) -> Iterator[int]:
    """1, 2, 4, … below the number of ranks."""
    distance = 1
    while distance < ranks:
        yield distance
        distance *= 2


def _crossing(senders: float, distance: int, cluster: Cluster) -> float:
    """Of the ranks that send so far, those whose partner is on another host."""
    return 0 if cluster.hosts == 1 or 2 * distance <= cluster.on_host else senders


def doubling(nbytes: float, cluster: Cluster) -> Exchanges:
    """Recursive doubling: all that a rank has, with partners at 1, 2, 4, …: log2 p (α + n β + n γ)."""
    return _butterfly(cluster, nbytes, [(distance, nbytes, True) for distance in _distances(_power(cluster.ranks))])


def halving(nbytes: float, cluster: Cluster) -> Exchanges:
    """Reduce-scatter by recursive halving, all-gather by doubling (Rabenseifner): 2 log2 p α + 2 (p - 1)/p n β.

    The first exchange, of half the bytes, is with the neighbour, as in MPICH.
    """
    parts = [(distance, nbytes / (2 * distance)) for distance in _distances(_power(cluster.ranks))]
    return _butterfly(cluster, nbytes, [*((*one, True) for one in parts), *((*one, False) for one in reversed(parts))])


def _power(ranks: int) -> int:
    """The largest power of two that is not above."""
    return 1 << (ranks.bit_length() - 1)


def _butterfly(cluster: Cluster, nbytes: float, stages: Iterable[tuple[int, float, bool]]) -> Exchanges:
    """Exchanges with partners at distances, of bytes, added up or not, among the largest power of two of the ranks.

    Of p - 2^k ranks more, each hands its bytes to its neighbour before, and gets the result after.
    """
    power, w = _power(cluster.ranks), cluster.on_host
    among = []
    for distance, size, adds in stages:
        leave = _crossing(power, distance, cluster)
        among.append(Exchange(1, size, power, leave, flows=w if leave else 1, adds=adds))
    rest = cluster.ranks - power
    if not rest:
        return tuple(among)
    leave = _crossing(rest, 1, cluster)
    return (Exchange(1, nbytes, rest, leave, adds=True), *among, Exchange(1, nbytes, rest, leave))


def hierarchical(nbytes: float, cluster: Cluster, between: Iterable[Algorithm] | None = None) -> Exchanges:
    """Reduce-scatter within hosts, all-reduce of each w-th among hosts at once, all-gather within hosts.

    As Goyal et al. 2017 and Horovod do where hosts have several ranks; between hosts a ring, or halving and doubling,
    whichever takes less, unless other algorithms are given for it.
    """
    w, hosts = cluster.on_host, cluster.hosts
    if w == 1 or hosts == 1:
        return cheapest(nbytes, cluster, FLAT)
    inside, outside = cluster.of(w), Cluster(hosts, cluster.between, cluster.between)
    crossed = cheapest(nbytes / w, outside, between or (ring, halving), flows=w)
    return (
        *_everywhere(reduce_scatter(nbytes, inside), hosts),
        *crossed,
        *_everywhere(all_gather(nbytes, inside), hosts),
    )


def _everywhere(exchanges: Exchanges, times: int) -> Exchanges:
    """Repeat exchanges on `times` hosts at once."""
    return tuple(
        Exchange(one.rounds, one.bytes, one.senders * times, adds=one.adds, role=one.role) for one in exchanges
    )


def cheapest(nbytes: float, cluster: Cluster, algorithms: Iterable[Algorithm], flows: int = 1) -> Exchanges:
    """Return the exchanges of the fastest algorithm, run by `flows` groups of ranks at once."""
    made = (
        tuple(
            Exchange(one.rounds, one.bytes, one.senders * flows, one.leave * flows, one.flows * flows, one.adds)
            for one in algorithm(nbytes, cluster)
        )
        for algorithm in algorithms
    )
    return min(made, key=lambda exchanges: seconds(exchanges, cluster))


FLAT: tuple[Algorithm, ...] = (tree, ring, doubling, halving)
"""Those that know nothing of hosts."""


def auto(nbytes: float, cluster: Cluster) -> Exchanges:
    """The cheapest of all, as MPI libraries choose by size and number of ranks."""
    return cheapest(nbytes, cluster, (*FLAT, hierarchical) if 1 < cluster.on_host < cluster.ranks else FLAT)


ALGORITHMS: dict[str, Algorithm] = {
    "auto": auto, "tree": tree, "ring": ring, "doubling": doubling, "halving": halving, "hierarchical": hierarchical,
}  # fmt: skip


def algorithm_called(name: str, what: str = "--algorithm") -> Algorithm:
    """An all-reduce by its name. Raises `InputError`, which begins with `what`."""
    if name not in ALGORITHMS:
        expected = f"one of {listing(list(ALGORITHMS))}"
        hint = did_you_mean(name, ALGORITHMS)
        raise InputError(f"{what}: there is no such algorithm", expected=expected, got=repr(name), hint=hint)
    return ALGORITHMS[name]
