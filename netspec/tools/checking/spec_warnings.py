"""Warnings about specs that are valid, but are probably not what their author means.

Each rule is a function that yields problems with a location and a fix. `netspec check` prints them; with `--strict`
they are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from netspec.backends.memory import machine_memory
from netspec.compile import NetGraph, build
from netspec.data.base import Source, Survey
from netspec.errors import Problem, counted
from netspec.layers.losses_and_metrics import LossSpec
from netspec.layers.targets import BALANCED, describe_class_count
from netspec.schema.specs.data import LABEL
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink, Links, LossLink, resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Spec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.checking.check_data import DataSurvey
from netspec.tools.specs import net_of, precision_of

FAR = 10.0
"""Factor outside of a solver's usual learning rates from which a rate is reported."""
MAX_INITIAL_SHARE = 0.1
"""Largest share of initial values in moving averages at the end of a run that is not reported."""
MAX_DAMAGED = 3
"""Number of damaged samples that are named."""
PIXEL_SCALES = frozenset({"Rescaling", "Normalization"})
"""Transforms that bring pixels into a range that nets learn from."""
RESHAPING = frozenset({"Reshape", "Flatten", "Permute"})
"""Layers that keep the values of their input."""
_SMALLER_STEP = "a smaller `batch_size` with `train.accumulate`, or `train.memory_budget`, needs less"
_FEWER_PARAMETERS = "narrower layers have fewer parameters"
FUNCTIONS = {"softmax": "a softmax", "sigmoid": "a sigmoid"}


@dataclass(frozen=True)
class _Subject:
    """A spec and what rules ask about it."""

    spec: NetSpec | TrainSpec
    data: DataSurvey

    @property
    def survey(self) -> Survey:
        """Return the known facts about the training data."""
        return self.data.splits.get("train", Survey())

    @cached_property
    def net(self) -> NetSpec:
        return net_of(self.spec)

    @cached_property
    def links(self) -> Links:
        return resolve_names(self.net)

    @cached_property
    def layers(self) -> dict[str, LayerLink]:
        """The layer of each value that layers compute."""
        return {name: layer for layer in self.links.layers for name in layer.outputs}

    @cached_property
    def graph(self) -> NetGraph:
        """The net for one sample, with losses."""
        return build(self.net, 1, training=False, dtype=precision_of(self.spec).compute_dtype)

    def losses(self, *kinds: str) -> Iterator[tuple[LossLink, LossSpec]]:
        """Yield the losses whose predictions have one of these meanings."""
        for link in self.links.losses:
            assert isinstance(link.fields, LossSpec)
            if link.fields.prediction_kind in kinds:
                yield link, link.fields


def spec_warnings(spec: NetSpec | TrainSpec, data: DataSurvey) -> list[Problem]:
    """Return what is suspicious in a spec without mistakes, in the order of the rules."""
    subject = _Subject(spec, data)
    return [problem for rule in RULES for problem in rule(subject)]


def _activation(layer: LayerFields) -> str | None:
    """Return the name of the function that a layer ends with; `linear` for a layer without one."""
    if type(layer).__name__ in ("Softmax", "Sigmoid"):
        return type(layer).__name__.lower()
    if "activation" not in type(layer).model_fields:
        return None
    function = getattr(layer, "activation", None)
    return "linear" if function is None else str(getattr(function, "type", function))


def _mismatched_logits(subject: _Subject) -> Iterator[Problem]:
    """Probabilities for a loss that applies a softmax or sigmoid itself, and the reverse."""
    for link, loss in subject.losses("classes", "binary"):
        from_logits, layer = getattr(loss, "from_logits", None), _source_of_values(subject, link.sources[0])
        if from_logits is None or layer is None:
            continue
        function = _activation(layer.fields)
        right = "softmax" if loss.prediction_kind == "classes" else "sigmoid"
        if from_logits and function in FUNCTIONS:
            yield Problem(
                f"`{layer.name}` ends with {FUNCTIONS[function]}, and the loss applies another one",
                loss.where("from_logits"), f"losses.{link.name}.from_logits",
                expected="logits, the scores before a softmax or sigmoid", got=f"the output of {FUNCTIONS[function]}",
                hint=f"remove the {function} from `{layer.name}`, or set `from_logits: false`",
            )  # fmt: skip
        elif not from_logits and function == "linear":
            yield Problem(
                f"the loss expects probabilities, and `{layer.name}` has no {right}",
                loss.where("from_logits") or loss.where(), f"losses.{link.name}",
                expected="values between 0 and 1, or `from_logits: true`", got="scores of any size",
                hint=f"set `from_logits: true`, which is also more precise than a {right} in `{layer.name}`",
            )  # fmt: skip


