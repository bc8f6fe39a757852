"""The spec language as JSON Schema, for completion and hover in editors with the YAML language server.

It is generated from the spec classes. The classes of a registry become a union, told apart by `type` (or `source`),
field docs become descriptions, and each checked value may also be a string with `${…}`. It is Draft 7, which the YAML
language server supports best.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from netspec.schema.language.blocks import BLOCK_NAME, CALL_FIELDS, GROUP_FIELDS
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import LAYERS, REGISTRIES, LayerFields
from netspec.schema.specs.names import snake_case
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Registry, Spec
from netspec.schema.specs.train import TrainSpec

DRAFT = "http://json-schema.org/draft-07/schema#"
EXPRESSION = {"type": "string", "pattern": r"\$\{", "description": "an expression over the variables of `vars`"}

_ENTRY = "any-entry"
_ANNOTATIONS = frozenset({"description", "default", "examples", "title"})
_CHECKED = frozenset({"integer", "number", "boolean"})


class _Generator(GenerateJsonSchema):
    """Describes fields by their docs, and leaves out defaults that JSON cannot represent."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # so in the base

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """The schema of a class, with the documentation of its fields."""
        json_value = super().model_schema(schema)
        docs = field_docs(schema["cls"]) if issubclass(schema["cls"], Spec) else {}
        for name, property_ in json_value.get("properties", {}).items():
            if name in docs:
                property_["description"] = docs[name]
        return json_value


def json_schema(kind: Literal["net", "train"] | None = None) -> dict[str, Any]:
    """Return the schema of net files, of training files, or (without `kind`) of both."""
    definitions: dict[str, Any] = {}
    roots: dict[str, type[Spec]] = {"net": NetSpec, "train": TrainSpec}
    for root in roots.values():
        definitions |= _definitions(root, root.__name__)
    for registry in REGISTRIES.values():
        definitions[_union_name(registry)] = _union(registry)
        for cls in registry:
            definitions |= _definitions(cls, _member_name(registry, cls), registry.tag)
    definitions |= _shared_definitions()
    definitions[_ENTRY] = {"anyOf": [_reference(_union_name(LAYERS)), *_entries()]}
    net = definitions["TrainSpec"]["properties"]["net"]
    definitions["TrainSpec"]["properties"]["net"] = {
        "anyOf": [{"type": "string", "description": "path of a net file"}, _reference("NetSpec")],
        "description": net.get("description", ""),
    }
    chosen_roots = [roots[kind]] if kind else list(roots.values())
    choices = [_reference(root.__name__) for root in chosen_roots]
    title = {"net": "a netspec net", "train": "a netspec training"}.get(kind or "", "a netspec net or training")
    body = choices[0] if kind else {"anyOf": choices}
    return {"$schema": DRAFT, "title": title, "allOf": [body], "$defs": _reachable(body, definitions)}


