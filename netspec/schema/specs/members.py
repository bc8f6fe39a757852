"""Finds the modules that declare the members of registries, by searching their source text.

Only the modules of types that a spec names are then imported: importing all of them would take longer than the rest of
`netspec check`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_DECLARATION = re.compile(
    r'^@([A-Z]+)\.register\nclass .*?^    (?:type|source|strategy): Literal\["([^"]+)"\]', re.MULTILINE | re.DOTALL
)


@cache
def declared_members(package: str) -> Mapping[str, Mapping[str, str]]:
    """Return {variable name of the registry: {type: module}} for the modules of a package, in the order of files."""
    members: dict[str, dict[str, str]] = {}
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(folder)
        for file in sorted(root.rglob("*.py")):
            module = ".".join((package, *file.relative_to(root).with_suffix("").parts))
            for registry, name in _DECLARATION.findall(file.read_text(encoding="utf-8")):
                members.setdefault(registry, {})[name] = module
    return members
