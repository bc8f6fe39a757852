"""Recomputation (activation checkpointing): values that gradients read are computed again instead of being kept.

A result of the forward half stays alive until the last gradient that reads it is computed. This pass gives some of them
a second node with the same op, operands and layouts, which the same kernel computes bit-identically. Random ops are
pure functions of a counter (ADR 0008) and can run twice as well.

Results that are cheap to compute come first: those that take no longer than reading and writing them, up to `CHEAP`
operations a byte (normalizations, activations, poolings, depthwise convolutions). If that is not enough, all results
except some checkpoints are recomputed, segment by segment (Chen et al. 2016, arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netspec.graph.graph import Graph, rebuild, topological_order
from netspec.graph.kernel import KernelChoice
from netspec.graph.layout import Layout
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.invariant import invariant_nodes

CHEAP = 8.0
"""Nodes with at most this many floating-point operations per byte of memory traffic are cheap to recompute."""
MIN_BYTES = 1 << 12
"""Smaller results are kept."""
WORTH = 0.98
"""A variant is worth its additional arithmetic only if its peak is below this fraction of the best peak so far."""
SEGMENT_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24)
"""Numbers of segments to try; a checkpoint ends each segment."""

Layouts = Mapping[Value, Layout]
Choices = Mapping[Node, KernelChoice]


@dataclass(frozen=True, eq=False)
class RecomputeVariant:
    """A graph in which some results are computed twice."""

    graph: Graph
    layouts: Layouts
    choices: Choices
    """The kernel of each node that needs one."""
    recomputed: tuple[Node, ...] = ()
    """The nodes that compute results for the second time."""

    @property
    def flops(self) -> int:
        """Floating-point operations of the recomputed nodes."""
        return sum(map(_flops, self.recomputed))


def recompute(
    plain: RecomputeVariant, peak_of: Callable[[RecomputeVariant], int], limit: int, *, minimal: bool = True
) -> RecomputeVariant:
    """Recompute as little as brings the peak within the limit; without `minimal`, the first variant that fits.

    Returns the variant with the lowest peak if none reaches the limit. `peak_of` plans a variant and returns the bytes
    that it needs.
    """
    best, lowest = plain, peak_of(plain)
    if lowest <= limit:
        return best
    halves = _Halves(plain)
    cheap = halves.cheap()
    families = halves.independent(cheap), cheap
    for family in families:
        if peak_of(halves.recompute_values(family)) <= limit:
            values = family
            if minimal:
                values = _shortest_prefix(family, lambda some: peak_of(halves.recompute_values(some)) <= limit)
            return halves.recompute_values(values)
    for dropped in (*families, *halves.between_checkpoints()):
        variant = halves.recompute_values(dropped)
        peak = peak_of(variant)
        better = variant.flops < best.flops if max(peak, lowest) <= limit else peak < WORTH * lowest
        if better:
            best, lowest = variant, peak
        if lowest <= limit and not minimal:
            break
    return best


def _shortest_prefix(values: list[Value], fits: Callable[[list[Value]], bool]) -> list[Value]:
    """The shortest prefix of the values that fits, given that the full list fits and the empty one does not."""
    few, enough = 0, len(values)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if fits(values[:middle]) else (middle, enough)
    return values[:enough]


class _Halves:
    """The nodes before the guard, the nodes after it, and the values from the first half that the second half reads."""

    def __init__(self, plain: RecomputeVariant) -> None:
        self.plain, self.layouts = plain, plain.layouts
        graph = plain.graph
        self.early = topological_order([graph.guard]) if graph.guard is not None else []
        early_nodes = set(self.early)
        self.late = [node for node in graph.nodes() if node not in early_nodes]
        read = {value.base for node in self.late for value in node.inputs}
        computed = (node for node in self.early if not (node.op.traits.source or node.op.traits.view))
        self.kept = dict.fromkeys(value for node in computed for value in node.outputs if value in read)
        """Results of the first half that the second half reads, in execution order."""
        self.invariant = invariant_nodes(graph)
        fetched = {value.base for value in graph.roots()}
        self.candidates = [
            value
            for value in self.kept
            if value not in fetched
            and value.node not in self.invariant
            and self._bytes(value) >= MIN_BYTES
            and self._chain({value}) is not None
        ]

    def cheap(self) -> list[Value]:
        """Candidates that are cheap to recompute; those that free the most memory for their cost come first."""
        ranked = []
        for index, value in enumerate(self.candidates):
            chain = self._chain({value}) or set()
            traffic = {node: sum(map(self._bytes, (*node.inputs, *node.outputs))) for node in chain}
            if all(_flops(node) <= CHEAP * moved for node, moved in traffic.items()):
                size = self._bytes(value)
                ranked.append((sum(traffic.values()) / size, -size, index))
        return [self.candidates[index] for *_, index in sorted(ranked)]

    def independent(self, values: Sequence[Value]) -> list[Value]:
        """Return the values that can be recomputed independently, because none depends on another dropped one.

        In a residual net, in which each sum reads the preceding one, this is every second sum.
        """
        selected: dict[Value, None] = {}
        needed: set[Value] = set()
        for value in values:
            operands = {operand.base for node in self._chain({value}) or () for operand in node.inputs}
            if value not in needed and not any(operand in selected for operand in operands):
                selected[value] = None
                needed |= operands
        return list(selected)

    def between_checkpoints(self) -> Iterator[list[Value]]:
        """All candidates except the last one of each segment; segments have about equal bytes."""
        total = sum(map(self._bytes, self.candidates))
        for count in SEGMENT_COUNTS:
            dropped: list[Value] = []
            segment: list[Value] = []
            segment_bytes = 0
            for value in self.candidates:
                segment_bytes += self._bytes(value)
                if segment_bytes * count < total:
                    segment.append(value)
                else:
                    dropped += segment
                    segment, segment_bytes = [], 0
            yield dropped

    def recompute_values(self, dropped: Collection[Value]) -> RecomputeVariant:
        """The graph whose second half recomputes the dropped values."""
        chain = self._chain(dropped)
        if not chain:
            return self.plain
        graph, layouts, choices = self.plain.graph, dict(self.layouts), dict(self.plain.choices)
        new: dict[Value, Value] = {}
        recomputed: list[Node] = []

        def replace_node(node: Node, results: tuple[Value, ...]) -> None:
            new.update(zip(node.outputs, results, strict=True))
            layouts.update((result, layouts[old]) for result, old in zip(results, node.outputs, strict=True))
            if node in choices:
                choices[results[0].node] = choices[node]

        for node in self.early:
            inputs = tuple(new.get(value, value) for value in node.inputs)
            if node in chain or (node.op.traits.view and inputs != node.inputs):
                with in_scope(replace(node.scope, phase="backward")):
                    replace_node(node, apply(node.op, inputs))
                recomputed += [new[node.outputs[0]].node] if node in chain else []
        dropped_set = set(dropped)
        # Values that are kept are read directly.
        new = {value: copy for value, copy in new.items() if value.base in dropped_set}
        ends: dict[Value, Value] = {value: value for value in graph.roots()}
        for node in self.late:
            inputs = tuple(new.get(value, value) for value in node.inputs)
            if inputs != node.inputs:
                replace_node(node, rebuild(node, inputs))
                ends.update((value, new[value]) for value in node.outputs)
        return RecomputeVariant(graph.remap(ends), layouts, choices, tuple(recomputed))

    def _chain(self, dropped: Collection[Value]) -> set[Node] | None:
        """The nodes that run again if these values are dropped; None if one of them must not run twice."""
        chain: set[Node] = set()
        dropped_set = set(dropped)
        waiting = [value.node for value in dropped]
        while waiting:
            node = waiting.pop()
            if node in chain:
                continue
            if not node.op.traits.pure:
                return None
            chain.add(node)
            for value in (value.base for value in node.inputs):
                is_available = (
                    value.op.traits.source
                    or value.node in self.invariant
                    or (value in self.kept and value not in dropped_set)
                )
                waiting += [] if is_available else [value.node]
        return chain

    def _bytes(self, value: Value) -> int:
        return self.layouts[value].nbytes(value.type)


def _flops(node: Node) -> int:
    return node.op.flops(*(value.type for value in node.inputs))
