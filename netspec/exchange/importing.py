"""Import a file of any supported format: its content decides the format, not its name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.formats.native.weight_files import without_net
from netspec.exchange.formats.registry import Format, format_of
from netspec.exchange.interface import Imported, ImportOptions, Target, check_import_options
from netspec.exchange.truncation import CutFailed, truncated


def import_model(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """Import the net and the weights in a file of any supported format. Raises `InputError`."""
    format_ = format_of(path)
    if not (format_.read or format_.refuse):
        raise without_net(Path(path))
    options = options or ImportOptions()
    if format_.read:
        check_import_options(options, format_.import_options, Path(path), format_.kind)
    return _cut(format_, Path(path), options)


def _cut(format_: Format, path: Path, options: ImportOptions) -> Imported:
    """Import the net in a file, cut according to the options: before it is translated, if the format supports that.

    If the file does not have a name to cut at, the imported net is cut: the importer may create a layer of that name.
    """
    uncut = replace(options, until=())
    if not format_.cuts or not options.until:
        return truncated(format_.reads(path, uncut), options, str(path))
    try:
        return truncated(format_.reads(path, options), options, str(path), until=False)
    except CutFailed as failed:
        with suppress(InputError):
            return truncated(format_.reads(path, uncut), options, str(path))
        raise failed


def import_weights(path: str | Path, target: Target) -> dict[str, NDArray[Any]]:
    """The weights in a file, by the names of the states of a net. Raises `InputError`."""
    format_ = format_of(path)
    if format_.weights or format_.refuse:
        return format_.weights_for(Path(path), target)
    return target.renamed(format_.reads(Path(path), ImportOptions()).arrays)
