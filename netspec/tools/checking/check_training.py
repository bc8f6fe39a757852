"""Check a training without its data: that the update can be built, and that all inputs are fed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, ProgramKind
from netspec.data.base import Dataset, Survey, Transform
from netspec.data.input_binding import InputBinding, bind_inputs
from netspec.data.pipeline import TransformPipeline
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.specs.data import SplitFields
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.paths import resolve_path
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.tools.checking.check_data import DataSurvey
from netspec.tools.specs import precision_of
from netspec.training.required_inputs import input_fields, input_ranges


def check_training(spec: TrainSpec, data: DataSurvey) -> None:
    """Build the update, and check that the data has all inputs of the net. Raises `InputError` with all problems."""
    assert isinstance(spec.solver, SolverSpec)
    problems: list[Problem] = []
    splits = spec.data.splits()
    for name, split in splits.items():
        problems += _unknown_inputs(spec.net, spec.data.path_of(name), split)
    compiler: Compiler | None = None
    try:
        opened = open_device("null", spec.compile.autotune, spec.compile.rounding)
        computed = precision_of(spec).compute_dtype  # whether a device supports the storage types is not checked here
        compiler = Compiler(spec.net, solver=spec.solver, dtype=computed, device=opened, loop=spec.train)
    except InputError as error:
        problems += error.problems
    if compiler is not None and spec.init_from is not None and resolve_path(spec.init_from, "file").is_file():
        from netspec.training.transfer import plan_transfer

        try:
            plan_transfer(spec, compiler)
        except InputError as error:
            problems += error.problems
    if problems or compiler is None:
        raise InputError(problems)
    for name, split in splits.items():
        try:
            survey = data.splits.get(name, Survey())
            if name != "train":
                survey = replace(survey, complete=False)
            check_feeds(compiler, split, survey, compiler.batch_program if name == "train" else ProgramKind.TEST)
        except InputError as error:
            path = spec.data.path_of(name)
            problems += [replace(problem, path=f"{path}.{problem.path}") for problem in error.problems]
    if problems:
        raise InputError(problems)


def _unknown_inputs(net: NetSpec, path: str, split: SplitFields) -> Iterator[Problem]:
    """Yield a problem for each input that a split feeds and the net does not have."""
    for name in split.inputs:
        if name not in net.inputs:
            yield Problem(
                f"the net has no input `{name}`",
                split.where("inputs", name, key=True),
                f"{path}.inputs.{name}",
                expected=f"one of {listing(list(net.inputs))}",
                hint=did_you_mean(name, net.inputs),
            )


class DeclaredDataset(Dataset):
    """A dataset of one sample whose fields are known; it is never read."""

    digest = ""

    def __init__(self, survey: Survey) -> None:
        self.fields, self.annotations = survey.fields, survey.annotations
        self.ragged_examples = survey.ragged_examples

    def __len__(self) -> int:
        return 1


def check_feeds(compiler: Compiler, split: SplitFields, survey: Survey, purpose: ProgramKind) -> None:
    """Compare the fields of a split, after its transforms, with the inputs that the net's programs read.

    Raises `InputError` with all that do not match. What a transform learns from data does not change a field's type.
    """
    waiting = [
        isinstance(transform, Transform) and (transform.needs_data or transform.needs_classes)
        for transform in split.transforms
    ]
    if not survey.fields or any(waiting):
        return
    pipeline = TransformPipeline(DeclaredDataset(survey), split, seed=0)
    inputs = {
        name: kind
        for name, kind in input_fields(compiler, [purpose]).items()
        if survey.complete or split.inputs.get(name, name) not in survey.learned
    }
    bindings = bind_inputs(
        pipeline.fields, inputs, split, ranges=input_ranges(compiler), declared_inputs=compiler.spec.inputs,
        ragged_examples=survey.ragged_examples,
    )  # fmt: skip
    problems = list(_labels_out_of_range(bindings, split, survey))
    if problems:
        raise InputError(problems)


def _labels_out_of_range(bindings: Sequence[InputBinding], split: SplitFields, survey: Survey) -> Iterator[Problem]:
    """Yield a problem for each label of which the data has more classes than the net.

    Labels that transforms change are only known once they are read, and those of a `limit` may be of the first classes.
    """
    changed = {getattr(transform, "apply_to", None) for transform in split.transforms}
    for binding in bindings if split.limit is None else ():
        is_exact = binding.field in survey.classes
        classes = survey.classes.get(binding.field, survey.least_classes.get(binding.field, 0))
        if binding.range is None or binding.shape or binding.field in changed or classes <= binding.range.high + 1:
            continue
        path = ("inputs", binding.name) if binding.name in split.inputs else ("source",)
        yield Problem(
            f"the data has {classes:,} classes{'' if is_exact else ' or more'}, more than the net",
            split.where(*path), ".".join(path), expected=f"`{binding.name}` from {binding.range}: {binding.range.why}",
            got=f"0 to {classes - 1}", hint=binding.range.hint_for(classes) if is_exact else None,
        )  # fmt: skip
