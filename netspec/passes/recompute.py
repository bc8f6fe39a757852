"""Recomputation: what the gradients need is not kept but made once more, out of what is kept.

A result of the forward half that a gradient reads lives until then. Here some of them get a second node, of the same op
on the same operands in the same layouts, which the same kernel computes: the same bits. Random ops are pure functions
of a counter (ADR 0008), so that they too can run twice.

Which results: first those that take no longer than to read and write them (normalizations, activations, poolings,
depthwise convolutions: up to `CHEAP` operations a byte); where that does not do, all but some checkpoints, between
which the forward half runs once more (Chen et al. 2016, arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netspec.graph.graph import Graph, rebuild, topological
from netspec.graph.kernel import Choice
from netspec.graph.layout import Layout
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.steady import steady_nodes

CHEAP = 8.0
"""FLOP for each byte read or written; up to there a node takes the time of its memory traffic."""
LEAST_BYTES = 1 << 12
"""Smaller results are kept."""
WORTH = 0.98
"""A variant that saves less than 2 % more is not worth its arithmetic."""
STRETCHES = (2, 3, 4, 6, 8, 12, 16, 24)
"""Numbers of stretches between checkpoints that are tried."""

Layouts = Mapping[Value, Layout]
Choices = Mapping[Node, Choice]


@dataclass(frozen=True, eq=False)
class Variant:
    """A graph in which some results are made twice."""

    graph: Graph
    layouts: Layouts
    choices: Choices
    """The kernel of every node that needs one."""
    again: tuple[Node, ...] = ()
    """The nodes that make them for the second time."""

    @property
    def flops(self) -> int:
        """What these cost."""
        return sum(map(_flops, self.again))


def recompute(plain: Variant, peak_of: Callable[[Variant], int], limit: int) -> Variant:
    """The graph of `plain` with as little computed twice as keeps its peak within the limit.

    Where nothing is as low as the limit, the variant with the lowest peak. `peak_of` plans a variant and says how many
    bytes it needs.
    """
    best, lowest = plain, peak_of(plain)
    if lowest <= limit:
        return best
    halves = _Halves(plain)
    cheap = halves.cheap()
    families = halves.apart(cheap), cheap
    for family in families:
        if peak_of(halves.without(family)) <= limit:
            return halves.without(_shortest(family, lambda some: peak_of(halves.without(some)) <= limit))
    for dropped in (*families, *halves.between_checkpoints()):
        variant = halves.without(dropped)
        peak = peak_of(variant)
        better = variant.flops < best.flops if max(peak, lowest) <= limit else peak < WORTH * lowest
        if better:
            best, lowest = variant, peak
    return best


def _shortest(values: list[Value], fits: Callable[[list[Value]], bool]) -> list[Value]:
    """The first few of the values, as few as fit; all of them do, none of them does not."""
    few, enough = 0, len(values)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if fits(values[:middle]) else (middle, enough)
    return values[:enough]


class _Halves:
    """The half of a graph that runs before the guard, the half after it, and what lives from one into the other."""

    def __init__(self, plain: Variant) -> None:
        self.plain, self.layouts = plain, plain.layouts
        graph = plain.graph
        self.early = topological([graph.guard]) if graph.guard is not None else []
        known = set(self.early)
        self.late = [node for node in graph.nodes() if node not in known]
        read = {value.base for node in self.late for value in node.inputs}
        made = (node for node in self.early if not (node.op.traits.source or node.op.traits.view))
        self.kept = dict.fromkeys(value for node in made for value in node.outputs if value in read)
        """Results of the first half that the second reads, in the order in which they are made."""
        self.steady = steady_nodes(graph)
        fetched = {value.base for value in graph.roots()}
        self.candidates = [
            value
            for value in self.kept
            if value not in fetched
            and value.node not in self.steady
            and self._bytes(value) >= LEAST_BYTES
            and self._chain({value}) is not None
        ]

    def cheap(self) -> list[Value]:
        """Candidates that cost little, those first that free the most for it."""
        found = []
        for place, value in enumerate(self.candidates):
            chain = self._chain({value}) or set()
            traffic = {node: sum(map(self._bytes, (*node.inputs, *node.outputs))) for node in chain}
            if all(_flops(node) <= CHEAP * moved for node, moved in traffic.items()):
                size = self._bytes(value)
                found.append((sum(traffic.values()) / size, -size, place))
        return [self.candidates[place] for *_, place in sorted(found)]

    def apart(self, values: Sequence[Value]) -> list[Value]:
        """Those of the values that can be made from what is kept, one by one: none of them waits for another.

        In a residual net, where each sum reads the one before, every other sum is.
        """
        found: dict[Value, None] = {}
        needed: set[Value] = set()
        for value in values:
            operands = {one.base for node in self._chain({value}) or () for one in node.inputs}
            if value not in needed and not any(one in found for one in operands):
                found[value] = None
                needed |= operands
        return list(found)

    def between_checkpoints(self) -> Iterator[list[Value]]:
        """All candidates but the last of each stretch, of about equal bytes, and those after the last checkpoint."""
        total = sum(map(self._bytes, self.candidates))
        for count in STRETCHES:
            dropped: list[Value] = []
            waiting: list[Value] = []
            stretch = 0
            for value in self.candidates:
                stretch += self._bytes(value)
                if stretch * count < total:
                    waiting.append(value)
                else:
                    dropped += waiting
                    waiting, stretch = [], 0
            yield dropped

    def without(self, dropped: Collection[Value]) -> Variant:
        """The graph whose second half makes the values itself."""
        chain = self._chain(dropped)
        if not chain:
            return self.plain
        graph, layouts, choices = self.plain.graph, dict(self.layouts), dict(self.plain.choices)
        new: dict[Value, Value] = {}
        again: list[Node] = []

        def image(node: Node, made: tuple[Value, ...]) -> None:
            new.update(zip(node.outputs, made, strict=True))
            layouts.update((one, layouts[old]) for one, old in zip(made, node.outputs, strict=True))
            if node in choices:
                choices[made[0].node] = choices[node]

        for node in self.early:
            inputs = tuple(new.get(value, value) for value in node.inputs)
            if node in chain or (node.op.traits.view and inputs != node.inputs):
                with in_scope(replace(node.scope, phase="backward")):
                    image(node, apply(node.op, inputs))
                again += [new[node.outputs[0]].node] if node in chain else []
        gone = set(dropped)
        new = {value: made for value, made in new.items() if value.base in gone}  # what is kept is read where it is
        ends: dict[Value, Value] = {value: value for value in graph.roots()}
        for node in self.late:
            inputs = tuple(new.get(value, value) for value in node.inputs)
            if inputs != node.inputs:
                image(node, rebuild(node, inputs))
                ends.update((value, new[value]) for value in node.outputs)
        return Variant(graph.mapped(ends), layouts, choices, tuple(again))

    def _chain(self, dropped: Collection[Value]) -> set[Node] | None:
        """The nodes that run again if these values are dropped; None if one of them must not."""
        chain: set[Node] = set()
        gone = set(dropped)
        waiting = [value.node for value in dropped]
        while waiting:
            node = waiting.pop()
            if node in chain:
                continue
            if not node.op.traits.pure:
                return None
            chain.add(node)
            for value in (value.base for value in node.inputs):
                there = (
                    value.op.traits.source or value.node in self.steady or (value in self.kept and value not in gone)
                )
                waiting += [] if there else [value.node]
        return chain

    def _bytes(self, value: Value) -> int:
        return self.layouts[value].nbytes(value.type)


def _flops(node: Node) -> int:
    return node.op.flops(*(value.type for value in node.inputs))
