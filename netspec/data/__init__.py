"""Data: sources of samples, transforms on them, and the loader that makes batches.

Importing this package registers nothing yet: the modules of `sources/` and `transforms/` are found by scan the first
time a spec names one of theirs. Arrays are touched only once a source is opened.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from netspec.schema.data import SOURCES, TRANSFORMS


def _import_all(package: str) -> None:
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


SOURCES.loads_with(partial(_import_all, "netspec.data.sources"))
TRANSFORMS.loads_with(partial(_import_all, "netspec.data.transforms"))
