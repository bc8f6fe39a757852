"""Spec → graph → plan → program: the one place that knows the whole pipeline.

`build` turns a net spec into graph values for one batch size and one purpose; `Compiler` takes it through autodiff, the
solver, the passes and the plans, binds it to a device, and keeps one program for each purpose and batch size. All
programs of a compiler share its states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

from netspec.backends.base import Device
from netspec.backends.device import open_device
from netspec.backends.program import Program, choose_kernels
from netspec.backends.states import States
from netspec.errors import InputError, Problem, SpecError, did_you_mean, listing
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.plan import Plan, signature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, ShapeMismatch, Value, explain, in_scope
from netspec.layers.base import Builder, Constant, Domain, MetricSpec, StateInfo, arity
from netspec.passes.absorb import Absorb
from netspec.passes.base import run_passes
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.detach import Detach
from netspec.passes.epilogue import FuseEpilogues
from netspec.passes.fold import Fold
from netspec.passes.fuse import FuseElementwise
from netspec.passes.group import GroupAlike
from netspec.passes.layout import Narrow, assign_layouts
from netspec.passes.memory import plan_memory
from netspec.passes.peak import lower_peak
from netspec.passes.precision import narrowable
from netspec.passes.prologue import FusePrologues
from netspec.passes.recompute import Variant, recompute
from netspec.passes.schedule import schedule
from netspec.passes.simplify import Simplify
from netspec.passes.sink import SinkClamps
from netspec.schema.links import LayerLink, LossLink, MetricLink, resolve_names
from netspec.schema.net import InputSpec, NetSpec
from netspec.schema.train import LoopSpec
from netspec.solvers.base import Param, SolverSpec

LEARNING_RATE, STEP = "$learning_rate", "$step"
"""Inputs of a training program beside the data; no input of a net can be called so."""

LOSS = "loss"
"""Name of the total loss among the results of a program."""

REGULARIZATION = "regularization"
"""Name of the sum of all penalties among the losses; no loss of a net can be called so."""

KEPT_FORMS = 8
"""How many pairs of purpose and batch size stay compiled: a training and its evaluation need five."""

FORWARD_PASSES = (SinkClamps(),)
"""Before gradients are made: what changes their form."""

PASSES = (Fold(), Simplify(), Absorb(), CommonSubexpressions(), Detach())


class Purpose(StrEnum):
    """What a program is for: it decides what is computed, and in which form layers are built."""

    TRAIN = "train"
    """One training step: losses, gradients, update."""
    GRADIENTS = "gradients"
    """Losses and gradients in the training form; no state changes."""
    TEST = "test"
    """Losses and totals of the metrics, in the inference form."""
    PREDICT = "predict"
    """The net's outputs, in the inference form."""


@dataclass
class Built:
    """A net as graph values, before any pass."""

    builder: Builder
    values: dict[str, Value]
    """Output of every layer, and every input, by name."""
    outputs: dict[str, Value] = field(default_factory=dict)
    losses: dict[str, Value] = field(default_factory=dict)
    """Each weighted loss, and `regularization` where layers have penalties: their sum is what training makes small."""
    metrics: dict[str, tuple[MetricSpec, tuple[Value, ...]]] = field(default_factory=dict)


def build(
    spec: NetSpec, batch_size: int, *, training: bool, dtype: DType = DType.FLOAT32, judged: bool = True
) -> Built:
    """The net as graph values. Raises `SpecError` with every shape error there is, not only the first.

    What reads a layer that is wrong is passed over: nothing can be said of it. Without `judged` the losses and metrics
    are left out, and with them the inputs that only they use.
    """
    dtype = dtype.computed
    names = resolve_names(spec)
    builder = Builder(training, dtype)
    values: dict[str, Value | None] = {
        name: builder.input(name, input_type(one, batch_size, dtype)) for name, one in spec.inputs.items()
    }
    problems: list[Problem] = []

    def call(link: LayerLink | LossLink | MetricLink, what: str) -> Any:
        """Build one layer, loss or metric; None if it, or what it reads, is wrong."""
        thing: Any = link.fields
        found = [values[source] for source in link.sources]
        inputs = [value for value in found if value is not None]
        if len(inputs) < len(found):
            return None
        with in_scope(builder.enter(thing, link.name)) as scope:
            try:
                _check_arity(thing, inputs, scope)
                made = thing.build(builder, *inputs)
                return made * thing.weight if isinstance(link, LossLink) and thing.weight != 1.0 else made
            except ShapeMismatch as mismatch:
                problems.append(_in_list(explain(inputs, mismatch), what, link.name))
            except SpecError as error:
                problems.extend(_in_list(problem, what, link.name) for problem in error.problems)
        return None

    for layer in names.layers:
        values[layer.name] = call(layer, "layers")
        if values[layer.name] is not None:
            problems += _multiplier_problems(layer, builder)
    built = Built(builder, {name: value for name, value in values.items() if value is not None})
    built.outputs = {name: built.values[name] for name in names.outputs if name in built.values}
    if judged:
        for loss in names.losses:
            problems += _reserved(loss, loss.name == REGULARIZATION, "loss", "the sum of all penalties is called so")
            value = call(loss, "losses")
            if value is not None:
                built.losses[loss.name] = value
        for metric in names.metrics:
            clashes = metric.name.partition("/")[0] == LOSS
            problems += _reserved(metric, clashes, "metric", "the sum of all losses is called so")
            totals = call(metric, "metrics")
            if totals is not None:
                assert isinstance(metric.fields, MetricSpec)
                built.metrics[metric.name] = (metric.fields, totals)
    if problems:
        raise SpecError(problems)
    if builder.penalties and built.losses:
        built.losses[REGULARIZATION] = total(builder.penalties)
    return built


