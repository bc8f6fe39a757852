"""Optimizer sharding: each worker updates a piece of the parameters.

Gradients are sent in buckets, in the order in which they are computed: the last layer's first. A bucket is one
contiguous buffer, and each worker holds one contiguous share of it, so it sends and receives contiguous memory. If the
update of a parameter is element-wise, a share may end within the parameter; if it reads the full parameter (a norm,
rows and columns, a matrix), one worker holds all of it. Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, section 5.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netspec.graph.graph import topological_order
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.reduce_scatter import BucketAllGather, BucketReduceScatter
from netspec.graph.ops.shape import Slice
from netspec.graph.types import TensorType
from netspec.graph.value import Value, in_scope
from netspec.layers.states import ShardSpec
from netspec.solvers.base import Param, Solution

GRAIN = 16
"""Alignment of cuts, in elements (a cache line of float32): pieces have the same alignment in a bucket and alone."""


@dataclass(frozen=True)
class ShardingConfig:
    """How to divide the update among workers."""

    rank: int
    """Rank of this worker."""
    shares: Sequence[float]
    """Size of each worker's part, relative to the other workers."""
    first_bytes: int
    """Bytes of gradients in the first bucket, and in the other buckets."""
    bucket_bytes: int


@dataclass(frozen=True)
class OptimizerSharding:
    """The trained parameters, in buckets and pieces."""

    buckets: tuple[tuple[str, ...], ...]
    """Their names, in the order in which their gradients come to be."""
    pieces: Mapping[str, ShardSpec]
    """What this worker moves of each."""
    evaluated: Mapping[str, str]
    """Name of a parameter → label of the slot that stands for it wherever the net is not trained."""

    def slice_of(self, name: str, whole: Value) -> Value:
        """The piece of a parameter, or of what is of its type. The piece is not empty."""
        piece = self.pieces[name]
        if piece.is_full:
            return whole
        with in_scope(replace(whole.node.scope, phase="update")):
            return Slice(0, piece.start, piece.stop)(reshape_to(whole, (whole.type.size,)))

    def reduce_scatter(self, wholes: Mapping[str, Value]) -> tuple[dict[str, Value], list[Value]]:
        """Return this worker's pieces of the sums over all workers, by parameter, and each bucket's order value."""
        found: dict[str, Value] = {}
        beside = []
        for bucket in self.buckets:
            cuts = tuple(self.pieces[name].bounds for name in bucket)
            *parts, order = BucketReduceScatter(cuts, self._rank(bucket), bucket).call_multi(
                *(wholes[name] for name in bucket)
            )
            found.update(zip(self._of(bucket), parts, strict=True))
            beside.append(order)
        return {name: reshape_to(one, self.pieces[name].local_shape) for name, one in found.items()}, beside

    def all_gather(
        self, pieces: Mapping[str, Value], wholes: Mapping[str, Value], beside: Sequence[Value], before: Sequence[Value]
    ) -> dict[str, Value]:
        """Gather all parameters from this worker's new pieces and the old parameters.

        The gather of a bucket runs after its reduce-scatter and after the values in `before`.
        """
        found: dict[str, Value] = {}
        for bucket, order in zip(self.buckets, beside, strict=True):
            cuts = tuple(self.pieces[name].bounds for name in bucket)
            parts = [reshape_to(pieces[name], (pieces[name].type.size,)) for name in self._of(bucket)]
            gather = BucketAllGather(cuts, self._rank(bucket), bucket)
            *made, _ = gather.call_multi(*parts, *(wholes[name] for name in bucket), order, *before)
            found.update(zip(bucket, made, strict=True))
        return found

    def _of(self, bucket: Sequence[str]) -> list[str]:
        return [name for name in bucket if not self.pieces[name].is_empty]

    def _rank(self, bucket: Sequence[str]) -> int:
        return self.pieces[bucket[0]].rank

    def owned(self) -> Iterator[str]:
        """The parameters of which this worker has a piece, in the order of the net."""
        return (name for name, piece in self.pieces.items() if not piece.is_empty)


def shard_parameters(how: ShardingConfig, params: Sequence[Param], solution: Solution) -> OptimizerSharding:
    """The division of parameters, in the order of the net, that a solver moves so."""
    kinds = {param.name: param.value.type for param in params}
    undivided = {param.name for param in params if needs_full_parameter(param, solution)}
    return OptimizerSharding(*assign_pieces(how, kinds, undivided), solution.evaluated)


def assign_pieces(
    how: ShardingConfig, kinds: Mapping[str, TensorType], undivided: Collection[str] = ()
) -> tuple[tuple[tuple[str, ...], ...], dict[str, ShardSpec]]:
    """Buckets and pieces of states of these types; those `undivided` have one worker each.

    Each worker gets its share of all numbers: what one bucket gives it too much is taken off in the next.
    """
    buckets = tuple(_buckets(how, kinds))
    total, parts = sum(how.shares), range(1, len(how.shares))
    goals = [sum(how.shares[:place]) / total for place in parts]
    given, before = [0] * len(goals), 0  # of the buckets so far: what those before each cut have; all numbers
    found: dict[str, ShardSpec] = {}
    for bucket in buckets:
        size = sum(_room(kinds[name]) for name in bucket)
        before += size
        borders = [
            _border(round(goal * before) - has, bucket, kinds, undivided)
            for goal, has in zip(goals, given, strict=True)
        ]
        borders = [max(borders[: index + 1]) for index in range(len(borders))]
        given = [has + border for has, border in zip(given, borders, strict=True)]
        start = 0
        for name in bucket:
            count = kinds[name].size
            cuts = (0, *(min(max(border - start, 0), count) for border in borders), count)
            found[name] = ShardSpec(kinds[name].shape, None, cuts, how.rank)
            start += _room(kinds[name])
    return buckets, {name: found[name] for name in kinds}


def _buckets(how: ShardingConfig, kinds: Mapping[str, TensorType]) -> Iterator[tuple[str, ...]]:
    """Names of one element type each, from the last parameter on."""
    open_: dict[object, list[str]] = {}
    limit = how.first_bytes
    for name in reversed(list(kinds)):
        bucket = open_.setdefault(kinds[name].dtype, [])
        bucket.append(name)
        if sum(kinds[one].nbytes for one in bucket) >= limit:
            yield tuple(open_.pop(kinds[name].dtype))
            limit = how.bucket_bytes
    yield from map(tuple, open_.values())


def _room(kind: TensorType) -> int:
    return -(-kind.size // GRAIN) * GRAIN


def _border(wanted: int, bucket: Sequence[str], kinds: Mapping[str, TensorType], undivided: Collection[str]) -> int:
    """Where a bucket may be cut that is nearest to where it should be."""
    start = 0
    for name in bucket:
        end = start + _room(kinds[name])
        if wanted <= start:
            return start
        if wanted < end:
            if name in undivided:
                return start if wanted - start <= end - wanted else end
            return start + (wanted - start) // GRAIN * GRAIN
        start = end
    return start


def needs_full_parameter(param: Param, solution: Solution) -> bool:
    """Whether the update of a parameter looks at more than each of its numbers by itself.

    It does where anything but elementwise ops lies between its results and the parameter, its gradient and its slots,
    or an operand that is neither of the parameter's shape nor one number.
    """
    roots = [solution.updates[param.name]]
    roots += [solution.slot_updates[slot.label] for slot in solution.slots if slot.param == param.name]
    shapes = {(), param.value.shape}
    for node in topological_order(roots):
        operands = {value.shape for value in node.inputs}
        if operands - {()} and not (node.op.traits.elementwise and operands <= shapes):
            return True
    return False
