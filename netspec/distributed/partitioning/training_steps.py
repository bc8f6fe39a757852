"""Training steps of one of several workers: reduced gradients, sharded updates, and servers that update alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Self

from netspec.compile.build import NetGraph
from netspec.compile.steps import TOTAL, mean_totals, scheduled_inputs, updated_start
from netspec.compile.training import StepGraph, Training, gradient_sum_label, sum_over_workers
from netspec.distributed.partitioning.gradient_reduction import COMMUNICATION, GradientReduction, uncompressed
from netspec.distributed.partitioning.optimizer_sharding import OptimizerSharding, needs_full_parameter
from netspec.graph.graph import Graph
from netspec.graph.ops.all_gather import SufficientFactorPlan
from netspec.graph.ops.all_reduce import CommEncoding
from netspec.graph.ops.elementwise import scalar
from netspec.graph.ops.source import State
from netspec.graph.value import Scope, Value, in_scope
from netspec.layers.states import ConstantInitial, ShardSpec, StateInfo
from netspec.solvers.base import CrossWorkerSums, Param, Solution


@dataclass(frozen=True)
class PiecewiseTraining(Training):
    """Training by workers that have, or update, pieces of the parameters."""

    sharding: OptimizerSharding | None = None
    """The pieces that this worker updates, if the update is divided among the workers."""

    @classmethod
    def of(cls, training: Training, **more: object) -> Self:
        """Return a `Training` of this class with the fields of another one, and `more`."""
        own: dict[str, Any] = {field.name: getattr(training, field.name) for field in fields(Training)}
        return cls(**own | more)

    def shards(self, net: NetGraph) -> Mapping[str, ShardSpec]:
        """Return the pieces of parameters that this worker has or updates."""
        if self.sharding is not None:
            return self.sharding.pieces
        return {name: info.shard for name, info in net.builder.states.items() if info.shard is not None}

    def cross_worker_sums(
        self, net: NetGraph, starts: Mapping[str, Value], totals: list[Value]
    ) -> CrossWorkerSums | None:
        """Return how the solver computes norms over the pieces of several workers; None if there are no pieces."""
        pieces = self.shards(net)
        if not pieces:
            return None
        apart = None if self.sharding is not None else pieces
        names = list(pieces) if apart is None else list(starts)
        return CrossWorkerSums(names, partial(sum_over_workers, totals), apart)


@dataclass(frozen=True)
class DataParallelTraining(PiecewiseTraining):
    """Training by the mean of all workers' gradients."""

    comm_encoding: Callable[[tuple[int, ...]], CommEncoding] = uncompressed
    """Encoding of gradients in messages, by their shapes."""
    factoring: SufficientFactorPlan | None = None
    """Gradients that are sent as factors."""

    def step(self, net: NetGraph) -> StepGraph:
        """Build a step of one batch: losses, gradients, update. Raises `SpecError` if there is nothing to train."""
        reduction = self._reduction(net)
        forward, gradient = self.forward_backward(net, reduction.weight_by_samples)
        starts = {name: updated_start(forward, name, info) for name, info in self.trained(net).items()}
        outputs, statistics = self._outputs(net, forward, reduction), reduction.statistics(forward.updates)
        step = self._apply(net, starts, _contributions(gradient, reduction), statistics, reduction)
        return step.with_losses(outputs)

    def accumulate(self, net: NetGraph) -> StepGraph:
        """Build the mean losses of one of several batches, and add this worker's gradients to their sums."""
        reduction = self._reduction(net)
        forward, gradient = self.forward_backward(net, reduction.weight_by_samples)
        forward = replace(forward, outputs={**self._outputs(net, forward, reduction), TOTAL: reduction.total})
        return self.add_gradients(net, forward, _contributions(gradient, reduction), lambda value: value)

    def update(self, net: NetGraph) -> StepGraph:
        """Build the update by the mean of the gradients that all workers have accumulated."""
        trained, reduction = self.trained(net), self._reduction(net)
        sums = dict(self.gradient_sum(net, name) for name in trained)
        gradient = {name: sums[gradient_sum_label(name)].value for name in trained}
        changing = {name: info.value for name, info in net.builder.states.items() if name in net.builder.updates}
        statistics = reduction.statistics(changing)
        starts = {name: info.value for name, info in trained.items()}
        step = self._apply(net, starts, gradient, statistics, reduction)
        step.states |= sums
        return step

    def weighted_gradients(self, net: NetGraph) -> dict[str, Value]:
        """Return the gradients of a worker's part of a batch, weighted for the sum over workers."""
        return self.forward_backward(net, self._reduction(net).weight_by_samples)[1]

    def _outputs(self, net: NetGraph, forward: Graph, reduction: GradientReduction) -> dict[str, Value]:
        """Return the mean losses of all workers, and the totals of metrics of this worker's samples."""
        own = mean_totals(net) if self.log_metrics else {}
        means = reduction.means({name: value for name, value in forward.outputs.items() if name not in own})
        return {**means, **{name: forward.outputs[name] for name in own}}

    def _reduction(self, net: NetGraph) -> GradientReduction:
        return GradientReduction(net, self.dtype, self.comm_encoding, self.factoring)

    def _apply(
        self,
        net: NetGraph,
        starts: Mapping[str, Value],
        gradient: Mapping[str, Value],
        others: Mapping[str, Value],
        reduction: GradientReduction,
    ) -> StepGraph:
        """Build the update of parameters from `starts` by the mean of all workers' gradients.

        If the update is sharded, each worker updates its pieces, and gathers the pieces of the others.
        """
        if self.sharding is None:
            mean = reduction.gradients(gradient, self.loss_scale())
            return self.apply_solver(net, starts, mean, others, extra=reduction)
        full, sharding = {name: info.value for name, info in self.trained(net).items()}, self.sharding
        pieces, orders = reduction.pieces(gradient, sharding)
        start, before = (
            {name: sharding.slice_of(name, values[name]) for name in sharding.owned()} for values in (starts, full)
        )
        step = self.apply_solver(net, start, pieces, others, extra=reduction, before=before)
        totals, updates = step.graph.outputs, step.graph.updates
        with in_scope(Scope("", "BucketAllGather", None, COMMUNICATION)):
            gathered = sharding.all_gather(updates, full, orders, list(totals.values()))
        # No worker has all states that are evaluated: the plan adds gathered states.
        return StepGraph(Graph(totals, {**updates, **gathered}), step.states)


