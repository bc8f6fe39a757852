"""Warnings about trainings that are valid, but are probably not what their author means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netspec.data.base import Source, Survey
from netspec.errors import Problem, counted
from netspec.layers.targets import BALANCED, describe_class_count
from netspec.schema.specs.data import LABEL
from netspec.schema.specs.spec import Spec
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.tools.checking.check_data import DataSurvey
from netspec.tools.checking.net_warnings import FEWER_PARAMETERS, NetFacts, layer_warnings, too_much_memory
from netspec.tools.specs import precision_of

FAR = 10.0
"""Factor outside of a solver's usual learning rates from which a rate is reported."""
MAX_INITIAL_SHARE = 0.1
"""Largest share of initial values in moving averages at the end of a run that is not reported."""
MAX_DAMAGED = 3
"""Number of damaged samples that are named."""
PIXEL_SCALES = frozenset({"Rescaling", "Normalization"})
"""Transforms that bring pixels into a range that nets learn from."""
_SMALLER_STEP = "a smaller `batch_size` with `train.accumulate`, or `train.memory_budget`, needs less"


@dataclass(frozen=True)
class TrainingFacts(NetFacts):
    """A training and what rules ask about it."""

    spec: TrainSpec
    data: DataSurvey

    @property
    def survey(self) -> Survey:
        """Return the known facts about the training data."""
        return self.data.splits.get("train", Survey())


def training_warnings(spec: TrainSpec, data: DataSurvey) -> list[Problem]:
    """Return what is suspicious in a training file without mistakes, in the order of the rules."""
    facts = TrainingFacts(spec.net, precision_of(spec).compute_dtype, spec, data)
    return [*layer_warnings(facts), *(problem for rule in RULES for problem in rule(facts))]


def _binary_loss_of_many_classes(facts: TrainingFacts) -> Iterator[Problem]:
    """A loss for two classes on labels of more than two classes."""
    split = facts.spec.data.train
    changed = {getattr(transform, "apply_to", None) for transform in split.transforms}
    for link, loss in facts.losses("binary"):
        label = split.inputs.get(link.sources[1], link.sources[1]) if len(link.sources) > 1 else ""
        classes = facts.survey.classes.get(label, facts.survey.least_classes.get(label, 0))
        field = facts.survey.fields.get(label)
        if classes <= 2 or field is None or field.shape or label in changed:
            continue
        yield Problem(
            f"{type(loss).__name__} distinguishes two classes, but the data has {classes:,} classes",
            loss.where("type"), f"losses.{link.name}.type", expected="labels 0 and 1",
            got=f"labels up to {classes - 1}",
            hint=f"use SparseCategoricalCrossentropy, and a last layer with {classes:,} scores",
        )  # fmt: skip


def _number_of_classes(facts: TrainingFacts) -> Iterator[Problem]:
    """More or fewer scores than the data has classes."""
    split = facts.spec.data.train
    assert isinstance(split, Source)
    exact, least = facts.survey.classes, facts.survey.least_classes
    for link, loss in facts.losses("classes"):
        target = link.sources[1] if len(link.sources) > 1 else ""
        label = split.inputs.get(target, target)
        classes = exact.get(label, least.get(label))
        prediction, layer = facts.graph.values[link.sources[0]], facts.layers.get(link.sources[0])
        scores = prediction.shape[int(getattr(loss, "axis", -1))]
        if classes is None or layer is None or scores == classes or (label not in exact and scores > classes):
            continue
        field = next((name for name in ("units", "filters") if name in type(layer.fields).model_fields), None)
        yield Problem(
            describe_class_count(link.sources[0], scores, target, classes, is_exact=label in exact),
            layer.fields.where(field) if field else layer.fields.where(), f"layers.{layer.name}",
            expected=f"{classes}, one score for each class", got=str(scores),
            hint=f"set `{field}: {classes}`" if field else None,
        )  # fmt: skip


