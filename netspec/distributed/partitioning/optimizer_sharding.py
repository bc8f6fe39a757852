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

CUT_ALIGNMENT = 16
"""Alignment of cuts, in elements: a cache line of float32. Pieces are aligned alike in a bucket and alone."""


@dataclass(frozen=True)
class ShardingConfig:
    """Division of the update among workers."""

    rank: int
    """Rank of this worker."""
    shares: Sequence[float]
    """Size of each worker's part, relative to the other workers."""
    first_bytes: int
    """Bytes of gradients in the first bucket."""
    bucket_bytes: int
    """Bytes of gradients in the other buckets."""


@dataclass(frozen=True)
class OptimizerSharding:
    """The trained parameters, in buckets and pieces."""

    buckets: tuple[tuple[str, ...], ...]
    """Their names, in the order in which their gradients are computed."""
    pieces: Mapping[str, ShardSpec]
    """This worker's piece of each parameter."""
    evaluated: Mapping[str, str]
    """Name of a parameter → label of the slot that replaces it outside of training, as in evaluations."""

    def slice_of(self, name: str, full: Value) -> Value:
        """Return this worker's piece of a parameter, or of a value of its type. The piece must not be empty."""
        piece = self.pieces[name]
        if piece.is_full:
            return full
        with in_scope(replace(full.node.scope, phase="update")):
            return Slice(0, piece.start, piece.stop)(reshape_to(full, (full.type.size,)))

    def reduce_scatter(self, full_values: Mapping[str, Value]) -> tuple[dict[str, Value], list[Value]]:
        """Return this worker's pieces of the sums over all workers, by parameter, and each bucket's order value."""
        sums: dict[str, Value] = {}
        orders = []
        for bucket in self.buckets:
            cuts = tuple(self.pieces[name].bounds for name in bucket)
            *parts, order = BucketReduceScatter(cuts, self._rank(bucket), bucket).call_multi(
                *(full_values[name] for name in bucket)
            )
            sums.update(zip(self._owned_in(bucket), parts, strict=True))
            orders.append(order)
        return {name: reshape_to(flat, self.pieces[name].local_shape) for name, flat in sums.items()}, orders

    def all_gather(
        self,
        pieces: Mapping[str, Value],
        full_values: Mapping[str, Value],
        orders: Sequence[Value],
        before: Sequence[Value],
    ) -> dict[str, Value]:
        """Gather all parameters from this worker's new pieces and the old parameters.

        The gather of a bucket runs after its reduce-scatter and after the values in `before`.
        """
        gathered: dict[str, Value] = {}
        for bucket, order in zip(self.buckets, orders, strict=True):
            cuts = tuple(self.pieces[name].bounds for name in bucket)
            parts = [reshape_to(pieces[name], (pieces[name].type.size,)) for name in self._owned_in(bucket)]
            gather = BucketAllGather(cuts, self._rank(bucket), bucket)
            *parameters, _ = gather.call_multi(*parts, *(full_values[name] for name in bucket), order, *before)
            gathered.update(zip(bucket, parameters, strict=True))
        return gathered

    def _owned_in(self, bucket: Sequence[str]) -> list[str]:
        return [name for name in bucket if not self.pieces[name].is_empty]

    def _rank(self, bucket: Sequence[str]) -> int:
        return self.pieces[bucket[0]].rank

    def owned(self) -> Iterator[str]:
        """Yield the parameters of which this worker has a piece, in the order of the net."""
        return (name for name, piece in self.pieces.items() if not piece.is_empty)


def shard_parameters(config: ShardingConfig, params: Sequence[Param], solution: Solution) -> OptimizerSharding:
    """Shard the parameters, given in the order of the net, as the solver's update allows."""
    kinds = {param.name: param.value.type for param in params}
    unsplit = {param.name for param in params if needs_full_parameter(param, solution)}
    return OptimizerSharding(*assign_pieces(config, kinds, unsplit), solution.evaluated)


def assign_pieces(
    config: ShardingConfig, kinds: Mapping[str, TensorType], unsplit: Collection[str]
) -> tuple[tuple[tuple[str, ...], ...], dict[str, ShardSpec]]:
    """Return buckets and pieces of states of these types; states in `unsplit` are not split between workers.

    Each worker gets its share of all elements: an excess in one bucket is balanced in the next.
    """
    buckets = tuple(_buckets(config, kinds))
    total, parts = sum(config.shares), range(1, len(config.shares))
    goals = [sum(config.shares[:part]) / total for part in parts]
    # Of the elements of earlier buckets: how many are before each cut, and how many there are.
    assigned, before = [0] * len(goals), 0
    pieces: dict[str, ShardSpec] = {}
    for bucket in buckets:
        size = sum(_padded_size(kinds[name]) for name in bucket)
        before += size
        borders = [
            _nearest_cut(round(goal * before) - has, bucket, kinds, unsplit)
            for goal, has in zip(goals, assigned, strict=True)
        ]
        borders = [max(borders[: index + 1]) for index in range(len(borders))]
        assigned = [has + border for has, border in zip(assigned, borders, strict=True)]
        start = 0
        for name in bucket:
            count = kinds[name].size
            cuts = (0, *(min(max(border - start, 0), count) for border in borders), count)
            pieces[name] = ShardSpec(kinds[name].shape, None, cuts, config.rank)
            start += _padded_size(kinds[name])
    return buckets, {name: pieces[name] for name in kinds}


def _buckets(config: ShardingConfig, kinds: Mapping[str, TensorType]) -> Iterator[tuple[str, ...]]:
    """Yield buckets of names, starting with the last parameter. Parameters in a bucket share an element type."""
    open_: dict[object, list[str]] = {}
    limit = config.first_bytes
    for name in reversed(list(kinds)):
        bucket = open_.setdefault(kinds[name].dtype, [])
        bucket.append(name)
        if sum(kinds[member].nbytes for member in bucket) >= limit:
            yield tuple(open_.pop(kinds[name].dtype))
            limit = config.bucket_bytes
    yield from map(tuple, open_.values())


def _padded_size(kind: TensorType) -> int:
    return -(-kind.size // CUT_ALIGNMENT) * CUT_ALIGNMENT


def _nearest_cut(target: int, bucket: Sequence[str], kinds: Mapping[str, TensorType], unsplit: Collection[str]) -> int:
    """Return the allowed cut of a bucket that is nearest to `target`, in elements."""
    start = 0
    for name in bucket:
        end = start + _padded_size(kinds[name])
        if target <= start:
            return start
        if target < end:
            if name in unsplit:
                return start if target - start <= end - target else end
            return start + (target - start) // CUT_ALIGNMENT * CUT_ALIGNMENT
        start = end
    return start


def needs_full_parameter(param: Param, solution: Solution) -> bool:
    """Return whether the update of a parameter is not element-wise.

    That is so if its results depend on the parameter, its gradient or its slots through an op that is not element-wise,
    or through an operand that is neither a scalar nor of the parameter's shape.
    """
    roots = [solution.updates[param.name]]
    roots += [solution.slot_updates[slot.label] for slot in solution.slots if slot.param == param.name]
    shapes = {(), param.value.shape}
    for node in topological_order(roots):
        operands = {value.shape for value in node.inputs}
        if operands - {()} and not (node.op.traits.elementwise and operands <= shapes):
            return True
    return False
