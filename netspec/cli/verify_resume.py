"""`netspec verify-resume`: check that a training that is killed and resumed ends bit-identical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json, Overrides, Training
from netspec.cli.output import print_json, table
from netspec.errors import and_more, counted

if TYPE_CHECKING:
    from netspec.tools.reproducibility.verify_resume import Kill, ResumeCheck

app = CommandApp()
MAX_LISTED = 10
"""Number of differences that are listed; the others are counted."""


@app.add_command(
    "netspec verify-resume train.yaml",
    "netspec verify-resume train.yaml --steps 200 --kills 20 train.test_every=25",
    "netspec verify-resume train.yaml --workers 2",
)
def verify_resume(
    spec: Training,
    overrides: Overrides = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Train N steps.")] = 50,
    kills: Annotated[int, typer.Option("--kills", metavar="K", help="Kill and resume the run K times.")] = 5,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Train with N processes.")] = 1,
    device: Device = "auto",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Draw the moments of the kills from this seed.")] = 0,
    as_json: Json = False,
) -> int:
    """Check that a killed run resumes bit-identically.

    Trains the first steps without interruptions, and again with kills (SIGKILL) at random moments, each followed by
    --resume. Compares weights, states of solver and layers, best values, the position in the data, and all losses and
    metrics in the logs of both. If the training file has `stages`, they share the steps. With several workers, kills
    alternate between all workers and one. Exits with status 1 if any bit differs. Leaves no files behind.
    """
    from netspec.tools.reproducibility.verify_resume import verify_resume as verify

    check = verify(spec, overrides=overrides or (), steps=steps, kills=kills, workers=workers, device=device, seed=seed)
    if as_json:
        print_json(check.as_json())
    else:
        _show(check)
    return DONE if check.identical else FAILED


def _show(check: ResumeCheck) -> None:
    rows = [[str(number), f"{kill.logged_step:,}", _killed(kill, check)] for number, kill in enumerate(check.kills, 1)]
    rows = [[*row, f"{kill.resumed_from:,}"] for row, kill in zip(rows, check.kills, strict=True)]
    table(["kill", "after step", "killed", "started from step"], rows)
    compared = f"{counted(check.arrays, 'array')} and {counted(check.log_lines, 'logged result')}"
    if check.identical:
        print(f"\nbit-identical after {counted(len(check.kills), 'kill')} in {check.steps:,} steps: {compared}")
        return
    listed = "".join(f"  {difference}\n" for difference in check.differences[:MAX_LISTED])
    print(f"\nnot bit-identical, in {compared}:\n{listed}", end="")
    if more := and_more(len(check.differences) - MAX_LISTED):
        print(f"  …{more}")


def _killed(kill: Kill, check: ResumeCheck) -> str:
    if check.workers == 1:
        return "the run"
    return "all workers" if kill.worker is None else "one worker"
