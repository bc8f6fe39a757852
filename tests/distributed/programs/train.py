"""`train.py SPEC WAY…`: train in each way, and anew from a checkpoint; the first worker prints what it has, in JSON."""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from netspec.cli.failures import report
from netspec.cli.workers import enter, leave
from netspec.distributed import world
from netspec.exchange.formats.native.hdf5 import read_checkpoint
from netspec.training.run import run

STEPS, BREAK = 40, 20


def digest(arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """Of all bytes."""
    return hashlib.sha256(b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def train(spec: str, way: str, folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """Train: losses, bytes and what all workers have in the end."""
    found: dict[str, Any] = {"losses": []}

    def listen(event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "log":
                found["losses"].append(event["loss"])
            case "start" | "done":
                found[event["event"]] = event.get("bytes_per_step")

    changes = [f"parallel={way}", f"train.max_steps={STEPS}", f"train.checkpoint_every={BREAK}"]
    made = run(spec, changes, run_dir=folder, resume=resume, listeners=[listen])
    if world().is_first:
        newest = read_checkpoint(max((made.run_dir / "checkpoints").glob("*.h5")))
        found |= {"states": digest(newest.states), "own": [digest(one) for one in newest.own]}
        found |= {"names": sorted(newest.states), "test": made.test and made.test.loss}
    return found


def main(spec: str, *ways: str) -> None:
    """All ways."""
    for number, way in enumerate(ways):
        folder = Path(spec).parent / str(number)
        whole = train(spec, way, folder / "whole")
        if world().is_first:
            half = Path(shutil.copytree(folder / "whole", folder / "half"))
            (half / "weights.h5").unlink()
            (half / "checkpoints" / f"step-{STEPS:08}.h5").unlink()
        world().barrier()
        again = train(spec, way, folder / "half", resume=True)
        if world().is_first:
            print(json.dumps({"whole": whole, "again": again}), flush=True)


if __name__ == "__main__":
    enter()
    status = 0
    try:
        main(*sys.argv[1:])
    except Exception as error:
        status = report(error, ["train"], debug=False)
    sys.exit(leave(status))
