"""The newest intact checkpoint is found, and damaged ones are reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.native import hdf5
from netspec.exchange.formats.native.hdf5 import (
    find_latest_checkpoint,
    read_checkpoint,
    write_checkpoint,
    write_weights,
)
from netspec.exchange.formats.native.hdf5_file import BLOCK_BYTES


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
    assert latest.content is not None
    assert latest.content.progress["step"] == 2
    assert len(latest.notes) == 3
    assert all(any(name in note for note in latest.notes) for name in ("step3.h5", "step4.h5", "step5.h5"))


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Flips every bit of the text, and one bit of every 29th byte of the rest."""
    path = write(tmp_path, "step1.h5", 1)
    intact = path.read_bytes()
    text = len(intact[:BLOCK_BYTES].rstrip(b"\n"))
    flips = [(offset, bit) for offset in range(text) for bit in range(8)]
    flips += [(offset, offset % 8) for offset in range(text, len(intact), 29)]
    for offset, bit in flips:
        content = bytearray(intact)
        content[offset] ^= 1 << bit
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"step1\.h5 (is|was) ") as caught:
            read_checkpoint(path)
        (problem,) = caught.value.problems
        assert problem.hint, f"bit {bit} of byte {offset}: {caught.value}"


def test_a_damaged_step_in_the_first_lines_does_not_select_a_checkpoint(tmp_path: Path) -> None:
    oldest, newest = write(tmp_path, "step1.h5", 1), write(tmp_path, "step8.h5", 8)
    content = oldest.read_bytes()
    oldest.write_bytes(content.replace(b"\nstep 1\n", b"\nstep 9\n", 1))
    latest = find_latest_checkpoint(tmp_path)
    assert latest.path == newest
    assert "step1.h5 is damaged: its first lines contradict its content" in latest.notes[0]


def test_a_changed_spec_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step1.h5"
    monkeypatch.setattr(hdf5, "_sha256", lambda spec: "0" * 64)
    write_checkpoint(path, {}, {}, {"step": 1}, "seed: 1")
    monkeypatch.undo()
    with pytest.raises(InputError, match="its spec is not the one that the run had"):
        read_checkpoint(path)