def _check_arity(thing: Any, inputs: list[Value], scope: Scope) -> None:
    least, most = arity(type(thing))
    if len(inputs) < least or (most is not None and len(inputs) > most):
        span = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ShapeMismatch(
            f"{scope.kind} takes {span} input{'s' if span != '1' else ''}, not {len(inputs)}",
            expected=f"`from` with {span} name{'s' if span != '1' else ''}", got=f"{len(inputs)}",
        )  # fmt: skip


def _multiplier_problems(link: LayerLink, builder: Builder) -> Iterator[Problem]:
    """Multipliers that would be without effect: of parameters that the layer does not have, or that it shares."""
    layer, made = link.fields, f"{link.fields.share or link.name}/"
    known = [name.removeprefix(made) for name in builder.states if name.startswith(made)]
    for field_ in ("learning_rate_multiplier", "weight_decay_multiplier"):
        given, path = getattr(layer, field_), f"layers.{link.name}.{field_}"
        if layer.share and given != 1.0:
            message = f"layer `{link.name}` shares its parameters: its `{field_}` would be without effect"
            yield Problem(message, layer.where(field_), path, hint=f"give it to `{layer.share}`")
        elif isinstance(given, Mapping):
            for name in given:
                if name not in known:
                    yield Problem(
                        f"layer `{link.name}` has no parameter `{name}`", layer.where(field_, name, key=True),
                        f"{path}.{name}", expected=f"one of {listing(known)}" if known else "nothing: it has none",
                        hint=did_you_mean(name, known),
                    )  # fmt: skip


def _reserved(link: LossLink | MetricLink, clashes: bool, what: str, why: str) -> Iterator[Problem]:
    """A problem if the name of a loss or metric clashes with one of the program's own."""
    if clashes:
        path = f"{'losses' if what == 'loss' else 'metrics'}.{link.name}.name"
        message = f"a {what} can't be called `{link.name}`: {why}"
        yield Problem(message, link.fields.where("name"), path, expected="another name")


def _in_list(problem: Problem, what: str, name: str) -> Problem:
    return replace(problem, path=f"{what}.{name}")


def input_type(spec: InputSpec, batch_size: int, dtype: DType) -> TensorType:
    """The type of an input for a batch size; `float32` means the precision of the graph."""
    return TensorType((batch_size, *spec.shape), dtype if spec.dtype == "float32" else DType(spec.dtype))


def total(values: Iterable[Value]) -> Value:
    """The sum of scalars."""
    first, *rest = values
    for value in rest:
        first = first + value
    return first


