"""The reference backend: runs every op by its own `forward`. All other kernels are compared with it."""

from __future__ import annotations


def unavailable_reason() -> str | None:
    """Always None: it is always available."""
    return None


def description() -> str:
    """Version of NumPy."""
    from importlib.metadata import version

    return f"NumPy {version('numpy')}"
