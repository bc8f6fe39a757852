"""The fields of a class as a table: name, type in words, default, description."""

from __future__ import annotations

import re
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
"""Maps a kind of class (`initializer`) to the address of its page, relative to the page being written."""

_NOUNS = {"integer": "integer", "number": "number", "string": "string", "boolean": "boolean"}
_LITERAL = re.compile(r"(?<![`\w])(true|false|null)(?=:| for )")
_FIRST_WORD = re.compile(r"^(?:[a-z][a-z'-]+|a)(?=[\s,:;.]|$)(?! [=·+])")
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def table(cls: type[Spec], link: Link, without: Collection[str] = ()) -> list[str]:
    """Lines of the table; empty if the class has no fields except those in `without`."""
    schema, _ = class_schema(cls)
    defaults = {
        name: as_written(field.get_default(call_default_factory=True))
        for name, field in fields_by_name(cls).items()
        if not field.is_required()
    }
    return _table(schema, defaults, link, without)


def inner_tables(cls: type[Spec], link: Link, without: Collection[str] = (), heading: str = "##") -> Iterator[str]:
    """Yield a heading and a table for each nested mapping that is not of a registered kind."""
    schema, definitions = class_schema(cls)
    documented: set[str] = set()
    pending = deque([(schema, "")])
    while pending:
        outer, prefix = pending.popleft()
        for field, below in outer["properties"].items():
            for name, is_many in _references(below):
                if name in documented or name in without:
                    continue
                documented.add(name)
                inner, path = definitions[name], f"{prefix}{field}"
                defaults = {
                    key: schema_of_key["default"]
                    for key, schema_of_key in inner["properties"].items()
                    if "default" in schema_of_key
                }
                yield f"{heading} {'Each of ' if is_many else ''}`{path}`\n"
                yield sentence(cleandoc(inner.get("description", ""))) + "\n"
                yield from _table(inner, defaults, link)
                pending.append((inner, f"{path}."))


def _references(schema: Any, *, is_many: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the classes that a schema refers to, and whether there may be several of each."""
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item, is_many=is_many)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix("#/$defs/"), is_many
        for key, item in schema.items():
            yield from _references(
                item, is_many=is_many or key in ("items", "additionalProperties", "patternProperties")
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
            else "required"
            if name in schema.get("required", ())
            else "none",
            sentence(" ".join(below.get("description", "").split())),
        )
        for name, below in schema["properties"].items()
        if name not in without
    ]
    return ["| field | type | default | description |", "|---|---|---|---|", *rows, ""] if rows else []


def sentence(text: str) -> str:
    """The description of a field as sentences: with a capital, a full stop, and values such as `true` as code."""
    text = _LITERAL.sub(r"`\1`", text)
    text = _FIRST_WORD.sub(lambda word: word[0].capitalize(), text)
    return f"{text}." if text and (text[-1].isalnum() or text[-1] in "`)]}’'\"") else text


def row(*cells: str) -> str:
    """Line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def inherited(cls: type[Spec], base: type[Spec]) -> set[str]:
    """The fields that are the same in `base`: type, default and description."""
    own_fields, theirs = fields_by_name(cls), fields_by_name(base)
    return {
        name
        for name, field in theirs.items()
        if (own_fields[name].annotation, own_fields[name].default) == (field.annotation, field.default)
        and field_docs(cls).get(name) == field_docs(base).get(name)
    }


def as_written(value: Any) -> Any:
    """A value as written in YAML: a spec as its `type` and its fields that are not defaults, or as its name."""
    if not isinstance(value, Spec):
        return list(map(as_written, value)) if isinstance(value, (list, tuple)) else value
    fields = fields_by_name(type(value))
    tags = {registry.tag for registry in REGISTRIES.values()} & fields.keys()
    values = {(field.alias or name): getattr(value, name) for name, field in type(value).model_fields.items()}
    non_defaults = {
        name: as_written(field_value)
        for name, field_value in values.items()
        if name in tags
        or fields[name].is_required()
        or field_value != fields[name].get_default(call_default_factory=True)
    }
    return next(iter(non_defaults.values())) if non_defaults.keys() and non_defaults.keys() <= tags else non_defaults


def in_words(schema: Mapping[str, Any], link: Link, *, many: bool = False) -> str:
    """The type of a value, from its JSON Schema: `integer ≥ 1 or list of integers`. `many`: in the plural."""
    if kind := schema.get("x-netspec-registry"):
        return f"[{plural(kind) if many else kind}]({link(kind)})"
    if "$ref" in schema:
        return "mappings" if many else "mapping"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return _either(list(dict.fromkeys(_alternatives(choices, link, many=many))))
    if "const" in schema or "enum" in schema:
        return _either(_constants(schema))
    match schema.get("type"):
        case "array":
            return _list(schema, link, many=many)
        case "object":
            values = {**schema.get("patternProperties", {}), "": schema.get("additionalProperties")}
            types = [in_words(value, link, many=True) for value in values.values() if isinstance(value, dict)]
            return ("mappings" if many else "mapping") + (f" of names to {types[0]}" if types else "")
        case "boolean" if not many:
            return "`true` or `false`"
        case str(noun) if noun in _NOUNS:
            bounds = [f"{sign} {schema[key]:.12g}" for key, sign in _BOUNDS.items() if key in schema]
            if noun == "integer" and "exclusiveMinimum" in schema:
                bounds[0] = f"≥ {schema['exclusiveMinimum'] + 1}"
            return f"{_NOUNS[noun]}{'s' if many else ''}{' ' if bounds else ''}{' and '.join(bounds)}"
    return "values" if many else "any value"


def _alternatives(choices: Sequence[Mapping[str, Any]], link: Link, *, many: bool) -> Iterator[str]:
    for choice in choices:
        if "const" in choice or "enum" in choice:
            yield from _constants(choice)
        elif choice.get("type") == "boolean" and not many:
            yield from ("`true`", "`false`")
        elif choice.get("type") != "null":
            yield in_words(choice, link, many=many)


def _constants(schema: Mapping[str, Any]) -> list[str]:
    return [f"`{flow(value)}`" for value in schema.get("enum", [schema.get("const")])]


def _either(words: Sequence[str]) -> str:
    """`a`, `b` or `c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _list(schema: Mapping[str, Any], link: Link, *, many: bool) -> str:
    name = "lists" if many else "list"
    if members := schema.get("prefixItems"):
        if all(member == members[0] for member in members):
            return f"{name} of {len(members)} {in_words(members[0], link, many=True)}"
        return f"{name} of {' and '.join(_with_article(in_words(member, link)) for member in members)}"
    least, most = schema.get("minItems"), schema.get("maxItems")
    items = in_words(schema.get("items", {}), link, many=True)
    if least == most:
        return f"{name} of {items}" if least is None else f"{name} of {least} {items}"
    return f"non-empty {name} of {items}" if least == 1 else f"{name} of {least or 0} or more {items}"


def _with_article(noun: str) -> str:
    return noun if noun[0] in "`[" else f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
