"""`netspec train`: train as a file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, INTERRUPTED
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Json, Overrides, Threads, Training
from netspec.cli.output import print_json_line
from netspec.cli.workers import start, to_start
from netspec.errors import command

if TYPE_CHECKING:
    from netspec.train.run import Interrupted, Run

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec train train.yaml",
        "netspec train train.yaml solver.learning_rate=0.1 train.max_epochs=2 --run-dir runs/fast",
        "netspec train runs/NAME/spec.yaml --resume",
        "netspec train imported/train.yaml --resume imported/checkpoint.h5",
        "netspec train train.yaml --workers 4",
        "netspec train train.yaml --workers 64 --dry-run",
    ),
)
def train(
    spec: Training,
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where to write the run. Default: the next free runs/NAME, runs/NAME-2, …"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the newest checkpoint: of the run that SPEC is the spec.yaml of, else of the last run; "
            "or, in a new run, from the checkpoint file that is given after it.",
        ),
    ] = False,
    weights: Annotated[
        str | None, typer.Option(metavar="FILE", help="Start from these weights; what fits by name and shape is taken.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="Train as N processes of this machine, by MPI. Default: as many as an MPI launcher started, else 1.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Find what would keep it from beginning, and train and write nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Train a net as a training file says.

    Everything is written below the run directory: the resolved spec, logs, checkpoints, weights. The first Ctrl-C
    finishes the step and saves, the second stops at once. With --json: one JSON object a line for each event; the
    last is `done`, or `error`.
    """
    checkpoint, changes = _checkpoint_among(overrides or []) if resume else (None, overrides or [])
    starts = workers is not None and to_start(workers)
    if dry_run:
        return _rehearse(spec, changes, workers, weights, as_json=as_json)
    if workers is not None and starts:
        given = {"--run-dir": run_dir, "--weights": weights, "--device": device}
        words = [word for name, value in given.items() if value is not None for word in (name, value)]
        words += ["--json"] * as_json + ["--resume"] * resume
        from netspec.cli.specs import load_train
        from netspec.train.fitting import check_workers

        check_workers(load_train(spec, changes), workers)
        return start(workers, ["train", *words, "--", spec, *(overrides or [])])
    from netspec.cli.progress import display
    from netspec.parallel import world
    from netspec.train.run import Interrupted
    from netspec.train.run import run as run_training

    try:
        with display(as_json=as_json) as listener:
            run = run_training(
                spec,
                changes,
                run_dir=run_dir,
                resume=checkpoint or resume,
                weights=weights,
                device=device,
                listeners=[listener],
            )
    except Interrupted as stopped:
        if as_json and world().is_first:
            print_json_line({"event": "interrupted", "run_dir": str(stopped.run_dir), "step": stopped.step})
        if world().is_first:
            print(_told(stopped), file=sys.stderr)
        return INTERRUPTED
    if not as_json and world().is_first:
        _print_end(run)
    return DONE


def _rehearse(spec: str, changes: list[str], workers: int | None, weights: str | None, *, as_json: bool) -> int:
    """Say what the training would be; of processes that a launcher of MPI has started, the first one does."""
    from netspec.cli.rehearsal import rehearse
    from netspec.parallel.told import told_rank, told_size

    found = rehearse(spec, changes, workers or told_size() or 1, weights)
    if not told_rank():
        print_json_line(found.as_json()) if as_json else print(found.told())
    return DONE


def _checkpoint_among(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The checkpoint to go on from, if one is among the arguments behind `--resume`; and the overrides."""
    files = [one for one in arguments if "=" not in one and not one.startswith("~")]
    return (files[0] if files else None), [one for one in arguments if one not in files[:1]]


def _told(stopped: Interrupted) -> str:
    """One line: how it stopped, and the command that goes on. The run's own spec holds the overrides already."""
    from netspec.parallel import world
    from netspec.parallel.tether import options

    again = command("train", stopped.run_dir / "spec.yaml", "--resume", *options(world().size))
    if stopped.step is None:
        return f"stopped at once, before the first checkpoint; to begin again: {again}"
    if stopped.at_once:
        return f"stopped at once; to go on from step {stopped.step:,}: {again}"
    return f"stopped after step {stopped.step:,}; to go on: {again}"


def _print_end(run: Run) -> None:
    """Where things are, and the commands that come next."""
    from netspec.train.events import as_text

    found = run.test.as_json() if run.test else None
    done = {"event": "done", "steps": run.steps, "seconds": run.seconds, "test": found, "skipped": run.skipped}
    print(as_text(done))
    print(f"weights: {run.weights}\nlog: {run.log}\n\nnext:")
    spec = run.run_dir / "spec.yaml"
    given = [spec, "--weights", run.weights]
    if found:
        print("  " + command("test", *given))
    print("  " + command("export", *given, "--output", _model_path(run.run_dir)))


def _model_path(run_dir: Path) -> Path:
    return run_dir / "model.onnx"
