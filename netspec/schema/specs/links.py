"""Who reads whom in a net: `resolve_names` for a finished `NetSpec`, `link_problems` for a document being checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic_core import PydanticCustomError

from netspec.errors import InputError, Location, Problem, SpecError
from netspec.schema.specs.kinds import LAYERS, LOSSES, METRICS, LayerFields, LossFields, MetricFields
from netspec.schema.specs.names import Entry, Names, default_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Registry
from netspec.schema.yaml.tree import Map, Path, Seq, locate


@dataclass(frozen=True)
class LayerLink:
    """A layer with its name and the names of what it reads."""

    name: str
    fields: LayerFields
    sources: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """By what names others read its outputs: its own where it has one, else `name.output` for each."""
        return tuple(f"{self.name}.{output}" for output in self.fields.output_names()) or (self.name,)


@dataclass(frozen=True)
class LossLink:
    """A loss with its name and the names of what it compares."""

    name: str
    fields: LossFields
    sources: tuple[str, ...]


@dataclass(frozen=True)
class MetricLink:
    """A metric with its name and the names of what it compares."""

    name: str
    fields: MetricFields
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """A net with every name filled in."""

    layers: tuple[LayerLink, ...]
    outputs: tuple[str, ...]
    losses: tuple[LossLink, ...]
    metrics: tuple[MetricLink, ...]

    def computing(self, values: Iterable[str]) -> list[LayerLink]:
        """The layers that these values depend on, in order."""
        needed, layers = set(values), []
        for link in reversed(self.layers):
            if needed.intersection((link.name, *link.outputs)):
                needed.update(link.sources)
                layers.append(link)
        return layers[::-1]


def resolve_names(net: NetSpec) -> Links:
    """The net's layers, outputs, losses and metrics with names and sources filled in.

    A layer without a name gets its type in snake case, numbered from the second on (`conv2d`, `conv2d_1`); without
    `from` it reads the layer above, or the first input. The default output is the last layer; losses and metrics
    compare the last output with the one input that no layer reads. Raises `SpecError` with all that can't be right.
    """

    def place(path: Path, key: bool) -> Location | None:
        return net.where(*path, key=key)

    names = Names(
        inputs=list(net.inputs),
        layers=[_of_layer(layer) for layer in net.layers],
        outputs=net.outputs,
        losses=[_of_judge(loss) for loss in net.losses],
        metrics=[_of_judge(metric) for metric in net.metrics],
        readable=True,
        place=place,
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


def _filled(entries: Sequence[Entry]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for entry in entries:
        yield entry.name or "", entry.sources or ()


def _of_fields(fields: LayerFields | LossFields | MetricFields) -> Entry:
    return Entry(getattr(fields, "type", type(fields).__name__), fields.name or None, fields.from_)


def _of_layer(fields: LayerFields) -> Entry:
    return replace(_of_fields(fields), share=fields.share, outputs=fields.output_names)


def _of_judge(fields: LossFields | MetricFields) -> Entry:
    return replace(_of_fields(fields), sample_weight=fields.sample_weight, compares=fields.compares)


def layer_names(tree: Map) -> list[str | None]:
    """The name of every layer in the document of a net, as it is given or by default."""
    entries, inputs = _Reader(set()).entries(tree, "layers"), tree.get("inputs")
    default_names(entries, set(inputs) if isinstance(inputs, Map) else set())
    return [entry.name for entry in entries]


def link_problems(tree: Map, root: Map, prefix: Path, unknown: set[Location], complete: bool = True) -> list[Problem]:
    """What is wrong with the names of the net in `tree`, a document or a part of one that begins at `prefix` in `root`.

    `unknown` holds the places of values that could not be evaluated; nothing is concluded from them. With layers
    missing (not `complete`) a name that is not found may be one of theirs.
    """
    reader = _Reader(unknown)
    reader.readable = complete
    layers = reader.entries(tree, "layers")
    losses = [_judging(LOSSES, entry) for entry in reader.entries(tree, "losses")]
    metrics = [_judging(METRICS, entry) for entry in reader.entries(tree, "metrics")]
    outputs = reader.names(tree, "outputs")
    inputs = tree.get("inputs")
    if not isinstance(inputs, Map):
        reader.readable = False

    def place(path: Path, key: bool) -> Location | None:
        return locate(tree, path, key=key)[0]

    names = Names(
        inputs=list(inputs) if isinstance(inputs, Map) else [],
        layers=layers,
        outputs=outputs,
        losses=losses,
        metrics=metrics,
        readable=reader.readable,
        place=place,
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


def _judging(registry: Registry[Any], entry: Entry) -> Entry:
    """Set `compares` of a loss's or metric's entry by its type; an unknown type is reported elsewhere."""
    if entry.type not in registry:
        return entry
    try:
        return replace(entry, compares=registry[entry.type].compares)
    except InputError:
        return entry


class _Reader:
    """Takes the names out of a document that may be wrong in any way; `readable` turns False where one can't be."""

    def __init__(self, unknown: set[Location]) -> None:
        self.readable = True
        self._unknown = unknown

    def entries(self, tree: Map, key: str) -> list[Entry]:
        """The entries of the list at `key`."""
        items = tree.get(key)
        if not isinstance(items, Seq):
            if key in tree or key == "layers":
                self.readable = False
            return []
        return [self._entry(item) for item in items]

    def _entry(self, item: Any) -> Entry:
        if isinstance(item, (LossFields, MetricFields)):  # made in Python
            return _of_judge(item)
        if isinstance(item, LayerFields):
            return _of_layer(item)
        if isinstance(item, str):  # a type's bare name
            return Entry(item, outputs=partial(_output_names, item))
        if not isinstance(item, Map):
            self.readable = False
            return Entry("", readable=False)
        before, self.readable = self.readable, True
        type_, name, share, weight = (self._text(item, key) for key in ("type", "name", "share", "sample_weight"))
        if not type_ and not name:
            self.readable = False
        sources, outputs = self.names(item, "from"), partial(_output_names, item)
        entry = Entry(type_ or "", name or None, sources, share, weight, self.readable, outputs)
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
        given: Sequence[Any] = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        places = [item.value_at[key], *(value.value_at if isinstance(value, Seq) else ())]
        if not given or not all(isinstance(one, str) for one in given) or not self._unknown.isdisjoint(places):
            self.readable = False
            return None
        return tuple(given)