def _reachable(body: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions to which `body` refers, directly or not, sorted by name."""
    names: set[str] = set()
    pending: list[Any] = [body]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).removeprefix("#/$defs/")
            if name and name not in names:
                names.add(name)
                pending.append(definitions[name])
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return {name: definitions[name] for name in sorted(names)}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _union_name(registry: Registry[Any]) -> str:
    return f"any-{registry.kind.replace(' ', '-')}"


def _shared_definitions() -> dict[str, Any]:
    """Definitions that many classes refer to."""
    count = [{"type": "integer", "minimum": 0}, EXPRESSION]
    values = {"anyOf": [*count, {"type": "array"}]}
    several = {"type": "object", "minProperties": 1, "additionalProperties": values}
    return {"repeat": {"anyOf": [*count, several]}, "condition": {"anyOf": [{"type": "boolean"}, EXPRESSION]}}


def _entries() -> list[dict[str, Any]]:
    """Schemas of entries of a list of layers that are not layers: a call of a block, a group, an included file."""
    properties = LayerFields.model_json_schema(schema_generator=_Generator)["properties"]
    common = {name: _value(field) for name, field in properties.items()}
    layers = {
        "type": "array",
        "items": _reference(_ENTRY),
        "description": "the layers, each after the layers that it reads",
    }
    block = {"type": "string", "pattern": f"{BLOCK_NAME}|\\$\\{{", "description": "the name of a block"}
    file = {"type": "string", "description": "a path relative to this file"}
    return [
        {
            "type": "object", "required": ["type"], "description": "a call of a block, with its parameters",
            "properties": {"type": block, **{name: common[name] for name in CALL_FIELDS if name in common}},
        },
        {
            "type": "object", "required": ["layers"], "description": "a group of layers",
            "properties": {**{name: common[name] for name in GROUP_FIELDS if name in common}, "layers": layers},
            "additionalProperties": False,
        },
        {
            "type": "object", "required": ["include"], "description": "the layers of a file",
            "properties": {"include": {"anyOf": [file, {"type": "array", "items": file}]}},
            "additionalProperties": False,
        },
    ]  # fmt: skip


def _member_name(registry: Registry[Any], cls: type[Spec]) -> str:
    return f"{registry.kind.replace(' ', '-')}-{cls.model_fields[registry.tag].default}"


def _union(registry: Registry[Any]) -> dict[str, Any]:
    """Schema of any class of a registry, or the bare name of a class without required fields."""
    bare: list[str] = []
    names_in_order = sorted(registry.names())  # the registry is in import order
    for name in names_in_order:
        if not any(field.is_required() for field in registry[name].model_fields.values()):
            bare += dict.fromkeys((name, snake_case(name)))
    members = [_reference(_member_name(registry, registry[name])) for name in names_in_order]
    names = [{"enum": bare, "description": f"a {registry.kind} with its default values"}] if bare else []
    return {"anyOf": [*members, *names, EXPRESSION]}


def class_schema(cls: type[Spec]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a class, without expressions, and the schemas of the classes in its fields by name."""
    schema = cls.model_json_schema(schema_generator=_Generator)
    inner = schema.pop("$defs", {})
    return (inner[cls.__name__] if "$ref" in schema else schema), inner  # a recursive class is in `$defs`


def _definitions(cls: type[Spec], name: str, tag: str | None = None) -> dict[str, Any]:
    """The schema of a class as `name`, and the schemas of the classes in its fields by their own names."""
    schema, inner = class_schema(cls)
    inner.pop(cls.__name__, None)
    schema["description"] = inspect.cleandoc(cls.__doc__ or "")
    if tag:
        schema["required"] = [tag, *(field for field in schema.get("required", []) if field != tag)]
    definitions = {key: _with_expressions(inner_schema, None) for key, inner_schema in inner.items()}
    definitions[name] = _with_expressions(schema, tag)
    return definitions


def _with_expressions(schema: dict[str, Any], tag: str | None) -> dict[str, Any]:
    """Allow expressions in the schema of a class, except for its tag field, whose constant identifies the class."""
    schema = _without_title(schema)
    properties = schema.get("properties", {})
    fixed = {tag, "netspec"}
    schema["properties"] = {
        name: _without_title(value) if name in fixed else _value(value) for name, value in properties.items()
    }
    return schema


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def _value(schema: dict[str, Any]) -> dict[str, Any]:
    """Schema of a value: references for registries, and expressions allowed if the value is checked."""
    notes = {key: value for key, value in schema.items() if key in _ANNOTATIONS - {"title"}}
    body = {key: _nested(key, value) for key, value in schema.items() if key not in _ANNOTATIONS}
    for pattern, item in body.pop("patternProperties", {}).items():  # pydantic's form of a mapping with checked keys
        body |= {"propertyNames": {"pattern": pattern}, "additionalProperties": _value(item)}
    if "x-netspec-shared" in body:
        return {"allOf": [_reference(body["x-netspec-shared"])], **notes}
    kind = body.get("x-netspec-registry")
    if kind is not None:
        name = _ENTRY if "x-netspec-entry" in body else _union_name(REGISTRIES[kind])
        return {"allOf": [_reference(name)], **notes}
    if "$ref" in body:
        return {"allOf": [{"$ref": body["$ref"]}], **notes}
    if "prefixItems" in body:
        body["items"] = body.pop("prefixItems")
    if body.get("type") in _CHECKED or {"enum", "const", "pattern"} & body.keys():
        return {"anyOf": [body, EXPRESSION], **notes}
    return {**body, **notes}


def _nested(key: str, value: Any) -> Any:
    if key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        return [_value(item) for item in value]
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return _value(value)
    return value