def _larger_vocabulary(facts: TrainingFacts) -> Iterator[Problem]:
    """A tokenizer that may have more tokens than the net accepts."""
    split = facts.spec.data.train
    tokenizer = getattr(split, "tokenizer", None)
    size = getattr(tokenizer, "size", None)
    if not isinstance(tokenizer, Spec) or size is None:
        return
    for name, domain in facts.graph.builder.domains.items():
        if split.inputs.get(name, name) == "text" and size > domain.high:
            yield Problem(
                f"the tokenizer may have more tokens than the net accepts in `{name}`", tokenizer.where("size"),
                "data.train.tokenizer.size", expected=f"at most {domain.high:,}: {domain.why}", got=f"{size:,}",
                hint=f"set `size: {domain.high}`, or enlarge the net",
            )  # fmt: skip


def _classes_balanced_twice(facts: TrainingFacts) -> Iterator[Problem]:
    """Rare classes that are drawn more often, and weigh more in the loss as well."""
    spec = facts.spec
    if spec.data.train.sampler != "balanced":
        return
    for link in facts.links.losses:
        target = link.sources[1] if len(link.sources) > 1 else ""
        is_label = spec.data.train.inputs.get(target, target) == LABEL
        if is_label and getattr(link.fields, "class_weight", None) == BALANCED:
            yield Problem(
                f"rare classes count twice: they are drawn more often, and weigh more in the loss `{link.name}`",
                link.fields.where("class_weight"), f"losses.{link.name}.class_weight",
                expected="`sampler: balanced` or `class_weight: balanced`", got="both",
                hint="remove `class_weight`, or remove `sampler` from `data.train`",
            )  # fmt: skip


def _unscaled_pixels(facts: TrainingFacts) -> Iterator[Problem]:
    """Pixels from 0 to 255 that reach the net as they are."""
    split = facts.spec.data.train
    assert isinstance(split, Source)
    images = {name for name, field in facts.survey.fields.items() if field.dtype == "uint8" and len(field.shape) == 3}
    scaled = any(type(transform).__name__ in PIXEL_SCALES for transform in split.transforms)
    for name, field in facts.net.inputs.items():
        readers = [layer for layer in facts.links.layers if name in layer.sources]
        normalizes = any(
            type(layer.fields).__name__ in ("Power", "BatchNormalization", "Normalization") for layer in readers
        )
        if scaled or normalizes or split.inputs.get(name, name) not in images or field.dtype != "float32":
            continue
        yield Problem(
            f"the pixels of `{name}` reach the net unscaled", split.where("transforms") or split.where(),
            "data.train.transforms", expected="values of about 1", got="integers from 0 to 255",
            hint="add `transforms: [{type: Rescaling, scale: \"${1/255}\"}]` to each split",
        )  # fmt: skip


def _slow_moving_averages(facts: TrainingFacts) -> Iterator[Problem]:
    """Moving averages that still consist of their initial values at the end of a run."""
    if (steps := _steps(facts.spec, facts.survey)) is None:
        return
    for layer in facts.links.layers:
        momentum = getattr(layer.fields, "momentum", None)
        if type(layer.fields).__name__ != "BatchNormalization" or momentum is None:
            continue
        share = float(momentum) ** steps
        if share > MAX_INITIAL_SHARE:
            initial = f"{share:.0%} initial values after {counted(steps, 'step')}"
            yield Problem(
                f"the moving averages of `{layer.name}` are still {initial}",
                layer.fields.where("momentum") or layer.fields.where(), f"layers.{layer.name}.momentum",
                expected="a momentum that forgets the initial values within the run", got=f"{momentum:g}",
                hint=f"set `momentum: {max(0.5, 1 - 10 / steps):.2g}`, or train longer",
            )  # fmt: skip


