"""The newest good checkpoint is found, and damaged ones are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from netspec.exchange.formats.native.hdf5 import find_latest_checkpoint, write_checkpoint, write_weights


def write(folder: Path, name: str, step: int) -> Path:
    path = folder / name
    write_checkpoint(path, {"a": np.full(3, step, "float32")}, {"a": "parameter"}, {"step": step}, "")
    return path


def test_an_empty_or_missing_folder_has_none(tmp_path: Path) -> None:
    assert find_latest_checkpoint(tmp_path).path is None
    assert find_latest_checkpoint(tmp_path / "none") == find_latest_checkpoint(tmp_path)


def test_the_highest_step_counts_not_the_name_or_the_date(tmp_path: Path) -> None:
    newest = write(tmp_path, "a.h5", 10)
    write(tmp_path, "b.h5", 9)
    write_weights(tmp_path / "weights.h5", {})
    latest = find_latest_checkpoint(tmp_path)
    assert (latest.path, latest.notes) == (newest, ())


def test_damaged_files_are_skipped_and_named(tmp_path: Path) -> None:
    write(tmp_path, "step1.h5", 1)
    second = write(tmp_path, "step2.h5", 2)
    for name, damage in (("step3.h5", -1), ("step4.h5", 100), ("step5.h5", None)):
        content = bytearray(write(tmp_path, name, int(name[4])).read_bytes())
        if damage is None:
            del content[3000:]
        else:
            content[damage] ^= 1
        (tmp_path / name).write_bytes(content)
    latest = find_latest_checkpoint(tmp_path)
    assert latest.path == second
    assert len(latest.notes) == 3
    assert all(any(name in note for note in latest.notes) for name in ("step3.h5", "step4.h5", "step5.h5"))
