"""Models that netspec ships: list them, read their cards, copy them so that the copy works in its new folder."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from netspec.errors import InputError, did_you_mean, listing
from netspec.exchange.files import new_folder
from netspec.schema.bundled import MODEL_FILES, zoo_root
from netspec.schema.load import load_card
from netspec.schema.specs.card import CardSpec
from netspec.schema.yaml.reader import read_yaml

README = "README.md"
CARD = "card.yaml"
WEIGHTS = "weights.h5"

COPY = "my_net"
"""The folder of a copy in the commands of cards."""

MATRIX_SIZE = 1024
"""Rows and columns of the matrices of the measured product."""

SCHEMAS = ".schema"
"""The folder in a copy for the JSON Schemas that editors read."""

_SCHEMA = re.compile(r"(?<=\$schema=)\S+")
"""The path in the first line of a YAML file that names its schema for editors."""

_UPWARD = re.compile(r"(?<![\w./~-])(?:\.\./)+[^\s'\"#,\]}]+")
"""A path in a YAML file that leads to a parent folder."""


@dataclass(frozen=True)
class ZooModel:
    """A model that netspec ships."""

    name: str
    folder: Path

    @property
    def specs(self) -> list[Path]:
        """Its net file, its training file, or both."""
        return [path for name in MODEL_FILES if (path := self.folder / name).is_file()]

    @property
    def net(self) -> Path:
        """Its net file."""
        return self.folder / "net.yaml"

    @cached_property
    def card(self) -> CardSpec:
        """The facts in its `card.yaml`. Raises `SpecError` if they are wrong."""
        return load_card(self.folder / CARD)

    @property
    def weights(self) -> Path | None:
        """The file of its trained weights; None if netspec ships none."""
        path = self.folder / WEIGHTS
        return path if path.is_file() else None

    @property
    def description(self) -> str:
        """One line, from the spec; empty if there is none."""
        return next((text for path in self.specs if (text := read_yaml(path).get("description"))), "")

    def files(self) -> list[Path]:
        """All files, by name."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)

    def readme(self) -> str | None:
        """The text about it in Markdown: its origin, data and results. None if there is none."""
        path = self.folder / README
        return path.read_text(encoding="utf-8").rstrip() if path.is_file() else None

    def as_json(self) -> dict[str, Any]:
        """Name, spec files, description, folder and the facts of the card as plain data."""
        return {
            "name": self.name, "files": [path.name for path in self.specs], "weights": self.weights is not None,
            "description": self.description, "folder": str(self.folder), "task": self.card.task,
            "parameters": self.card.parameters.count, "flops": self.card.flops.count,
            "results": [result.model_dump() for result in self.card.results],
        }  # fmt: skip

    def copy(self, folder: str | Path) -> None:
        """Copy the files to a new folder, completely or not at all.

        Copies the schemas for editors too, makes commands in the card name the copy, and paths of data outside of the
        model's folder absolute. Raises `InputError` if `folder` is not new or empty.
        """
        target = Path(folder)
        with new_folder(target) as staged:
            for file in self.files():
                copied = staged / file.relative_to(self.folder)
                copied.parent.mkdir(parents=True, exist_ok=True)
                if file.suffix in (".yaml", ".yml"):
                    text = _with_schema(file, staged, copied)
                    copied.write_text(_rooted(text, file, self.folder), encoding="utf-8")
                elif file.name == README:
                    copied.write_text(_renamed(file.read_text(encoding="utf-8"), self.name, target), encoding="utf-8")
                else:
                    shutil.copyfile(file, copied)


def zoo() -> list[ZooModel]:
    """List the models that netspec ships, by name.

    >>> [model.name for model in netspec.zoo()]
    """
    folders = sorted(path for path in zoo_root().iterdir() if path.is_dir())
    return [model for path in folders if (model := ZooModel(path.name, path)).specs]


def zoo_model(name: str) -> ZooModel:
    """Return the model that netspec ships under a name. Raises `InputError` if there is none.

    >>> netspec.zoo_model("lenet_mnist").copy("my_net")
    """
    models = {model.name: model for model in zoo()}
    if name not in models:
        raise InputError(
            f"there is no model `{name}` in the zoo",
            expected=f"one of {listing(list(models))}",
            hint=did_you_mean(name, models),
        )
    return models[name]


def zoo_model_or_copy(name: str) -> ZooModel:
    """Return the model in a folder that `copy` wrote, or else the one that netspec ships under a name.

    Raises `InputError` if there is neither.
    """
    folder = Path(name)
    if (folder / CARD).is_file():
        return ZooModel(str(folder), folder)
    if folder.is_dir() and name not in {model.name for model in zoo()}:
        raise InputError(
            f"{folder} has no {CARD} with the facts about its model", expected="a copy of a model of the zoo",
            hint="`netspec zoo copy` writes one; for other nets: `netspec check`, `netspec plan` and `netspec test`",
        )  # fmt: skip
    return zoo_model(name)


def measured_flops_per_second() -> float:
    """Measure the rate of a float32 matrix product by NumPy, for estimates; this takes a tenth of a second."""
    import numpy as np

    matrix = np.ones((MATRIX_SIZE, MATRIX_SIZE), np.float32)
    seconds = []
    for _ in range(4):  # the first call starts the threads
        start = perf_counter()
        matrix @ matrix
        seconds.append(perf_counter() - start)
    return float(2 * MATRIX_SIZE**3 / min(seconds))


def _with_schema(file: Path, root: Path, copied: Path) -> str:
    """Return the text of a YAML file whose schema is copied into `root`, with the path of that copy."""

    def with_schema(match: re.Match[str]) -> str:
        schema = file.parent / match.group()
        if not schema.is_file():
            return match.group()
        (root / SCHEMAS).mkdir(exist_ok=True)
        shutil.copyfile(schema, root / SCHEMAS / schema.name)
        return "../" * len(copied.relative_to(root).parent.parts) + f"{SCHEMAS}/{schema.name}"

    return _SCHEMA.sub(with_schema, file.read_text(encoding="utf-8"), count=1)


def _renamed(text: str, name: str, target: Path) -> str:
    """Return a card whose commands use the copy: names of the model become paths, and `zoo copy` is left out."""
    folder = target.as_posix()
    text = re.sub(rf"^ *netspec zoo copy {re.escape(name)} {COPY}\n", "", text, flags=re.MULTILINE)
    text = re.sub(rf"\b{COPY}/([\w./-]*)", lambda match: shlex.quote(f"{folder}/{match.group(1)}"), text)
    command = rf"(\bnetspec \w+ ){re.escape(name)}(?![\w./-])"
    return re.sub(command, lambda match: match.group(1) + shlex.quote(folder), text)


def _rooted(text: str, file: Path, root: Path) -> str:
    """Return the text of a YAML file in which paths that lead out of the folder `root` are absolute."""
    root = root.resolve()

    def absolute(match: re.Match[str]) -> str:
        path = (file.parent / match.group()).resolve()
        return path.as_posix() if path.exists() and not path.is_relative_to(root) else match.group()

    return _UPWARD.sub(absolute, text)
