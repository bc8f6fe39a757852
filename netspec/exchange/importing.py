"""Any file that netspec can import, told apart by content, not by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats import format_of
from netspec.exchange.imported import Imported, ImportOptions, Target, check_given
from netspec.exchange.weight_files import without_net

if TYPE_CHECKING:
    from numpy.typing import NDArray


def import_model(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in a file of any format known here. Raises `InputError`."""
    found = format_of(path)
    if not found.read:
        raise without_net(Path(path))
    options = options or ImportOptions()
    check_given(options, found.given, Path(path), found.what)
    return found.reads(Path(path), options)


def import_weights(path: str | Path, target: Target) -> dict[str, NDArray[Any]]:
    """The weights in a file, by the names of the states of a net. Raises `InputError`."""
    found = format_of(path)
    if found.weights:
        return found.weights_for(Path(path), target)
    return target.renamed(found.reads(Path(path), ImportOptions()).arrays)
