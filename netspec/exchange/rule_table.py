"""Tables of functions that translate one type each: rules register themselves, in the modules of one package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeVar

Rule = TypeVar("Rule")


@cache
def import_rules(package: str) -> None:
    """Import all modules of a package, which register their rules."""
    for module in iter_modules(getattr(import_module(package), "__path__", ())):
        import_module(f"{package}.{module.name}")


class RuleTable(Generic[Rule]):
    """The rules of a package, or of one module, by the types that they translate."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._rules: dict[str, Rule] = {}

    def register(self, *types: str) -> Callable[[Rule], Rule]:
        """Decorator: the function translates these types."""

        def register(rule: Rule) -> Rule:
            self._rules.update(dict.fromkeys(types, rule))
            return rule

        return register

    def all(self) -> Mapping[str, Rule]:
        """All rules; the modules of the package are imported."""
        import_rules(self._package)
        return self._rules
