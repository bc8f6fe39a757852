"""What two specs say differently: layers laid side by side, and every field that has another value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import Spec
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.flow_style import flow

MISSING = object()
"""Stands for a value that is not there."""


@dataclass(frozen=True)
class Change:
    """A value that is another one on the other side; None where a side does not have it."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.path}: {self.before or '-'} → {self.after or '-'}"


@dataclass(frozen=True)
class LayerPair:
    """A layer of one net and what it is in the other; None where it is in one alone."""

    before: str | None
    after: str | None
    type: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class SpecDifference:
    """What differs between two specs."""

    layers: tuple[LayerPair, ...]
    """Layers that are not the same, in the order of the nets."""
    names: dict[str, str]
    """For each layer of the first net that is in the second, its name there."""
    others: tuple[Change, ...]
    """Fields outside of the layers."""

    def __bool__(self) -> bool:
        return bool(self.layers or self.others)


class Said(dict[str, Any]):
    """The fields of a spec as plain data, with the names of those that are not defaults."""

    def __init__(self, fields: Mapping[str, Any], said: frozenset[str]) -> None:
        super().__init__(fields)
        self.said = said


Settled = Mapping[str, Mapping[str, Any]]
"""Fields of layers, by their names, that shapes make numbers of."""


def compare_specs(
    before: NetSpec | TrainSpec, after: NetSpec | TrainSpec, settled: tuple[Settled, Settled] = ({}, {})
) -> SpecDifference:
    """What differs in meaning: defaults are filled in, expressions and blocks are written out, comments do not count.

    Where only one of both is a training, its net alone is compared. Layers are the same where they have the same
    name, or else the same type and fields in the same order of layers. `settled` says of either side what fields come
    to once shapes are known, such as a padding that is `same`.
    """
    if isinstance(before, NetSpec) or isinstance(after, NetSpec):
        before = before if isinstance(before, NetSpec) else before.net
        after = after if isinstance(after, NetSpec) else after.net
    one, two = plain(before), plain(after)
    ours, theirs = (
        _taken_out(spec, tree, numbers)
        for spec, tree, numbers in zip((before, after), (one, two), settled, strict=True)
    )
    names = _pairs(ours, theirs)
    return SpecDifference(tuple(_layers(ours, theirs, names)), names, tuple(_changes(one, two, names)))


def _taken_out(spec: NetSpec | TrainSpec, tree: dict[str, Any], settled: Settled) -> list[dict[str, Any]]:
    """The layers of a spec, removed from its plain data: each with its name and with what is settled."""
    net = spec if isinstance(spec, NetSpec) else spec.net
    del tree.get("net", tree)["layers"]
    layers = []
    for link in resolve_names(net).layers:
        layer: dict[str, Any] = plain(link.fields)
        layer.update({"name": link.name, **plain(dict(settled.get(link.name, {})))})
        layers.append(layer)
    return layers


def plain(value: Any) -> Any:
    """A spec as plain data; lists of named things become mappings by name, file paths become absolute."""
    if isinstance(value, Spec):
        fields = {name: info for name, info in type(value).model_fields.items() if not info.exclude}
        made, said = {}, set()
        for name, info in fields.items():
            one = getattr(value, name)
            path = isinstance(one, FilePath)
            made[info.alias or name] = str(resolve_path(value, name).resolve()) if path else plain(one)
            if (
                name == "type"
                or info.is_required()
                or one != info.get_default(call_default_factory=True, validated_data={})
            ):
                said.add(info.alias or name)
        return Said(made, frozenset(said))
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(one) for one in value]
        names = [item["name"] for item in items if isinstance(item, dict) and item.get("name")]
        return dict(zip(names, items, strict=True)) if items and len(set(names)) == len(items) else items
    return value


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two pieces of plain data differ: the dotted path and both values, `MISSING` where a side has none."""
    old, new = ({} if one == [] and isinstance(other, dict) else one for one, other in ((old, new), (new, old)))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    elif old != new:
        yield path, old, new


def _pairs(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Names of the first net's layers by those that they have in the second."""
    known = {layer["name"] for layer in after}
    pairs = {layer["name"]: layer["name"] for layer in before if layer["name"] in known}
    rest = [layer for layer in before if layer["name"] not in pairs], [one for one in after if one["name"] not in pairs]
    one, two = ([flow(_own(layer)) for layer in side] for side in rest)
    for start, other, length in SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
        for place in range(length):
            pairs[rest[0][start + place]["name"]] = rest[1][other + place]["name"]
    return pairs


def _own(layer: Mapping[str, Any]) -> dict[str, Any]:
    """What a layer says apart from names."""
    return {key: value for key, value in layer.items() if key not in ("name", "from")}


def _layers(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], names: Mapping[str, str]
) -> Iterator[LayerPair]:
    others = {layer["name"]: layer for layer in after}
    for layer in before:
        name = layer["name"]
        other = others.get(names.get(name, ""))
        if other is None:
            yield LayerPair(name, None, layer["type"])
            continue
        changes = tuple(_changes(layer, other, names))
        if changes:
            yield LayerPair(name, other["name"], other["type"], changes)
    found = set(names.values())
    yield from (LayerPair(None, layer["name"], layer["type"]) for layer in after if layer["name"] not in found)


def _changes(before: Any, after: Any, names: Mapping[str, str]) -> Iterator[Change]:
    """Return the fields that differ; names count as equal if they mean the same layer in both nets."""
    for path, one, two in differences(before, after):
        if path != "name" and not (isinstance(one, str) and _renamed(one, names) == two):
            yield Change(path, _shown(one), _shown(two))


def _shown(value: Any) -> str | None:
    return None if value is MISSING else flow(_without_defaults(value))


def _without_defaults(value: Any) -> Any:
    """The same, where a spec says only what it says."""
    if isinstance(value, list):
        return [_without_defaults(one) for one in value]
    if not isinstance(value, dict):
        return value
    said = value.said if isinstance(value, Said) else value.keys()
    first = [key for key in ("name", "type") if key in said]
    return {key: _without_defaults(value[key]) for key in dict.fromkeys([*first, *value]) if key in said}


def _renamed(name: str, names: Mapping[str, str]) -> str | None:
    """What a name, or an output of a layer, is called in the other net."""
    layer, dot, output = name.rpartition(".")
    return names.get(name) or (f"{names[layer]}{dot}{output}" if layer in names else None)
