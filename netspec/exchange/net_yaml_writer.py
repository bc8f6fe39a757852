"""Write the YAML of imported nets and trainings: one line per layer, without defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from pydantic import ValidationError

from netspec.schema.specs.kinds import CELLS, LAYERS, LayerFields
from netspec.schema.specs.spec import Spec
from netspec.schema.yaml.flow_style import flow, item, plain

WIDTH = 118
LONGEST_NAME = 190


@dataclass
class DraftLayer:
    """A layer: its fields as plain data (those that are defaults are left out when written) and its states."""

    name: str
    type: str
    fields: dict[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    """Names of the layers and inputs that it reads."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays by their name within the layer (`kernel`)."""


@dataclass
class Draft:
    """A net; inputs, losses and metrics are mappings as in a spec."""

    name: str
    origin: str = ""
    """Its origin, for a comment: `lenet.onnx (opset 13, made by …)`."""
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    layers: list[DraftLayer] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All states by their names in the net (`conv1/kernel`)."""
        return {f"{layer.name}/{key}": array for layer in self.layers for key, array in layer.arrays.items()}

    def text(self) -> str:
        """The net's YAML."""
        lines = [f"# Imported from {comment(self.origin)}"] if self.origin else []
        lines += ["netspec: 1", f"name: {plain(spec_name(self.name))}", "inputs:"]
        lines += [f"  {plain(name)}: {flow(fields)}" for name, fields in self.inputs.items()]
        lines.append("layers:")
        above = next(iter(self.inputs), "")
        for layer in self.layers:
            header = {"name": layer.name, "type": layer.type}
            if layer.sources != (above,):
                header["from"] = named(layer.sources)
            lines += item(header | without_defaults(layer.type, layer.fields), 2, WIDTH)
            above = layer.name
        if self.outputs:
            lines.append(f"outputs: {flow(self.outputs)}")
        for key, entries in (("losses", self.losses), ("metrics", self.metrics)):
            if entries:
                lines += [f"{key}:", *(line for entry in entries for line in item(entry, 2, WIDTH))]
        return "\n".join(lines) + "\n"


def named(sources: Sequence[str]) -> Any:
    """Return names in the form of `from`: a single name is not put in a list."""
    return sources[0] if len(sources) == 1 else list(sources)


def without_defaults(type_: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a layer that differ from their defaults, in the order of its class."""
    try:
        spec = LAYERS[type_].model_validate({"type": type_, **fields})
    except ValidationError:  # the reader of the YAML reports invalid fields, with their location
        return dict(fields)
    return non_defaults(spec, fields)


def non_defaults(spec: Spec, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from their defaults, also within nested layers and cells."""
    declared = {name: field for name, field in type(spec).model_fields.items() if name in fields}
    kept = {
        name: _without_inner_defaults(getattr(spec, name), fields[name])
        for name, field in declared.items()
        if field.is_required() or getattr(spec, name) != field.get_default(call_default_factory=True, validated_data={})
    }
    return kept | {name: value for name, value in fields.items() if name not in declared}


def _without_inner_defaults(spec: Any, value: Any) -> Any:
    if not isinstance(value, Mapping) or not (isinstance(spec, LayerFields) or value.get("type") in CELLS):
        return value
    return {"type": value["type"], **non_defaults(spec, value)}


def clean(name: str) -> str:
    """The name with only the characters that names in a spec may have; a `/` in front (`/encoder/Conv`) is left out."""
    text = re.sub(r"[^A-Za-z0-9_./:\-]", "_", name.lstrip("/"))[:LONGEST_NAME]
    return text if re.match(r"[A-Za-z0-9_]", text) else f"_{text}"


def spec_name(text: str) -> str:
    """The name of a net, from its name in the file."""
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", text).strip("_.-") or "imported"


def comment(text: str) -> str:
    """A text on one line, for a comment."""
    return re.sub(r"[^ -~]", "?", text)[:200]


def training_text(
    origin: str, name: str, data: Mapping[str, Mapping[str, Any]], solver: Mapping[str, Any], loop: Mapping[str, Any]
) -> str:  # fmt: skip
    """The YAML of a training of `net.yaml`: splits by their names, the solver, and the field `train`."""
    lines = [f"# Imported from {comment(origin)}", "netspec: 1"]
    if name:
        lines.append(f"name: {plain(name)}")
    lines += ["net: net.yaml", "data:"]
    lines += [line for split, fields in data.items() for line in _entry(split, fields, 2)]
    lines += [*_entry("solver", solver, 0), *_entry("train", loop, 0)]
    return "\n".join(lines) + "\n"


def _entry(key: str, fields: Mapping[str, Any], indent: int) -> Iterator[str]:
    """A mapping on one line if it fits, else a line per field, and per item of lists that do not fit."""
    start = " " * indent
    line = f"{start}{key}: {flow(fields)}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{start}{key}:"
    for name, value in fields.items():
        inner = f"{start}  {name}: {flow(value)}"
        if len(inner) <= WIDTH or not (isinstance(value, list) and value and isinstance(value[0], Mapping)):
            yield inner
        else:
            yield f"{start}  {name}:"
            yield from (f"{start}    - {flow(item)}" for item in value)
