"""Names and sources of layers, losses and metrics: `resolve_names` of a `NetSpec`, `link_problems` of a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic_core import PydanticCustomError

from netspec.errors import InputError, Location, Problem, SpecError
from netspec.schema.specs.kinds import LAYERS, LOSSES, METRICS, LayerFields, LossFields, MetricFields
from netspec.schema.specs.names import NamedEntry, NetNames, default_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Registry
from netspec.schema.yaml.tree import Map, Path, Seq, locate


@dataclass(frozen=True)
class LayerLink:
    """A layer with its name and the names of its inputs."""

    name: str
    fields: LayerFields
    sources: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names by which other layers read its outputs: its own if it has one output, else `name.output` for each."""
        return tuple(f"{self.name}.{output}" for output in self.fields.output_names()) or (self.name,)


@dataclass(frozen=True)
class LossLink:
    """A loss with its name and the names of its inputs."""

    name: str
    fields: LossFields
    sources: tuple[str, ...]


@dataclass(frozen=True)
class MetricLink:
    """A metric with its name and the names of its inputs."""

    name: str
    fields: MetricFields
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """A net with all names filled in."""

    layers: tuple[LayerLink, ...]
    outputs: tuple[str, ...]
    losses: tuple[LossLink, ...]
    metrics: tuple[MetricLink, ...]

    def computing(self, values: Iterable[str]) -> list[LayerLink]:
        """The layers on which these values depend, in order."""
        needed, layers = set(values), []
        for link in reversed(self.layers):
            if needed.intersection((link.name, *link.outputs)):
                needed.update(link.sources)
                layers.append(link)
        return layers[::-1]


def resolve_names(net: NetSpec) -> Links:
    """Return the layers, outputs, losses and metrics of a net with names and sources filled in.

    A layer without a name gets its type in snake case, numbered from the second on (`conv2d`, `conv2d_1`); without
    `from` it reads the layer above, or the first input. The default output is the last layer; losses and metrics
    compare the last output with the one input that no layer reads. Raises `SpecError` with all invalid names.
    """

    def locate_in_net(path: Path, key: bool) -> Location | None:
        return net.where(*path, key=key)

    names = NetNames(
        inputs=list(net.inputs),
        layers=[_layer_entry(layer) for layer in net.layers],
        outputs=net.outputs,
        losses=[_reduction_entry(loss) for loss in net.losses],
        metrics=[_reduction_entry(metric) for metric in net.metrics],
        readable=True,
        locate=locate_in_net,
    )
    names.check()
    if names.problems:
        raise SpecError(names.problems)
    return Links(
        tuple(
            LayerLink(name, fields, sources)
            for (name, sources), fields in zip(_filled(names.layers), net.layers, strict=True)
        ),
        names.outputs or (),
        tuple(
            LossLink(name, fields, sources)
            for (name, sources), fields in zip(_filled(names.losses), net.losses, strict=True)
        ),
        tuple(
            MetricLink(name, fields, sources)
            for (name, sources), fields in zip(_filled(names.metrics), net.metrics, strict=True)
        ),
    )


