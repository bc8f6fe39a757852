"""The readers of each layer in a draft, and the registered rules that join several layers to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from netspec.exchange.net_yaml_writer import Draft, DraftLayer
from netspec.exchange.rule_table import import_rules

Joint: TypeAlias = "tuple[DraftLayer, list[DraftLayer]]"
"""A layer that replaces several: it takes the position and name of the last one; `parts` are the others."""
FusionRule: TypeAlias = "Callable[[Chains, DraftLayer], Joint | None]"
_rules: list[FusionRule] = []


def joining(rule: FusionRule) -> FusionRule:
    """Decorator: the function says what layer stands for the one given, as the last, and others before it."""
    _rules.append(rule)
    return rule


@cache
def _all() -> tuple[FusionRule, ...]:
    import_rules("netspec.exchange.lift.layer_fusion")
    return tuple(_rules)


class Chains:
    """The layers of a draft by name, the sizes of what they make, and who reads it."""

    def __init__(self, draft: Draft, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        """Shapes with a batch of any size; a rule that changes the shape of a layer updates its entry."""
        self.ranks = {name: len(shape) for name, shape in self.shapes.items()}
        self.layers = {layer.name: layer for layer in draft.layers}
        self._readers = {name: layer for layer in draft.layers for name in layer.sources}
        self._reads = Counter(name for layer in draft.layers for name in layer.sources)
        self._reads.update(draft.outputs)

    def reader(self, name: str) -> DraftLayer | None:
        """The layer that alone reads what `name` is."""
        return self._readers.get(name) if self._reads[name] == 1 else None

    def only(self, name: str, type_: str, **fields: Any) -> DraftLayer | None:
        """The layer of this type, with these fields and no others, that makes what `name` is for one reader alone."""
        layer = self.layer(name, type_)
        return layer if layer is not None and layer.fields == fields else None

    def layer(self, name: str, type_: str) -> DraftLayer | None:
        """The layer of this type that makes what `name` is for one reader alone."""
        layer = self.layers.get(name)
        return layer if layer is not None and layer.type == type_ and self._reads[name] == 1 else None

    def alone(self, layers: Sequence[DraftLayer], last: DraftLayer) -> bool:
        """Whether only layers among these read what they make, but for what the last makes."""
        different = {layer.name: layer for layer in layers}
        inside = Counter(name for layer in different.values() for name in layer.sources)
        read_outputs = {
            name for name in self._reads if (name if name in self.layers else name.rpartition(".")[0]) in different
        }
        return all(self._reads[name] == inside[name] for name in read_outputs - {last.name})


def join(draft: Draft, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Join several layers to one wherever a rule can. `shapes` are those of the results of layers."""
    known_shapes = {**{name: (0, *entry["shape"]) for name, entry in draft.inputs.items()}, **shapes}
    changed = True
    while changed:  # what one rule makes may be what another looks for
        _leave_out(draft, known_shapes)
        changed = sum(_apply(rule, draft, known_shapes) for rule in _all()) > 0
    _leave_out(draft, known_shapes)


def _apply(rule: FusionRule, draft: Draft, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Join several layers to one wherever this rule can. Returns whether it did."""
    chains = Chains(draft, shapes)
    removed_names: set[str] = set()
    replaced: dict[str, DraftLayer] = {}
    for layer in draft.layers:
        joint = rule(chains, layer)
        if joint is not None and joint[1] and removed_names.isdisjoint(removed.name for removed in joint[1]):
            replaced[layer.name] = joint[0]
            removed_names |= {removed.name for removed in joint[1]}
    draft.layers = [replaced.get(layer.name, layer) for layer in draft.layers if layer.name not in removed_names]
    return bool(removed_names)


def _leave_out(draft: Draft, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Take out Reshapes to the shape that is there already, and constants that nothing reads any more.

    Those that make an output stay, for its name.
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
