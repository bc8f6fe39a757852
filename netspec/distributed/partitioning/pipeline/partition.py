"""A net cut into stages: the stage of each node, and the values that are sent between stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from netspec.compile.build import REGULARIZATION, NetGraph, build
from netspec.errors import Problem, SpecError
from netspec.graph.autodiff import dependent_values
from netspec.graph.graph import topological_order
from netspec.graph.ops.source import State
from netspec.graph.types import DType, Precision
from netspec.graph.value import Node, Value
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec

BALANCE = 8.0
"""FLOP in the time of reading or writing one byte: a node costs the larger of its FLOP and its bytes times this."""
COST_TOLERANCE = 1.05
"""Cuts whose most expensive stage costs at most this factor times the optimum count as equal; bytes decide."""


@dataclass(frozen=True)
class PipelineConfig:
    """Division of a step into stages, each of which is computed by one worker."""

    stages: int
    stage: int
    """Stage of this worker, from 0."""
    micro_batches: int
    """Number of parts of a batch; at most one part per sample."""
    interleaved: bool
    """Whether backward of a micro-batch runs as early as possible, instead of after forward of all."""
    begins: tuple[str, ...]
    """Names of the first layers of all stages but the first."""

    def sizes(self, samples: int) -> list[int]:
        """Return the number of samples of each micro-batch of a batch, as equal as possible."""
        parts = min(self.micro_batches, samples)
        offsets = [samples * part // parts for part in range(parts + 1)]
        return [end - start for start, end in pairwise(offsets)]


def balance_stages(spec: NetSpec, stages: int, samples: int, dtype: DType | Precision) -> tuple[str, ...]:
    """Return the first layers of the stages after the first, balanced by the layers' costs for `samples` samples."""
    names = [link.name for link in resolve_names(spec).layers]
    costs, carried = _costs(names, build(spec, samples, training=True, dtype=dtype))
    begins = partition_sequence([costs[name] for name in names], [carried[name] for name in names], stages)
    return tuple(names[index] for index in begins[1:])


def layers_by_stage(spec: NetSpec, begins: Sequence[str]) -> list[list[str]]:
    """Return the names of the layers of each stage, which are consecutive."""
    names = [link.name for link in resolve_names(spec).layers]
    bounds = [0, *map(names.index, begins), len(names)]
    return [names[start:end] for start, end in pairwise(bounds)]


def _costs(names: Sequence[str], built: NetGraph) -> tuple[dict[str, float], dict[str, float]]:
    """Return each layer's cost in FLOP, and the bytes of the values that are computed up to it and read after it."""
    position = {name: index for index, name in enumerate(names)}
    nodes = topological_order([*built.losses.values(), *built.builder.updates.values()])
    costs, last = dict.fromkeys(names, 0.0), dict[Value, int]()
    for node in nodes:
        scope = node.scope
        index = position[scope.layer] if scope.noun == "layer" and scope.layer in position else len(names)
        last.update((value, max(index, last.get(value, 0))) for value in node.inputs)
        if index < len(names) and not (node.op.traits.source or node.op.traits.view):
            moved = sum(value.type.nbytes for value in (*node.inputs, *node.outputs))
            costs[scope.layer] += max(node.op.flops(*(value.type for value in node.inputs)), BALANCE * moved)
    carried = dict.fromkeys(names, 0.0)
    for value, end in last.items():
        if value.node.scope.layer in position and not isinstance(value.op, State):
            for index in range(position[value.node.scope.layer], min(end, len(names))):
                carried[names[index]] += value.type.nbytes
    return costs, carried


def partition_sequence(costs: Sequence[float], carried: Sequence[float], parts: int) -> list[int]:
    """Cut a sequence into non-empty parts, and return the first index of each.

    Among the cuts whose most expensive part costs at most `COST_TOLERANCE` times the optimum, choose the one that sends
    the fewest bytes between parts; `carried` holds the bytes between each element and the next. Dynamic programming
    over prefixes.
    """
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)

    def best(limit: float | None) -> tuple[float, list[int]]:
        """Return the lowest cost of the most expensive part, or the fewest bytes within a cost limit, and the cuts."""
        best_by_end: list[tuple[float, list[int]] | None] = [(0.0, [])] + [None] * len(costs)
        for part in range(parts):
            following: list[tuple[float, list[int]] | None] = [None] * (len(costs) + 1)
            for end in range(part + 1, len(costs) - (parts - part - 1) + 1):
                for start in range(part, end):
                    before, cost = best_by_end[start], sums[end] - sums[start]
                    if before is None or (limit is not None and cost > limit):
                        continue
                    total = max(before[0], cost) if limit is None else before[0] + (carried[start - 1] if start else 0)
                    candidate = total, [*before[1], start]
                    best_so_far = following[end]
                    following[end] = candidate if best_so_far is None else min(best_so_far, candidate)
            best_by_end = following
        last = best_by_end[len(costs)]
        assert last is not None, "there are as many layers as parts, and the limit is possible"
        return last

    return best(COST_TOLERANCE * best(None)[0])[1]


