"""Which checkpoint of a run to go on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from netspec.errors import InputError
from netspec.exchange.hdf5 import CHECKPOINT
from netspec.exchange.hdf5_read import read_block, verify_file


@dataclass(frozen=True)
class LatestCheckpoint:
    """The newest good checkpoint of a folder, if any; `notes` say which damaged ones were left out."""

    path: Path | None
    notes: tuple[str, ...] = ()


def find_latest_checkpoint(folder: str | Path) -> LatestCheckpoint:
    """The checkpoint of the highest step among the `.h5` files of `folder` whose every byte is as it was written."""
    notes: list[str] = []
    found: list[tuple[int, str, Path]] = []
    for path in sorted(Path(folder).glob("*.h5")):
        try:
            block = read_block(path, CHECKPOINT)
        except InputError as error:
            notes.append(f"left out: {error.summary}")
            continue
        if block.kind == "checkpoint":
            found.append((-1 if block.step is None else block.step, path.name, path))
    for _, _, path in sorted(found, reverse=True):
        try:
            verify_file(path, CHECKPOINT)
        except InputError as error:
            notes.append(f"left out: {error.summary}")
            continue
        return LatestCheckpoint(path, tuple(notes))
    return LatestCheckpoint(None, tuple(notes))
