"""The study of a search: Optuna chooses values, stores results in a file, and ends trials early."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Location, Problem, install_command
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import load_train
from netspec.schema.specs.comparison import changed_fields
from netspec.schema.specs.monitor import Mode
from netspec.schema.specs.search import SearchedField, SearchSpec
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.reader import parse_yaml
from netspec.training.run_directory import new_numbered_folder, numbered_folders

if TYPE_CHECKING:
    import optuna

FILE = "study.log"
TRIAL = "trial-"
"""Beginning of the names of the run directories of trials."""
FOLDER, MESSAGE, SECONDS, BATCH = "folder", "message", "seconds", "batch"
SETTINGS, MONITOR, SOURCE = "settings", "monitor", "source"
BASELINE, SECONDS_TO_BEST = "baseline", "seconds_to_best"
"""Further attributes in the file, of a trial and of the study."""
MAY_CHANGE = ("baseline", "batch", "pruner", "sampler", "seed", "trials")
"""Fields of `search` that may change before a resume: results of earlier trials do not depend on them."""
MAX_COMBINATIONS = 10_000
TRIALS_TO_RANK_FIELDS = 20
"""Complete trials below which the importance of fields would be chance: it compares the best tenth with the others."""


@dataclass(frozen=True)
class Trial:
    """One training of a search."""

    number: int
    state: str
    """`complete`, `pruned` (ended early), or `failed`."""
    fields: Mapping[str, Any]
    """The values of the searched fields."""
    value: float | None
    """The monitored value of its final weights; of a pruned trial the last one, of a failed trial None."""
    seconds: float
    run_dir: Path
    message: str | None = None
    """Why the trial failed, or ended before its last epoch."""
    baseline: bool = False
    """Whether it has the values of the training file."""
    batch: tuple[int, ...] = ()
    """Numbers of the trials with which it ran one program, itself included; empty if it ran alone."""

    def as_json(self) -> dict[str, Any]:
        """All fields as plain data."""
        return {**self.__dict__, "fields": dict(self.fields), "run_dir": str(self.run_dir)}


@dataclass(frozen=True)
class PendingTrial:
    """A trial that is still to be trained."""

    number: int
    fields: Mapping[str, Any]
    run_dir: Path
    """Its run directory; one that an interrupted search began may exist."""


class Study:
    """The trials of a search, in a folder."""

    def __init__(self, folder: Path, study: optuna.Study, search: SearchSpec | None = None) -> None:
        """A study without `search` can only be read."""
        self.folder, self._search, self._study = folder, search, study

    @property
    def monitor(self) -> str:
        """The value that is improved, such as `validation/accuracy`."""
        return str(self._study.user_attrs[MONITOR])

    @property
    def mode(self) -> Mode:
        """Whether lower or higher is better."""
        return "max" if self._study.direction.name == "MAXIMIZE" else "min"

    def ask(self) -> PendingTrial:
        """Choose the values of the next trial."""
        trial = self._study.ask()
        assert self._search is not None
        chosen: dict[str, Any] = {}
        for name, searched in self._search.fields.items():
            if searched.applies(chosen):
                chosen[name] = _suggest(trial, name, searched)
        if FOLDER not in trial.user_attrs:  # an interrupted trial goes on in its own folder
            trial.set_user_attr(FOLDER, f"{TRIAL}{trial.number:04d}")
        return PendingTrial(trial.number, chosen, self.folder / trial.user_attrs[FOLDER])

    def tell(
        self, number: int, value: float | None, seconds: float, *, pruned: bool, message: str | None,
        seconds_to_best: float, batch: Sequence[int],
    ) -> None:  # fmt: skip
        """Store how a trial ended: with a value, or without one; `message` says why it failed or ended early."""
        from optuna.trial import TrialState

        trial = _trial(self._study, number)
        trial.set_user_attr(SECONDS, seconds)
        trial.set_user_attr(SECONDS_TO_BEST, seconds_to_best)
        trial.set_user_attr(BATCH, list(batch))
        if message is not None:
            trial.set_user_attr(MESSAGE, message)
        if value is None:
            self._study.tell(number, state=TrialState.FAIL)
        elif pruned:
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, value)

    def ended(self) -> list[Trial]:
        """The trials that have ended, without those that were interrupted, which others replace."""
        return [
            self._described(trial)
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state.is_finished() and SECONDS in trial.user_attrs
        ]

    def least_seconds(self) -> float:
        """The shortest time in which a complete trial found its best weights; 0 before the first one."""
        from optuna.trial import TrialState

        complete = self._study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
        return min((trial.user_attrs[SECONDS_TO_BEST] for trial in complete), default=0.0)

    def left(self) -> int | None:
        """The number of combinations of a grid that have not been tried; None if trials do not come from a grid."""
        from optuna.trial import TrialState

        if self._search is None or self._search.sampler != "grid":
            return None
        return len(self._study.get_trials(deepcopy=False, states=[TrialState.WAITING]))

    def importances(self) -> dict[str, float]:
        """The share of each field in the differences between results, by PED-ANOVA; empty with too few trials.

        Watanabe, Bansal, Hutter, "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary subspaces",
        2023.
        """
        complete = sum(trial.state == "complete" for trial in self.ended())
        if complete < TRIALS_TO_RANK_FIELDS:
            return {}
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # imports SciPy: 2 s

        return dict(get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator()))

    def _described(self, trial: optuna.trial.FrozenTrial) -> Trial:
        searched = self._search.fields if self._search is not None else {}
        fields = {
            name: _decoded(searched[name], value) if name in searched else value for name, value in trial.params.items()
        }
        state = {"COMPLETE": "complete", "PRUNED": "pruned"}.get(trial.state.name, "failed")
        stored = trial.user_attrs
        return Trial(
            trial.number, state, fields, None if state == "failed" else trial.value, stored[SECONDS],
            self.folder / stored[FOLDER], stored.get(MESSAGE), stored.get(BASELINE, False),
            tuple(stored.get(BATCH, ())),
        )  # fmt: skip


class Pruner:
    """Decides in the process that trains a trial whether it goes on."""

    def __init__(self, folder: Path, search: SearchSpec, number: int) -> None:
        optuna = require_optuna()
        study = optuna.load_study(study_name=FILE, storage=_storage(folder / FILE), pruner=_pruner(search))
        self._trial = _trial(study, number)

    def should_prune(self, value: float, evaluation: int) -> bool:
        """Report the value of an evaluation, numbered from 1; return whether the trial should end."""
        self._trial.report(value, evaluation)
        return BASELINE not in self._trial.user_attrs and bool(self._trial.should_prune())


def open_study(run_dir: Path | None, spec: TrainSpec, source: Path | None, *, resume: bool) -> Study:
    """Create a study in a folder without one, or open that of an earlier search.

    The folder is `run_dir`, or the next free of `runs/NAME-search`, `runs/NAME-search-2`, …; with `resume` it is the
    newest of these that belongs to the training file `source`.
    Raises `InputError` if Optuna is missing, or the folder or the settings of the earlier search do not fit.
    """
    search = spec.search
    assert search is not None
    optuna = require_optuna()
    name = f"{spec.name or spec.net.name}-search"
    if resume:
        folder = run_dir or _newest_of(source, name)
        if not (folder / FILE).exists():
            raise InputError(f"no search in {folder}", expected=f"a folder with {FILE}")
    else:
        if run_dir is not None:
            refuse_second_study(run_dir)
        folder = run_dir or new_numbered_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    study = optuna.create_study(
        storage=_storage(path), study_name=FILE, load_if_exists=True,
        direction="maximize" if spec.train.mode == "max" else "minimize", pruner=_pruner(search),
    )  # fmt: skip
    if SETTINGS in study.user_attrs:
        _check_unchanged(load_train(parse_yaml(study.user_attrs[SETTINGS], str(path))), spec, folder)
    else:
        study.set_user_attr(SETTINGS, canonical_yaml(spec))
    if source is not None:
        study.set_user_attr(SOURCE, str(source.resolve()))
    study.set_user_attr(MONITOR, f"{spec.data.monitored}/{spec.train.monitor}")
    if search.baseline and not any(BASELINE in trial.user_attrs for trial in study.get_trials(deepcopy=False)):
        _enqueue_baseline(study, spec, search)
    study.sampler = _sampler(search, len(study.get_trials(deepcopy=False)))
    _requeue_interrupted(study)
    if search.sampler == "grid":
        _enqueue_grid(study, search)
    return Study(folder, study, search)


def _newest_of(source: Path | None, name: str) -> Path:
    """Return the newest search in runs/ of a training file, or of any if a mapping has no file."""
    folders = [folder for folder in reversed(numbered_folders(name)) if (folder / FILE).is_file()]
    files = {folder: study.user_attrs.get(SOURCE) for folder in folders if (study := _load(folder)) is not None}
    own = [folder for folder, file in files.items() if source is None or file == str(source.resolve())]
    if not own:
        others = [
            f"`--run-dir {folder}` continues the search of {os.path.relpath(file)}"
            for folder, file in files.items()
            if file
        ]
        raise InputError(
            f"no search of {source or name.removesuffix('-search')} in runs/",
            hint="; ".join(others[:3]) or "leave out `--resume` to start one",
        )  # fmt: skip
    return own[0]


def require_optuna() -> Any:
    """Return the module Optuna. Raises `InputError` if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise InputError("Optuna is not installed", hint=install_command("search")) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def refuse_second_study(folder: Path) -> None:
    """Raise `InputError` if a folder has a study."""
    if (folder / FILE).exists():
        raise InputError(
            f"there is a search in {folder}", expected="a folder without one",
            hint="add --resume to continue it, or --run-dir to search elsewhere",
        )  # fmt: skip


