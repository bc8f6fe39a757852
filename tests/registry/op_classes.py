"""All classes of ops, found by scanning."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import netspec
from netspec.graph.op import Op
from netspec.graph.ops import unary

IN_PACKAGES = ("graph", "layers", "passes", "solvers")


def op_classes() -> list[type[Op]]:
    """Return all ops: the subclasses of `Op` in all modules, without base classes that compute nothing."""
    for package in IN_PACKAGES:
        root = importlib.import_module(f"{netspec.__name__}.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            importlib.import_module(module.name)
    computing = [cls for cls in _below(Op) if cls.forward is not Op.forward and not _is_base(cls)]
    return [cls for cls in computing if cls.__module__.startswith("netspec.")]


def _is_base(cls: type[Op]) -> bool:
    """Return whether methods, or the name of the function that `Unary.forward` calls, are left to subclasses."""
    return inspect.isabstract(cls) or (cls.forward is unary.Unary.forward and not hasattr(cls, "function"))


def _below(cls: type[Op]) -> Iterator[type[Op]]:
    for below in cls.__subclasses__():
        yield below
        yield from _below(below)
