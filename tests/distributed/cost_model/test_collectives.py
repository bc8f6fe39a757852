"""The predicted costs of collectives equal those of their messages, counted in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np
import pytest

from netspec.distributed.cost_model import collectives as c
from netspec.distributed.cost_model.networks import Cluster, Network
from netspec.errors import InputError

BETWEEN = Network("between", 10e-6, 1e-9, "made up")
WITHIN = Network("within", 1e-6, 1e-10, "made up")


def cluster(ranks: int, per_host: int = 1) -> Cluster:
    return Cluster(ranks, BETWEEN, WITHIN, per_host)


@dataclass
class World:
    """Simulated ranks that send parts of their vectors, and count the bytes."""

    ranks: int
    per_host: int = 1
    numbers: int = 0
    values: list[np.ndarray] = field(default_factory=list)
    sent: int = 0
    left: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        self.numbers = 8 * self.ranks
        self.values = [np.arange(self.numbers) * (rank + 1) for rank in range(self.ranks)]

    def round(self, messages: list[tuple[int, int, slice]], *, adds: bool) -> None:
        """Send messages at the same time: source, target, part."""
        parts = [(target, part, self.values[source][part].copy()) for source, target, part in messages]
        for source, target, part in messages:
            count = len(self.values[source][part])
            self.sent += count
            self.left += count * (source // self.per_host != target // self.per_host)
        for target, part, came in parts:
            self.values[target][part] = self.values[target][part] + came if adds else came
        self.rounds += 1


def ring(world: World) -> None:
    p, size = world.ranks, world.numbers // world.ranks
    for turn, adds in ((0, True), (1, False)):
        for step in range(p - 1):
            starts = [(rank, (rank - step + turn) % p * size) for rank in range(p)]
            world.round([(rank, (rank + 1) % p, slice(at, at + size)) for rank, at in starts], adds=adds)


def tree(world: World) -> None:
    p, full = world.ranks, slice(None)
    distances = [2**index for index in range(ceil(log2(p)))]
    for distance in distances:
        world.round([(r, r - distance, full) for r in range(distance, p, 2 * distance)], adds=True)
    for distance in reversed(distances):
        world.round([(r - distance, r, full) for r in range(distance, p, 2 * distance)], adds=False)


def paired(world: World) -> Iterator[list[int]]:
    """Yield the ranks of a power of two; if there are more, first reduce the surplus ranks into their partners."""
    power = 2 ** int(log2(world.ranks))
    surplus, full = world.ranks - power, slice(None)
    partners = [(2 * index, 2 * index + 1) for index in range(surplus)]
    if surplus:
        world.round([(rank, other, full) for rank, other in partners], adds=True)
    yield [other for _, other in partners] + list(range(2 * surplus, world.ranks))
    if surplus:
        world.round([(other, rank, full) for rank, other in partners], adds=False)


def doubling(world: World) -> None:
    for members in paired(world):
        distance = 1
        while distance < len(members):
            messages = [(rank, members[i ^ distance], slice(None)) for i, rank in enumerate(members)]
            world.round(messages, adds=True)
            distance *= 2


def halving(world: World) -> None:
    for members in paired(world):
        spans = dict.fromkeys(members, (0, world.numbers))
        steps = list[tuple[int, dict[int, tuple[int, int]]]]()
        distance = 1
        while distance < len(members):
            steps.append((distance, dict(spans)))
            messages = []
            for i, rank in enumerate(members):
                low, high = spans[rank]
                middle = (low + high) // 2
                sent_span, kept_span = (
                    ((middle, high), (low, middle)) if not i & distance else ((low, middle), (middle, high))
                )
                messages.append((rank, members[i ^ distance], slice(*sent_span)))
                spans[rank] = kept_span
            world.round(messages, adds=True)
            distance *= 2
        for distance, before in reversed(steps):
            messages = [(rank, members[i ^ distance], slice(*spans[rank])) for i, rank in enumerate(members)]
            world.round(messages, adds=False)
            spans = before


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("run", [ring, tree, doubling, halving])
def test_bytes_and_rounds_match_the_algorithm(run: Callable[[World], None], ranks: int):
    if run is halving and ranks in (3, 5, 7):
        world = World(ranks, numbers=0)
        world.numbers = 8 * 2**3  # the vector can be halved three times
        world.values = [np.arange(world.numbers) * (rank + 1) for rank in range(ranks)]
    else:
        world = World(ranks)
    expected = sum(value.copy() for value in world.values)
    run(world)
    assert all(np.array_equal(value, expected) for value in world.values)
    result = c.ALGORITHMS[run.__name__](world.numbers, cluster(ranks))
    assert sum(phase.sent for phase in result) == pytest.approx(world.sent)
    assert sum(phase.rounds for phase in result) == world.rounds
    assert sum(phase.left for phase in result) == pytest.approx(world.left)


@pytest.mark.parametrize("run", [ring, tree, doubling, halving])
def test_bytes_between_hosts_are_counted(run: Callable[[World], None]):
    world = World(8, per_host=2)
    run(world)
    result = c.ALGORITHMS[run.__name__](world.numbers, cluster(8, 2))
    assert sum(phase.left for phase in result) == pytest.approx(world.left)


def seconds(result: c.Exchanges, ranks: int, **facts: float) -> float:
    return c.seconds(result, cluster(ranks), **facts)


def test_the_formulas_of_the_papers():
    """Thakur et al. 2005, section 4; Patarasuk and Yuan 2009, section 3."""
    p, n, a, b, g = 16, 2.0**20, BETWEEN.alpha, BETWEEN.beta, 3e-9
    every = cluster(p)
    assert seconds(c.ring(n, every), p, adding=g) == pytest.approx(2 * 15 * a + 2 * 15 / 16 * n * b + 15 / 16 * n * g)
    assert seconds(c.halving(n, every), p, adding=g) == pytest.approx(2 * 4 * a + 2 * 15 / 16 * n * b + 15 / 16 * n * g)
    assert seconds(c.doubling(n, every), p, adding=g) == pytest.approx(4 * (a + n * b + n * g))
    assert seconds(c.tree(n, every), p, adding=g) == pytest.approx(8 * (a + n * b) + 4 * n * g)
    assert seconds(c.broadcast(n, every), p) == pytest.approx(4 * (a + n * b))
    assert seconds(c.gather(n, every), p) == pytest.approx(4 * a + 15 / 16 * n * b)
    assert seconds(c.all_gather(n, every), p) == pytest.approx(4 * a + 15 / 16 * n * b)
    assert seconds(c.reduce_scatter(n, every), p, adding=g) == pytest.approx(4 * a + 15 / 16 * n * (b + g))
    assert seconds(c.all_gather(n, cluster(11)), 11) == pytest.approx(4 * a + 10 / 11 * n * b)
    assert seconds(c.all_to_all(n, every), p) == pytest.approx(15 * a + 15 / 16 * n * b)


def test_a_gather_sends_each_share_once_a_level():
    result = c.gather(8.0, cluster(8))
    assert [(phase.bytes, phase.senders) for phase in result] == [(1, 4), (2, 2), (4, 1)]


def test_cheapest_algorithm_is_used():
    every = cluster(64)
    few, many = c.auto(8, every), c.auto(2**28, every)
    assert few == c.doubling(8, every)
    assert seconds(many, 64) == min(seconds(algorithm(2**28, every), 64) for algorithm in c.FLAT)
    assert sum(phase.sent for phase in many) == pytest.approx(2 * 63 * 2**28)


def test_hosts_share_their_connection():
    """With eight ranks per host, all of them use the network at the same time in halving, but only one in a ring."""
    every = cluster(64, 8)
    crossing = [phase for phase in c.halving(2**26, every) if phase.leave]
    assert {phase.flows for phase in crossing} == {8}
    assert [phase.rounds for phase in c.halving(2**26, every) if not phase.leave] == [1] * 6
    full = c.hierarchical(2**26, every)
    assert sum(phase.left for phase in full) == pytest.approx(2 * 7 / 8 * 2**26 * 8)
    assert sum(phase.sent for phase in full) == pytest.approx(8 * 2 * 7 * 2**26 + 2 * 7 / 8 * 2**26 * 8)
    # Halving that starts with neighbors is as good as a hierarchical all-reduce; doubling sends everything everywhere.
    assert c.seconds(full, every) == pytest.approx(c.seconds(c.halving(2**26, every), every))
    assert c.seconds(full, every) < c.seconds(c.doubling(2**26, every), every) / 10
    assert c.auto(2**26, cluster(8, 8)) != ()
    assert all(not phase.leave for phase in c.auto(2**26, cluster(8, 8)))


def test_hierarchical_is_flat_with_one_level():
    for every in (cluster(8), cluster(8, 8)):
        assert c.hierarchical(2**20, every) == c.cheapest(2**20, every, c.FLAT)


def test_an_unknown_algorithm_is_reported_with_the_nearest_name():
    assert c.parse_algorithm("ring") is c.ring
    with pytest.raises(InputError, match="unknown algorithm") as caught:
        c.parse_algorithm("rings")
    assert caught.value.problems[0].hint == "did you mean `ring`?"
