"""One file per layer family: its YAML fields, its `build` in terms of ops, its own ops, its samples.

Modules are found by scan: a file put here is known to the spec language, the registry-wide tests and the docs.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from netspec.schema.kinds import ACTIVATIONS, CELLS, CONSTRAINTS, INITIALIZERS, LAYERS, LOSSES, METRICS, REGULARIZERS


def load_all() -> None:
    """Import every module of this package, so that all of its classes are registered."""
    for module in walk_packages(__path__, f"{__name__}."):
        import_module(module.name)


for _registry in (LAYERS, LOSSES, METRICS, ACTIVATIONS, CELLS, CONSTRAINTS, INITIALIZERS, REGULARIZERS):
    _registry.loads_with(load_all)
