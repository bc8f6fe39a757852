"""Files that netspec ships: the model zoo, next to the package in a checkout and inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

from netspec.errors import RunError, near_path, nearest

PACKAGE = Path(__file__).resolve().parents[1]
MODEL_FILES = ("net.yaml", "train.yaml")
"""Files of which a folder of the zoo with a model has one or both."""


def zoo_root() -> Path:
    """Return the folder of the model zoo. Raises `RunError` if the installation lacks it."""
    for folder in _candidates():
        if folder.is_dir():
            return folder
    raise RunError(
        "this installation lacks the model zoo", hint="install netspec again", got=f"no model_zoo in {PACKAGE}"
    )


def model_path(path: str) -> str:
    """Return the folder of the zoo model with this name; the path unchanged if it exists or no model has this name."""
    name = Path(path)
    if name.parts != (path,) or name.suffix or name.exists():
        return path
    folders = (folder / path for folder in _candidates())
    return next((str(folder) for folder in folders if any((folder / file).is_file() for file in MODEL_FILES)), path)


def is_in_zoo(file: str) -> bool:
    """Whether a spec belongs to a model of the zoo."""
    return any(Path(file).absolute().parent.parent == folder for folder in _candidates())


def near_model(path: str | Path) -> str | None:
    """Return a hint for a path that does not exist: the hint of `near_path`, or a zoo model with a similar name."""
    path = Path(path)
    names = {file.parent.name for folder in _candidates() for name in MODEL_FILES for file in folder.glob(f"*/{name}")}
    model = nearest(path.name, names) if len(path.parts) == 1 and not path.suffix else None
    return near_path(path) or (f"did you mean the model `{model}` of the zoo?" if model is not None else None)


def _candidates() -> tuple[Path, Path]:
    return PACKAGE / "model_zoo", PACKAGE.parent / "model_zoo"
