"""`train.py SPEC WAY…`: train in each way, and resume from a checkpoint; worker 0 prints its states as JSON."""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from netspec.cli.failures import report
from netspec.cli.workers import join_job, leave_job
from netspec.distributed import world
from netspec.exchange.formats.native.hdf5 import read_checkpoint
from netspec.training.run import run

STEPS, BREAK = 40, 20


def digest(arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """Return a hash of all bytes."""
    return hashlib.sha256(b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def train(spec: str, parallel: str, folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """Train; return losses, bytes per step, and the states of all workers at the end."""
    actual: dict[str, Any] = {"losses": []}

    def listen(event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "log":
                actual["losses"].append(event["loss"])
            case "start" | "done":
                actual[event["event"]] = event.get("bytes_per_step")

    changes = [f"parallel={parallel}", f"train.max_steps={STEPS}", f"train.checkpoint_every={BREAK}"]
    graph = run(spec, changes, run_dir=folder, resume=resume, listeners=[listen])
    if world().is_first:
        newest = read_checkpoint(max((graph.run_dir / "checkpoints").glob("*.h5")))
        actual |= {"states": digest(newest.states), "own": [digest(states) for states in newest.own]}
        actual |= {"names": sorted(newest.states), "test": graph.test and graph.test.loss}
    return actual


def main(spec: str, *ways: str) -> None:
    """Train in all ways."""
    for number, parallel in enumerate(ways):
        folder = Path(spec).parent / str(number)
        uninterrupted = train(spec, parallel, folder / "whole")
        if world().is_first:
            half = Path(shutil.copytree(folder / "whole", folder / "half"))
            (half / "weights.h5").unlink()
            (half / "checkpoints" / f"step-{STEPS:08}.h5").unlink()
        world().barrier()
        resumed = train(spec, parallel, folder / "half", resume=True)
        if world().is_first:
            print(json.dumps({"whole": uninterrupted, "again": resumed}), flush=True)


if __name__ == "__main__":
    join_job()
    status = 0
    try:
        main(*sys.argv[1:])
    except Exception as error:
        status = report(error, ["train"], debug=False)
    sys.exit(leave_job(status))