@dataclass(frozen=True)
class ShardUpdateTraining(PiecewiseTraining):
    """Training by a parameter server, which updates its pieces of the parameters and computes nothing else."""

    def update(self, net: NetGraph) -> StepGraph:
        """Build the update of pieces, states named like the parameters, by the means in the states `gradient/NAME`."""
        assert self.sharding is not None
        starts, gradient = dict[str, Value](), dict[str, Value]()
        states: dict[str, StateInfo] = {}
        for name in self.sharding.owned():
            info, piece = net.builder.states[name], self.sharding.pieces[name]
            kind = info.value.type.with_shape(*piece.local_shape)
            for label, values, role in (
                (name, starts, info.role),
                (gradient_sum_label(name), gradient, "gradient"),
            ):
                with in_scope(replace(info.value.node.scope, phase="update")):
                    values[name] = State(label, kind)()
                initial = info.initial if role == info.role else ConstantInitial()
                states[label] = replace(info, value=values[name], initial=initial, role=role, shard=piece)
        step = self.apply_solver(net, starts, gradient, {}, before=starts)
        return StepGraph(step.graph, {**states, **step.states})


def hypothetical_update(training: Training, net: NetGraph) -> tuple[list[Param], Solution]:
    """Return the parameters, and an update of them by the solver, whatever their gradients are."""
    params = [
        Param(name, info.value, info.value, project=info.constraint.project if info.constraint is not None else None)
        for name, info in training.trained(net).items()
    ]
    unit = scalar(1.0, training.dtype)
    sums = CrossWorkerSums([param.name for param in params], lambda _: unit)
    return params, training.solver.build(params, [unit] * len(scheduled_inputs(training.solver)), unit, sums)


def split_but_needed_in_full(training: Training, net: NetGraph) -> list[str]:
    """Return the parameters that are split although the solver needs the full tensor."""
    params, solution = hypothetical_update(training, net)
    split = [param for param in params if net.builder.states[param.name].shard is not None]
    return [param.name for param in split if needs_full_parameter(param, solution)]


def _contributions(gradient: Mapping[str, Value], reduction: GradientReduction) -> dict[str, Value]:
    """Return what this worker adds to the gradients, or all workers if factors are sent."""
    return {name: reduction.contribution(name, value) for name, value in gradient.items()}
