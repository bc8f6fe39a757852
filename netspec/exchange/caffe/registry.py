"""The rules by which layers of Caffe's become layers of netspec's, by their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from netspec.exchange.caffe.translate import Translator
    from netspec.exchange.caffe.wiring import Node

Rule: TypeAlias = "Callable[[Translator, Node], None]"
_rules: dict[str, Rule] = {}


class Unsupported(Exception):
    """A layer that netspec cannot have; the text says why. `field` is where, as a path of names in the layer."""

    def __init__(self, why: str, field: str = "", hint: str | None = None) -> None:
        super().__init__(why)
        self.field, self.hint = field, hint


class Skipped(Exception):
    """What the layer reads could not be made; that has been told."""


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Decorator: the function writes down layers of these types, or raises `Unsupported` with the reason."""

    def register(function: Rule) -> Rule:
        _rules.update(dict.fromkeys(types, function))
        return function

    return register


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by type; the modules of `rules/` are found by scan."""
    package = import_module("netspec.exchange.caffe.rules")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    return _rules
