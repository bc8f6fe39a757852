"""`FilePath`: a field that names a file, relative to the file that contains the field."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from netspec.errors import Location
from netspec.files.cache_folder import DATA_VARIABLE, data_folder
from netspec.schema.bundled import is_in_zoo
from netspec.schema.specs.spec import Spec


class FilePath(str):
    """A path as written in the spec; `resolve_path` makes it absolute."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Accept non-empty text."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema(strict=True, min_length=1))


def expanded(text: str) -> Path:
    """Return the path that `~`, or `$NETSPEC_DATA` for the folder of `netspec data get`, stands for at the start."""
    first, _, rest = text.partition("/")
    return Path(data_folder(), rest) if first == f"${DATA_VARIABLE}" else Path(text).expanduser()


def absolute(text: str, location: Location | None) -> Path:
    """Return the absolute path for `text`, relative to the folder of the file in `location`, without `..`.

    Paths from the command line or from Python are relative to the current folder, and so are those of a zoo model that
    are not in its folder.
    """
    path = expanded(text)
    if location is None or location.file.startswith("<"):
        return _normalized(path.absolute())
    beside = (Path(location.file).parent / path).absolute()
    is_elsewhere = is_in_zoo(location.file) and not beside.exists() and path.exists()
    return _normalized(path.absolute() if is_elsewhere else beside)


def _normalized(path: Path) -> Path:
    """Remove `..` from a path, unless that changes which file it names: after a symbolic link, it does."""
    normalized = os.path.normpath(path)
    is_same = ".." not in path.parts or os.path.realpath(normalized) == os.path.realpath(path)
    return Path(normalized) if is_same else path


def resolve_path(spec: Spec, *path: str | int) -> Path:
    """Return the absolute path in the field at `path` of `spec`."""
    value: Any = spec
    for key in path:
        value = getattr(value, key) if isinstance(value, Spec) and isinstance(key, str) else value[key]
    return absolute(str(value), spec.where(*path))


def files_named_in(spec: Spec) -> list[str]:
    """The absolute paths in all fields of `spec` that name files, including lists and mappings."""
    return [str(resolve_path(spec, *path)) for path in paths_in_fields(spec)]


def paths_in_fields(spec: Spec) -> list[list[str | int]]:
    """Return the keys and indices that lead to each file name in the fields of `spec`, without nested specs."""
    return list(_key_paths([], {name: getattr(spec, name) for name in type(spec).model_fields}))


def _key_paths(parent: list[str | int], value: Any) -> Iterator[list[str | int]]:
    """Yield the keys and indices that lead to each `FilePath` in nested values."""
    if isinstance(value, FilePath):
        yield parent
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _key_paths([*parent, key], item)
