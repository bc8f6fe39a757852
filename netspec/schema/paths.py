"""`FilePath`: a field that names a file, relative to the file it is written in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from netspec.errors import Location
from netspec.schema.spec import Spec


class FilePath(str):
    """The text of a path as it was written; `resolve_path` makes it absolute."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Text that is not empty."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema(strict=True, min_length=1))


def absolute(text: str, written: Location | None) -> Path:
    """The absolute path of `text`, relative to the folder of the file it was `written` in.

    What came from the command line or from Python is relative to the current folder; `~` is the home folder.
    """
    in_file = written is not None and not written.file.startswith("<")
    folder = Path(written.file).parent if written is not None and in_file else Path()
    return (folder / Path(text).expanduser()).absolute()


def resolve_path(spec: Spec, *path: str | int) -> Path:
    """The absolute path in the field at `path` of `spec`."""
    value: Any = spec
    for step in path:
        value = getattr(value, step) if isinstance(value, Spec) and isinstance(step, str) else value[step]
    return absolute(str(value), spec.where(*path))
