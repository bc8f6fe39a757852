"""Training steps as graphs: of one batch, or of several batches whose gradients are accumulated before the update.

The loss may be scaled before differentiation, so that small gradients do not underflow in 16 bits; gradients are
divided by the scale before the update. Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Protocol, Self

from netspec.compile.build import LOSS, NetGraph
from netspec.compile.steps import (
    FIRST,
    SHARE,
    STEP,
    forward_graph,
    parameter_gradients,
    scheduled_inputs,
    updated_start,
)
from netspec.errors import Location, Problem, SpecError
from netspec.graph.graph import Graph
from netspec.graph.ops.all_reduce import WEIGHT, AllReduce
from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Where, cast, scalar
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Sqrt
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from netspec.layers.states import ConstantInitial, ShardSpec, StateInfo
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import LossScale
from netspec.solvers.base import CrossWorkerSums, Param, Slot, SolverSpec
from netspec.solvers.clipping import sum_of_squares

SCALE, GOOD_STEPS, SKIPPED = "loss_scale/scale", "loss_scale/good_steps", "loss_scale/skipped"
"""States of a dynamic loss scale: its value, the steps since it changed, the number of skipped steps."""
GRADIENT_NORM = "$gradient_norm"
"""Output of an update: the L2 norm of all gradients."""
CROSS_WORKER_SUM = "$cross_worker_sum"
"""Prefix of outputs that are sums over all workers that update shards of parameters."""
MAX_SCALE = 2.0**127
"""Largest loss scale: an infinite one would never shrink, and every step would be skipped."""
MIN_SCALE = 2.0**-14
"""Smallest loss scale: gradients that are not finite with it would not be finite without it."""


def gradient_sum_label(name: str) -> str:
    """Label of the state in which the gradients of a parameter are accumulated."""
    return f"gradient/{name}"


@dataclass
class StepGraph:
    """The graph of a training step or a part of it, and its states that no layer creates."""

    graph: Graph
    states: dict[str, StateInfo] = field(default_factory=dict)
    evaluated: dict[str, str] = field(default_factory=dict)
    """Label of the state that replaces a parameter in evaluation, by the parameter's name."""

    def with_losses(self, outputs: Mapping[str, Value]) -> Self:
        """Return the step with the losses added to its outputs, and the total loss as guard."""
        return replace(self, graph=replace(self.graph, outputs={**outputs, **self.graph.outputs}, guard=outputs[LOSS]))


class ExtraStates(Protocol):
    """States of a training step that no layer has."""

    states: dict[str, StateInfo]
    updates: dict[str, Value]


