"""Files that netspec ships: the model zoo, next to the package in a checkout and inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

from netspec.errors import RunError

PACKAGE = Path(__file__).resolve().parents[1]


def zoo_root() -> Path:
    """Return the folder of the model zoo. Raises `RunError` if the installation lacks it."""
    for folder in (PACKAGE / "model_zoo", PACKAGE.parent / "model_zoo"):
        if folder.is_dir():
            return folder
    raise RunError(
        "this installation lacks the model zoo", hint="install netspec again", got=f"no model_zoo in {PACKAGE}"
    )