class Compiler:
    """Programs of one net on one device, by purpose and batch size, and the states that they share.

    With `dtype` bfloat16 values are computed in float32, and those that may be are rounded where they go to memory;
    states stay float32. Raises `SpecError` where the net's shapes do not fit, or where there is a solver and nothing to
    train; `InputError` where the device has no such type.
    """

    def __init__(
        self,
        spec: NetSpec,
        *,
        solver: SolverSpec | None = None,
        dtype: DType = DType.FLOAT32,
        device: str | Device = "auto",
        seed: int = 1,
        loop: LoopSpec | None = None,
    ) -> None:
        """`loop` says what is recomputed within which memory; without it nothing is."""
        self.spec, self.solver, self.dtype, self.seed, self.loop = spec, solver, dtype.computed, seed, loop
        self.device = open_device(device) if isinstance(device, str) else device
        self.stored = dtype
        """What values may be rounded to where they go to memory; `dtype` for as they are."""
        if dtype not in (self.dtype, *self.device.narrow):
            raise InputError(
                f"the device `{self.device.name}` does not compute in {dtype}", expected="float32 or float64",
                hint="set `train.precision`",
            )  # fmt: skip
        self._forms: dict[tuple[Purpose, int], _Form] = {}
        form = self.built(Purpose.TEST if solver is None else Purpose.TRAIN, 1)
        self.info: dict[str, StateInfo] = dict(form.builder.states)
        self.metrics = {name: metric for name, (metric, _) in form.metrics.items()}
        self.domains: dict[str, Domain] = form.builder.domains
        if solver is not None:
            self.graph(Purpose.TRAIN, 1)
        self.states = States({name: info.value.type for name, info in self.info.items()}, self.device)
        if self.device.runs:
            self.reset()

    def reset(self) -> None:
        """Give every state its first value."""
        for name, info in self.info.items():
            kind = info.value.type
            self.states.assign(name, info.initial.sample(self.seed, name, kind.shape, str(kind.dtype)))
        self.device.settle()

    def names(self, *roles: str) -> list[str]:
        """Names of the states with one of these roles: `parameter`, `statistic`, `slot`."""
        return [name for name, info in self.info.items() if info.role in roles]

    def built(self, purpose: Purpose, batch_size: int) -> Built:
        """The net's graph values for a purpose."""
        return self._form(purpose, batch_size).built

    def graph(self, purpose: Purpose, batch_size: int) -> Graph:
        """The whole graph for a purpose, before any pass. Raises `SpecError` where there is nothing to train."""
        return self._form(purpose, batch_size).graph

    def plan(self, purpose: Purpose, batch_size: int) -> Plan:
        """Everything decided for a purpose and batch size; nothing is allocated."""
        return self._form(purpose, batch_size).plan

    def program(self, purpose: Purpose, batch_size: int) -> Program:
        """The bound program for a purpose and batch size. Raises `InputError` on a device that only plans."""
        return self._form(purpose, batch_size).program

    def _form(self, purpose: Purpose, batch_size: int) -> _Form:
        """What is compiled for a purpose and batch size. The `KEPT_FORMS` used last are kept."""
        key = purpose, batch_size
        form = self._forms.pop(key, None) or _Form(self, purpose, batch_size)
        self._forms[key] = form
        if len(self._forms) > KEPT_FORMS:
            del self._forms[next(iter(self._forms))]
        return form


class _Form:
    """A net for one purpose and batch size, compiled as far as anybody has asked."""

    def __init__(self, compiler: Compiler, purpose: Purpose, batch_size: int) -> None:
        self._compiler, self._purpose, self._batch_size = compiler, purpose, batch_size

    @cached_property
    def built(self) -> Built:
        """The net as graph values."""
        purpose, compiler = self._purpose, self._compiler
        training, judged = purpose in (Purpose.TRAIN, Purpose.GRADIENTS), purpose is not Purpose.PREDICT
        return build(compiler.spec, self._batch_size, training=training, dtype=compiler.dtype, judged=judged)

    @cached_property
    def graph(self) -> Graph:
        """What the program computes."""
        built, spec = self.built, self._compiler.spec
        match self._purpose:
            case Purpose.TRAIN:
                return _train_graph(self._compiler, built)
            case Purpose.GRADIENTS:
                return _gradients_graph(spec, built)
            case Purpose.TEST:
                losses = _losses(built)
                totals = {
                    f"{name}/{index}": value
                    for name, (_, values) in built.metrics.items()
                    for index, value in enumerate(values)
                }
                return Graph({**losses, **totals})
        return Graph(built.outputs)

    @cached_property
    def plan(self) -> Plan:
        """Order, kernels and memory. Raises `SpecError` where a training step does not fit into its memory budget."""
        compiler = self._compiler
        if self._purpose is Purpose.TRAIN and compiler.loop is not None:
            return _plan_within(compiler.loop, self.graph, compiler)
        return make_plan(self.graph, compiler.device, compiler.stored)

    @cached_property
    def program(self) -> Program:
        """The bound program."""
        return Program(self.plan, self._compiler.device, self._compiler.states)


def _losses(built: Built) -> dict[str, Value]:
    """The total loss and its parts by their names among the results of a program; nothing where there are none."""
    if not built.losses:
        return {}
    return {LOSS: total(built.losses.values())} | {f"{LOSS}/{name}": value for name, value in built.losses.items()}


def _forward(spec: NetSpec, built: Built) -> Graph:
    """Losses and new moving averages as the gradients are made of them. Raises `SpecError` where there is no loss."""
    if not built.losses:
        example = "{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}"
        message, hint = "the net has no losses: there is nothing to train for", f"add e.g. `losses: [{example}]`"
        raise SpecError(Problem(message, spec.where(), "losses", hint=hint))
    return run_passes(Graph(_losses(built), built.builder.updates), FORWARD_PASSES)


