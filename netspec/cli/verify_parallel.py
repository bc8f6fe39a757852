"""`netspec verify-parallel`: check that training on several workers gives bit-identical weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Json, Overrides, Training
from netspec.cli.output import print_json, table

if TYPE_CHECKING:
    from netspec.tools.reproducibility.verify_parallel import VerifiedRun

app = CommandApp()


@app.add_command("netspec verify-parallel train.yaml --workers 4", "netspec verify-parallel train.yaml --steps 50")
def verify_parallel(
    spec: Training,
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Compare 1, 2, … N workers.")] = 2,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Train N steps on each number of workers.")] = 10,
    as_json: Json = False,
) -> int:
    """Check that 1, 2, … N workers give bit-identical weights.

    Trains the first steps on each number of workers with `parallel: {strategy: all_reduce, deterministic: true}`,
    whatever strategy the file selects, and compares all weights and all states of solver and layers. Exits with status
    1 if any bit differs. Leaves no files behind.
    """
    from netspec.tools.reproducibility.verify_parallel import verify_parallel as verify

    check = verify(spec, overrides=overrides or (), workers=workers, steps=steps)
    if as_json:
        print_json(check.as_json())
    else:
        shards = check.parallel["shards"]
        print(f"verified: parallel: {{strategy: all_reduce, deterministic: true, shards: {shards}}}")
        if check.note is not None:
            print(f"note: {check.note}")
        rows = [[str(run.workers), f"{run.seconds:.1f} s", _outcome(run)] for run in check.runs]
        table(["workers", "took", "weights and states"], rows)
    return DONE if check.identical else FAILED


def _outcome(run: VerifiedRun) -> str:
    if not run.differ:
        return f"bit-identical in {run.arrays} arrays"
    names = ", ".join(run.differ[:3])
    return f"{len(run.differ)} of {run.arrays} arrays differ, by at most {run.max_difference:.2g}: {names}"