def _binary_loss_of_classes(subject: _Subject) -> Iterator[Problem]:
    """A loss for yes or no on classes that exclude each other."""
    for link, loss in subject.losses("binary"):
        layer = subject.layers.get(link.sources[0])
        if layer is not None and _activation(layer.fields) == "softmax":
            classes = subject.graph.values[link.sources[0]].shape[-1]
            yield Problem(
                f"{type(loss).__name__} treats each of the {classes} values of `{layer.name}` as a separate yes or no",
                loss.where("type"), f"losses.{link.name}.type", expected="a loss over classes after a softmax",
                got=type(loss).__name__,
                hint="use CategoricalCrossentropy, or SparseCategoricalCrossentropy for class indices",
            )  # fmt: skip


def _binary_loss_of_many_classes(subject: _Subject) -> Iterator[Problem]:
    """A loss for two classes on labels of more than two classes."""
    if not isinstance(subject.spec, TrainSpec):
        return
    split = subject.spec.data.train
    changed = {getattr(transform, "apply_to", None) for transform in split.transforms}
    for link, loss in subject.losses("binary"):
        label = split.inputs.get(link.sources[1], link.sources[1]) if len(link.sources) > 1 else ""
        classes = subject.survey.classes.get(label, subject.survey.least_classes.get(label, 0))
        field = subject.survey.fields.get(label)
        if classes <= 2 or field is None or field.shape or label in changed:
            continue
        yield Problem(
            f"{type(loss).__name__} distinguishes two classes, but the data has {classes:,} classes",
            loss.where("type"), f"losses.{link.name}.type", expected="labels 0 and 1",
            got=f"labels up to {classes - 1}",
            hint=f"use SparseCategoricalCrossentropy, and a last layer with {classes:,} scores",
        )  # fmt: skip


def _number_of_classes(subject: _Subject) -> Iterator[Problem]:
    """More or fewer scores than the data has classes."""
    if not isinstance(subject.spec, TrainSpec):
        return
    split = subject.spec.data.train
    assert isinstance(split, Source)
    exact, least = subject.survey.classes, subject.survey.least_classes
    for link, loss in subject.losses("classes"):
        target = link.sources[1] if len(link.sources) > 1 else ""
        label = split.inputs.get(target, target)
        classes = exact.get(label, least.get(label))
        prediction, layer = subject.graph.values[link.sources[0]], subject.layers.get(link.sources[0])
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


def _larger_vocabulary(subject: _Subject) -> Iterator[Problem]:
    """A tokenizer that may have more tokens than the net."""
    if not isinstance(subject.spec, TrainSpec):
        return
    split = subject.spec.data.train
    tokenizer = getattr(split, "tokenizer", None)
    size = getattr(tokenizer, "size", None)
    if not isinstance(tokenizer, Spec) or size is None:
        return
    for name, domain in subject.graph.builder.domains.items():
        if split.inputs.get(name, name) == "text" and size > domain.high:
            yield Problem(
                f"the tokenizer may have more tokens than the net accepts in `{name}`", tokenizer.where("size"),
                "data.train.tokenizer.size", expected=f"at most {domain.high:,}: {domain.why}", got=f"{size:,}",
                hint=f"set `size: {domain.high}`, or enlarge the net",
            )  # fmt: skip


def _classes_balanced_twice(subject: _Subject) -> Iterator[Problem]:
    """Rare classes that are drawn more often, and weigh more in the loss as well."""
    spec = subject.spec
    if not isinstance(spec, TrainSpec) or spec.data.train.sampler != "balanced":
        return
    for link in subject.links.losses:
        target = link.sources[1] if len(link.sources) > 1 else ""
        is_label = spec.data.train.inputs.get(target, target) == LABEL
        if is_label and getattr(link.fields, "class_weight", None) == BALANCED:
            yield Problem(
                f"rare classes count twice: they are drawn more often, and weigh more in the loss `{link.name}`",
                link.fields.where("class_weight"), f"losses.{link.name}.class_weight",
                expected="`sampler: balanced` or `class_weight: balanced`", got="both",
                hint="remove `class_weight`, or remove `sampler` from `data.train`",
            )  # fmt: skip


def _unscaled_pixels(subject: _Subject) -> Iterator[Problem]:
    """Pixels from 0 to 255 that reach the net as they are."""
    if not isinstance(subject.spec, TrainSpec):
        return
    split = subject.spec.data.train
    assert isinstance(split, Source)
    images = {name for name, field in subject.survey.fields.items() if field.dtype == "uint8" and len(field.shape) == 3}
    scaled = any(type(transform).__name__ in PIXEL_SCALES for transform in split.transforms)
    for name, field in subject.net.inputs.items():
        readers = [layer for layer in subject.links.layers if name in layer.sources]
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


