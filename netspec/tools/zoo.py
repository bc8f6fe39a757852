"""The models in the zoo as folders: found by their spec files, copied so that the copy works where it is."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netspec.data.bundled import zoo_root
from netspec.errors import InputError, did_you_mean, listing
from netspec.exchange.files import new_folder

SPECS = ("net.yaml", "train.yaml")
"""What makes a folder of the zoo a model: one of these, or both."""

CARD = "README.md"

SCHEMAS = ".schema"
"""The folder in a copy for the JSON Schemas that editors read."""

_SCHEMA = re.compile(r"(?<=\$schema=)\S+")
"""The path in the first line of a YAML file that tells editors its schema."""

_UPWARD = re.compile(r"(?<![\w./~-])(?:\.\./)+[^\s'\"#,\]}]+")
"""A path in a YAML file that goes up."""


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo."""

    name: str
    folder: Path

    def files(self) -> list[Path]:
        """All of its files, by name."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)

    def card(self) -> str | None:
        """What its authors say of it, as Markdown."""
        path = self.folder / CARD
        return path.read_text(encoding="utf-8").rstrip() if path.is_file() else None


def zoo() -> list[ZooModel]:
    """List the models that netspec ships, by name.

    >>> [model.name for model in netspec.zoo()]
    """
    return list(models())


def models() -> Iterator[ZooModel]:
    """All models, by name."""
    for folder in sorted(zoo_root().iterdir()):
        if any((folder / name).is_file() for name in SPECS):
            yield ZooModel(folder.name, folder)


def model(name: str) -> ZooModel:
    """The model called `name`. Raises `InputError` where there is none."""
    known = {one.name: one for one in models()}
    if name not in known:
        raise InputError(
            f"there is no model `{name}` in the zoo",
            expected=f"one of {listing(list(known))}",
            hint=did_you_mean(name, known),
        )
    return known[name]


def copy_model(found: ZooModel, target: Path) -> None:
    """Copy a model's files to the new folder `target`, whole or not at all.

    Schemas for editors come along, commands in the card name the copy, and paths of data outside of the model's folder
    are made absolute. Raises `InputError` where something is in the way.
    """
    with new_folder(target) as staged:
        for file in found.files():
            copied = staged / file.relative_to(found.folder)
            copied.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix in (".yaml", ".yml"):
                text = _with_schema(file, staged, copied)
                copied.write_text(_rooted(text, file, found.folder), encoding="utf-8")
            elif file.name == CARD:
                copied.write_text(_renamed(file.read_text(encoding="utf-8"), found.name, target), encoding="utf-8")
            else:
                shutil.copyfile(file, copied)


def _with_schema(file: Path, root: Path, copied: Path) -> str:
    """The text of a YAML file, the schema it names copied into the copy's `root` and named there."""

    def beside(match: re.Match[str]) -> str:
        schema = file.parent / match.group()
        if not schema.is_file():
            return match.group()
        (root / SCHEMAS).mkdir(exist_ok=True)
        shutil.copyfile(schema, root / SCHEMAS / schema.name)
        return "../" * len(copied.relative_to(root).parent.parts) + f"{SCHEMAS}/{schema.name}"

    return _SCHEMA.sub(beside, file.read_text(encoding="utf-8"), count=1)


def _renamed(text: str, name: str, target: Path) -> str:
    """A card whose commands name files of the copy."""
    return re.sub(
        rf"(?<![\w/.-])model_zoo/{re.escape(name)}/([\w./-]*)",
        lambda match: shlex.quote(f"{target.as_posix()}/{match.group(1)}"),
        text,
    )


def _rooted(text: str, file: Path, root: Path) -> str:
    """The text of a YAML file with the paths that lead out of the folder `root` made absolute."""
    root = root.resolve()

    def absolute(match: re.Match[str]) -> str:
        path = (file.parent / match.group()).resolve()
        return path.as_posix() if path.exists() and not path.is_relative_to(root) else match.group()

    return _UPWARD.sub(absolute, text)
