"""Differences between two specs: layers matched by name or content, and the fields whose values differ."""

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
"""Placeholder for a value that one side does not have."""


@dataclass(frozen=True)
class Change:
    """A field with different values on both sides; None if a side does not have it."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.path}: {self.before or '-'} → {self.after or '-'}"


@dataclass(frozen=True)
class LayerPair:
    """A layer and its counterpart in the other net; a name is None if that net does not have the layer."""

    before: str | None
    after: str | None
    type: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class SpecDifference:
    """The differences between two specs."""

    layers: tuple[LayerPair, ...]
    """Layers that differ, in the order of the nets."""
    names: dict[str, str]
    """For each layer of the first net that the second net contains, its name in the second net."""
    others: tuple[Change, ...]
    """Fields outside the layers."""

    def __bool__(self) -> bool:
        return bool(self.layers or self.others)


class PlainSpec(dict[str, Any]):
    """The fields of a spec as plain data; `not_default` names those that differ from their defaults."""

    def __init__(self, fields: Mapping[str, Any], not_default: frozenset[str]) -> None:
        super().__init__(fields)
        self.not_default = not_default


ResolvedFields = Mapping[str, Mapping[str, Any]]
"""For each layer, by name, values of fields that depend on the shapes of its inputs."""


def compare_specs(
    before: NetSpec | TrainSpec, after: NetSpec | TrainSpec, resolved: tuple[ResolvedFields, ResolvedFields] = ({}, {})
) -> SpecDifference:
    """Compare two specs by meaning: with defaults filled in, expressions evaluated and blocks expanded.

    If only one side is a training, its net is compared. Layers correspond if they have the same name, or else the same
    type and fields in the same order. `resolved` holds, for each side, field values that depend on shapes, such as the
    numbers that the padding `same` stands for.
    """
    if isinstance(before, NetSpec) or isinstance(after, NetSpec):
        before = before if isinstance(before, NetSpec) else before.net
        after = after if isinstance(after, NetSpec) else after.net
    fields = plain(before), plain(after)
    layers_before, layers_after = (
        _pop_layers(spec, tree, values) for spec, tree, values in zip((before, after), fields, resolved, strict=True)
    )
    names = _match_layers(layers_before, layers_after)
    layer_pairs = tuple(_layer_pairs(layers_before, layers_after, names))
    return SpecDifference(layer_pairs, names, tuple(_changes(*fields, names)))


def changed_fields(before: Spec, after: Spec) -> list[Change]:
    """Return all fields whose values differ, other than the name; layers correspond by their names."""
    return list(_changes(plain(before), plain(after), {}))


def _pop_layers(spec: NetSpec | TrainSpec, tree: dict[str, Any], resolved: ResolvedFields) -> list[dict[str, Any]]:
    """Remove the layers from the plain data of a spec; return them with names and resolved fields filled in."""
    net = spec if isinstance(spec, NetSpec) else spec.net
    del tree.get("net", tree)["layers"]
    layers = []
    for link in resolve_names(net).layers:
        layer: dict[str, Any] = plain(link.fields)
        layer.update({"name": link.name, **plain(dict(resolved.get(link.name, {})))})
        layers.append(layer)
    return layers


def plain(value: Any) -> Any:
    """Convert a spec to plain data. Lists of named entries become mappings by name; file paths become absolute."""
    if isinstance(value, Spec):
        fields = {name: info for name, info in type(value).model_fields.items() if not info.exclude}
        data, not_default = {}, set()
        for name, info in fields.items():
            item = getattr(value, name)
            is_path = isinstance(item, FilePath)
            data[info.alias or name] = str(resolve_path(value, name).resolve()) if is_path else plain(item)
            if (
                name == "type"
                or info.is_required()
                or item != info.get_default(call_default_factory=True, validated_data={})
            ):
                not_default.add(info.alias or name)
        return PlainSpec(data, frozenset(not_default))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        names = [item["name"] for item in items if isinstance(item, dict) and item.get("name")]
        return dict(zip(names, items, strict=True)) if items and len(set(names)) == len(items) else items
    return value


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each difference of plain data: dotted path, old and new value; `MISSING` if a side has no value."""
    if old == [] and isinstance(new, dict):  # an empty list of named entries
        old = {}
    if new == [] and isinstance(old, dict):
        new = {}
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from differences(old_item, new_item, f"{path}.{index}")
    elif old != new:
        yield path, old, new


def _match_layers(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map names of layers of the first net to the names of their counterparts in the second."""
    names_after = {layer["name"] for layer in after}
    matches = {layer["name"]: layer["name"] for layer in before if layer["name"] in names_after}
    rest_before = [layer for layer in before if layer["name"] not in matches]
    rest_after = [layer for layer in after if layer["name"] not in matches]
    contents_before, contents_after = (
        [flow(_without_names(layer)) for layer in unmatched] for unmatched in (rest_before, rest_after)
    )
    matcher = SequenceMatcher(None, contents_before, contents_after, autojunk=False)
    for start, other_start, length in matcher.get_matching_blocks():
        for offset in range(length):
            matches[rest_before[start + offset]["name"]] = rest_after[other_start + offset]["name"]
    return matches


def _without_names(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a layer other than its name and its sources."""
    return {key: value for key, value in layer.items() if key not in ("name", "from")}


def _layer_pairs(
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
    matched = set(names.values())
    yield from (LayerPair(None, layer["name"], layer["type"]) for layer in after if layer["name"] not in matched)


def _changes(before: Any, after: Any, names: Mapping[str, str]) -> Iterator[Change]:
    """Return the fields that differ; names count as equal if they mean the same layer in both nets."""
    for path, old, new in differences(before, after):
        if path != "name" and not (isinstance(old, str) and _renamed(old, names) == new):
            yield Change(path, _format(old), _format(new))


def _format(value: Any) -> str | None:
    return None if value is MISSING else flow(_without_defaults(value))


def _without_defaults(value: Any) -> Any:
    """Remove fields of specs that have their default values."""
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    keys = value.not_default if isinstance(value, PlainSpec) else value.keys()
    first = [key for key in ("name", "type") if key in keys]
    return {key: _without_defaults(value[key]) for key in dict.fromkeys([*first, *value]) if key in keys}


def _renamed(name: str, names: Mapping[str, str]) -> str | None:
    """The name in the other net of a layer, or of an output of a layer; None if it has no counterpart."""
    layer, dot, output = name.rpartition(".")
    return names.get(name) or (f"{names[layer]}{dot}{output}" if layer in names else None)