def _check_unchanged(before: TrainSpec, now: TrainSpec, folder: Path) -> None:
    """Raise `InputError` with all fields that changed since a search began, so that its results are not comparable."""
    problems = [
        Problem(
            f"`{change.path}` has changed since the search in {folder} began", _key_location(now, change.path),
            change.path, expected=change.before or "not set", got=change.after or "not set",
            hint="restore the earlier value, or start a new search: leave out `--resume`",
        )
        for change in changed_fields(before, now)
        if change.path.removeprefix("search.") not in MAY_CHANGE
    ]  # fmt: skip
    if problems:
        raise InputError(problems)


def _key_location(spec: TrainSpec, path: str) -> Location | None:
    """Return the location of the key of a field. Keys of `search.fields` contain dots."""
    assert spec.search is not None
    for name in spec.search.fields:
        whole = f"search.fields.{name}"
        if path == whole or path.startswith(f"{whole}."):
            return spec.where("search", "fields", name, *path[len(whole) + 1 :].split("."), key=True)
    return spec.where(*path.split("."), key=True)


def _enqueue_baseline(study: optuna.Study, spec: TrainSpec, search: SearchSpec) -> None:
    """Enqueue a trial with the values of the training file."""
    values = search.baseline_values(spec)
    study.enqueue_trial({name: _encoded(value) for name, value in values.items()}, user_attrs={BASELINE: True})


