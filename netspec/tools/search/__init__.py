"""Search values of a training file: one training per trial, in a folder from which the search can be resumed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from netspec.backends.device_registry import open_device
from netspec.errors import InputError, RunError, SpecError
from netspec.exchange.files import write_text_atomically
from netspec.schema.language.overrides import Override, overrides_from_mapping, parse_overrides
from netspec.schema.language.provenance import resolved_yaml
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.monitor import Mode
from netspec.schema.specs.search import SearchSpec
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.python_data import python_location
from netspec.tools.bounds import require_at_least
from netspec.tools.search.study import FILE, PendingTrial, Study, Trial, check_grid_size, open_study, read_study
from netspec.tools.search.trials import ProcessTrainer, Trainer, TrialOutcome, TrialTask
from netspec.tools.specs import load_train
from netspec.training.arguments import device_argument
from netspec.training.events import done_event, duration, values_of
from netspec.training.run import Interrupted
from netspec.training.run_directory import RunDir

__all__ = ["SearchResult", "TestResult", "Trial", "check_values", "is_search", "read_search", "search"]

BEST_SPEC = "best.yaml"
DEFAULT_TRIALS = 20
WITHOUT_SEARCH = parse_overrides(["~search"])
Report = Callable[[Trial, Trial | None], object]
"""Called with each trial that ended, and the best so far."""


@dataclass(frozen=True)
class TestResult:
    """Loss and metrics on test data, which chose neither the weights nor the trial."""

    values: Mapping[str, float]
    """By name with the split, such as `test/accuracy`; the monitored one is the first."""
    samples: int

    def as_json(self) -> dict[str, Any]:
        """All fields as plain data."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search."""

    folder: Path
    monitor: str
    """The value that was improved, such as `validation/accuracy`."""
    mode: Mode
    trials: tuple[Trial, ...]
    importances: Mapping[str, float] = field(default_factory=dict)
    """Share of each field in the differences between results; empty with fewer than 20 complete trials."""
    idle_reason: str | None = None
    """Why a resumed search started no trial."""

    def ranked(self) -> list[Trial]:
        """The trials with a value, the best first; pruned ones come after the complete ones."""
        sign = -1 if self.mode == "max" else 1
        valued = [
            (trial.state != "complete", sign * trial.value, trial) for trial in self.trials if trial.value is not None
        ]
        return [trial for _, _, trial in sorted(valued, key=lambda item: item[:2])]

    @property
    def best(self) -> Trial | None:
        """The complete trial with the best value; None if none is complete."""
        return next((trial for trial in self.ranked() if trial.state == "complete"), None)

    @property
    def baseline(self) -> Trial | None:
        """The trial with the values of the training file; None if `search` has no `baseline`, or it has not ended."""
        return next((trial for trial in self.trials if trial.baseline), None)

    @property
    def best_spec(self) -> Path:
        """The training file with the values of the best trial."""
        return self.folder / BEST_SPEC

    def test_result(self, trial: Trial | None) -> TestResult | None:
        """The results of a trial's final weights on the test data; None if this data chose it, or there is none.

        Each complete trial was tested once, at its end.
        """
        done = None if trial is None or self._is_chosen_by_test else done_event(trial.run_dir)
        evaluation = None if done is None else done.get("test")
        if not isinstance(evaluation, dict):
            return None
        values = {f"test/{name}": value for name, value in values_of(evaluation).items() if isinstance(value, float)}
        first = {self._test_monitor: values[self._test_monitor]} if self._test_monitor in values else {}
        return TestResult({**first, **values}, evaluation["samples"])

    @property
    def is_confirmed(self) -> bool | None:
        """Whether the best trial is better than the baseline on the test data, too; None if that is not known."""
        best, before = self.test_result(self.best), self.test_result(self.baseline)
        name = self._test_monitor
        if best is None or before is None or not (name in best.values and name in before.values):
            return None
        gain = best.values[name] - before.values[name]
        return gain > 0 if self.mode == "max" else gain < 0

    @property
    def _test_monitor(self) -> str:
        return f"test/{self.monitor.rpartition('/')[2]}"

    @property
    def _is_chosen_by_test(self) -> bool:
        return self.monitor.startswith("test/")

    @property
    def warning(self) -> str | None:
        """That the value of the best trial is optimistic, if the test data chose it."""
        if not self._is_chosen_by_test:
            return None
        fix = "add `data.validation` for a choice that the test data can confirm"
        return f"the test data chose the best trial, so its value there is optimistic: {fix}"

    def as_json(self) -> dict[str, Any]:
        """All trials and the best one as plain data."""
        return {
            "folder": str(self.folder), "monitor": self.monitor, "mode": self.mode, "warning": self.warning,
            "idle_reason": self.idle_reason,
            "best": self.best.as_json() if self.best else None, "best_spec": str(self.best_spec),
            "baseline": self.baseline.as_json() if self.baseline else None, "test": self._test_values(),
            "importances": dict(self.importances), "trials": [trial.as_json() for trial in self.trials],
        }  # fmt: skip

    def _test_values(self) -> dict[str, Any]:
        """The values on the test data of the best trial and of the baseline, as plain data."""
        values = {"best": self.test_result(self.best), "baseline": self.test_result(self.baseline)}
        return {name: None if value is None else value.as_json() for name, value in values.items()}


