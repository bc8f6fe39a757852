"""Where pip puts the libraries of NVIDIA's wheels."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def wheel_libraries(pattern: str) -> list[Path]:
    """Files `nvidia/*/lib/PATTERN` of the installed packages, e.g. `libcublasLt.so.13`; sorted."""
    found = find_spec("nvidia")  # a package of many wheels, none of which has code of its own there
    folders = () if found is None else found.submodule_search_locations or ()
    return sorted(path for folder in folders for path in Path(folder).glob(f"*/lib/{pattern}"))
