"""Data parallelism: sums over workers that may come late travel in buckets, while the rest of the step is computed.

Each `AllReduce(deferred=True)` is one message, sent when the step comes to it. Here those of one element type and
encoding are gathered, in the order in which their operands come to be (the last layer's gradients first), into buckets
that are started as soon as the last of their values is there, and joined before the first is needed. What the guard is
computed from goes first, alone: it is there when the backward half begins. The first bucket of gradients is small, so
that something is on its way early; the others are as large as pays (Li et al. 2020, arXiv:2006.15704, section 3.2).
Rows that are gathered (`AllGatherRows`) travel by themselves, each value as soon as it is there: a layer's inputs while
forward goes on. So do sums of which each worker gets a part (`BucketReduceScatter`), which come in buckets already, as
what follows depends on where these are cut; wholes that are put together (`BucketAllGather`) come after all that was
started, one after another.

The buckets depend on the sizes of the values, which are those of the parameters, and on the order in which they were
built (`passes/communication_order.py`): workers with batches of other sizes make the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from netspec.graph.graph import Graph, rebuild, topological_order
from netspec.graph.op import Op
from netspec.graph.ops.all_gather import AllGatherRows, JoinAllGatherRows, StartAllGatherRows
from netspec.graph.ops.all_reduce import AllReduce, JoinAllReduce, OrderedCommunication, StartAllReduce
from netspec.graph.ops.reduce_scatter import (
    BucketAllGather,
    BucketReduceScatter,
    JoinBucketReduceScatter,
    StartBucketReduceScatter,
)
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass

ALONE = (AllGatherRows, BucketReduceScatter)
"""What is a message by itself."""
LATE = (AllReduce, *ALONE)
FIRST_BYTES, BUCKET_BYTES = 1 << 18, 1 << 22
"""Of the first bucket of gradients, and of the others."""


class BucketGradients(Pass):
    """Gather sums over workers that may come late into buckets."""

    name: ClassVar[str] = "data_parallel"
    exact: ClassVar[bool] = True

    def __init__(self, first_bytes: int = FIRST_BYTES, bucket_bytes: int = BUCKET_BYTES) -> None:
        self.first_bytes, self.bucket_bytes = first_bytes, bucket_bytes

    def run(self, graph: Graph) -> Graph:
        """The graph with a start and a join for each bucket."""
        if not any(isinstance(node.op, LATE) for node in graph.nodes()):
            return graph
        nodes = graph.nodes()
        late = [node for node in nodes if isinstance(node.op, AllReduce) and node.op.deferred]
        alone = sorted((node for node in nodes if isinstance(node.op, ALONE)), key=_ready)
        if not late and not alone:
            return graph
        guarded = set(topological_order([graph.guard])) if graph.guard is not None else set()
        urgent = [node for node in late if node in guarded]
        rest = [node for node in late if node not in guarded]
        buckets = [*_cut(rest, self.first_bytes, self.bucket_bytes), *([node] for node in alone)]
        buckets.sort(key=lambda bucket: max(map(_ready, bucket)))
        early = [bucket for bucket in buckets if _is_of_forward(bucket, guarded)]
        later = [bucket for bucket in buckets if not _is_of_forward(bucket, guarded)]
        return _bucketed(graph, [*early, *_cut(urgent, self.bucket_bytes, self.bucket_bytes), *later])


def _ready(node: Node) -> tuple[int, int]:
    """Rises with when what is sent is built: on all workers alike, as `communication_order` has sorted it."""
    return _place(node), max(value.node.serial for value in node.inputs)


def _place(node: Node) -> int:
    assert isinstance(node.op, OrderedCommunication)
    return node.op.position


def _is_of_forward(bucket: Sequence[Node], guarded: set[Node]) -> bool:
    """Whether it is rows that the guard is computed from too: they are there before it."""
    return isinstance(bucket[0].op, AllGatherRows) and bucket[0].inputs[0].base.node in guarded


def _cut(nodes: Sequence[Node], first: int, most: int) -> Iterator[list[Node]]:
    """Nodes in buckets of one element type and encoding each, in the order of their operands."""
    open_: dict[object, list[Node]] = {}
    limit = first
    for node in sorted(nodes, key=_ready):
        kind = node.types[0].dtype, _encoding(node)
        bucket = open_.setdefault(kind, [])
        bucket.append(node)
        if sum(one.types[0].nbytes for one in bucket) >= limit:
            yield open_.pop(kind)
            limit = most
    yield from open_.values()


def _encoding(node: Node) -> str:
    assert isinstance(node.op, AllReduce)
    return node.op.encoding


def _holds(node: Node) -> tuple[str, ...]:
    assert isinstance(node.op, AllReduce)
    return node.op.contents


def _bucketed(graph: Graph, buckets: Sequence[Sequence[Node]]) -> Graph:
    """The graph with each bucket started, one after another, and joined."""
    new: dict[Value, Value] = {}
    order: list[Value] = []
    for bucket in buckets:
        for node in topological_order([value for one in bucket for value in one.inputs]):
            _copy(node, new)
        operands = [new[value] for one in bucket for value in one.inputs]
        start, join = _halves(bucket)
        scope = bucket[0].scope
        with in_scope(scope if isinstance(start, StartAllGatherRows) else replace(scope, layer="", location=None)):
            *sent, last = start.call_multi(*operands, *order)
            kept = (last, *operands) if isinstance(join, JoinBucketReduceScatter) else ()  # it is read until then
            new.update(
                zip((value for one in bucket for value in one.outputs), join.call_multi(*sent, *kept), strict=True)
            )
        order = [last]
    gathers = [node for node in graph.nodes() if isinstance(node.op, BucketAllGather)]
    for gather in sorted(gathers, key=_place):
        for node in topological_order(gather.inputs):
            _copy(node, new)
        with in_scope(gather.scope):
            made = apply(gather.op, (*(new[value] for value in gather.inputs), *order))
        new.update(zip(gather.outputs, made, strict=True))
        order = [made[-1]]
    for node in graph.nodes():
        _copy(node, new)
    return graph.remap(new)


def _halves(bucket: Sequence[Node]) -> tuple[Op, Op]:
    """What sends a bucket on its way, and what waits for it."""
    op = bucket[0].op
    if isinstance(op, AllGatherRows):
        return StartAllGatherRows(op.workers, op.max_rows, op.contents), JoinAllGatherRows()
    if isinstance(op, BucketReduceScatter):
        return StartBucketReduceScatter(op.bounds, op.rank, op.contents), JoinBucketReduceScatter(
            op.bounds, op.rank, op.contents
        )
    form = len(bucket), _encoding(bucket[0]), tuple(name for one in bucket for name in _holds(one))
    return StartAllReduce(*form), JoinAllReduce(*form)


def _copy(node: Node, new: dict[Value, Value]) -> None:
    """The node on the images of its operands, unless it has an image."""
    if node.outputs[0] not in new:
        inputs = tuple(new[value] for value in node.inputs)
        new.update(zip(node.outputs, node.outputs if inputs == node.inputs else rebuild(node, inputs), strict=True))
