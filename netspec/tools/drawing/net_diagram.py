"""The layers of a net as a diagram: boxes, with blocks collapsed to one box, and the arrows between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from netspec.schema.specs.links import Links, resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.tools.plain_data import PlainData


@dataclass(frozen=True)
class DiagramBox:
    """An input, a layer, or a block of layers."""

    name: str
    kind: Literal["input", "layer", "block"]
    type: str
    """Type of a layer; of a block, the types of its layers: `Conv2D ×2, Add`; empty for an input."""
    layers: tuple[str, ...]
    """Names of the layers, in order; those of all repetitions for a block."""
    repeats: int = 1
    """Number of equal repetitions of which a block consists, one after the other."""
    is_output: bool = False
    """Whether the net returns its value."""
    shape: tuple[int, ...] | None = None
    """Shape of the (last) output of a sample; None if it was not requested."""
    parameters: int | None = None
    """Number of parameters; None if it was not requested."""
    seconds: float | None = None
    """Seconds of a step; None if they were not requested."""


@dataclass(frozen=True)
class NetDiagram(PlainData):
    """A net as a directed graph without cycles."""

    name: str
    boxes: tuple[DiagramBox, ...]
    """Inputs, layers and blocks, each after those that it reads."""
    arrows: tuple[tuple[str, str], ...]
    """Names of the two boxes of each arrow."""
    timed: str = field(default="", kw_only=True)
    """Subject of `seconds`: `training step of 64 samples on cpu`; empty without times."""


def net_diagram(net: NetSpec, *, expand: bool = False) -> NetDiagram:
    """Return the diagram of a net; `expand` draws each layer of a block.

    A block is what the names of layers have in common before a slash: `stage/0/conv` and `stage/1/conv` are in the
    block `stage/`, which has two repetitions. If one box for a block would be part of a cycle, the blocks in it
    are drawn instead, or its layers if there are none.
    """
    links = resolve_names(net)
    blocks = {} if expand else _blocks("", list(_types(links)), links)
    while True:
        box_of = {layer.name: blocks.get(layer.name, layer.name) for layer in links.layers}
        read = _read(links, box_of)
        try:
            TopologicalSorter(read).prepare()
        except CycleError as error:
            for cyclic in set(error.args[1]) & set(blocks.values()):
                layers = [layer for layer, block in blocks.items() if block == cyclic]
                blocks = {layer: block for layer, block in blocks.items() if block != cyclic}
                blocks |= _blocks(cyclic, layers, links)
            continue
        break
    members: dict[str, list[str]] = {}
    for layer in links.layers:
        members.setdefault(box_of[layer.name], []).append(layer.name)
    outputs = {box_of.get(_owner(name, box_of), name) for name in links.outputs}
    used = {source for sources in read.values() for source in sources}
    boxes = [DiagramBox(name, "input", "", ()) for name in net.inputs if name in used]
    boxes += [
        _block(name, layers, links, is_output=name in outputs)
        if name in blocks.values()
        else DiagramBox(name, "layer", _types(links)[name], (name,), is_output=name in outputs)
        for name, layers in members.items()
    ]
    named = {box.name: box for box in boxes}
    order = [
        named[name] for name in TopologicalSorter({box.name: read.get(box.name, {}) for box in boxes}).static_order()
    ]
    arrows = [(source, name) for name in (box.name for box in order) for source in read.get(name, {})]
    return NetDiagram(net.name, tuple(order), tuple(arrows))


def _blocks(outer: str, within: list[str], links: Links) -> dict[str, str]:
    """Return the innermost block, within `outer` ("": the net), of each layer in a block with at least two layers.

    Blocks are named `outer/name/`.
    """
    types = _types(links)
    found: dict[str, str] = {}
    pending = [(outer, within)]
    while pending:
        prefix, layers = pending.pop()
        parts: dict[str, list[str]] = {}
        for layer in layers:
            head, slash, _ = layer.removeprefix(prefix).partition("/")
            if slash:
                parts.setdefault(f"{prefix}{head}/", []).append(layer)
        for block, members in parts.items():
            repetitions = _repetitions(block, members, types)
            if all(map(str.isdigit, repetitions)) and not _are_equal(repetitions):
                pending.append((block, members))  # numbered, but different: not repetitions of one block
            elif len(members) > 1:
                found |= dict.fromkeys(members, block)
    return found


def _repetitions(block: str, layers: Sequence[str], types: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the types of a block's layers by the next part of their names."""
    found: dict[str, list[str]] = {}
    for layer in layers:
        found.setdefault(layer.removeprefix(block).partition("/")[0], []).append(types[layer])
    return found


def _are_equal(repetitions: Mapping[str, list[str]]) -> bool:
    first, *others = repetitions.values()
    return all(other == first for other in others)


def _owner(value: str, layers: Iterable[str]) -> str:
    """Return the layer of a value: `lstm.state` is an output of `lstm`."""
    return value if value in layers else value.rpartition(".")[0] or value


def _read(links: Links, box_of: Mapping[str, str]) -> dict[str, dict[str, None]]:
    """Return the boxes that each box reads, in order."""
    read: dict[str, dict[str, None]] = {}
    for layer in links.layers:
        box = box_of[layer.name]
        sources = read.setdefault(box, {})
        for source in layer.sources:
            owner = _owner(source, box_of)
            name = box_of.get(owner, source)
            if name != box:
                sources[name] = None
    return read


def _types(links: Links) -> dict[str, str]:
    return {layer.name: str(getattr(layer.fields, "type", "")) for layer in links.layers}


def _block(name: str, layers: Sequence[str], links: Links, *, is_output: bool) -> DiagramBox:
    types = _types(links)
    repetitions = _repetitions(name, layers, types)
    repeated = all(map(str.isdigit, repetitions))  # `_blocks` keeps numbered parts together only if they are equal
    contents = Counter(next(iter(repetitions.values())) if repeated else [types[layer] for layer in layers])
    described = ", ".join(kind if count == 1 else f"{kind} ×{count}" for kind, count in contents.items())
    return DiagramBox(name, "block", described, tuple(layers), len(repetitions) if repeated else 1, is_output)