@dataclass(frozen=True)
class Training:
    """Builds the training steps of a single worker. Subclasses distribute them over several."""

    spec: NetSpec
    solver: SolverSpec
    dtype: DType
    scaling: LossScale | None = None
    log_metrics: bool = False
    """Whether steps compute totals of metrics."""
    log_gradient_norm: bool = False
    """Whether updates compute the norm of all gradients."""

    @property
    def _adapts(self) -> bool:
        """Whether the loss scale is dynamic, so that steps can be skipped."""
        return self.scaling is not None and self.scaling.growth_steps is not None

    def step(self, net: NetGraph) -> StepGraph:
        """Build a step of one batch: losses, gradients, update. Raises `SpecError` if there is nothing to train."""
        forward, gradient = self.forward_backward(net)
        starts = {name: updated_start(forward, name, info) for name, info in self.trained(net).items()}
        return self.apply_solver(net, starts, gradient, forward.updates).with_losses(forward.outputs)

    def accumulate(self, net: NetGraph) -> StepGraph:
        """Build the losses of one of several batches, and add its gradients to the sums over the preceding batches.

        Raises `SpecError` if there is nothing to train.
        """
        forward, gradient = self.forward_backward(net)
        weight = net.builder.input(WEIGHT, TensorType((), self.dtype))
        return self.add_gradients(net, forward, gradient, lambda value: cast(weight, value.dtype) * value)

    def add_gradients(
        self,
        net: NetGraph,
        forward: Graph,
        gradients: Mapping[str, Value],
        weigh: Callable[[Value], Value],
    ) -> StepGraph:
        """Add weighted gradients to their sums, which start at 0 with the first batch of a step."""
        first = net.builder.input(FIRST, TensorType((), DType.BOOL))
        states, updates = {}, dict(forward.updates)
        for name, value in gradients.items():
            label, info = self.gradient_sum(net, name)
            with in_scope(info.value.node.scope):
                before = Where()(first, scalar(0.0, value.dtype), info.value)
                updates[label] = before + weigh(value)
            states[label] = info
        if self.solver.full_batch:
            check_repeatable_loss(net, Graph(forward.outputs, forward.updates))
            states |= self._history_states(net)
        graph = Graph(forward.outputs, updates, guard=forward.outputs[LOSS])
        return StepGraph(graph, {**states, **self._scale_states()})

    def update(self, net: NetGraph) -> StepGraph:
        """Build the update by the mean of the accumulated gradients."""
        trained, gradient, sums = self.trained(net), {}, {}
        for name in trained:
            label, sums[label] = self.gradient_sum(net, name)
            info = sums[label]
            with in_scope(info.value.node.scope):
                share = net.builder.input(SHARE, TensorType((), self.dtype))
                gradient[name] = info.value * cast(share, info.value.dtype)
        step = self.apply_solver(net, {name: info.value for name, info in trained.items()}, gradient, {})
        step.states |= sums
        return step

    def _history_states(self, net: NetGraph) -> dict[str, StateInfo]:
        """Declare the states that a full-batch solver keeps from earlier steps."""
        size = sum(info.value.type.size for info in self.trained(net).values())
        with in_scope(Scope("", self.solver.type, None, "update")):
            types = self.solver.history_types(size, self.dtype).items()
            return {label: StateInfo(State(label, type_)(), ConstantInitial(), "slot") for label, type_ in types}

    def trained(self, net: NetGraph) -> dict[str, StateInfo]:
        """Return the parameters that are trained. Raises `SpecError` if there are none."""
        states = net.builder.states
        trained = {name: info for name, info in states.items() if info.trainable}
        if not trained:
            frozen = any(info.role == "parameter" for info in states.values())
            hint = (
                "`freeze`, `trainable: false` and a `learning_rate_multiplier` of 0 freeze a layer" if frozen else None
            )
            message = f"there is nothing to train: {'every layer is frozen' if frozen else 'no layer has parameters'}"
            raise SpecError(
                Problem(message, self._freezing_location() or self.spec.where("layers"), "layers", hint=hint)
            )
        return trained

    def _freezing_location(self) -> Location | None:
        """Return where the spec freezes the first frozen layer: its `trainable`, or `init_from.freeze`."""
        return next((layer.where("trainable") for layer in self.spec.layers if layer.trainable is False), None)

    def gradient_sum(self, net: NetGraph, name: str) -> tuple[str, StateInfo]:
        """Label and state in which the gradients of a parameter are accumulated."""
        info, label = net.builder.states[name], gradient_sum_label(name)
        with in_scope(replace(info.value.node.scope, phase="update")):
            return label, StateInfo(State(label, info.value.type)(), ConstantInitial(), "gradient", shard=info.shard)

    def forward_backward(
        self, net: NetGraph, weigh: Callable[[Value], Value] = lambda loss: loss
    ) -> tuple[Graph, dict[str, Value]]:
        """Build losses and new statistics, and the gradients of the weighted losses times the loss scale."""
        forward, scale = forward_graph(self.spec, net, with_metrics=self.log_metrics), self.loss_scale()
        starts = {name: updated_start(forward, name, info) for name, info in self.trained(net).items()}

        def scaled(loss: Value) -> Value:
            loss = weigh(loss)
            return loss if scale is None else loss * cast(scale, loss.dtype)

        return forward, parameter_gradients(forward, starts, self.solver, scaled)

    def apply_solver(
        self,
        net: NetGraph,
        starts: Mapping[str, Value],
        scaled: Mapping[str, Value],
        others: Mapping[str, Value],
        *,
        extra: ExtraStates | None = None,
        before: Mapping[str, Value] | None = None,
    ) -> StepGraph:
        """Build the solver's update of the parameters `starts` by the gradients `scaled`, which contain the loss scale.

        `others` has new values of further states, and `extra` states that no layer has. `before` has the values that
        parameters keep if the step is skipped, if these are not the net's states.
        """
        states = net.builder.states
        self.solver.check([name for name, info in states.items() if info.role == "parameter"])
        totals: list[Value] = []
        scalar_type = TensorType((), self.dtype)
        rates = [net.builder.input(name, scalar_type) for name in scheduled_inputs(self.solver)]
        count = net.builder.input(STEP, scalar_type)
        if self._adapts:
            count = count - cast(self._state(SKIPPED), count.dtype)  # the solver does not count skipped steps
        shards, sums = self.shards(net), self.cross_worker_sums(net, starts, totals)
        params = self._params(net, starts, scaled)
        solution = self.solver.build(params, rates, count, sums)
        new_states = {slot.label: _slot(slot, shards.get(slot.param)) for slot in solution.slots}
        updates = {**others, **solution.updates, **solution.slot_updates}
        if extra is not None:
            new_states |= extra.states
            updates |= extra.updates
        if self._adapts:
            old = {**{name: info.value for name, info in {**states, **new_states}.items()}, **(before or {})}
            updates = self._unless_skipped(updates, old, list(scaled.values()), totals if sums else None)
        norm = {GRADIENT_NORM: self._gradient_norm(params, sums)} if self.log_gradient_norm else {}
        outputs = {f"{CROSS_WORKER_SUM}/{index}": value for index, value in enumerate(totals)} | norm
        return StepGraph(Graph(outputs, updates), {**new_states, **self._scale_states()}, solution.evaluated)

    def _params(self, net: NetGraph, starts: Mapping[str, Value], scaled: Mapping[str, Value]) -> list[Param]:
        scale, params = self.loss_scale(), []
        for name, start in starts.items():
            info, gradient = net.builder.states[name], scaled[name]
            if scale is not None:
                with in_scope(replace(info.value.node.scope, phase="update")):
                    gradient = gradient / cast(scale, gradient.dtype)
            project = info.constraint.project if info.constraint is not None else None
            factors = info.learning_rate_multiplier, info.weight_decay_multiplier
            params.append(Param(name, start, gradient, *factors, project))
        return params

    def shards(self, net: NetGraph) -> Mapping[str, ShardSpec]:
        """Return the shards of parameters that this worker has or updates; empty if it has them in full."""
        return {}

    def cross_worker_sums(
        self, net: NetGraph, starts: Mapping[str, Value], totals: list[Value]
    ) -> CrossWorkerSums | None:
        """Return how the solver sums over workers that update shards of parameters; the sums are added to `totals`."""
        return None

    def _gradient_norm(self, params: Sequence[Param], sums: CrossWorkerSums | None) -> Value:
        """L2 norm of all gradients together. Clipping by global norm shares the same sums of squares.

        If workers hold shards of the gradients, `sums` adds up the squares over workers.
        """
        squares = [scalar(0.0, self.dtype)] if sums is not None else []
        for param in params:
            with in_scope(param.scope):
                squares.append(cast(sum_of_squares(param.gradient), self.dtype))
        with in_scope(Scope("", self.solver.type, None, "update")):
            total = reduce(add, squares)
            return Sqrt()(total if sums is None else sums.total(total))

    def _state(self, label: str) -> Value:
        """A state of the loss scale."""
        with in_scope(Scope("", "LossScale", None, "update")):
            return State(label, TensorType((), self.dtype))()

    def loss_scale(self) -> Value | None:
        """Factor by which the loss is multiplied before differentiation."""
        if self.scaling is None:
            return None
        return self._state(SCALE) if self._adapts else scalar(self.scaling.initial, self.dtype)

    def _scale_states(self) -> dict[str, StateInfo]:
        """The states of the loss scale, if it is dynamic."""
        if self.scaling is None or not self._adapts:
            return {}
        initial = {SCALE: self.scaling.initial, GOOD_STEPS: 0.0, SKIPPED: 0.0}
        return {
            label: StateInfo(self._state(label), ConstantInitial(value), "slot") for label, value in initial.items()
        }

    def _unless_skipped(
        self,
        updates: Mapping[str, Value],
        old: Mapping[str, Value],
        scaled: Sequence[Value],
        totals: list[Value] | None,
    ) -> dict[str, Value]:
        """Apply the updates if all gradients are finite, keep the old values otherwise; update the loss scale.

        If workers hold different gradients, their checksums are summed over workers.
        """
        assert self.scaling is not None
        assert self.scaling.growth_steps is not None
        with in_scope(Scope("", "LossScale", None, "update")):
            zero, one = scalar(0.0, self.dtype), scalar(1.0, self.dtype)
            # 0 times a non-finite value is NaN; a sum of the values themselves could overflow.
            checksum = reduce(add, [zero, *(cast(ReduceSum()(value * 0.0), self.dtype) for value in scaled)])
            checksum = checksum if totals is None else sum_over_workers(totals, checksum)
            finite = Equal()(checksum, zero)
            updated = {name: Where()(finite, value, old[name]) for name, value in updates.items()}
            scale, good, skipped = map(self._state, (SCALE, GOOD_STEPS, SKIPPED))
            # Workers that train independently average this state, so it may be fractional.
            grows = Greater()(good + one, scalar(self.scaling.growth_steps - 0.5, self.dtype))
            grown = Where()(grows, Minimum()(scale * 2.0, scalar(MAX_SCALE, self.dtype)), scale)
            updated[SCALE] = Where()(finite, grown, Maximum()(scale * 0.5, scalar(MIN_SCALE, self.dtype)))
            updated[GOOD_STEPS] = Where()(finite, Where()(grows, zero, good + one), zero)
            updated[SKIPPED] = Where()(finite, skipped, skipped + one)
        return updated


