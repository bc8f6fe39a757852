"""Apply the registered fusion rules, which replace several layers of a draft by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from netspec.exchange.net_yaml_writer import Draft, DraftLayer
from netspec.exchange.rule_table import import_rules

Fusion: TypeAlias = "tuple[DraftLayer, list[DraftLayer]]"
"""A layer that replaces several, with the position and name of the last of these; and the others, which are removed."""
FusionRule: TypeAlias = "Callable[[DraftGraph, DraftLayer], Fusion | None]"
_rules: list[FusionRule] = []


def fusion_rule(rule: FusionRule) -> FusionRule:
    """Decorator: register a rule. It gets the last layer of a possible match, and returns the fusion, if any."""
    _rules.append(rule)
    return rule


@cache
def _all() -> tuple[FusionRule, ...]:
    import_rules("netspec.exchange.lift.layer_fusion")
    return tuple(_rules)


class DraftGraph:
    """The layers of a draft by name, with the shapes and the readers of their outputs."""

    def __init__(self, draft: Draft, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        """Shapes by tensor, with an arbitrary batch size. A rule that changes a layer's shape updates its entry."""
        self.ranks = {name: len(shape) for name, shape in self.shapes.items()}
        self.layers = {layer.name: layer for layer in draft.layers}
        self._readers = {name: layer for layer in draft.layers for name in layer.sources}
        self._reads = Counter(name for layer in draft.layers for name in layer.sources)
        self._reads.update(draft.outputs)

    def reader(self, name: str) -> DraftLayer | None:
        """The only reader of the tensor `name`; None if there are several, or it is an output."""
        return self._readers.get(name) if self._reads[name] == 1 else None

    def only(self, name: str, type_: str, **fields: Any) -> DraftLayer | None:
        """The layer `name` if it has this type, exactly these fields, and a single reader."""
        layer = self.layer(name, type_)
        return layer if layer is not None and layer.fields == fields else None

    def layer(self, name: str, type_: str) -> DraftLayer | None:
        """The layer `name` if it has this type and a single reader."""
        layer = self.layers.get(name)
        return layer if layer is not None and layer.type == type_ and self._reads[name] == 1 else None

    def alone(self, layers: Sequence[DraftLayer], last: DraftLayer) -> bool:
        """Whether no other layers read the outputs of these layers, except the output of `last`."""
        different = {layer.name: layer for layer in layers}
        inside = Counter(name for layer in different.values() for name in layer.sources)
        read_outputs = {
            name for name in self._reads if (name if name in self.layers else name.rpartition(".")[0]) in different
        }
        return all(self._reads[name] == inside[name] for name in read_outputs - {last.name})


def fuse_layers(draft: Draft, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Fuse layers wherever a rule matches. `shapes` are those of the layers' outputs."""
    known_shapes = {**{name: (0, *entry["shape"]) for name, entry in draft.inputs.items()}, **shapes}
    changed = True
    while changed:  # the result of one rule may be part of a match of another
        _remove_no_ops(draft, known_shapes)
        changed = sum(_apply(rule, draft, known_shapes) for rule in _all()) > 0
    _remove_no_ops(draft, known_shapes)


def _apply(rule: FusionRule, draft: Draft, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Fuse layers wherever this rule matches. Return whether it did."""
    graph = DraftGraph(draft, shapes)
    removed_names: set[str] = set()
    replaced: dict[str, DraftLayer] = {}
    for layer in draft.layers:
        fusion = rule(graph, layer)
        if fusion is not None and fusion[1] and removed_names.isdisjoint(removed.name for removed in fusion[1]):
            replaced[layer.name] = fusion[0]
            removed_names |= {removed.name for removed in fusion[1]}
    draft.layers = [replaced.get(layer.name, layer) for layer in draft.layers if layer.name not in removed_names]
    return bool(removed_names)


def _remove_no_ops(draft: Draft, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Remove Reshapes that do not change the shape, and constants that nothing reads any more.

    Layers that are outputs of the net stay: they give the outputs their names.
    """
    same: dict[str, str] = {}
    for layer in draft.layers:
        layer.sources = tuple(same.get(name, name) for name in layer.sources)
        target = layer.fields.get("target_shape")
        if layer.type == "Reshape" and target is not None and layer.name not in draft.outputs:
            (source,) = layer.sources
            if [*shapes[source][1:]] == [*target]:
                same[layer.name] = source
    read = {*draft.outputs, *(name for layer in draft.layers for name in layer.sources)}
    draft.layers = [
        layer for layer in draft.layers if layer.name not in same and (layer.name in read or layer.type != "Parameter")
    ]
