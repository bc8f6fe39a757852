"""Recorded results of other programs: a file of named arrays for each class, net or kind of comparison."""

from __future__ import annotations

import io
import lzma
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

RECORDED = Path(__file__).parent / "answers"
"""Answers in the repository, which the scripts `record*.py` write by default."""
ANSWERS = Path(os.environ.get("NETSPEC_PEER_ANSWERS", RECORDED))
"""Answers that the tests compare with: `make test-peers` sets this to those of the installed peers."""

RECORD_AGAIN = (
    "record the answers: make peers; KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record --changed {names}"
)


@cache
def load_answers(name: str) -> Mapping[str, np.ndarray]:
    """Return the arrays of the file `name`, by their names. Empty if there is no such file."""
    path = ANSWERS / f"{name}.npz.xz"
    if not path.exists():
        return {}
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
        return dict(arrays)


def save_answers(folder: Path, name: str, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write the arrays as `name` in a folder, which is created.

    xz compresses the archive as a whole: most arrays are small, and inputs are the same in training and inference.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **arrays)
    path = folder / f"{name}.npz.xz"
    path.write_bytes(lzma.compress(archive.getvalue(), preset=9))
    return path