def _steps(spec: TrainSpec, survey: Survey) -> int | None:
    """Return the number of steps of a training, as far as the spec and a survey of the data determine it."""
    if spec.train.max_steps is not None:
        return spec.train.max_steps
    split = spec.data.train
    samples = split.known_samples() or survey.samples
    if samples is None or spec.train.max_epochs is None:
        return None
    if split.hold_out is not None:
        samples = round(samples * split.hold_out.training_share)
    if split.limit is not None:
        samples = min(samples, split.limit)
    return -(-samples // (split.batch_size * spec.train.accumulate)) * spec.train.max_epochs


def _unusual_learning_rate(facts: TrainingFacts) -> Iterator[Problem]:
    """A learning rate far outside of the usual range of the solver."""
    solver = facts.spec.solver
    assert isinstance(solver, SolverSpec)
    low, high = solver.usual_learning_rates
    rate = solver.learning_rate.upper_bound
    if rate <= 0 or low / FAR <= rate <= high * FAR or rate == float("inf"):
        return
    yield Problem(
        f"a learning rate of {rate:g} is unusual for {solver.type}", solver.where("learning_rate"),
        "solver.learning_rate", expected=f"a rate from {low:g} to {high:g}", got=f"{rate:g}",
        hint=f"set a rate in this range, such as {(low * high) ** 0.5:.0e}",
    )  # fmt: skip


def _damaged_samples(facts: TrainingFacts) -> Iterator[Problem]:
    """Samples that a training leaves out."""
    data = facts.spec.data
    for name, split in data.splits().items():
        damaged = facts.data.splits.get(name, Survey()).damaged
        if damaged:
            yield Problem(
                f"at least {counted(len(damaged), 'sample')} cannot be read, and will be left out",
                split.where("on_error"),
                f"{data.path_of(name)}.on_error", expected="intact files", got="; ".join(damaged[:MAX_DAMAGED]),
                hint=f"`netspec data show` reads all samples of a split{' (`--split`)' * (len(data.splits()) > 1)}",
            )  # fmt: skip


def _too_much_memory(facts: TrainingFacts) -> Iterator[Problem]:
    """A training step that does not fit into the memory of this machine."""
    yield from too_much_memory(facts, *_needed_memory(facts, facts.machine_memory or 0))


def _needed_memory(facts: TrainingFacts, available: int) -> tuple[int, str, str]:
    """Return the bytes that are needed, what they hold, and how to need less; 0 bytes if clearly below `available`."""
    parameters = facts.parameter_bytes
    if facts.spec.parallel is not None or 2 * parameters > available:
        return 2 * parameters, "the parameters and their gradients", FEWER_PARAMETERS
    batch = facts.spec.data.train.batch_size
    values = sum(value.type.nbytes for value in facts.graph.values.values())
    content = "parameters, optimizer states and activations of a training step"
    if 4 * (parameters + batch * values) < available:  # rough sizes of gradients and optimizer states
        return 0, content, _SMALLER_STEP
    return _step_bytes(facts.spec, available), content, _SMALLER_STEP


def _step_bytes(spec: TrainSpec, available: int) -> int:
    """Return the bytes of a training step and its states, without a search for the least recomputation that fits.

    Plans the step, which takes seconds for large nets.
    """
    from netspec.compile import ProgramKind, make_plan
    from netspec.tools.planning.worker_plan import worker_memory
    from netspec.training.compiler import training_compiler

    batch = spec.data.train.batch_size
    if spec.train.recompute != "auto" or spec.train.memory_budget is not None:
        return worker_memory(spec, 1, batch).nbytes
    compiler = training_compiler(spec, "null")
    others = compiler.states.nbytes + (compiler.plan(ProgramKind.UPDATE, 1).memory.nbytes if compiler.updates else 0)
    step = make_plan(
        compiler.graph(compiler.batch_program, batch), compiler.device, compiler.precision,
        limit=max(available - others, 0), minimal_recompute=False,
    )  # fmt: skip
    return others + step.memory.nbytes


RULES: tuple[Callable[[TrainingFacts], Iterator[Problem]], ...] = (
    _binary_loss_of_many_classes,
    _number_of_classes,
    _larger_vocabulary,
    _classes_balanced_twice,
    _unscaled_pixels,
    _slow_moving_averages,
    _unusual_learning_rate,
    _damaged_samples,
    _too_much_memory,
)
