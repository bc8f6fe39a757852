"""What is known of a net before a layer of it is written: which layers are, their states, and how they want axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from netspec.graph.graph import Graph
from netspec.schema.links import LayerLink, resolve_names
from netspec.schema.net import NetSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.exchange.keras_export.writer import Rule


def needed(net: NetSpec) -> list[LayerLink]:
    """The layers that the outputs depend on."""
    found = resolve_names(net)
    wanted, kept = set(found.outputs), []
    for link in reversed(found.layers):
        if wanted.intersection((link.name, *link.outputs)):
            wanted.update(link.sources)
            kept.append(link)
    return kept[::-1]


def channels(links: Sequence[LayerLink], rules: Mapping[str, Rule]) -> dict[str, int]:
    """For each input and output of a layer, the axis that who reads it wants last; 0 where that is none."""
    wanted: dict[str, int] = {}
    for link in reversed(links):
        rule = rules.get(str(getattr(link.fields, "type", "")))
        if rule is None:
            continue
        channel = rule.channel(link.fields)
        if channel is None and rule.passes:
            channel = wanted.get(link.outputs[0])
        elif channel is None and not rule.neutral:
            channel = 0
        if channel is not None:
            for source in link.sources:
                wanted[source] = wanted.get(source) or channel
    return wanted


def states_by_layer(
    graph: Graph, arrays: Mapping[str, NDArray[Any]], links: Sequence[LayerLink]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """The shapes of the states, by layer and name within it."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    shapes = {name: value.shape for name, value in graph.states().items()} | shapes
    layers = {link.name for link in links} | {link.fields.share or "" for link in links}
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        parts = name.split("/")
        for end in range(len(parts) - 1, 0, -1):  # names of layers may have a slash too
            if "/".join(parts[:end]) in layers:
                found.setdefault("/".join(parts[:end]), {})["/".join(parts[end:])] = shape
                break
    return found
