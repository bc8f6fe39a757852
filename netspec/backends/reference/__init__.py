"""The reference backend: runs every op by its own `forward`, on NumPy or CuPy arrays. The oracle of all others."""

from __future__ import annotations


def missing() -> str | None:
    """It is always there."""
    return None


def about() -> str:
    """What runs it."""
    from importlib.metadata import version

    return f"NumPy {version('numpy')}"
