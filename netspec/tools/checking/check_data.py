"""Check the data of a training: missing paths, and whatever headers and first samples show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from netspec.data.base import Source, Survey
from netspec.data.missing_paths import missing_paths
from netspec.data.text.tokenizers.base import TokenizerSpec, require_same_tokenizer
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import DataSpec, SplitFields
from netspec.schema.specs.init_from import InitFromSpec
from netspec.schema.specs.train import TrainSpec


@dataclass(frozen=True)
class DataSurvey:
    """Facts from the headers and first samples of a training's data."""

    splits: Mapping[str, Survey] = field(default_factory=dict)
    """The survey of each split, by name, unless it failed."""
    problems: tuple[Problem, ...] = ()

    @property
    def read(self) -> str:
        """Return the parts of the data that were read, for messages; empty if nothing or everything was read."""
        return ", ".join(dict.fromkeys(survey.read for survey in self.splits.values() if survey.read))


def known_data(spec: TrainSpec) -> DataSurvey:
    """Return the facts about the data that follow from the spec alone."""
    sources = {name: split for name, split in spec.data.splits().items() if isinstance(split, Source)}
    return DataSurvey({name: Source.survey(source) for name, source in sources.items()})


def survey_data(data: DataSpec | None, init_from: InitFromSpec | None) -> DataSurvey:
    """Look at the files of each split, less than a second each; collect all problems."""
    splits: dict[str, Survey] = {}
    problems: list[Problem] = []
    if init_from is not None:
        problems += missing_paths(init_from, "init_from")
    if data is None:
        return DataSurvey(problems=tuple(problems))
    for name, split in data.splits().items():
        assert isinstance(split, Source)
        path = data.path_of(name)
        if getattr(data, name, split) is None:  # held out: samples like those of the training split
            splits[name] = replace(splits["train"], read="", damaged=())
            continue
        splits[name] = Source.survey(split)
        problems += _different_tokenizer(split, data.splits()["train"], path)
        missing = list(missing_paths(split, path))
        problems += missing
        try:
            splits[name] = split.survey() if not missing else splits[name]
            unknown = list(_unknown_division(split, path, splits[name]))
            problems += unknown
            if splits[name].fields and not (missing or unknown):
                split.check_division()
        except InputError as error:
            problems += _in_split(split, path, error)
    return DataSurvey(splits, tuple(problems))


def _different_tokenizer(split: Source, train: SplitFields, path: str) -> Iterator[Problem]:
    """Yield a problem if the training split converts text by another tokenizer."""
    spec, training = getattr(split, "tokenizer", None), getattr(train, "tokenizer", None)
    if isinstance(spec, TokenizerSpec) and isinstance(training, TokenizerSpec):
        try:
            require_same_tokenizer(spec, training)
        except InputError as error:
            yield from _in_split(split, path, error)


def _unknown_division(split: Source, path: str, survey: Survey) -> Iterator[Problem]:
    """Yield a problem if `split` names a field or column that the source does not have."""
    names, hold_out = sorted(survey.columns or survey.fields), split.hold_out
    for problem in hold_out.unknown_columns(names) if hold_out is not None and names else ():
        yield replace(problem, location=split.where(*problem.path.split(".")), path=f"{path}.{problem.path}")


def _in_split(split: Source, path: str, error: InputError) -> Iterator[Problem]:
    """Yield the problems of a split with their full paths."""
    for problem in error.problems:
        inner = ".".join(filter(None, (path, problem.path)))
        yield replace(problem, location=problem.location or split.where(), path=inner)
