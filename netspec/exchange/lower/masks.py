"""Find masks that an export would lose: Keras's layers pass them on, its operations do not; Caffe has none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from netspec.graph.graph import Graph, topological_order
from netspec.graph.ops.source import Input
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink


def lost_masks(
    graph: Graph, links: Sequence[LayerLink], operations: Collection[str]
) -> Iterator[tuple[LayerLink, str]]:
    """Layers that compute with a mask, each with the earlier layer, one of `operations`, that does not pass it on."""
    by_name = {name: link for link in links for name in (link.name, *link.outputs)}
    for link in links if operations else ():
        if link.name in operations or not reads_a_mask(graph, link.sources, link.outputs):
            continue
        waiting = list(link.sources)
        while waiting:
            above = by_name.get(waiting.pop())
            if above is None or _makes_a_mask(above.fields):
                continue
            if above.name in operations:
                yield link, above.name
                break
            waiting += above.sources


def reads_a_mask(graph: Graph, sources: Sequence[str], outputs: Sequence[str]) -> bool:
    """Whether a layer uses a mask that an earlier layer computes."""
    named = graph.named
    nodes = topological_order([named[name] for name in outputs], frozenset(named[name] for name in sources))
    return any(isinstance(node.op, Input) for node in nodes)


def _makes_a_mask(fields: LayerFields) -> bool:
    return str(getattr(fields, "type", "")) == "Masking" or bool(getattr(fields, "mask_zero", False))