def _slot(slot: Slot, shard: ShardSpec | None) -> StateInfo:
    """The state of a solver slot of a parameter, which may be a shard."""
    if shard is not None and shard.local_shape != slot.value.shape:  # such as row statistics, which are not sharded
        shard = None
    source = slot.param if slot.initial is None else None
    return StateInfo(slot.value, ConstantInitial(slot.initial or 0.0), "slot", initialized_from=source, shard=shard)


def sum_over_workers(totals: list[Value], value: Value) -> Value:
    """Sum a value over all workers, and add the sum to `totals`, since all workers must compute it."""
    totals.append(AllReduce()(value))
    return totals[-1]


def check_repeatable_loss(net: NetGraph, forward: Graph) -> None:
    """Raise `SpecError`, with all reasons, if the loss of a batch differs each time it is computed."""
    problems: list[Problem] = []
    hint = "the solver computes the same loss several times"

    def report(scope: Scope, reason: str) -> None:
        problem = Problem(f"layer `{scope.layer}` {reason}", scope.location, f"layers.{scope.layer}", hint=hint)
        if problem not in problems:
            problems.append(problem)

    for node in forward.nodes():
        if any(isinstance(value.op, Input) and value.op.label == RNG_INPUT for value in node.inputs):
            report(node.scope, "draws random numbers")
    for name, info in net.builder.states.items():
        if name in forward.updates:
            report(info.value.node.scope, "changes with every batch")
        if info.trainable and info.constraint is not None:
            report(info.value.node.scope, "constrains its parameters")
        if info.trainable and info.learning_rate_multiplier != 1.0:
            report(info.value.node.scope, "has a learning rate multiplier")
    if problems:
        raise SpecError(problems)