def search(
    source: Source, overrides: Overrides = (), *, run_dir: str | Path | None = None, trials: int | None = None,
    minutes: float | None = None, jobs: int = 1, device: str = "auto", resume: bool = False,
    report: Report | None = None,
) -> SearchResult:  # fmt: skip
    """Train with many values of the fields in `search`, and return the trials.

    `source` is a training file with a block `search`, and `overrides` change it for all trials. `run_dir` (by default
    the next free of `runs/NAME-search`, `runs/NAME-search-2`, …) gets a run directory for each trial, the results, and
    `best.yaml`, the training file with the values of the best trial. `trials` replaces the number in the file. After
    `minutes`, the search ends: running trials are finished with the weights of their best evaluation, and no trial
    starts if less time is left than the fastest complete trial needed to reach its best evaluation. `jobs` trials run
    at the same time, each in a process with its share of the processor cores. `resume` continues a search, by default
    the newest of this file: trials that were interrupted continue from their checkpoints. `report` is called with each
    trial that ended, and the best so far. Needs the extra `search`.

    Raises `InputError` if the file, a value to try, or the folder is wrong, `RunError` if no trial succeeds, and
    `Interrupted` if the search was asked to stop.

        >>> result = netspec.search("train.yaml", trials=30)
        >>> result.best.fields, result.best.value
    """
    require_at_least(1, {"--jobs": jobs, "--trials": trials})
    require_at_least(0, {"--minutes": minutes})
    changes = overrides_from_mapping(overrides) if isinstance(overrides, Mapping) else list(overrides)
    spec = load_train(source, changes)
    searched = _searched(spec)
    check_values(source, spec, changes)
    open_device(device_argument(device))  # checks a new GPU, before several trials do it at once
    file = None if isinstance(source, Mapping) else Path(source)
    study = open_study(None if run_dir is None else Path(run_dir), spec, file, resume=resume)
    running = _Search(source, [*changes, *WITHOUT_SEARCH], spec, searched, study, device, report)
    is_limited = searched.sampler == "grid" or minutes is not None
    count = trials or searched.trials or (None if is_limited else DEFAULT_TRIALS)
    running.run(count, None if minutes is None else time.monotonic() + 60 * minutes, jobs)
    result = replace(running.result(), importances=study.importances())
    if not result.trials:
        raise RunError("no trial was started before the time limit", got=f"{minutes} minutes")
    if result.best is None:
        messages = [trial.message for trial in result.trials if trial.message]
        raise RunError("no trial of the search succeeded", got=messages[-1] if messages else "all were pruned")
    return result


def read_search(folder: str | Path) -> SearchResult:
    """Return the trials of a search from its folder. Raises `InputError` if it has none.

    Choices that are mappings or lists are texts.
    """
    study = read_study(Path(folder))
    return replace(_result(study), importances=study.importances())


def is_search(folder: Path) -> bool:
    """Whether a search wrote to a folder."""
    return (folder / FILE).is_file()


def check_values(source: Source, spec: TrainSpec, overrides: Overrides = ()) -> None:
    """Check that the training file loads with the lowest and highest value of each field, and with each choice.

    Raises `SpecError` with all values that the file cannot take, or that a baseline lacks, and `InputError` if a grid
    is too large.
    """
    searched = _searched(spec)
    if searched.sampler == "grid":
        check_grid_size(searched)
    changes = overrides_from_mapping(overrides) if isinstance(overrides, Mapping) else overrides
    problems = {(problem.path, problem.message): problem for problem in searched.baseline_problems(spec)}
    for name, values in searched.fields.items():
        for condition in _conditions(searched, name):
            needed = [_override(searched, other, value) for other, value in condition.items()]
            for value in values.values_to_check():
                try:
                    load_train(source, [*changes, *needed, _override(searched, name, value), *WITHOUT_SEARCH])
                except SpecError as error:
                    problems |= {(name, problem.message): problem for problem in error.problems}
    if problems:
        raise SpecError(list(problems.values()))


def _conditions(searched: SearchSpec, name: str) -> list[dict[str, Any]]:
    """All combinations of values of other fields with which a field is searched, the conditions of these included."""
    combinations: list[dict[str, Any]] = [{}]
    for other, wanted in searched.fields[name].when.items():
        combinations = [
            {**chosen, **above, other: value}
            for chosen in combinations
            for above in _conditions(searched, other)
            for value in (wanted if isinstance(wanted, list) else [wanted])
        ]
    return combinations


