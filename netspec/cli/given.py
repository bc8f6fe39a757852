"""A spec and its weights as they are named: by their files, or by the folder of a run or an import, which has both."""

from __future__ import annotations

import sys
from pathlib import Path

from netspec.errors import InputError

SPECS = ("spec.yaml", "train.yaml", "net.yaml")
WEIGHTS = ("best.h5", "weights.h5")
"""Files of a folder, the first that is there first."""


def in_folder(folder: Path) -> tuple[Path, Path | None]:
    """The spec in a folder, and the weights, if there are any. Raises `InputError` where it has no spec."""
    spec = next((folder / name for name in SPECS if (folder / name).is_file()), None)
    if spec is None:
        raise InputError(f"{folder} is a folder without a spec", expected=f"one of {', '.join(SPECS)} in it")
    return spec, next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def spec_and_weights(spec: str, weights: str | None) -> tuple[str, str]:
    """Both files. Raises `InputError` where a folder has no spec, or the weights are not named and not in it."""
    beside = None
    if Path(spec).is_dir():
        found, beside = in_folder(Path(spec))
        spec = str(found)
        if weights is None and beside is not None:
            print(f"note: the weights are those in {beside}", file=sys.stderr)
    if weights is None and beside is None:
        raise InputError(
            "--weights is missing", expected="a weights file, or a checkpoint",
            hint=f"a folder in place of {spec} that has {' or '.join(WEIGHTS)} beside a spec, such as that of a run, "
            "needs none",
        )  # fmt: skip
    return spec, weights or str(beside)
