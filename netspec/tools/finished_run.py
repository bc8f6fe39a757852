"""`open_run`: the result of a training that has ended, from its folder."""

from __future__ import annotations

from pathlib import Path

from netspec.errors import InputError, near_path
from netspec.tools.comparing.runs import state_of
from netspec.training.evaluation import Evaluation
from netspec.training.events import done_event, read_ends
from netspec.training.run import Run
from netspec.training.run_directory import RunDir


def open_run(run_dir: str | Path) -> Run:
    """Return a finished run as `netspec.train` returned it, from its folder, also in another process.

    Raises `InputError` if the folder contains no run, or the run has not finished.

        >>> run = netspec.open_run("runs/photos")
        >>> run.test.metrics
    """
    folder = Path(run_dir)
    files = RunDir(folder)
    if not files.log.is_file():
        hint = None if folder.exists() else near_path(folder, folders=True)
        raise InputError(f"there is no run in {folder}", expected="a folder that `netspec.train` wrote", hint=hint)
    state, done = state_of(folder, read_ends(files.log)), done_event(folder)
    if state != "finished" or done is None:
        raise InputError(
            f"the run {folder} has not finished", got=f"a {state} run",
            hint="`netspec.load` reads its newest weights, and `netspec.plot` its log",
        )  # fmt: skip
    results = {name: Evaluation.from_json(done[name]) if done.get(name) else None for name in ("test", "validation")}
    return Run(
        folder, done["steps"], done["seconds"], results["test"], folder / Path(done["weights"]).name, files.log,
        done.get("skipped", 0), results["validation"], done.get("weights_step"), done.get("best"),
    )  # fmt: skip
