"""`netspec verify-parallel`: check that training on one worker and on several gives bit-identical weights."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json, Overrides, Training, check_batch
from netspec.cli.output import print_json, table
from netspec.errors import InputError, RunError

if TYPE_CHECKING:
    from netspec.distributed.strategies.all_reduce import AllReduce
    from netspec.schema.specs.train import TrainSpec

app = command_app()


@app.command(
    "verify-parallel",
    cls=Plain,
    epilog=examples("netspec verify-parallel train.yaml --workers 4", "netspec verify-parallel train.yaml --steps 50"),
)
def verify_parallel(
    spec: Training,
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Compare up to N workers.")] = 2,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Train N steps each.")] = 10,
    as_json: Json = False,
) -> int:
    """Check that N workers train bit-identical weights.

    Trains the first steps on 1, 2, … workers with `parallel: {strategy: all_reduce, deterministic: true}`, whatever
    strategy the file has. All weights and all states of solver and layers must be bit-identical; otherwise the exit
    status is 1. No files are left behind.
    """
    from netspec.cli.workers import what_starts_workers
    from netspec.distributed.worker_checks import check_workers
    from netspec.tools.specs import load_train

    if workers < 2:
        raise InputError("--workers must be 2 or more: one has nobody to be compared with", got=str(workers))
    check_batch(steps, "--steps")
    given = load_train(spec, overrides or [])
    check_workers(given.model_copy(update={"parallel": verified(given, workers)}), workers)
    changes = [*(overrides or []), *_changes(given, workers, steps)]
    what_starts_workers()
    with tempfile.TemporaryDirectory(prefix="netspec-") as folder:
        found = [_trained(spec, changes, count, Path(folder) / str(count)) for count in range(1, workers + 1)]
    states = [one.pop("states") for one in found]
    arrays = {"arrays": len(states[0])}
    rows = [{**one, **arrays, **_compared(states[0], other)} for one, other in zip(found, states, strict=True)]
    parallel, note = verified(given, workers).model_dump(mode="json"), _note(given, workers)
    if as_json:
        print_json({"steps": steps, "parallel": parallel, "note": note, "runs": rows})
    else:
        print(f"verified: parallel: {{strategy: all_reduce, deterministic: true, shards: {parallel['shards']}}}")
        if note is not None:
            print(f"note: {note}")
        shown = [[str(row["workers"]), f"{row['seconds']:.1f} s", _told(row)] for row in rows]
        table(["workers", "took", "weights and states"], shown)
    return FAILED if any(row["differ"] for row in rows) else DONE


def _told(row: dict[str, Any]) -> str:
    """What was found of a training, for people."""
    differ = row["differ"]
    if not differ:
        return f"the same bits in {row['arrays']} arrays"
    return f"{len(differ)} of {row['arrays']} arrays differ, by {row['most']:.2g} at most: {', '.join(differ[:3])}"


def verified(spec: TrainSpec, workers: int) -> AllReduce:
    """What is verified: steps whose bits do not depend on the number of workers, else as the spec says where it can."""
    from netspec.distributed.strategies.all_reduce import AllReduce
    from netspec.distributed.strategies.base import Strategy

    given = spec.parallel if isinstance(spec.parallel, Strategy) else AllReduce()
    own = given if isinstance(given, AllReduce) else AllReduce(heartbeat=given.heartbeat, stall=given.stall)
    parts = own.shards if "shards" in own.model_fields_set else max(own.shards, workers)
    parts = min(parts, spec.data.train.batch_size)
    # Sums in the order of a tree are neither rounded to 16 bits nor made by host.
    exact = {"deterministic": True, "shards": parts, "reduce_in": "float32", "hierarchical": "auto"}
    return own.model_copy(update=exact)


def _note(spec: TrainSpec, workers: int) -> str | None:
    """What the spec says of its workers that is not what was verified."""
    from netspec.distributed.strategies.all_reduce import AllReduce
    from netspec.distributed.strategies.base import Strategy

    if not isinstance(spec.parallel, Strategy):
        return None
    if not isinstance(spec.parallel, AllReduce):
        return f"the file trains with {spec.parallel.strategy}, which finds other weights and was not verified"
    given, used = spec.parallel.model_dump(mode="json"), verified(spec, workers).model_dump(mode="json")
    other = [f"{name}: {json.dumps(given[name])}" for name in given if given[name] != used[name]]
    return f"the file has {', '.join(other)} instead, which was not verified" if other else None


def _changes(spec: TrainSpec, workers: int, steps: int) -> list[str]:
    """Overrides for a short training whose bits do not depend on the number of workers."""
    block = json.dumps(verified(spec, workers).model_dump(mode="json"))
    loop = ["~train.max_epochs"] if spec.train.max_epochs is not None else []
    evaluated = ["~data.test"] if spec.data.test is not None else []
    return [*loop, *evaluated, f"train.max_steps={steps}", "train.test_every=0", f"parallel={block}"]


def _trained(spec: str, changes: list[str], workers: int, folder: Path) -> dict[str, Any]:
    """One training: how long it took, and its states. Raises `RunError` with what a training that failed said."""
    from netspec.exchange.formats.native.hdf5 import find_latest_checkpoint, read_checkpoint

    began = time.perf_counter()
    words = ["train", spec, *changes, "--run-dir", str(folder), "--workers", str(workers), "--threads", "1"]
    words += ["--device", "cpu"]  # whose sums are the same on any number of workers
    done = subprocess.run([sys.executable, "-m", "netspec", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the training on {workers} workers failed", got=done.stderr.strip())
    path = find_latest_checkpoint(folder / "checkpoints").path
    assert path is not None, "a training that ends well has written one"
    states = read_checkpoint(path).states
    return {"workers": workers, "seconds": round(time.perf_counter() - began, 3), "states": states}


def _compared(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The arrays of which any bit differs, and the largest difference of a number."""
    import numpy as np

    differ = [name for name in one if one[name].tobytes() != other[name].tobytes()]
    most = max((float(np.abs(one[name].astype(float) - other[name].astype(float)).max()) for name in differ), default=0)
    return {"differ": differ, "most": most}
