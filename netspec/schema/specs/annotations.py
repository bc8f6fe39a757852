"""Walking the annotations of spec classes: from a class, by the steps of a path, to the type of a value."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from netspec.schema.specs.spec import Spec


@cache
def fields_by_name(cls: type[Spec]) -> dict[str, FieldInfo]:
    """The fields of a spec class by the names that YAML has for them."""
    return {field.alias or name: field for name, field in cls.model_fields.items()}


def members(annotation: Any) -> list[Any]:
    """The types a value may have, None left out: those of a union, else the one."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return [one for part in get_args(annotation) if part is not type(None) for one in members(part)]
    return [annotation]


def is_union(annotation: Any) -> bool:
    """Return whether a value may have several types, apart from None."""
    return len(members(annotation)) > 1


@cache
def optional_blocks(cls: type[Spec]) -> list[str]:
    """The fields of a spec class that are mappings and may be left out."""

    def is_mapping(one: Any) -> bool:
        return get_origin(one) is dict or (isinstance(one, type) and issubclass(one, Spec))

    return [
        name for name, field in fields_by_name(cls).items()
        if not field.is_required() and any(map(is_mapping, members(field.annotation)))
    ]  # fmt: skip


def step_into(annotation: Any, step: str | int) -> Any:
    """The type of the value at `step` in a value of the type `annotation`; None where it is not known."""
    for one in members(annotation):
        origin, arguments = get_origin(one), get_args(one)
        if isinstance(one, type) and issubclass(one, Spec) and step in fields_by_name(one):
            field = fields_by_name(one)[str(step)]
            found = members(field.annotation)
            return found[0] if len(found) == 1 else field.annotation
        if origin is dict:
            return members(arguments[1])[0] if not is_union(arguments[1]) else arguments[1]
        if origin in (list, tuple) and isinstance(step, int) and arguments:
            item = (
                arguments[step]
                if origin is tuple and Ellipsis not in arguments and step < len(arguments)
                else arguments[0]
            )
            return item if is_union(item) else members(item)[0]
    return None
