"""What every importer gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Imported:
    """A net as YAML, its weights by state name, and what the user should know of the conversion."""

    net: str
    arrays: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    """What netspec's own files say beside the arrays, to be written with them."""
