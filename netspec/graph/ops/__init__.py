"""All ops, one family a module."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netspec.graph.op import Op


@cache
def op_classes() -> dict[str, type[Op]]:
    """All op classes by name. Imports every module of this package."""
    from netspec.graph.op import Op

    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Op) and value.__module__ == module.__name__ and name[0] != "_"
    }
