"""Results of commands whose fields are plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast


class PlainData:
    """Base class of dataclasses whose fields are plain data."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as plain data."""
        return asdict(cast(Any, self))