def _gradients_graph(spec: NetSpec, built: Built) -> Graph:
    """Losses, and the gradient of their sum by each trained parameter."""
    losses = _forward(spec, built).outputs
    trained = {name: info.value for name, info in built.builder.states.items() if info.trainable}
    found = gradients(losses[LOSS], list(trained.values()))
    return Graph({**losses, **{f"gradient/{name}": one for name, one in zip(trained, found, strict=True)}})


def _train_graph(compiler: Compiler, built: Built) -> Graph:
    """One training step; also makes the solver's slots known to the compiler."""
    assert compiler.solver is not None, "a compiler without a solver has no training step"
    forward = _forward(compiler.spec, built)
    losses, states = forward.outputs, built.builder.states
    trained = {name: info for name, info in states.items() if info.trainable}
    if not trained:
        frozen = any(info.role == "parameter" for info in states.values())
        hint = "`trainable: false` and a `learning_rate_multiplier` of 0 freeze a layer" if frozen else None
        message = f"there is nothing to train: {'every layer is frozen' if frozen else 'no layer has parameters'}"
        raise SpecError(Problem(message, compiler.spec.where("layers"), "layers", hint=hint))
    found = gradients(losses[LOSS], [info.value for info in trained.values()])
    params = [
        Param(name, info.value, gradient, info.learning_rate_multiplier, info.weight_decay_multiplier)
        for (name, info), gradient in zip(trained.items(), found, strict=True)
    ]
    scalar = TensorType((), compiler.dtype)
    rate, step = built.builder.input(LEARNING_RATE, scalar), built.builder.input(STEP, scalar)
    solution = compiler.solver.build(params, rate, step)
    for slot in solution.slots:
        compiler.info.setdefault(slot.label, StateInfo(slot.value, Constant(slot.initial), "slot"))
    updates = {**forward.updates, **solution.updates, **solution.slot_updates}
    return Graph(losses, updates, guard=losses[LOSS])


def _plan_within(loop: LoopSpec, graph: Graph, compiler: Compiler) -> Plan:
    """The plan of a training step within the memory that `loop` gives it, states included."""
    budget, kept = loop.memory_budget, compiler.states.nbytes
    limit = None
    if loop.recompute == "all":
        limit = 0
    elif loop.recompute == "auto":
        room = budget or compiler.device.free_bytes()
        limit = None if room is None else max(room - kept, 0)
    plan = make_plan(graph, compiler.device, compiler.stored, limit=limit)
    if budget is not None and kept + plan.memory.nbytes > budget:
        less = "`recompute: auto` may make it fit" if loop.recompute == "none" else "a smaller `batch_size` needs less"
        raise SpecError(Problem(
            "the training step does not fit into its memory budget", loop.where("memory_budget"), "train.memory_budget",
            expected=f"{kept + plan.memory.nbytes} bytes or more", got=f"{budget} bytes", hint=less,
        ))  # fmt: skip
    return plan


def make_plan(graph: Graph, device: Device, stored: DType = DType.FLOAT32, *, limit: int | None = None) -> Plan:
    """Passes, layouts, order, kernels and memory for a graph on a device.

    `stored` is the type that float32 values may be rounded to where they go to memory: bfloat16, or what they are.
    Where more than `limit` bytes would be needed beside the states, results are computed a second time instead of kept:
    as few as fit, or where nothing fits, those that let the step need least.
    """
    epilogues, prologues = FuseEpilogues(device.accepts), FusePrologues(device.accepts)
    fusing = epilogues, prologues, FuseElementwise(device.accepts), GroupAlike(device.accepts)
    graph = run_passes(graph, (*PASSES, *fusing))
    narrow = None if stored == stored.computed else Narrow(narrowable(graph), stored)
    graph, layouts = assign_layouts(graph, lambda node: device.choose(node).kernel, narrow)
    plain = Variant(graph, layouts)

    @cache
    def planned(variant: Variant) -> Plan:
        return _planned(variant, device)

    chosen = plain if limit is None else recompute(plain, lambda one: planned(one).memory.nbytes, limit)
    spared = planned(plain).memory.arena_bytes - planned(chosen).memory.arena_bytes
    return replace(planned(chosen), again=chosen.again, spared_bytes=spared)


def _planned(variant: Variant, device: Device) -> Plan:
    """Order, kernels and memory."""
    graph, layouts = variant.graph, variant.layouts
    scheduled = schedule(graph)
    choices = choose_kernels(scheduled.order, device)
    workspace = {node: choice.kernel.workspace(node, signature(node, layouts)) for node, choice in choices.items()}
    scheduled = lower_peak(graph, scheduled, workspace, layouts)
    order, steady, before_guard = scheduled.order, scheduled.steady, scheduled.before_guard
    memory = plan_memory(graph, order, workspace, before_guard, layouts, steady)
    return Plan(graph, order, steady, before_guard, choices, layouts, memory)
