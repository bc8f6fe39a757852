"""Data parallelism: deferred sums over workers are sent in buckets, while the rest of the step is computed.

Each `AllReduce(deferred=True)` would be one message. This pass puts sums with the same element type and encoding into
buckets, in the order in which their operands are computed (the last layer's gradients first). A bucket is started as
soon as its last value is computed, and joined before its first sum is needed. The operands of the guard are sent first,
in a separate bucket: the sums are complete when the backward half begins. The first bucket of gradients is small,
so that communication starts early; the others are larger (Li et al. 2020, arXiv:2006.15704, section 3.2).
Gathered rows (`AllGatherRows`) are messages by themselves, each started when its value is computed: a layer's inputs
are sent during forward. A `BucketReduceScatter` is a message by itself, too: it is a bucket whose cuts matter to other
nodes. All `BucketAllGather` run after the other messages, one after the other.

The buckets depend on the sizes of the values, which are those of the parameters, and on the order in which they were
built (`passes/communication_order.py`): workers with batches of different sizes make the same buckets.
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

UNBUCKETED = (AllGatherRows, BucketReduceScatter)
"""Ops that are messages by themselves."""
DEFERRABLE = (AllReduce, *UNBUCKETED)
FIRST_BYTES, BUCKET_BYTES = 1 << 18, 1 << 22
"""Sizes of the first bucket of gradients, and of the others."""


class BucketGradients(Pass):
    """Group deferred sums over workers into buckets."""

    name: ClassVar[str] = "data_parallel"
    exact: ClassVar[bool] = True

    def __init__(self, first_bytes: int = FIRST_BYTES, bucket_bytes: int = BUCKET_BYTES) -> None:
        self.first_bytes, self.bucket_bytes = first_bytes, bucket_bytes

    def run(self, graph: Graph) -> Graph:
        """Return the graph with a start and a join node for each bucket."""
        if not any(isinstance(node.op, DEFERRABLE) for node in graph.nodes()):
            return graph
        nodes = graph.nodes()
        late = [node for node in nodes if isinstance(node.op, AllReduce) and node.op.deferred]
        alone = sorted((node for node in nodes if isinstance(node.op, UNBUCKETED)), key=_ready)
        if not late and not alone:
            return graph
        guarded = set(topological_order([graph.guard])) if graph.guard is not None else set()
        urgent = [node for node in late if node in guarded]
        remaining = [node for node in late if node not in guarded]
        buckets = [*_fill_buckets(remaining, self.first_bytes, self.bucket_bytes), *([node] for node in alone)]
        buckets.sort(key=lambda bucket: max(map(_ready, bucket)))
        early = [bucket for bucket in buckets if _gathers_forward_rows(bucket, guarded)]
        later = [bucket for bucket in buckets if not _gathers_forward_rows(bucket, guarded)]
        return _bucketed(graph, [*early, *_fill_buckets(urgent, self.bucket_bytes, self.bucket_bytes), *later])


def _ready(node: Node) -> tuple[int, int]:
    """Return a sort key, the same on all workers, that increases in the order in which operands are built."""
    return _position(node), max(value.node.serial for value in node.inputs)


def _position(node: Node) -> int:
    assert isinstance(node.op, OrderedCommunication)
    return node.op.position


def _gathers_forward_rows(bucket: Sequence[Node], guarded: set[Node]) -> bool:
    """Return whether a bucket gathers rows on which the guard depends, so that they are computed in forward."""
    return isinstance(bucket[0].op, AllGatherRows) and bucket[0].inputs[0].base.node in guarded


def _fill_buckets(nodes: Sequence[Node], first: int, most: int) -> Iterator[list[Node]]:
    """Yield buckets in the order of their operands; the nodes of a bucket share an element type and an encoding."""
    open_: dict[object, list[Node]] = {}
    limit = first
    for node in sorted(nodes, key=_ready):
        kind = node.types[0].dtype, _encoding(node)
        bucket = open_.setdefault(kind, [])
        bucket.append(node)
        if sum(member.types[0].nbytes for member in bucket) >= limit:
            yield open_.pop(kind)
            limit = most
    yield from open_.values()


def _encoding(node: Node) -> str:
    assert isinstance(node.op, AllReduce)
    return node.op.encoding


def _contents(node: Node) -> tuple[str, ...]:
    assert isinstance(node.op, AllReduce)
    return node.op.contents


def _bucketed(graph: Graph, buckets: Sequence[Sequence[Node]]) -> Graph:
    """Return the graph in which the buckets are started one after the other, and joined."""
    new: dict[Value, Value] = {}
    order: list[Value] = []
    for bucket in buckets:
        for node in topological_order([value for member in bucket for value in member.inputs]):
            _copy(node, new)
        operands = [new[value] for member in bucket for value in member.inputs]
        start, join = _start_and_join(bucket)
        scope = bucket[0].scope
        with in_scope(scope if isinstance(start, StartAllGatherRows) else replace(scope, layer="", location=None)):
            *sent, last = start.call_multi(*operands, *order)
            # A reduce-scatter reads its operands until the join.
            dependencies = (last, *operands) if isinstance(join, JoinBucketReduceScatter) else ()
            new.update(
                zip(
                    (value for member in bucket for value in member.outputs),
                    join.call_multi(*sent, *dependencies),
                    strict=True,
                )
            )
        order = [last]
    gathers = [node for node in graph.nodes() if isinstance(node.op, BucketAllGather)]
    for gather in sorted(gathers, key=_position):
        for node in topological_order(gather.inputs):
            _copy(node, new)
        with in_scope(gather.scope):
            outputs = apply(gather.op, (*(new[value] for value in gather.inputs), *order))
        new.update(zip(gather.outputs, outputs, strict=True))
        order = [outputs[-1]]
    for node in graph.nodes():
        _copy(node, new)
    return graph.remap(new)


def _start_and_join(bucket: Sequence[Node]) -> tuple[Op, Op]:
    """Return the op that starts a bucket, and the op that waits for it."""
    op = bucket[0].op
    if isinstance(op, AllGatherRows):
        return StartAllGatherRows(op.workers, op.max_rows, op.contents), JoinAllGatherRows()
    if isinstance(op, BucketReduceScatter):
        return StartBucketReduceScatter(op.bounds, op.rank, op.contents), JoinBucketReduceScatter(
            op.bounds, op.rank, op.contents
        )
    form = len(bucket), _encoding(bucket[0]), tuple(name for member in bucket for name in _contents(member))
    return StartAllReduce(*form), JoinAllReduce(*form)


def _copy(node: Node, new: dict[Value, Value]) -> None:
    """Rebuild a node with the new values of its operands, unless that is done already."""
    if node.outputs[0] not in new:
        inputs = tuple(new[value] for value in node.inputs)
        new.update(zip(node.outputs, node.outputs if inputs == node.inputs else rebuild(node, inputs), strict=True))
