"""Common subexpression elimination: equal pure ops on the same operands are computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, ClassVar

from netspec.graph.graph import Graph, rebuild
from netspec.graph.value import Node, Value
from netspec.passes.base import Pass


class CommonSubexpressions(Pass):
    """Merge nodes that compute the same value."""

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph) -> Graph:
        """The graph with each value computed once."""
        first: dict[tuple[Hashable, tuple[Value, ...]], tuple[Value, ...]] = {}

        def merge(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            if not node.op.traits.pure:
                return None
            key = (exact_key(node.op), inputs)
            if key not in first:
                first[key] = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            return first[key]

        return graph.rewrite(merge)


def exact_key(attribute: Hashable) -> Hashable:
    """A key that is equal only for bit-identical attributes: 0.0 and -0.0 differ, NaN equals itself."""
    if isinstance(attribute, float):
        return attribute.hex()
    if isinstance(attribute, tuple):
        return tuple(map(exact_key, attribute))
    names = _field_names(type(attribute))
    if names is None:
        return attribute
    return (type(attribute), *[exact_key(getattr(attribute, name)) for name in names])


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...] | None:
    """Names of the fields of a dataclass; None for other types."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None
