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
    """Return the folder of the zoo's model called so, unless there is a file or folder of that name; else the path."""
    name = Path(path)
    if name.parts != (path,) or name.suffix or name.exists():
        return path
    folders = (folder / path for folder in _candidates())
    return next((str(folder) for folder in folders if any((folder / file).is_file() for file in MODEL_FILES)), path)


def is_in_zoo(file: str) -> bool:
    """Whether a spec belongs to a model of the zoo."""
    return any(Path(file).absolute().parent.parent == folder for folder in _candidates())


def near_model(path: str | Path) -> str | None:
    """A hint for a path where nothing is: what `near_path` finds, or a model of the zoo with a similar name."""
    path = Path(path)
    names = {file.parent.name for folder in _candidates() for name in MODEL_FILES for file in folder.glob(f"*/{name}")}
    model = nearest(path.name, names) if len(path.parts) == 1 and not path.suffix else None
    return near_path(path) or (f"did you mean the model `{model}` of the zoo?" if model is not None else None)


def _candidates() -> tuple[Path, Path]:
    return PACKAGE / "model_zoo", PACKAGE.parent / "model_zoo"
