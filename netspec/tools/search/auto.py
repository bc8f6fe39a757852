"""Search a net for data: write net.yaml and train.yaml with values to try, then search them until a time limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from netspec.errors import InputError, command
from netspec.schema.load import Overrides
from netspec.tools.init import InitResult, init, output_folder
from netspec.tools.search import Report, SearchResult, search
from netspec.tools.search.study import refuse_second_study, require_optuna

DEFAULT_MINUTES = 10.0


def auto_search(
    data: str | Path,
    overrides: Overrides = (),
    *,
    target: str | None = None,
    task: str | None = None,
    output: str | Path | None = None,
    run_dir: str | Path | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    jobs: int = 1,
    device: str = "auto",
    resume: bool = False,
    report_files: Callable[[InitResult], object] | None = None,
    report: Report | None = None,
) -> SearchResult:
    """Write a net and a training file for data, search their values until a time limit, and return the trials.

    `data`, `target`, `task` and `output` are those of `netspec.init`. Its net is the first trial, so the best one is at
    least as good on the validation data, if there was time to finish the first. The others vary depth, width, blocks,
    dropout, augmentation, learning rate and weight decay, as the block `search` in the training file says.
    `report_files` is called with the files before the first trial. The search ends after `minutes` (by default 10,
    unless `trials` is given). `resume` continues it with the files as they are. The other arguments are those of
    `netspec.search`.

    Raises `InputError` if the data is of no known kind, or if the files or a search exist, and what `netspec.search`
    raises.

        >>> result = netspec.auto_search("photos", minutes=30)
        >>> model = netspec.load(result.best.run_dir)
    """
    path = Path(data)
    train = output_folder(path, output) / "train.yaml"
    limit = DEFAULT_MINUTES if minutes is None and trials is None else minutes
    if resume:
        if not train.is_file():
            raise InputError(f"there is no {train} whose search could continue", hint="leave out --resume to begin one")
    else:
        if train.is_file():
            raise InputError(
                f"{train} exists already",
                hint=f"continue its search with --resume, or write to a new folder with --output; "
                f"a file with values to try of your own is searched by `{command('search', train)}`",
            )
        require_optuna()
        if run_dir is not None:
            refuse_second_study(Path(run_dir))
        files = init(data, target=target, task=task, output=output, search=True)
        if report_files is not None:
            report_files(files)
    return search(
        str(train), overrides, run_dir=run_dir, trials=trials, minutes=limit, jobs=jobs, device=device, resume=resume,
        report=report,
    )  # fmt: skip
