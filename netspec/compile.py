"""Spec → graph → plan → program: the one place that knows the whole pipeline.

`build` turns a net spec into graph values for one batch size and one purpose; `Compiler` takes it through autodiff, the
solver, the passes and the plans, binds it to a device, and keeps one program for each purpose and batch size. All
programs of a compiler share its states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from netspec.backends.device import Device, open_device
from netspec.backends.program import Program, choose_kernels
from netspec.backends.states import States
from netspec.errors import Problem, SpecError
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.kernel import choose
from netspec.graph.plan import Plan, signature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, ShapeMismatch, Value, explain, in_scope
from netspec.layers.base import Builder, Domain, Initial, MetricSpec, StateInfo, arity
from netspec.layers.base import Constant as ConstantInitial
from netspec.passes.base import run_passes
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.detach import Detach
from netspec.passes.epilogue import FuseEpilogues
from netspec.passes.fold import Fold
from netspec.passes.fuse import FuseElementwise
from netspec.passes.layout import assign_layouts
from netspec.passes.memory import plan_memory
from netspec.passes.schedule import schedule
from netspec.schema.links import LayerLink, LossLink, MetricLink, resolve_names
from netspec.schema.net import InputSpec, NetSpec
from netspec.solvers.base import Param, SolverSpec

LEARNING_RATE, STEP = "$learning_rate", "$step"
"""Inputs of a training program beside the data; no input of a net can be called so."""

LOSS = "loss"
"""Name of the total loss among the results of a program."""

PASSES = (Fold(), CommonSubexpressions(), Detach())


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


def build(spec: NetSpec, batch_size: int, *, training: bool, dtype: DType = DType.FLOAT32, judged: bool = True) -> Built:
    """The net as graph values. Raises `SpecError` with every shape error there is, not only the first.

    Without `judged` the losses and metrics are left out, and with them the inputs that only they use.
    """
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
        scope = builder.enter(thing, link.name)
        with in_scope(scope):
            try:
                _check_arity(thing, inputs, scope)
                return thing.build(builder, *inputs)
            except ShapeMismatch as mismatch:
                problems.append(_in_list(explain(inputs, mismatch), what, link.name))
            except SpecError as error:
                problems.extend(_in_list(problem, what, link.name) for problem in error.problems)
        return None

    for link in names.layers:
        values[link.name] = call(link, "layers")
    built = Built(builder, {name: value for name, value in values.items() if value is not None})
    built.outputs = {name: built.values[name] for name in names.outputs if name in built.values}
    if judged:
        for loss in names.losses:
            value = call(loss, "losses")
            if value is not None:
                built.losses[loss.name] = value if loss.fields.weight == 1.0 else value * loss.fields.weight
        for metric in names.metrics:
            totals = call(metric, "metrics")
            if totals is not None:
                assert isinstance(metric.fields, MetricSpec)
                built.metrics[metric.name] = (metric.fields, totals)
    if problems:
        raise SpecError(problems)
    if builder.penalties and built.losses:
        built.losses["regularization"] = total(builder.penalties)
    return built


def _check_arity(thing: Any, inputs: list[Value], scope: Scope) -> None:
    least, most = arity(type(thing))
    if len(inputs) < least or (most is not None and len(inputs) > most):
        span = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ShapeMismatch(
            f"{scope.kind} takes {span} input{'s' if span != '1' else ''}, not {len(inputs)}",
            expected=f"`from` with {span} name{'s' if span != '1' else ''}", got=f"{len(inputs)}",
        )  # fmt: skip


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
    """Programs of one net on one device, by purpose and batch size, and the states that they share."""

    def __init__(
        self,
        spec: NetSpec,
        *,
        solver: SolverSpec | None = None,
        dtype: DType = DType.FLOAT32,
        device: str | Device = "auto",
        seed: int = 1,
    ) -> None:
        self.spec, self.solver, self.dtype, self.seed = spec, solver, dtype, seed
        self.device = open_device(device) if isinstance(device, str) else device
        self._programs: dict[tuple[Purpose, int], Program] = {}
        self._plans: dict[tuple[Purpose, int], Plan] = {}
        self._built: dict[tuple[Purpose, int], Built] = {}
        form = build(spec, 1, training=solver is not None, dtype=dtype)
        self.info: dict[str, StateInfo] = dict(form.builder.states)
        self.metrics = {name: metric for name, (metric, _) in form.metrics.items()}
        self.domains: dict[str, Domain] = form.builder.domains
        if solver is not None:
            self._train_graph(form)
        self.states = States({name: info.value.type for name, info in self.info.items()}, self.device)
        if self.device.runs:
            self.reset()

    def reset(self) -> None:
        """Give every state its first value."""
        for name, info in self.info.items():
            kind = info.value.type
            self.states.assign(name, info.initial.sample(self.seed, name, kind.shape, str(kind.dtype)))

    def names(self, *roles: str) -> list[str]:
        """Names of the states with one of these roles: `parameter`, `statistic`, `slot`."""
        return [name for name, info in self.info.items() if info.role in roles]

    def built(self, purpose: Purpose, batch_size: int) -> Built:
        """The net's graph values for a purpose."""
        key = purpose, batch_size
        if key not in self._built:
            training = purpose in (Purpose.TRAIN, Purpose.GRADIENTS)
            judged = purpose is not Purpose.PREDICT
            self._built[key] = build(self.spec, batch_size, training=training, dtype=self.dtype, judged=judged)
        return self._built[key]

    def graph(self, purpose: Purpose, batch_size: int) -> Graph:
        """The whole graph for a purpose, before any pass."""
        built = self.built(purpose, batch_size)
        if purpose is Purpose.PREDICT:
            return Graph(built.outputs)
        losses = {f"{LOSS}/{name}": value for name, value in built.losses.items()}
        if built.losses:
            losses[LOSS] = total(built.losses.values())
        if purpose is Purpose.TEST:
            totals = {f"{name}/{index}": value for name, (_, values) in built.metrics.items() for index, value in enumerate(values)}
            return Graph({**losses, **totals})
        self._need_loss(losses)
        if purpose is Purpose.TRAIN:
            return self._train_graph(built)
        trained = {name: info.value for name, info in built.builder.states.items() if info.trainable}
        found = gradients(losses[LOSS], list(trained.values()))
        return Graph({**losses, **{f"gradient/{name}": one for name, one in zip(trained, found, strict=True)}})

    def _need_loss(self, losses: Mapping[str, Value]) -> None:
        if not losses:
            hint = "add e.g. `losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]`"
            raise SpecError(Problem("the net has no losses: there is nothing to train for", self.spec.where(), "losses", hint=hint))

    def _train_graph(self, built: Built) -> Graph:
        """One training step; also makes the solver's slots known."""
        assert self.solver is not None
        self._need_loss(built.losses)
        loss = total(built.losses.values())
        states = built.builder.states
        trained = {name: info for name, info in states.items() if info.trainable}
        found = gradients(loss, [info.value for info in trained.values()])
        params = [
            Param(name, info.value, gradient, info.learning_rate_multiplier, info.weight_decay_multiplier)
            for (name, info), gradient in zip(trained.items(), found, strict=True)
        ]
        scalar = TensorType((), self.dtype)
        rate, step = built.builder.input(LEARNING_RATE, scalar), built.builder.input(STEP, scalar)
        solution = self.solver.build(params, rate, step)
        for slot in solution.slots:
            self.info.setdefault(slot.label, StateInfo(slot.value, _start(slot.initial), "slot"))
        parts = {f"{LOSS}/{name}": value for name, value in built.losses.items()}
        updates = {**built.builder.updates, **solution.updates, **solution.slot_updates}
        return Graph({LOSS: loss, **parts}, updates, guard=loss)

    def plan(self, purpose: Purpose, batch_size: int) -> Plan:
        """Everything decided for a purpose and batch size; nothing is allocated."""
        key = purpose, batch_size
        if key not in self._plans:
            self._plans[key] = make_plan(self.graph(purpose, batch_size), self.device)
        return self._plans[key]

    def program(self, purpose: Purpose, batch_size: int) -> Program:
        """The bound program for a purpose and batch size."""
        key = purpose, batch_size
        if key not in self._programs:
            self._programs[key] = Program(self.plan(purpose, batch_size), self.device, self.states)
        return self._programs[key]


def _start(value: float) -> Initial:
    return ConstantInitial(value)


def make_plan(graph: Graph, device: Device) -> Plan:
    """Passes, layouts, order, kernels and memory for a graph on a device."""
    graph = run_passes(graph, (*PASSES, FuseEpilogues(device.accepts), FuseElementwise(device.accepts)))
    graph, layouts = assign_layouts(graph, lambda node: choose(node, device.kernels).kernel)
    order, before_guard = schedule(graph)
    choices = choose_kernels(order, device)
    workspace = {
        node: choice.kernel.workspace(node, signature(node, layouts)) for node, choice in choices.items()
    }
    memory = plan_memory(graph, order, workspace, before_guard, layouts)
    return Plan(graph, order, before_guard, choices, layouts, memory)
