"""The documentation of spec fields: the text that stands under each in its class.

pydantic can keep these texts itself, but then parses the source of every class as it is made, which a spec without
mistakes has no use for. Here a source is parsed when a message, the JSON Schema or the guide asks for it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise

from netspec.schema.specs.spec import Spec


@cache
def field_docs(cls: type[Spec]) -> Mapping[str, str]:
    """The documentation of a class's fields by the names that YAML has for them; those without any are left out.

    A field that a subclass redeclares keeps the text of its base unless it has its own. Empty if a class was
    made without a source file.
    """
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if issubclass(one, Spec):
            found |= _documented(one.__module__).get(one.__qualname__, {})
    return {field.alias or name: found[name] for name, field in cls.model_fields.items() if found.get(name)}


@cache
def _documented(module: str) -> dict[str, dict[str, str]]:
    """For each class of a module by its qualified name: its attributes that are documented, with the text."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # no module, no file, a module built in
        return {}
    return dict(_classes(tree.body, ""))


def _classes(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The classes among some statements and inside them, by the rule that makes `__qualname__`."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, dict(_attributes(node.body))
            yield from _classes(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _classes(node.body, f"{prefix}{node.name}.<locals>.")


def _attributes(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The declared attributes that a text follows."""
    for node, after in pairwise(body):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            yield node.target.id, inspect.cleandoc(after.value.value)
