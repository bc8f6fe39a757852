"""`netspec search`: train with many values of fields, and the best of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, INTERRUPTED
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Json, Overrides, Training
from netspec.cli.output import note_compilation, print_json, table
from netspec.errors import command

if TYPE_CHECKING:
    from netspec.tools.search import SearchResult, Trial

app = command_app()
SHOWN = 10
"""Trials in the table, the best first."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec search train.yaml",
        "netspec search train.yaml --trials 50 --minutes 30 --jobs 2",
        "netspec search train.yaml --resume --trials 100",
    ),
)
def search(
    spec: Training,
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write to this folder [default: runs/NAME-search].")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, metavar="N", help="Run N trials [default: the file's, else 20].")
    ] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0, metavar="M", help="End after M minutes.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Run N trials at the same time.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a search, and trials that it began.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Tune hyperparameters: train with many values, keep the best.

    The block `search` of the training file names the fields and their values. Each trial is a training with a run
    directory of its own below DIR. DIR/best.yaml is the training file with the values of the best trial.
    """
    from netspec.tools.search import search as search_values
    from netspec.training.run import Interrupted

    note_compilation()
    try:
        result = search_values(
            spec, overrides or (), run_dir=run_dir, trials=trials, minutes=minutes, jobs=jobs, device=device,
            resume=resume, report=None if as_json else _print_trial,
        )  # fmt: skip
    except Interrupted as stopped:
        given: dict[str, object] = {"--trials": trials, "--minutes": minutes, "--jobs": jobs if jobs > 1 else None}
        given["--device"] = device if device != "auto" else None
        options = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
        again = command("search", spec, *(overrides or ()), "--run-dir", stopped.run_dir, "--resume", *options)
        print(f"stopped; to continue: {again}", file=sys.stderr)
        return INTERRUPTED
    print_json(result.as_json()) if as_json else _print_result(result)
    return DONE


def _print_trial(trial: Trial, best: Trial | None) -> None:
    """Print one line about a trial that ended."""
    outcome = f"failed: {trial.message}" if trial.value is None else f"{trial.value:.6g}"
    if trial.state == "pruned":
        outcome += " (pruned)"
    elif trial.value is not None:
        notes = [trial.message] if trial.message else []
        notes += ["the values in the file"] if trial.baseline else []
        notes += ["best"] if best is not None and best.number == trial.number else []
        outcome += f" ({', '.join(notes)})" if notes else ""
    print(f"trial {trial.number}  {outcome}  {trial.seconds:.1f} s  {_settings(trial)}", flush=True)


def _settings(trial: Trial) -> str:
    return "  ".join(f"{name}={_shown(value)}" for name, value in trial.fields.items())


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_result(result: SearchResult) -> None:
    """Print the best trials, the importance of the fields, and the commands that come next."""
    best = result.best
    assert best is not None  # `search` raises without one
    ranked = result.ranked()
    names = list(dict.fromkeys(name for trial in ranked for name in trial.fields))
    rows = [
        [str(trial.number), f"{trial.value:.6g}", *(_shown(trial.fields.get(name, "")) for name in names), trial.state]
        for trial in ranked[:SHOWN]
    ]
    print()
    table(["trial", result.monitor, *names, "state"], rows)
    if result.importances:
        print("\nimportance: " + ", ".join(f"{name} {share:.0%}" for name, share in result.importances.items()))
    if result.warning is not None:
        print(f"warning: {result.warning}")
    print(f"\nbest trial: {best.run_dir}\nits settings: {result.best_spec}\n\nnext:")
    print("  " + command("train", result.best_spec))
    print("  " + command("test", best.run_dir))
