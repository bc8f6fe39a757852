"""`netspec search`: train with many values of fields, and keep the best."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, INTERRUPTED
from netspec.cli.app import CommandApp
from netspec.cli.fitted_table import FittedColumn, print_fitted
from netspec.cli.options import Device, Json, Overrides
from netspec.cli.output import print_json
from netspec.errors import InputError, command, counted, words_of_options
from netspec.schema.bundled import model_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspec.tools.init import InitResult
    from netspec.tools.search import SearchResult, Trial

app = CommandApp()
TABLES = (".csv", ".tsv", ".parquet")
"""Suffixes of tables, which only `--auto` reads."""
SHOWN = 10
"""Trials in the table, the best first."""


@app.add_command(
    "netspec search train.yaml",
    "netspec search train.yaml --trials 50 --minutes 30 --jobs 2",
    "netspec search train.yaml --resume --trials 100",
    "netspec search photos/ --auto",
    "netspec search table.csv --auto --target price",
)
def search(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="Read a training file or run; with --auto, data.", callback=model_path)
    ],
    overrides: Overrides = None,
    *,
    auto: Annotated[bool, typer.Option("--auto", help="Write a net for data, and search its settings.")] = False,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Predict this column (see `netspec init`).")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Use this task (see `netspec init`).")] = None,
    output: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write files of --auto here [default: the data's folder].")
    ] = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write to this folder [default: a new runs/NAME-search].")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="Run N trials [default: see above].")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="M", help="End after M minutes [default: see above]."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="Run N trials at the same time.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a search and its unfinished trials.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Tune hyperparameters: try many values, keep the best.

    The block `search` of the training file names the fields and the values to try. Each trial is a run, whose directory
    is below that of the search. There, best.yaml is the training file with the values of the best trial.

    Runs as many trials as --trials or else `trials` in the file says. Without either, the search ends after --minutes,
    or when the sampler `grid` has tried all values; without any of these, after 20 trials.

    With --auto, SPEC is a folder or table that `netspec init` accepts. The command writes net.yaml and train.yaml for
    it, with a block `search` for depth, width, blocks, augmentation and learning rate, and searches these. The first
    trial is the net that `netspec init` would write. The search ends after 10 minutes, unless --trials or --minutes is
    given.
    """
    from netspec.tools.search import search as search_values
    from netspec.tools.search.auto import auto_search
    from netspec.training.run import Interrupted

    file_options: dict[str, object] = {"--target": target, "--task": task, "--output": output}
    if not auto and (refused := words_of_options(file_options)):
        raise InputError(f"{refused[0]} needs --auto", expected="data to write files for", got=spec)
    if not auto and Path(spec).suffix.lower() in TABLES:
        raise InputError(
            f"{spec} is data, not a training file",
            hint="add `--auto`, and `--target COLUMN` with the column to predict",
        )
    files: list[InitResult] = []
    report = None if as_json else _print_trial
    try:
        if auto:
            result = auto_search(
                spec, overrides or (), target=target, task=task, output=output, run_dir=run_dir, trials=trials,
                minutes=minutes, jobs=jobs, device=device, resume=resume,
                report_files=files.append if as_json else _print_files, report=report,
            )  # fmt: skip
        else:
            result = search_values(
                spec, overrides or (), run_dir=run_dir, trials=trials, minutes=minutes, jobs=jobs, device=device,
                resume=resume, report=report,
            )  # fmt: skip
    except Interrupted as stopped:
        limits = {"--trials": trials, "--minutes": minutes, "--jobs": jobs if jobs > 1 else None}
        options = words_of_options({**file_options, **limits, "--device": device if device != "auto" else None})
        words = (*(overrides or ()), "--run-dir", stopped.run_dir, "--resume", *["--auto"] * auto, *options)
        print(f"stopped; to continue: {command('search', spec, *words)}", file=sys.stderr)
        return INTERRUPTED
    if as_json:
        print_json({**result.as_json(), **({"init": files[0].as_json()} if files else {})})
    else:
        _print_result(result)
    return DONE


