"""Lower bounds of numbers that users pass."""

from __future__ import annotations

from collections.abc import Mapping

from netspec.errors import InputError


def require_at_least(least: int, values: Mapping[str, float | None]) -> None:
    """Raise `InputError` for the first value that is smaller, by its name; None stands for a default."""
    for name, value in values.items():
        if value is not None and not value >= least:
            raise InputError(f"{name} must be {least} or more", got=str(value))
