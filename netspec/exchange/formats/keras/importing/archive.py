"""The files that Keras writes: a `.keras` archive, or HDF5 with or without the model's configuration.

Nothing is unpacked to disk and nothing runs: texts are parsed as JSON, arrays are read by `containers.hdf5`.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.errors import InputError
from netspec.exchange.containers.hdf5 import SPARE, WIDEST, Hdf5Reader, open_hdf5, opened_hdf5
from netspec.exchange.containers.zip_archive import MAGIC, open_zip
from netspec.exchange.files import reading
from netspec.files.hdf5 import SIGNATURE

WHAT = "a Keras model (.keras, .h5) or its weights (.weights.h5)"
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
LONGEST_TEXT = 2**28
"""Largest size of a configuration."""


@dataclass
class KerasFile:
    """An open file: the JSON of the model's configuration, if it has one, and the weights, which are read on demand."""

    name: str
    version: str
    """The version of Keras that wrote the file; empty if the file does not state it."""
    backend: str
    config: dict[str, Any] | None
    training: dict[str, Any] | None
    """Loss, metrics and optimizer, the arguments of `compile`."""
    weights: Hdf5Reader | None

    @property
    def major(self) -> int:
        """Major version of Keras: 1, 2 or 3."""
        first = self.version.partition(".")[0]
        return int(first) if first.isdigit() else 3 if self.config and "module" in self.config else 2


def is_keras(head: bytes, path: Path) -> bool:
    """Whether a file is a model of Keras or its weights, by the content of the archive or the HDF5 file."""
    try:
        if head.startswith(MAGIC):
            with open_zip(path, WHAT) as archive:
                return CONFIG in archive.namelist()
        if not head.startswith(SIGNATURE):
            return False
        file = open_hdf5(path, WHAT)
        described = any(file.attribute("", name) is not None for name in ("model_config", "layer_names"))
        return described or not {"layers", "_layer_checkpoint_dependencies", "model_weights"}.isdisjoint(file.below(""))
    except InputError:
        return False


def open_keras(path: Path) -> KerasFile:
    """Open a file, whose weights are read on demand. Raises `InputError` if it is damaged or not Keras's."""
    with reading(path, WHAT) as (file, _):
        head = file.read(8)
    return _open_archive(path) if head.startswith(b"PK") else _open_hdf5(path)


def _open_hdf5(path: Path) -> KerasFile:
    file = open_hdf5(path, WHAT)
    config, training = (_json(path, file.attribute("", name)) for name in ("model_config", "training_config"))
    root = "model_weights" if file.attribute("", "layer_names") is None else ""
    version = file.attribute("", "keras_version") or file.attribute(root, "keras_version")
    backend = file.attribute("", "backend") or file.attribute(root, "backend")
    return KerasFile(str(path), str(version or ""), str(backend or ""), config, training, file)


def _open_archive(path: Path) -> KerasFile:
    with open_zip(path, WHAT) as archive:
        size = path.stat().st_size
        members = {member.filename: member for member in archive.infolist()}
        if CONFIG not in members:
            raise InputError(f"{path} is not a model of Keras", expected=f"an archive with {CONFIG}", got="another zip")
        config = _json(path, _read(path, archive, members[CONFIG], size))
        metadata = _json(path, _read(path, archive, members[METADATA], size)) if METADATA in members else {}
        weights = _read(path, archive, members[WEIGHTS], size) if WEIGHTS in members else None
    if weights is None and any(name.endswith((".weights.json", ".npz")) for name in members):
        raise InputError(
            f"{path} is refused: its weights are not in {WEIGHTS}", expected="an archive as `model.save` writes it",
            hint="save the model without shards",
        )  # fmt: skip
    assert config is not None
    version = str((metadata or {}).get("keras_version", ""))
    training = config.get("compile_config")
    reader = None if weights is None else opened_hdf5(f"{path} ({WEIGHTS})", weights, WHAT)
    return KerasFile(str(path), version, "", config, training if isinstance(training, dict) else None, reader)


def _read(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> bytes:
    most = size * WIDEST + SPARE
    if member.file_size > (most if member.filename == WEIGHTS else min(most, LONGEST_TEXT)):
        raise InputError(
            f"{path} is refused: {member.filename!r} declares {member.file_size} bytes in an archive of {size}",
            expected="an archive as Keras writes it",
        )
    return archive.read(member)


def _json(path: Path, text: bytes | str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
        if isinstance(parsed, str):  # Keras 1 wrote it as JSON in a JSON string
            parsed = json.loads(parsed)
    except (ValueError, RecursionError, TypeError) as error:
        raise InputError(f"{path}: its configuration is damaged", expected="JSON", got=str(error)[:200]) from None
    if not isinstance(parsed, dict):
        raise InputError(f"{path}: its configuration is not a JSON object", expected="the configuration of a model")
    return parsed
