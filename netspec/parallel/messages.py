"""What workers send each other in a step, message by message, as the step is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, lcm

from netspec.graph.ops.communication import Communication
from netspec.graph.plan import in_a_row
from netspec.graph.types import TensorType
from netspec.graph.value import Node
from netspec.parallel.costs.collectives import Exchanges, around, hierarchical, ring, to_all
from netspec.parallel.costs.networks import NETWORKS, Cluster
from netspec.parallel.encodings import between_hosts, encoding

VOTES = 8
"""Bytes of two numbers: whether a worker was asked to stop, and to write a checkpoint."""


def gathered(nbytes: float, cluster: Cluster) -> Exchanges:
    """Every rank gets what each has, so many bytes."""
    return (around(nbytes * cluster.ranks, cluster, adds=False),)


PATTERNS: dict[str, Callable[[float, Cluster], Exchanges]] = {
    "all_reduce": ring,
    "reduce_scatter": lambda nbytes, cluster: (around(nbytes, cluster, adds=True),),
    "all_gather": gathered,
    "all_gather_parts": lambda nbytes, cluster: (around(nbytes, cluster, adds=False),),
    "all_to_all": to_all,
}
"""What is sent where each worker has so many bytes, by `Communication.pattern`, and algorithms that send least."""


@dataclass(frozen=True)
class Message:
    """What one collective call sends in a step; in the mean of steps, where not all are alike."""

    name: str
    holds: tuple[str, ...]
    """Names of what it sends: parameters whose gradients they are, losses, states."""
    nbytes: float
    """Of that, as it lies on a worker that sends it."""
    exchanges: Exchanges
    starts: float | None = None
    """Share of the arithmetic of backward that is done when it is sent; None: between steps."""
    times: int = 1
    """How often in a step in which it is sent."""
    every: int = 1
    """It is sent in one of so many steps, the last of them."""

    def sent(self, role: str = "worker") -> float:
        """Bytes that all of a role send together in a step in which it is sent."""
        return self.times * sum(one.sent for one in self.exchanges if one.role == role)

    def left(self) -> float:
        """Bytes of all roles that leave a host in such a step."""
        return self.times * sum(one.left for one in self.exchanges)

    def among(self, steps: range, every: int = 1) -> int:
        """In how many of these steps it is sent, the first of all being 0; of the last one of every so many."""
        both = lcm(self.every, every)
        return steps.stop // both - steps.start // both


def encoded(nbytes: float, form: str, itemsize: int, cluster: Cluster) -> Exchanges:
    """What summing up in an encoding sends (`sums.py`), where that of each worker has so many bytes.

    Numbers have `itemsize` bytes by themselves. Where each worker adds up a part, zeros make parts alike.
    """
    how = encoding(form)
    if how.gathers:
        return gathered(nbytes, cluster)
    number = how.nbytes((1,), itemsize)
    share = ceil(nbytes / (number * cluster.ranks)) * number
    return (*to_all(share * cluster.ranks, cluster), *gathered(share, cluster))


def wish_to_stop(cluster: Cluster, batches: int, every: int) -> Message:
    """That by which workers ask each other in a step of so many batches whether to stop, or to write a checkpoint."""
    return Message("wish to stop", (), VOTES, ring(VOTES, cluster), 0.0, batches, every)


def of_programs(programs: Iterable[tuple[Sequence[Node], int]], cluster: Cluster) -> Iterator[Message]:
    """Those of the programs that a step runs, each so many times: their nodes in the order of execution."""
    number = 0
    for order, times in programs:
        total = sum(map(_backward, order))
        done = 0
        for node in order:
            done += _backward(node)
            found = of_node(node, cluster)
            if found is not None:
                number += not found.name
                name = found.name or f"bucket {number}"
                yield replace(found, name=name, starts=done / total if total else 1.0, times=times)


def lying(op: Communication, kinds: Sequence[TensorType]) -> int:
    """Bytes of what a worker sends, as it lies there: gaps too, but where each array is encoded by itself."""
    sizes = [one.nbytes for one in kinds]
    encoded_alone = op.encoding and between_hosts(op.encoding) is None
    return in_a_row(sizes) if op.in_a_row and not encoded_alone else sum(sizes)


def _backward(node: Node) -> int:
    return node.op.flops(*(one.type for one in node.inputs)) if node.scope.phase == "backward" else 0


def of_node(node: Node, cluster: Cluster) -> Message | None:
    """What a node sends, if it sends anything; without a name where it is of no single layer."""
    op = node.op
    if not isinstance(op, Communication):
        return None
    kinds = op.carried([value.type for value in node.inputs])
    if not kinds:
        return None
    crossing = between_hosts(op.encoding)
    form = op.encoding if crossing is None else crossing
    nbytes = lying(op, kinds)

    def at_once(share: float, cluster: Cluster) -> Exchanges:
        """All ranks of a cluster, each with a share of the bytes, which may be encoded."""
        if not form:
            return PATTERNS[op.pattern](share, cluster)
        itemsize = kinds[0].dtype.itemsize
        packed = sum(encoding(form).nbytes(one.shape, itemsize) for one in kinds)
        return encoded(packed * share / nbytes, form, itemsize, cluster)

    exchanges = at_once(nbytes, cluster) if crossing is None else hierarchical(nbytes, cluster, (at_once,))
    return Message(node.scope.layer, op.holds, nbytes, exchanges)


def hosts_of(workers: int, per_host: int) -> Cluster:
    """Workers on hosts, where it is bytes that count, and the networks do not."""
    network = NETWORKS["shared-memory"]
    return Cluster(workers, network, network, per_host)
