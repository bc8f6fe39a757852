"""The docstrings of spec fields, which follow each field in its class.

pydantic could store them, but parses the source of every class when it is created. Here a source is only parsed when an
error message, the JSON Schema or the reference needs it.
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
    """Return the docstrings of a class's fields by their names in YAML, without fields that have none.

    A field that a subclass redeclares keeps the docstring of its base unless it has one itself. Empty if a class has no
    source file.
    """
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Spec):
            docs |= _docs_by_class(base.__module__).get(base.__qualname__, {})
    return {field.alias or name: docs[name] for name, field in cls.model_fields.items() if docs.get(name)}


@cache
def _docs_by_class(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of attributes, by the qualified name of the class and the name of the attribute."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # no module, no file, or a built-in module
        return {}
    return dict(_classes(tree.body, ""))


def _classes(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the classes in statements, recursively, by their `__qualname__`."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, dict(_attributes(node.body))
            yield from _classes(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _classes(node.body, f"{prefix}{node.name}.<locals>.")


def _attributes(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the declared attributes that are followed by a docstring."""
    for node, next_node in pairwise(body):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        text = next_node.value if isinstance(next_node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield node.target.id, inspect.cleandoc(text.value)
