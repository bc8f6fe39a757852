"""Types of values at a path, from the annotations of spec classes."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from netspec.schema.specs.spec import Spec


@cache
def fields_by_name(cls: type[Spec]) -> dict[str, FieldInfo]:
    """Return the fields of a spec class by their names in YAML."""
    return {field.alias or name: field for name, field in cls.model_fields.items()}


def members(annotation: Any) -> list[Any]:
    """Return the types that a value may have, without None: the members of a union, or the type itself."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        arguments = (argument for argument in get_args(annotation) if argument is not type(None))
        return [member for argument in arguments for member in members(argument)]
    return [annotation]


def is_union(annotation: Any) -> bool:
    """Whether a value may have several types besides None."""
    return len(members(annotation)) > 1


@cache
def optional_blocks(cls: type[Spec]) -> list[str]:
    """Return the optional fields of a spec class that are mappings."""

    def is_mapping(kind: Any) -> bool:
        return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Spec))

    return [
        name for name, field in fields_by_name(cls).items()
        if not field.is_required() and any(map(is_mapping, members(field.annotation)))
    ]  # fmt: skip


def step_into(annotation: Any, step: str | int) -> Any:
    """Return the type of the value at `step` in a value of the type `annotation`; None if it is unknown."""
    for kind in members(annotation):
        origin, arguments = get_origin(kind), get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Spec) and step in fields_by_name(kind):
            field = fields_by_name(kind)[str(step)]
            kinds = members(field.annotation)
            return kinds[0] if len(kinds) == 1 else field.annotation
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
