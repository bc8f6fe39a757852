"""Where the members of registries are declared, read off the text of their modules.

So a spec pays only for the modules of the types that it names: importing all of them takes longer than all the rest of
`netspec check`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_DECLARED = re.compile(
    r'^@([A-Z]+)\.register\nclass .*?^    (?:type|source|strategy): Literal\["([^"]+)"\]', re.MULTILINE | re.DOTALL
)


@cache
def declared(package: str) -> Mapping[str, Mapping[str, str]]:
    """What the modules of a package declare: the registry as they call it → type → module, in the order of files."""
    found: dict[str, dict[str, str]] = {}
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(place)
        for file in sorted(root.rglob("*.py")):
            module = ".".join((package, *file.relative_to(root).with_suffix("").parts))
            for registry, name in _DECLARED.findall(file.read_text(encoding="utf-8")):
                found.setdefault(registry, {})[name] = module
    return found
