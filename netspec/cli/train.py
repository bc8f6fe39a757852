"""`netspec train`: train as a training file describes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, INTERRUPTED
from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Overrides, Threads, Training
from netspec.cli.output import count, print_json_line, size
from netspec.cli.workers import should_start, start
from netspec.errors import InputError, command, counted, words_of_options

if TYPE_CHECKING:
    from netspec.tools.checking.dry_run import DryRun
    from netspec.training.events import Event, Listener
    from netspec.training.run import Interrupted, Run

app = CommandApp()


@app.add_command(
    "netspec train train.yaml",
    "netspec train train.yaml solver.learning_rate=0.1 train.max_epochs=2 --run-dir runs/fast",
    "netspec train runs/fast --resume",
    "netspec train train.yaml --run-dir runs/long --resume auto",
    "netspec train train.yaml --workers 4",
    "netspec train train.yaml --workers 64 --dry-run",
    "netspec train train.yaml --find-lr --output rates.png",
    "netspec train train.yaml --overfit 16",
)
def train(
    spec: Training,
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write to this folder [default: a new runs/NAME].")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", metavar="[auto|FILE]", help="Continue a run, or start from a checkpoint."),
    ] = False,
    weights: Annotated[
        str | None, typer.Option(metavar="FILE", help="Load weights that match by name and shape.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Train with N processes on this machine [default: 1].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check spec, data and workers; don't train.")] = False,
    find_lr: Annotated[bool, typer.Option("--find-lr", help="Try growing learning rates, and suggest one.")] = False,
    overfit: Annotated[
        int | None, typer.Option("--overfit", metavar="N", help="Test whether the net can memorize N samples.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the chart of --find-lr as SVG or PNG.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
) -> int:
    """Train a net as described in a training file.

    Writes the resolved spec, logs, checkpoints and weights to the run directory, and nothing elsewhere but caches. The
    default directory has the `name` of the training file, or else of the net: runs/NAME, then runs/NAME-2, and so on.
    The first Ctrl-C finishes the step and saves a checkpoint, the second stops at once. --workers starts MPI processes
    on this machine; on a cluster, use its launcher, such as srun.

    --resume continues a run: SPEC is its directory or its spec.yaml. With another training file, the run is the one in
    --run-dir, or else the newest of runs/NAME, runs/NAME-2, and so on. --resume auto also starts a run if there is
    none. --resume FILE starts a new run from a netspec checkpoint, or from a PyTorch model with its optimizer
    (.safetensors).

    --find-lr trains for up to 150 steps while the learning rate grows exponentially, shows the losses, and suggests a
    rate.

    --overfit trains on the first N samples, without random transforms, until they are learned: the mean loss of a pass
    over them is at most 5 % of that of the first pass, or 50 % if all are classified correctly. If they are not learned
    in 500 steps, it lists likely reasons and exits with status 1. A net that can't memorize a few samples contains a
    mistake. Neither --find-lr nor --overfit writes a run directory.

    With --json, the last event is `done`, `error` or `interrupted`.
    """
    checkpoint, changes = _checkpoint_among(overrides or []) if resume else (None, overrides or [])
    starts = workers is not None and should_start(workers)
    run_options = {"--resume": resume, "--run-dir": run_dir, "--dry-run": dry_run, "--workers": starts}
    if overfit is not None:
        from netspec.cli.overfit import overfit as memorize

        refuse_options("--overfit", {**run_options, "--find-lr": find_lr, "--output": output})
        return memorize(spec, changes, overfit, weights=weights, device=device, as_json=as_json)
    if find_lr:
        from netspec.cli.find_lr import find_lr as test_rates

        refuse_options("--find-lr", run_options)
        test_rates(spec, changes, weights=weights, device=device, output=output, as_json=as_json)
        return DONE
    if output is not None:
        raise InputError("--output needs --find-lr", hint="a run is written to --run-dir")
    if dry_run:
        return _dry_run(spec, changes, workers, weights, as_json=as_json)
    if workers is not None and starts:
        words = words_of_options({"--run-dir": run_dir, "--weights": weights, "--device": device})
        words += ["--json"] * as_json + ["--resume"] * resume + ["--", spec, *(overrides or [])]
        return _start_workers(workers, spec, changes, words)
    return _train(
        spec, changes, run_dir=run_dir, resume=checkpoint or resume, weights=weights, device=device, as_json=as_json
    )


def refuse_options(test: str, options: Mapping[str, object]) -> None:
    """Raise `InputError` for options that do not apply to a test, which writes no run."""
    refused = [name for name, value in options.items() if value]
    if refused:
        raise InputError(
            f"{test} and {refused[0]} cannot be combined", hint="the test writes no run and needs one worker"
        )


def _start_workers(workers: int, spec: str, changes: list[str], words: list[str]) -> int:
    """Start `netspec train` with the arguments `words` in several processes."""
    from netspec.distributed.worker_checks import check_workers
    from netspec.tools.specs import load_train

    check_workers(load_train(spec, changes), workers)
    return start(workers, ["train", *words])


def _train(
    spec: str, changes: list[str], *, run_dir: str | None, resume: bool | str, weights: str | None, device: str,
    as_json: bool,
) -> int:  # fmt: skip
    """Train; report Ctrl-C also if it comes before the training handles signals itself."""
    started: list[Event] = []

    def remember_start(event: Event) -> None:
        if event["event"] == "start":
            started.append(event)

    try:
        return _run_training(
            spec, changes, remember_start, run_dir=run_dir, resume=resume, weights=weights, device=device,
            as_json=as_json,
        )  # fmt: skip
    except KeyboardInterrupt:
        from netspec.backends.process_group import world

        if started:
            raise
        if world().rank == 0:
            print("interrupted before the first step", file=sys.stderr)
        return INTERRUPTED


def _run_training(
    spec: str, changes: list[str], listener: Listener, *, run_dir: str | None, resume: bool | str, weights: str | None,
    device: str, as_json: bool,
) -> int:  # fmt: skip
    from netspec.backends.notices import device_notices
    from netspec.backends.process_group import world
    from netspec.cli.progress import display
    from netspec.training.run import Interrupted
    from netspec.training.run import run as run_training

    device_notices.set_listener(None)  # the run has its own events for these notes
    try:
        with display(as_json=as_json) as shown:
            run = run_training(
                spec, changes, run_dir=run_dir, resume=resume, weights=weights, device=device,
                listeners=[listener, shown],
            )  # fmt: skip
    except Interrupted as stopped:
        if as_json and world().rank == 0:
            facts = {"run_dir": str(stopped.run_dir), "step": stopped.step, "reason": stopped.reason}
            print_json_line({"event": "interrupted", **facts})
        if world().rank == 0:
            print(_stop_message(stopped), file=sys.stderr)
        return INTERRUPTED
    if not as_json and world().rank == 0:
        _print_end(run)
    return DONE


def _dry_run(spec: str, changes: list[str], workers: int | None, weights: str | None, *, as_json: bool) -> int:
    """Print a summary of the training that would run; in an MPI job, only the first process prints."""
    from netspec.backends.launcher_env import launcher_rank, launcher_size
    from netspec.tools.checking.dry_run import dry_run

    result = dry_run(spec, overrides=changes, workers=workers or launcher_size() or 1, weights=weights)
    if not launcher_rank():
        print_json_line(result.as_json()) if as_json else print(_described(result))
    return DONE


def _described(run: DryRun) -> str:
    """Describe the training that would run, in four lines."""
    split = run.largest_share < run.batch_size
    each = f": {count(run.largest_share)} samples each" if split else ""
    if split and run.batch_size % run.workers:
        each += " or one fewer"
    servers = f" and {counted(run.servers, 'server')}" if run.servers else ""
    data = ", ".join(f"{counted(number, 'sample')} of {split} data" for split, number in run.samples.items())
    return (
        f"{run.name}: {counted(run.workers, 'worker')}{servers}, a batch of {count(run.batch_size)}{each}\n"
        f"{data}; {counted(run.steps, 'step')}\n"
        f"each worker allocates {size(run.worker_bytes)} for a training step\n"
        "nothing was written: this was a dry run"
    )


def _checkpoint_among(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Split the arguments of `--resume` into the checkpoint, if there is one, and the overrides."""
    files = [argument for argument in arguments if "=" not in argument and not argument.startswith("~")]
    return (files[0] if files else None), [argument for argument in arguments if argument not in files[:1]]