def _searched(spec: TrainSpec) -> SearchSpec:
    if spec.search is None:
        raise InputError(
            "the training file has no `search`", location=spec.where(), expected="a block `search` with `fields`",
            hint=f"search: {{fields: {{{_rate_field(spec)}: {{low: 1e-4, high: 0.1, log: true}}}}}}; "
            "`netspec init DATA --search` writes one",
        )  # fmt: skip
    return spec.search


def _rate_field(spec: TrainSpec) -> str:
    """Return the path of the learning rate, which a schedule may contain as `schedule`."""
    rate = getattr(spec.solver, "learning_rate", None)
    return "solver.learning_rate.schedule" if hasattr(rate, "schedule") else "solver.learning_rate"


def _override(searched: SearchSpec, name: str, value: Any) -> Override:
    """The change of a searched field, located at its values in the file."""
    location = searched.where("fields", name) or python_location(f"search.fields.{name}", value, 1)
    return Override(tuple(name.split(".")), value, location)


@dataclass
class _Search:
    """A running search: asks the study for trials, has them trained, and tells it the results."""

    source: Source
    changes: list[str | Override]
    """Overrides of the training file for all trials."""
    spec: TrainSpec
    searched: SearchSpec
    study: Study
    device: str
    report: Report | None
    stopped: bool = field(default=False, init=False)
    idle_reason: str | None = field(default=None, init=False)
    """Why no trial was started."""

    def run(self, count: int | None, deadline: float | None, jobs: int) -> None:
        """Run trials until `count` (of a grid, all) have ended or the deadline has passed, `jobs` at the same time."""
        started = False
        trainer = Trainer() if jobs == 1 else ProcessTrainer(jobs)
        try:
            while not self.stopped:
                while trainer.is_free and (size := self._batch_size(count, len(trainer.tasks), deadline, jobs)):
                    trainer.submit([self._task(self.study.ask(), deadline) for _ in range(size)])
                    started = True
                if not trainer.tasks:
                    break
                for task, outcome in trainer.next_outcomes():
                    self._end(task, outcome)
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            for task, outcome in trainer.stop():
                self._end(task, outcome)
        if not started:
            self.idle_reason = self._why_idle(count)
        self._write_best(self.result())
        if self.stopped:
            raise Interrupted(self.study.folder, None)

    def _why_idle(self, count: int | None) -> str:
        """Return why there was nothing to do, and what continues the search."""
        ended = len(self.study.ended())
        if self.study.left() == 0:
            return "all combinations of the grid have been tried"
        if count is not None and ended >= count:
            have_ended = "the only trial has ended" if ended == 1 else f"all {ended:,} trials have ended"
            return f"{have_ended}; add `--trials {ended + DEFAULT_TRIALS}` to run {DEFAULT_TRIALS} more"
        fastest = duration(self.study.least_seconds())
        return f"too little time for another trial (the fastest needed {fastest}); raise `--minutes`"

    def _batch_size(self, count: int | None, running: int, deadline: float | None, jobs: int) -> int:
        """Return how many trials start together: those of the file, or fewer at the end; 0 if too little time is left.

        With a deadline it is 1: trials that take turns would all be stopped by it, and each learn less.
        """
        if deadline is not None and time.monotonic() + self.study.least_seconds() >= deadline:
            return 0
        counted = None if count is None else count - len(self.study.ended()) - running
        limits = [-(-max(left, 0) // jobs) for left in (counted, self.study.left()) if left is not None]
        return min([self.searched.batch if deadline is None else 1, *limits])

    def _with_values(self, fields: Mapping[str, Any]) -> list[str | Override]:
        return [*self.changes, *(_override(self.searched, name, value) for name, value in fields.items())]

    def _task(self, trial: PendingTrial, deadline: float | None) -> TrialTask:
        return TrialTask(trial, self.source, self._with_values(trial.fields), self.searched, self.device, deadline)

    def _end(self, task: TrialTask, outcome: TrialOutcome) -> None:
        """Store the result of a trial and report it; one that was interrupted is left for a resume."""
        if outcome.interrupted:
            self.stopped = True
            return
        number = task.trial.number
        self.study.tell(
            number, outcome.value, outcome.seconds, pruned=outcome.pruned, message=outcome.message,
            seconds_to_best=outcome.seconds_to_best, batch=outcome.batch,
        )  # fmt: skip
        shutil.rmtree(RunDir(task.trial.run_dir).checkpoints, ignore_errors=True)  # weights stay
        result = self.result()
        if result.best is not None and result.best.number == number:
            self._write_best(result)
        if self.report is not None:
            self.report(next(ended for ended in result.trials if ended.number == number), result.best)

    def _write_best(self, result: SearchResult) -> None:
        """Write the training file with the values of the best trial, if there is one."""
        if result.best is None:
            return
        text = resolved_yaml(load_train(self.source, self._with_values(result.best.fields)))
        write_text_atomically(result.best_spec, text)

    def result(self) -> SearchResult:
        """The trials that have ended."""
        return replace(_result(self.study), idle_reason=self.idle_reason)


def _result(study: Study) -> SearchResult:
    return SearchResult(study.folder, study.monitor, study.mode, tuple(study.ended()))