def _slow_moving_averages(subject: _Subject) -> Iterator[Problem]:
    """Moving averages that still consist of their initial values at the end of a run."""
    if not isinstance(subject.spec, TrainSpec) or (steps := _steps(subject.spec, subject.survey)) is None:
        return
    for layer in subject.links.layers:
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


def _source_of_values(subject: _Subject, name: str) -> LayerLink | None:
    """Return the layer that computes the values of `name`, from which other layers only change the shape."""
    layer = subject.layers.get(name)
    while layer is not None and type(layer.fields).__name__ in RESHAPING and len(layer.sources) == 1:
        layer = subject.layers.get(layer.sources[0])
    return layer


def _unused_layers(subject: _Subject) -> Iterator[Problem]:
    """Layers that no output, loss or metric depends on."""
    needed = {*subject.links.outputs, *(name for loss in subject.links.losses for name in loss.sources)}
    needed |= {name for metric in subject.links.metrics for name in metric.sources}
    used = {layer.name for layer in subject.links.computing(needed)}
    for layer in subject.links.layers:
        if layer.name not in used:
            yield Problem(
                f"nothing reads `{layer.name}`", layer.fields.where(), f"layers.{layer.name}",
                expected="a layer that an output, a loss or a metric depends on",
                hint="remove it, name it in `from` of another layer, or in `outputs`",
            )  # fmt: skip


def _unusual_learning_rate(subject: _Subject) -> Iterator[Problem]:
    """A learning rate far outside of the range that the solver is used with."""
    if not isinstance(subject.spec, TrainSpec):
        return
    from netspec.solvers.base import SolverSpec  # a net needs no solvers

    solver = subject.spec.solver
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


def _damaged_samples(subject: _Subject) -> Iterator[Problem]:
    """Samples that a training leaves out."""
    if not isinstance(subject.spec, TrainSpec):
        return
    data = subject.spec.data
    for name, split in data.splits().items():
        damaged = subject.data.splits.get(name, Survey()).damaged
        if damaged:
            yield Problem(
                f"at least {counted(len(damaged), 'sample')} cannot be read, and will be left out",
                split.where("on_error"),
                f"{data.path_of(name)}.on_error", expected="intact files", got="; ".join(damaged[:MAX_DAMAGED]),
                hint=f"`netspec data show` reads all samples of a split{' (`--split`)' * (len(data.splits()) > 1)}",
            )  # fmt: skip


def _too_much_memory(subject: _Subject) -> Iterator[Problem]:
    """A training step or parameters that do not fit into the memory of this machine."""
    available = machine_memory()
    needed, content, less = _needed_memory(subject, available or 0)
    if available is not None and needed > available:
        yield Problem(
            f"{content} do not fit into the memory of this machine", subject.net.where("layers"), "layers",
            expected=f"at most {available / 2**30:.1f} GiB", got=f"{needed / 2**30:.1f} GiB",
            hint=f"{less}; `netspec plan` lists what is needed",
        )  # fmt: skip


def _needed_memory(subject: _Subject, available: int) -> tuple[int, str, str]:
    """Return the bytes that are needed, their content, and what needs less; 0 bytes if clearly below `available`."""
    states = subject.graph.builder.states.values()
    parameters = sum(state.value.type.nbytes for state in states if state.role == "parameter")
    if not isinstance(subject.spec, TrainSpec) or subject.spec.parallel is not None or 2 * parameters > available:
        share = 2 if isinstance(subject.spec, TrainSpec) else 1  # parameters and their gradients, at least
        content = "the parameters and their gradients" if share == 2 else "the parameters"
        return share * parameters, content, _FEWER_PARAMETERS
    batch = subject.spec.data.train.batch_size
    values = sum(value.type.nbytes for value in subject.graph.values.values())
    content = "parameters, optimizer states and activations of a training step"
    if 4 * (parameters + batch * values) < available:  # gradients and states of the solver are of these sizes
        return 0, content, _SMALLER_STEP
    return _step_bytes(subject.spec, available), content, _SMALLER_STEP


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


RULES: tuple[Callable[[_Subject], Iterator[Problem]], ...] = (
    _mismatched_logits,
    _binary_loss_of_classes,
    _binary_loss_of_many_classes,
    _number_of_classes,
    _larger_vocabulary,
    _classes_balanced_twice,
    _unscaled_pixels,
    _slow_moving_averages,
    _unused_layers,
    _unusual_learning_rate,
    _damaged_samples,
    _too_much_memory,
)
