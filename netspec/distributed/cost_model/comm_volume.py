"""Messages that workers send each other in a compiled step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, lcm

from netspec.distributed.communicators.encodings import between_hosts, encoding
from netspec.distributed.cost_model.collectives import Exchanges, all_to_all, hierarchical, ring, ring_pass
from netspec.distributed.cost_model.networks import NETWORKS, Cluster
from netspec.graph.execution_plan import contiguous_bytes
from netspec.graph.ops.all_reduce import CommunicationOp
from netspec.graph.types import TensorType
from netspec.graph.value import Node

VOTES = 8
"""Bytes of two flags: whether a worker was asked to stop, and to write a checkpoint."""


def all_gather_exchanges(nbytes: float, cluster: Cluster) -> Exchanges:
    """Return the exchanges of an all-gather in which each rank contributes `nbytes` bytes."""
    return (ring_pass(nbytes * cluster.ranks, cluster, adds=False),)


PATTERNS: dict[str, Callable[[float, Cluster], Exchanges]] = {
    "all_reduce": ring,
    "reduce_scatter": lambda nbytes, cluster: (ring_pass(nbytes, cluster, adds=True),),
    "all_gather": all_gather_exchanges,
    "all_gather_parts": lambda nbytes, cluster: (ring_pass(nbytes, cluster, adds=False),),
    "all_to_all": all_to_all,
}
"""Exchanges by `Communication.pattern` and the bytes of each worker, for the algorithms that send least."""


@dataclass(frozen=True)
class CollectiveMessage:
    """Data that one collective call sends in a step; the mean over steps, if they differ."""

    name: str
    contents: tuple[str, ...]
    """Names of the values that it sends: losses, states, and parameters for their gradients."""
    nbytes: float
    """Bytes of these values as they are stored on a worker that sends them."""
    exchanges: Exchanges
    starts: float | None = None
    """Share of the arithmetic of backward that is done when it is sent; None: between steps."""
    times: int = 1
    """Number of times that it is sent in such a step."""
    every: int = 1
    """Period in steps: it is sent in the last of every `every` steps."""

    def sent(self, role: str = "worker") -> float:
        """Return the bytes that all ranks of a role send in a step that includes this message."""
        return self.times * sum(exchange.sent for exchange in self.exchanges if exchange.role == role)

    def left(self) -> float:
        """Return the bytes that all roles send to other hosts in such a step."""
        return self.times * sum(exchange.left for exchange in self.exchanges)

    def among(self, steps: range, every: int = 1) -> int:
        """Count the steps that send it among `steps`, from 0; only the last of every `every` steps are considered."""
        both = lcm(self.every, every)
        return steps.stop // both - steps.start // both


def compressed_exchanges(nbytes: float, form: str, itemsize: int, cluster: Cluster) -> Exchanges:
    """Return the exchanges of a compressed all-reduce (`compressed_allreduce.py`) of `nbytes` encoded bytes per worker.

    Elements have `itemsize` bytes unencoded. If each worker sums a part, parts are padded to equal size.
    """
    codec = encoding(form)
    if codec.gathers:
        return all_gather_exchanges(nbytes, cluster)
    number = codec.nbytes((1,), itemsize)
    share = ceil(nbytes / (number * cluster.ranks)) * number
    return (*all_to_all(share * cluster.ranks, cluster), *all_gather_exchanges(share, cluster))


def stop_vote(cluster: Cluster, batches: int, every: int) -> CollectiveMessage:
    """Return the message of the vote on whether to stop or write a checkpoint, in a step of `batches` batches."""
    return CollectiveMessage("stop vote", (), VOTES, ring(VOTES, cluster), 0.0, batches, every)


def program_messages(programs: Iterable[tuple[Sequence[Node], int]], cluster: Cluster) -> Iterator[CollectiveMessage]:
    """Yield the messages of a step's programs, given as nodes in execution order and the number of runs per step."""
    number = 0
    for order, times in programs:
        total = sum(map(_backward, order))
        flops_done = 0
        for node in order:
            flops_done += _backward(node)
            message = node_message(node, cluster)
            if message is not None:
                number += not message.name
                name = message.name or f"bucket {number}"
                yield replace(message, name=name, starts=flops_done / total if total else 1.0, times=times)


def message_bytes(op: CommunicationOp, kinds: Sequence[TensorType]) -> int:
    """Return the bytes that a worker sends, including alignment gaps unless each array is encoded separately."""
    sizes = [kind.nbytes for kind in kinds]
    encoded_alone = op.encoding and between_hosts(op.encoding) is None
    return contiguous_bytes(sizes) if op.contiguous and not encoded_alone else sum(sizes)


def _backward(node: Node) -> int:
    return node.op.flops(*(operand.type for operand in node.inputs)) if node.scope.phase == "backward" else 0


def node_message(node: Node, cluster: Cluster) -> CollectiveMessage | None:
    """Return the message of a node, without a name if it belongs to no single layer; None if it sends nothing."""
    op = node.op
    if not isinstance(op, CommunicationOp):
        return None
    kinds = op.sent_types([value.type for value in node.inputs])
    if not kinds:
        return None
    crossing = between_hosts(op.encoding)
    form = op.encoding if crossing is None else crossing
    nbytes = message_bytes(op, kinds)

    def at_once(share: float, cluster: Cluster) -> Exchanges:
        """Return the exchanges of all ranks of a cluster, each with a share of the bytes, possibly encoded."""
        if not form:
            return PATTERNS[op.pattern](share, cluster)
        itemsize = kinds[0].dtype.itemsize
        packed = sum(encoding(form).nbytes(kind.shape, itemsize) for kind in kinds)
        return compressed_exchanges(packed * share / nbytes, form, itemsize, cluster)

    exchanges = at_once(nbytes, cluster) if crossing is None else hierarchical(nbytes, cluster, (at_once,))
    return CollectiveMessage(node.scope.layer, op.contents, nbytes, exchanges)


def uniform_cluster(workers: int, per_host: int) -> Cluster:
    """Return a cluster of `workers` ranks for counting bytes; its networks are arbitrary."""
    network = NETWORKS["shared-memory"]
    return Cluster(workers, network, network, per_host)