def _print_files(files: InitResult) -> None:
    """Print what was found in the data, and the files that were written."""
    print("\n".join([files.task, *(f"  {finding}" for finding in files.findings)]))
    for warning in files.warnings:
        print(f"warning: {warning}")
    print(f"\nwritten: {files.net}, {files.train}\n", flush=True)


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
    others = [str(number) for number in trial.batch if number != trial.number]
    batch = f"  in one program with {', '.join(others)}" if others else ""
    print(f"trial {trial.number}  {outcome}  {trial.seconds:.1f} s  {_settings(trial)}{batch}", flush=True)


def _conclusion(result: SearchResult) -> Iterator[str]:
    """Compare the best trial with the values in the file: on the data that chose it, then on the test data."""
    best, baseline = result.best, result.baseline
    assert best is not None
    others = baseline is not None and baseline.number != best.number
    if baseline is not None and baseline.value is not None:
        if others:
            yield f"{result.monitor}: {_pair(baseline.value, best.value)}"
        elif len(result.trials) == 1:
            yield "the time sufficed only for the values in the file: --resume tries others"
        else:
            yield f"no trial was better than the values in the file: {result.monitor} {baseline.value:.6g}"
    if (tested := result.test_result(best)) is not None:
        before = result.test_result(baseline) if others else None
        chosen_by = f"({counted(tested.samples, 'sample')}, not used to choose)"
        for name, value in tested.values.items():
            earlier = None if before is None else before.values.get(name)
            yield f"{name}: {_pair(earlier, value)} {chosen_by}"
        if others and result.is_confirmed is False:
            yield "the test data shows no gain: with few samples or trials, a better validation value can be luck"
    elif result.warning is None:
        yield "add `data.test` to confirm the result on samples that the search does not use"


def _pair(baseline: float | None, best: float | None) -> str:
    before = "" if baseline is None else f"{baseline:.6g} with the values in the file, "
    return f"{before}{best:.6g} in the best trial"


def _settings(trial: Trial) -> str:
    return "  ".join(f"{name}={_shown(value)}" for name, value in trial.fields.items())


def _values(trials: Sequence[Trial], name: str) -> list[str]:
    return [_shown(trial.fields.get(name, "")) for trial in trials]


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_result(result: SearchResult) -> None:
    """Print the best trials, the importance of the fields, and the commands that come next."""
    best = result.best
    assert best is not None  # `search` raises without one
    ranked = result.ranked()
    names = list(dict.fromkeys(name for trial in ranked for name in trial.fields))
    rows = ranked[:SHOWN]
    print()
    columns = [
        FittedColumn("trial", [str(trial.number) for trial in rows]),
        FittedColumn(result.monitor, [f"{trial.value:.6g}" for trial in rows]),
        *(FittedColumn(name, _values(rows, name), rank=1, is_number=False) for name in names),
        FittedColumn("state", [trial.state for trial in rows], rank=2, is_number=False),
    ]
    print_fitted(columns, complete_in="--json")
    if len(ranked) > SHOWN:
        print(f"and {counted(len(ranked) - SHOWN, 'other trial')} (--json lists all)")
    if result.importances:
        print("\nimportance: " + ", ".join(f"{name} {share:.0%}" for name, share in result.importances.items()))
    if result.idle_reason is not None:
        print(f"\nnothing to do: {result.idle_reason}")
    if result.warning is not None:
        print(f"warning: {result.warning}")
    if conclusion := "\n".join(_conclusion(result)):
        print("\n" + conclusion)
    print(f"\nbest trial: {best.run_dir}\nits settings: {result.best_spec}\n\nnext:")
    for words in (
        ("train", result.best_spec), ("test", best.run_dir), ("predict", best.run_dir, "--input", "FILE"),
        ("export", best.run_dir, "--output", "model.onnx"), ("report", result.folder, "--output", "search.html"),
    ):  # fmt: skip
        print("  " + command(*words))
