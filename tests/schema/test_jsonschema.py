"""The JSON Schema agrees with the spec classes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from netspec.schema.specs.json_schema import json_schema
from netspec.schema.specs.kinds import REGISTRIES
from netspec.schema.yaml.reader import parse_yaml
from tests.schema.specs import NET, TRAIN

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def fits(value: Any, schema: Any, root: Any) -> bool:
    """Whether a value is valid, by the keywords of JSON Schema that netspec uses."""
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        more = schema.get("additionalProperties", True)
        for key, item in value.items():
            below = properties.get(key, more)
            if not re.search(schema.get("propertyNames", {}).get("pattern", ""), key):
                return False
            if below is False or (isinstance(below, dict) and not fits(item, below, root)):
                return False
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return all(
        [
            "enum" not in schema or value in schema["enum"],
            "const" not in schema or value == schema["const"],
            "anyOf" not in schema or any(fits(value, alternative, root) for alternative in schema["anyOf"]),
            all(fits(value, alternative, root) for alternative in schema.get("allOf", ())),
            not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None,
            not isinstance(value, dict) or set(schema.get("required", ())) <= value.keys(),
            not number or value > schema.get("exclusiveMinimum", float("-inf")),
            not number or value >= schema.get("minimum", float("-inf")),
            not isinstance(value, list) or len(value) >= schema.get("minItems", 0),
            not (isinstance(value, list) and isinstance(schema.get("items"), dict))
            or all(fits(item, schema["items"], root) for item in value),
        ]
    )


def test_good_files_fit():
    assert fits(parse_yaml(NET, "t"), json_schema("net"), json_schema("net"))
    assert fits(parse_yaml(TRAIN, "t"), json_schema("train"), json_schema("train"))
    assert not fits(parse_yaml(NET, "t"), json_schema("train"), json_schema("train"))
    either = json_schema()
    assert fits(parse_yaml(NET, "t"), either, either)
    assert fits(parse_yaml(TRAIN, "t"), either, either)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("netspec: 1", "netspec: 2"),
        ("name: lenet", "nam: lenet"),
        ("units: 10", "unit: 10"),
        ("units: 10", "units: 0"),
        ("units: 10", "units: ten"),
        ("activation: relu", "activation: rilu"),
        ("type: Flatten", "type: Flat"),
        (", kernel_size: 5", ""),
        ("kernel_initializer: glorot_uniform", "kernel_initializer: xavier"),
        ("from: [logits, label]", "from: [logits, 1]"),
        ("dtype: int32", "dtype: int"),
        ("image:", "im age:"),
    ],
)
def test_bad_files_do_not_fit(old, new):
    schema = json_schema("net")
    assert old in NET
    assert not fits(parse_yaml(NET.replace(old, new), "t"), schema, schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("units: 10", "units: '${width}'"),
        ("activation: relu", "activation: '${which}'"),
        ("use_bias: true", "use_bias: '${x}'"),
        ("{name: flat, type: Flatten}", "Flatten"),
        ("kernel_initializer: glorot_uniform", "kernel_initializer: {type: GlorotUniform, scale: 2}"),
    ],
)
def test_short_forms_and_expressions_fit(old, new):
    schema = json_schema("net")
    assert fits(parse_yaml(NET.replace(old, new), "t"), schema, schema)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for item in schema.values():
            yield from nodes(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from nodes(item)


def test_every_class_is_there_and_every_field_documented():
    schema = json_schema()
    json.dumps(schema)
    for node in nodes(schema):
        if "$ref" in node:
            assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
    for registry in REGISTRIES.values():
        for cls in registry:
            name = f"{registry.kind.replace(' ', '-')}-{cls.model_fields[registry.tag].default}"
            definition = schema["$defs"][name]
            assert definition["additionalProperties"] is False
            assert definition["description"]
            assert registry.tag in definition["required"]
            assert set(definition["properties"]) == {field.alias or key for key, field in cls.model_fields.items()}
            for key, field in definition["properties"].items():
                assert key == registry.tag or field.get("description"), f"{name}.{key} has no description"


def test_the_schema_does_not_depend_on_the_order_of_imports(monkeypatch: pytest.MonkeyPatch):
    before = json.dumps(json_schema())
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "_classes", {cls: registry[cls] for cls in reversed(registry.names())})
    assert json.dumps(json_schema()) == before
