"""The rules by which operators become layers: functions of `rules/`, registered by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from netspec.exchange.rule_table import import_rules

if TYPE_CHECKING:
    from netspec.exchange.lift.context import LiftContext
    from netspec.exchange.operator_graph.graph import OperatorNode

RuleFunction: TypeAlias = "Callable[[LiftContext, OperatorNode], None]"

SHAPE_OPERATORS = ("Shape", "Size")
"""Operators that need no rule: the shape of every tensor is known."""
BLOCKED = "com.microsoft.nchwc"
"""The domain of onnxruntime's operators on blocks of channels."""


@dataclass(frozen=True)
class LiftRule:
    """A function that adds layers for a node, or raises `UnsupportedFeature` with the reason."""

    apply: RuleFunction
    uses_all_results: bool = False
    """Whether it supports nodes of which other results than the first are read."""
    constants_only: bool = False
    """Whether nodes are only evaluated from constants; the function reports why others are not supported."""
    keeps_type: bool = False
    """Whether the result has the type of the first operand, even if that is quantized and the layer computes floats."""


_rules: dict[tuple[str, str], LiftRule] = {}


def rule(
    *op_types: str,
    domain: str = "",
    uses_all_results: bool = False,
    constants_only: bool = False,
    keeps_type: bool = False,
) -> Callable[[RuleFunction], RuleFunction]:
    """Decorator: register a function as the rule of these operators. See `LiftRule` for the options."""

    def register(function: RuleFunction) -> RuleFunction:
        registered = LiftRule(function, uses_all_results, constants_only, keeps_type)
        _rules.update({(domain, op_type): registered for op_type in op_types})
        return function

    return register


@cache
def rules() -> Mapping[tuple[str, str], LiftRule]:
    """All rules by domain and operator; every module of `rules/` is imported."""
    import_rules("netspec.exchange.lift.rules")
    return _rules


def becomes_layers(domain: str, op_type: str) -> bool:
    """Whether nodes of this operator become layers by its rule."""
    registered = rules().get((domain, op_type))
    return registered is not None and not registered.constants_only