def _filled(entries: Sequence[NamedEntry]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for entry in entries:
        yield entry.name or "", entry.sources or ()


def _entry(fields: LayerFields | LossFields | MetricFields) -> NamedEntry:
    return NamedEntry(getattr(fields, "type", type(fields).__name__), fields.name or None, fields.from_)


def _layer_entry(fields: LayerFields) -> NamedEntry:
    return replace(_entry(fields), share=fields.share, outputs=fields.output_names)


def _reduction_entry(fields: LossFields | MetricFields) -> NamedEntry:
    return replace(_entry(fields), sample_weight=fields.sample_weight, compares=fields.compares)


def layer_names(tree: Map) -> list[str | None]:
    """The name of each layer in the document of a net, written or default."""
    entries, inputs = _NameReader(set()).entries(tree, "layers"), tree.get("inputs")
    default_names(entries, set(inputs) if isinstance(inputs, Map) else set())
    return [entry.name for entry in entries]


def link_problems(tree: Map, root: Map, prefix: Path, unknown: set[Location], *, complete: bool) -> list[Problem]:
    """Return the problems of names of the net in `tree`, which is `root` or the part of it at the path `prefix`.

    `unknown` holds the locations of values that could not be evaluated; nothing is concluded from them. If layers are
    missing (not `complete`), unknown names are not reported, because they may belong to a missing layer.
    """
    reader = _NameReader(unknown)
    reader.readable = complete
    layers = reader.entries(tree, "layers")
    losses = [_with_compares(LOSSES, entry) for entry in reader.entries(tree, "losses")]
    metrics = [_with_compares(METRICS, entry) for entry in reader.entries(tree, "metrics")]
    outputs = reader.names(tree, "outputs")
    inputs = tree.get("inputs")
    if not isinstance(inputs, Map):
        reader.readable = False

    def locate_in_tree(path: Path, key: bool) -> Location | None:
        return locate(tree, path, key=key)[0]

    names = NetNames(
        inputs=list(inputs) if isinstance(inputs, Map) else [],
        layers=layers,
        outputs=outputs,
        losses=losses,
        metrics=metrics,
        readable=reader.readable,
        locate=locate_in_tree,
        root=root,
        prefix=prefix,
    )
    names.check()
    return names.problems


def _output_names(item: Any) -> tuple[str, ...] | None:
    """Return the names of the outputs of a layer; None if the layer is invalid, which other checks report."""
    try:
        return LAYERS.parse(item).output_names()
    except PydanticCustomError:
        return None


def _with_compares(registry: Registry[Any], entry: NamedEntry) -> NamedEntry:
    """Set `compares` of a loss's or metric's entry by its type; an unknown type is reported elsewhere."""
    if entry.type not in registry:
        return entry
    try:
        return replace(entry, compares=registry[entry.type].compares)
    except InputError:
        return entry


class _NameReader:
    """Reads the names in a document that may be invalid; `readable` becomes False at the first name that is."""

    def __init__(self, unknown: set[Location]) -> None:
        self.readable = True
        self._unknown = unknown

    def entries(self, tree: Map, key: str) -> list[NamedEntry]:
        """The entries of the list at `key`."""
        items = tree.get(key)
        if not isinstance(items, Seq):
            if key in tree or key == "layers":
                self.readable = False
            return []
        return [self._entry(item) for item in items]

    def _entry(self, item: Any) -> NamedEntry:
        if isinstance(item, (LossFields, MetricFields)):  # created in Python
            return _reduction_entry(item)
        if isinstance(item, LayerFields):
            return _layer_entry(item)
        if isinstance(item, str):  # a type's bare name
            return NamedEntry(item, outputs=partial(_output_names, item))
        if not isinstance(item, Map):
            self.readable = False
            return NamedEntry("", readable=False)
        before, self.readable = self.readable, True
        type_, name, share, weight = (self._text(item, key) for key in ("type", "name", "share", "sample_weight"))
        if not type_ and not name:
            self.readable = False
        sources, outputs = self.names(item, "from"), partial(_output_names, item)
        entry = NamedEntry(type_ or "", name or None, sources, share, weight, self.readable, outputs)
        self.readable = self.readable and before
        return entry

    def _text(self, item: Map, key: str) -> str | None:
        value = item.get(key)
        if value is None:
            return None
        if isinstance(value, str) and item.value_at[key] not in self._unknown:
            return value
        self.readable = False
        return None

    def names(self, item: Map, key: str) -> tuple[str, ...] | None:
        """The name or names at `key`."""
        value = item.get(key)
        if value is None:
            return None
        names: Sequence[Any] = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        locations = [item.value_at[key], *(value.value_at if isinstance(value, Seq) else ())]
        if not names or not all(isinstance(name, str) for name in names) or not self._unknown.isdisjoint(locations):
            self.readable = False
            return None
        return tuple(names)