def _enqueue_grid(study: optuna.Study, search: SearchSpec) -> None:
    """Enqueue the combinations that are not in the study yet."""
    present = [trial.system_attrs.get("fixed_params") for trial in study.get_trials(deepcopy=False)]
    known = {json.dumps(fields, sort_keys=True) for fields in present}
    for fields in _combinations_of(search):
        if json.dumps(fields, sort_keys=True) not in known:
            study.enqueue_trial(fields)


def read_study(folder: Path) -> Study:
    """Open the study in a folder to read it. Raises `InputError` if Optuna is missing, or the folder has no study."""
    study = _load(folder)
    if study is None or MONITOR not in study.user_attrs:
        raise InputError(f"{folder / FILE} cannot be read", expected="a file that `netspec search` wrote")
    return Study(folder, study)


def _load(folder: Path) -> Any:
    """Load the study in a folder to read it; None if its file is damaged. Raises `InputError` if Optuna is missing."""
    optuna = require_optuna()
    try:
        return optuna.load_study(study_name=FILE, storage=_storage(folder / FILE))
    except (KeyError, ValueError, OSError):
        return None


def _requeue_interrupted(study: optuna.Study) -> None:
    """Replace trials that were running when the search ended by new ones with their values and folders."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        study.tell(trial.number, state=TrialState.FAIL)
        kept = {name: trial.user_attrs[name] for name in (FOLDER, BASELINE) if name in trial.user_attrs}
        if FOLDER in kept:
            study.enqueue_trial(trial.params, user_attrs=kept)


def _storage(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(path)))


def _trial(study: optuna.Study, number: int) -> optuna.Trial:
    from optuna.trial import Trial as StoredTrial

    return StoredTrial(study, study.get_trials(deepcopy=False)[number]._trial_id)


def _sampler(search: SearchSpec, trials: int) -> Any:
    """The sampler; its seed also depends on the number of trials, so that a resumed search draws new values."""
    from optuna import samplers

    seed = search.seed + trials
    return samplers.TPESampler(seed=seed) if search.sampler == "tpe" else samplers.RandomSampler(seed=seed)


def _pruner(search: SearchSpec) -> Any:
    from optuna import pruners

    if search.pruner == "hyperband":
        return pruners.HyperbandPruner()
    return pruners.MedianPruner() if search.pruner == "median" else pruners.NopPruner()


def _suggest(trial: optuna.Trial, name: str, searched: SearchedField) -> Any:
    if searched.choices:
        return _decoded(searched, trial.suggest_categorical(name, [_encoded(value) for value in searched.choices]))
    low, high, step = searched.low, searched.high, searched.step
    assert low is not None
    assert high is not None
    if searched.is_integer:
        return trial.suggest_int(name, int(low), int(high), step=int(step or 1), log=searched.log)
    value = trial.suggest_float(name, float(low), float(high), step=step and float(step), log=searched.log)
    return value if step is None else _rounded(value)


def check_grid_size(search: SearchSpec) -> None:
    """Raise `InputError` if a grid has too many combinations."""
    _combinations_of(search)


def _combinations_of(search: SearchSpec) -> list[dict[str, Any]]:
    """All combinations of a grid as the study stores them, in random order. Raises `InputError` for too many."""
    combinations: list[dict[str, Any]] = [{}]
    for name, searched in search.fields.items():
        extended = []
        for fields in combinations:
            chosen = {other: _decoded(search.fields[other], value) for other, value in fields.items()}
            values = _all_values(searched) if searched.applies(chosen) else []
            extended += [{**fields, name: value} for value in values] or [fields]
            if len(extended) > MAX_COMBINATIONS:
                raise InputError(
                    "the grid has too many combinations", location=search.where("fields", name),
                    expected=f"at most {MAX_COMBINATIONS:,}", hint="use `sampler: tpe` or `random`",
                )  # fmt: skip
        combinations = extended
    Random(search.seed).shuffle(combinations)  # noqa: S311  # not for cryptography
    return combinations


def _all_values(searched: SearchedField) -> list[Any]:
    """The values of a field, as the study stores them."""
    if searched.choices:
        return [_encoded(value) for value in searched.choices]
    low, high, step = searched.low, searched.high, searched.step or 1
    assert low is not None
    assert high is not None
    count = int((high - low) / step + 1e-9) + 1
    return [low + index * step if searched.is_integer else _rounded(low + index * step) for index in range(count)]


def _rounded(value: float) -> float:
    """A multiple of a step without the rounding of its sum: 0.3 instead of 0.30000000000000004."""
    return float(f"{value:.12g}")


def _encoded(value: Any) -> Any:
    """A choice as the study stores it: mappings and lists as JSON."""
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _decoded(searched: SearchedField, stored: Any) -> Any:
    """A choice from what the study stored."""
    return next((choice for choice in searched.choices if _encoded(choice) == stored), stored)
