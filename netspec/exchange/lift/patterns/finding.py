"""Replace each pattern that is found in a model by one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf
from typing import Any, TypeAlias

from netspec.exchange.lift.patterns.formula import Term, ends_in, operators
from netspec.exchange.lift.patterns.matching import Match, PatternSearch
from netspec.exchange.operator_graph.graph import ImportedGraph, OperatorNode
from netspec.exchange.operator_graph.onnx_protos import rename
from netspec.exchange.rule_table import import_rules

DOMAIN = "netspec"
"""Domain of the nodes that replace patterns."""

DEEPEST = 14
"""Maximum depth of a formula in nodes, down to the last operator that is not arithmetic."""

PARTS = "of"
"""Attribute of a node that replaces a pattern: the nodes that it replaces, in order."""
Attributes: TypeAlias = "Callable[[Match], dict[str, Any] | None]"


@dataclass(frozen=True)
class OperatorPattern:
    """A formula, and the node that computes the same: its operator, its operands by name, and its attributes."""

    op_type: str
    formula: Term
    operands: tuple[str, ...] = ("x",)
    attributes: Attributes = lambda match: dict(match.numbers)
    """Attributes of the node for a match; None rejects the match."""

    @cached_property
    def called(self) -> frozenset[str]:
        """The operators that the formula calls."""
        return operators(self.formula)


_families: list[Callable[[], Sequence[OperatorPattern]]] = []


def patterns(family: Callable[[], Sequence[OperatorPattern]]) -> Callable[[], Sequence[OperatorPattern]]:
    """Decorator: register a function that returns patterns. Of several that end in one node, the largest wins."""
    _families.append(family)
    return family


@cache
def _all() -> tuple[OperatorPattern, ...]:
    import_rules("netspec.exchange.lift.patterns")
    return tuple(pattern for family in _families for pattern in family())


def find_patterns(model: ImportedGraph, but: str = "") -> ImportedGraph:
    """Replace each pattern by one node of the domain `netspec`, except patterns that end in the tensor `but`."""
    model = _without_identities(model)
    search, near = PatternSearch(model), _near(model)
    order = {node.outputs[0]: index for index, node in enumerate(model.nodes) if node.outputs}
    replaced: dict[str, OperatorNode] = {}
    gone: set[str] = set()
    for node in reversed(model.nodes):
        if node.domain or not node.outputs or any(node.outputs[0] in names for names in (gone, search.fixed, (but,))):
            continue
        candidates = [pattern for pattern in _ending_in(node.op_type) if pattern.called <= near[node.outputs[0]]]
        best = max(_matches(search, candidates, node, gone), key=lambda match: len(match[1]), default=None)
        if best is not None:
            replacement, used = best
            parts = tuple(model.nodes[index] for index in sorted(order[name] for name in used))
            replaced[node.outputs[0]] = replace(replacement, attributes={**replacement.attributes, PARTS: parts})
            gone |= used
    nodes = [
        replaced.get(node.outputs[0], node)
        for node in model.nodes
        if node.outputs and (node.outputs[0] in replaced or node.outputs[0] not in gone)
    ]
    return replace(model, nodes=nodes)


@cache
def _ending_in(op_type: str) -> tuple[OperatorPattern, ...]:
    return tuple(pattern for pattern in _all() if op_type in ends_in(pattern.formula))


def _near(model: ImportedGraph) -> Mapping[str, frozenset[str]]:
    """For each tensor, the operators of the nodes that it depends on, up to a distance of `DEEPEST` nodes."""
    named = [(node, _ALSO.get(node.op_type, frozenset({node.op_type}))) for node in model.nodes if node.outputs]
    near: dict[str, frozenset[str]] = {}
    for _ in range(DEEPEST):
        before = near
        none: frozenset[str] = frozenset()
        near = {
            name: own_operators.union(*(before.get(read, none) for read in node.inputs))
            for node, own_operators in named
            for name in node.outputs
        }
        if near == before:
            break
    return near


_ALSO = {"ReduceSum": frozenset({"ReduceSum", "ReduceMean"})}
"""Operators that a node may be part of: a mean may be written as a sum and a division."""


def _without_identities(model: ImportedGraph) -> ImportedGraph:
    """Remove nodes that return their operand unchanged, unless their result is an output."""
    same: dict[str, str] = {}
    nodes = []
    for node in model.nodes:
        read = rename(node, lambda name: same.get(name, name))
        unchanged = _unchanged_operand(read, model)
        if unchanged and read.outputs[0] not in model.outputs and unchanged not in model.constants:
            same[read.outputs[0]] = unchanged
        else:
            nodes.append(read)
    return replace(model, nodes=nodes)


def _unchanged_operand(node: OperatorNode, model: ImportedGraph) -> str:
    """The operand that equals the result; empty if there is none."""
    if node.domain or not node.outputs:
        return ""
    if node.op_type == "Identity":
        return node.operand(0)
    neutral = {"Max": -inf, "Min": inf}.get(node.op_type)
    if neutral is None or len(node.inputs) != 2:
        return ""
    limits = [model.constants.get(name) for name in node.inputs]
    remaining = [
        name
        for name, limit in zip(node.inputs, limits, strict=True)
        if limit is None or limit.shape or limit != neutral
    ]
    return remaining[0] if len(remaining) == 1 else ""


def _matches(
    search: PatternSearch, candidates: Sequence[OperatorPattern], node: OperatorNode, replaced: set[str]
) -> Iterator[tuple[OperatorNode, frozenset[str]]]:
    """For each pattern that ends in `node`: the node that replaces it, and the results of the nodes that it uses."""
    for pattern in candidates:
        match = search.find(pattern.formula, node.outputs[0])
        if match is None or match.used & replaced:
            continue
        attributes = pattern.attributes(match)
        if attributes is not None:
            operands = tuple(match.tensors.get(name, "") for name in pattern.operands)
            replacement = OperatorNode(
                pattern.op_type, node.name, operands, node.outputs[:1], attributes, node.opset, DOMAIN, node.path
            )  # fmt: skip
            yield replacement, match.used