def _stop_message(stopped: Interrupted) -> str:
    """Describe in one line where the run stopped, and the command that continues it.

    The command needs no overrides, since the spec of the run contains them.
    """
    from netspec.training.events import stop_reason_suffix

    again = command("train", stopped.run_dir / "spec.yaml", "--resume", *stopped.options)
    if not (stopped.run_dir / "spec.yaml").is_file():
        return "stopped at once, before the first step; nothing was written"
    if stopped.step is None:
        return f"stopped at once, before the first checkpoint; to start again: {again}"
    if stopped.at_once:
        return f"stopped at once; to continue from step {stopped.step:,}: {again}"
    return f"stopped after step {stopped.step:,}{stop_reason_suffix(stopped.reason)}; to continue: {again}"


def _print_end(run: Run) -> None:
    """Print the paths of the results, and the commands that come next."""
    from netspec.schema.load import RESOLVED_SPEC, load_train
    from netspec.training.evaluation import classifies_samples
    from netspec.training.events import format_event

    results = {"validation": run.validation, "test": run.test}
    evaluations = {split: evaluation.as_json() if evaluation else None for split, evaluation in results.items()}
    done = {
        "event": "done", "steps": run.steps, "seconds": run.seconds, "skipped": run.skipped, "best": run.best,
        "weights_step": run.weights_step, **evaluations,
    }  # fmt: skip
    print(format_event(done))
    print(f"weights: {run.weights}\nlog: {run.log}\n\nnext:")
    if run.test or run.validation:
        options = [] if run.test else ["--split", "validation"]
        options += ["--report"] * classifies_samples(load_train(run.run_dir / RESOLVED_SPEC).net)
        print("  " + command("test", run.run_dir, *options))
    print("  " + command("export", run.run_dir, "--output", _model_path(run.run_dir)))


def _model_path(run_dir: Path) -> Path:
    return run_dir / "model.onnx"