@dataclass(frozen=True)
class Crossing:
    """A value that one stage computes and another reads."""

    number: int
    value: Value
    source: int
    target: int
    returns: bool
    """Whether its gradient is sent back."""


class PipelineStages:
    """A net built for training with some batch size, cut into stages."""

    def __init__(self, spec: NetSpec, built: NetGraph, config: PipelineConfig) -> None:
        self.built, self._stages = built, config.stages
        self.layers = layers_by_stage(spec, config.begins)
        self._stage_of = {name: stage for stage, names in enumerate(self.layers) for name in names}
        penalties = built.builder.penalties if built.losses else []
        self.losses = [(name, loss) for name, loss in built.losses.items() if name != REGULARIZATION]
        self.losses += [(REGULARIZATION, penalty) for penalty in penalties]
        """Parts of the loss, each with the name of its loss."""
        self._nodes = topological_order([*(value for _, value in self.losses), *built.builder.updates.values()])
        self._stage_of_node: dict[Node, int | None] = {}
        for node in self._nodes:
            self._stage_of_node[node] = self._find_stage(node)
        self._check()

    def _find_stage(self, node: Node) -> int | None:
        """Return the stage of a node; None for nodes that every stage computes, from inputs and constants alone."""
        scope = node.scope
        if node.op.traits.source and not isinstance(node.op, State):
            return None
        before = [stage for value in node.inputs if (stage := self._stage_of_node[value.node]) is not None]
        if scope.noun == "layer" and scope.layer in self._stage_of:
            return self._stage_of[scope.layer]
        return max(before, default=self._stages - 1)

    def stage_of_value(self, value: Value) -> int | None:
        """Return the stage that computes a value on which the losses depend; None if all stages do."""
        return self._stage_of_node[value.node]

    def stage_of(self, name: str) -> int:
        """Return the stage of a state."""
        return self._stage_of[self.built.builder.states[name].value.node.scope.layer]

    def _check(self) -> None:
        """Raise `SpecError` if layers of several stages share a state that they change."""
        problems = [
            Problem(
                f"layers of several stages share `{name}`, which each of them changes",
                self.built.builder.states[name].value.node.scope.location, f"layers.{value.node.scope.layer}",
                expected="these layers in one stage: set `cuts`",
            )
            for name, value in self.built.builder.updates.items()
            if self.stage_of_value(value) not in (None, self.stage_of(name))
        ]  # fmt: skip
        if problems:
            raise SpecError(problems)

    @cached_property
    def crossings(self) -> list[Crossing]:
        """All values that are sent from one stage to another, in the order in which they are computed."""
        read: dict[tuple[Value, int], int] = {}
        for node in self._nodes:
            target = self._stage_of_node[node]
            for value in node.inputs:
                source = self._stage_of_node[value.node]
                if target is not None and source is not None and source != target:
                    read[value, target] = source
        moved = dependent_values(self._nodes, frozenset(self.starts().values()))
        ordered = sorted(read.items(), key=lambda item: (item[0][0].node.serial, item[0][0].index, item[0][1]))
        return [
            Crossing(number, value, source, target, value.dtype.is_float and value in moved)
            for number, ((value, target), source) in enumerate(ordered)
        ]

    def starts(self) -> dict[str, Value]:
        """Return the value from which the update of each trained parameter starts."""
        states, updates = self.built.builder.states, self.built.builder.updates
        return {name: updates.get(name, info.value) for name, info in states.items() if info.trainable}

    def nodes(self, stage: int) -> Iterator[Node]:
        """Yield the nodes that a stage computes, including those that all stages compute."""
        return (node for node in self._nodes if self._stage_of_node[node] in (None, stage))
