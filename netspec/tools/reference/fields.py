"""The fields of a class as a table: names, types in words, defaults, what they mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any

from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.json_schema import class_schema
from netspec.schema.specs.kinds import REGISTRIES
from netspec.schema.specs.spec import Spec, plural
from netspec.schema.yaml.flow_style import flow

Link = Callable[[str], str]
"""From a kind of class (`initializer`) to the page of its members, as the page being written has it."""

_NOUNS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "truth value"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def table(cls: type[Spec], link: Link, without: Collection[str] = ()) -> list[str]:
    """The lines of the table; empty where the class has no field but those left out."""
    schema, _ = class_schema(cls)
    defaults = {
        name: as_written(field.get_default(call_default_factory=True))
        for name, field in fields_by_name(cls).items()
        if not field.is_required()
    }
    return _table(schema, defaults, link, without)


def inner_tables(cls: type[Spec], link: Link, without: Collection[str] = ()) -> Iterator[str]:
    """Headings and tables of the mappings that fields of the class hold and that are of no registered kind."""
    schema, definitions = class_schema(cls)
    told: set[str] = set()
    pending = deque([(schema, "")])
    while pending:
        outer, prefix = pending.popleft()
        for field, below in outer["properties"].items():
            for name, several in _references(below):
                if name in told or name in without:
                    continue
                told.add(name)
                inner, place = definitions[name], f"{prefix}{field}"
                defaults = {key: one["default"] for key, one in inner["properties"].items() if "default" in one}
                yield f"## {'each of ' if several else ''}`{place}`\n"
                yield cleandoc(inner.get("description", "")) + "\n"
                yield from _table(inner, defaults, link)
                pending.append((inner, f"{place}."))


def _references(schema: Any, *, several: bool = False) -> Iterator[tuple[str, bool]]:
    """The classes that a schema leads to, and whether there may be several of each."""
    if isinstance(schema, list):
        for one in schema:
            yield from _references(one, several=several)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix("#/$defs/"), several
        for key, one in schema.items():
            yield from _references(
                one, several=several or key in ("items", "additionalProperties", "patternProperties")
            )


def _table(
    schema: Mapping[str, Any], defaults: Mapping[str, Any], link: Link, without: Collection[str] = ()
) -> list[str]:
    rows = [
        row(
            f"`{name}`",
            in_words(below, link),
            f"`{flow(defaults[name])}`"
            if name in defaults
            else "needed"
            if name in schema.get("required", ())
            else "none",
            " ".join(below.get("description", "").split()),
        )
        for name, below in schema["properties"].items()
        if name not in without
    ]
    return ["| field | value | default | |", "|---|---|---|---|", *rows, ""] if rows else []


def row(*cells: str) -> str:
    """A line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def inherited(cls: type[Spec], base: type[Spec]) -> set[str]:
    """The fields that are as in `base`: of the same type and default, and told by the same words."""
    own, theirs = fields_by_name(cls), fields_by_name(base)
    return {
        name
        for name, field in theirs.items()
        if (own[name].annotation, own[name].default) == (field.annotation, field.default)
        and field_docs(cls).get(name) == field_docs(base).get(name)
    }


def as_written(value: Any) -> Any:
    """A value as YAML has it: a spec by its `type` and what is not its default, or by its bare name."""
    if not isinstance(value, Spec):
        return list(map(as_written, value)) if isinstance(value, (list, tuple)) else value
    fields = fields_by_name(type(value))
    tags = {registry.tag for registry in REGISTRIES.values()} & fields.keys()
    given = {(field.alias or name): getattr(value, name) for name, field in type(value).model_fields.items()}
    kept = {
        name: as_written(one)
        for name, one in given.items()
        if name in tags or fields[name].is_required() or one != fields[name].get_default(call_default_factory=True)
    }
    return next(iter(kept.values())) if kept.keys() and kept.keys() <= tags else kept


def in_words(schema: Mapping[str, Any], link: Link, *, many: bool = False) -> str:
    """The type of a value, from its JSON Schema: `whole number ≥ 1 or list of whole numbers`. `many`: in the plural."""
    if kind := schema.get("x-netspec-registry"):
        return f"[{plural(kind) if many else kind}]({link(kind)})"
    if "$ref" in schema:
        return "mappings" if many else "mapping"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        found = [in_words(one, link, many=many) for one in choices if one.get("type") != "null"]
        return _either(list(dict.fromkeys(found)))
    if "const" in schema or "enum" in schema:
        return _either([f"`{flow(one)}`" for one in schema.get("enum", [schema.get("const")])])
    match schema.get("type"):
        case "array":
            return _list(schema, link, many=many)
        case "object":
            values = {**schema.get("patternProperties", {}), "": schema.get("additionalProperties")}
            told = [in_words(one, link, many=True) for one in values.values() if isinstance(one, dict)]
            return ("mappings" if many else "mapping") + (f" of names to {told[0]}" if told else "")
        case "boolean" if not many:
            return "`true` or `false`"
        case str(noun) if noun in _NOUNS:
            bounds = [f"{sign} {flow(schema[key])}" for key, sign in _BOUNDS.items() if key in schema]
            if noun == "integer" and "exclusiveMinimum" in schema:
                bounds[0] = f"≥ {schema['exclusiveMinimum'] + 1}"
            return f"{_NOUNS[noun]}{'s' if many else ''}{' ' if bounds else ''}{' and '.join(bounds)}"
    return "values" if many else "any value"


def _either(words: Sequence[str]) -> str:
    """`a`, `b` or `c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _list(schema: Mapping[str, Any], link: Link, *, many: bool) -> str:
    name = "lists" if many else "list"
    if "prefixItems" in schema:
        return f"{name} of {', '.join(in_words(one, link) for one in schema['prefixItems'])}"
    least, most = schema.get("minItems"), schema.get("maxItems")
    count = f" {least}" if least is not None and least == most else f" {least} or more" if least else ""
    return f"{name} of{count} {in_words(schema.get('items', {}), link, many=True)}"
