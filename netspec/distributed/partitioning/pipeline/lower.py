"""Training steps of a net that is cut into stages: the graph of one worker, which computes one stage.

A batch passes through the stages in micro-batches. The graph of a stage for one micro-batch is built once, and copied
for each task of the schedule: forward, and later backward, which adds to the sums of gradients. Messages are sent and
received in the order of the tasks; while a task computes, the values that the next task needs are received. The losses
of all micro-batches and stages are summed after the last task, and are the guard of all workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from netspec.compile.build import LOSS, NetGraph, build, total
from netspec.compile.steps import FORWARD_PASSES, forward_graph, scheduled_inputs
from netspec.compile.training import StepGraph, Training, sum_over_workers
from netspec.distributed.partitioning.gradient_reduction import COMMUNICATION
from netspec.distributed.partitioning.pipeline.partition import Crossing, PipelineConfig, PipelineStages
from netspec.distributed.partitioning.pipeline.schedule import Task, gpipe, one_forward_one_backward
from netspec.graph.autodiff import pullback
from netspec.graph.graph import Graph, rebuild, topological_order
from netspec.graph.ops.all_reduce import ORDER_TOKEN, AllReduce
from netspec.graph.ops.elementwise import Add, cast, scalar
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.send_recv import JoinReceive, Send, StartReceive, WaitSends, WithDependencies
from netspec.graph.ops.shape import Slice
from netspec.graph.ops.source import Fill, Input, State, constant
from netspec.graph.value import NO_SCOPE, Node, Scope, Value, in_scope
from netspec.passes.base import run_passes
from netspec.solvers.base import CrossWorkerSums, Param


class StageGraph:
    """The graph of one stage for a micro-batch; received values are inputs of the graph."""

    def __init__(self, cut: PipelineStages, stage: int, weight: float, scale: Value | None) -> None:
        """`weight` is the weight of the micro-batch in the loss, `scale` the loss scale for gradients."""
        self.arriving = [crossing for crossing in cut.crossings if crossing.target == stage]
        self.leaving = [crossing for crossing in cut.crossings if crossing.source == stage]
        self.received = {crossing: _placeholder("value", crossing) for crossing in self.arriving}
        self.back = {crossing: _placeholder("gradient", crossing) for crossing in self.leaving if crossing.returns}
        new: dict[Value, Value] = {crossing.value: placeholder for crossing, placeholder in self.received.items()}
        for node in cut.nodes(stage):
            inputs = tuple(new[value] for value in node.inputs)
            outputs = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            new.update((old, output) for old, output in zip(node.outputs, outputs, strict=True) if old not in new)
        forward = self._forward(cut, stage, weight, new)
        self.losses = {name.removeprefix(_PART): v for name, v in forward.outputs.items() if name.startswith(_PART)}
        """Weighted sums of the parts of losses that are computed in this stage, by name."""
        self.sent = {crossing: forward.outputs[f"{_SENT}{crossing.number}"] for crossing in self.leaving}
        self.updates = forward.updates
        self.ahead = topological_order(forward.roots())
        """Nodes of forward, in order."""
        states = cut.built.builder.states
        trained = {name: value for name, value in cut.starts().items() if cut.stage_of(name) == stage}
        self.trained = {name: forward.updates.get(name, states[name].value) for name in trained}
        self._differentiate(scale)

    @staticmethod
    def _forward(cut: PipelineStages, stage: int, weight: float, new: Mapping[Value, Value]) -> Graph:
        parts: dict[str, Value] = {}
        for name, value in cut.losses:
            if cut.stage_of_value(value) in (None, stage) and (cut.stage_of_value(value) is not None or stage == 0):
                parts[_PART + name] = parts[_PART + name] + new[value] if _PART + name in parts else new[value]
        sent = {
            f"{_SENT}{crossing.number}": new[crossing.value] for crossing in cut.crossings if crossing.source == stage
        }
        states = cut.built.builder.updates.items()
        updates = {name: new[value] for name, value in states if cut.stage_of(name) == stage}
        return run_passes(Graph({**{n: v * weight for n, v in parts.items()}, **sent}, updates), FORWARD_PASSES)

    def _differentiate(self, scale: Value | None) -> None:
        ys, dys = [], []
        if self.losses:
            loss = total(self.losses.values())
            ys, dys = [loss], [scalar(1.0, loss.dtype) if scale is None else cast(scale, loss.dtype)]
        ys += [self.sent[crossing] for crossing in self.back]
        dys += self.back.values()
        returned = [crossing for crossing in self.arriving if crossing.returns]
        gradients = pullback(ys, dys, [*self.trained.values(), *(self.received[crossing] for crossing in returned)])
        nonzero = [
            Fill(0.0, value.type)() if gradient is None else gradient
            for gradient, value in zip(
                gradients, [*self.trained.values(), *(self.received[o] for o in returned)], strict=True
            )
        ]
        self.gradients = dict(zip(self.trained, nonzero, strict=False))
        """Gradients of the parameters that are trained in this stage, by name."""
        self.returned = dict(zip(returned, nonzero[len(self.trained) :], strict=True))
        """Gradients that are sent back, by crossing."""
        forward_nodes = set(self.ahead)
        self.behind = [node for node in topological_order(nonzero) if node not in forward_nodes]
        """Nodes of backward, in order."""


_PART, _SENT = "part/", "sent/"


def _placeholder(prefix: str, crossing: Crossing) -> Value:
    with in_scope(crossing.value.node.scope):
        return Input(f"${prefix}/{crossing.number}", crossing.value.type)()


@dataclass(frozen=True)
class _Message:
    """A value that is received from another stage."""

    source: int
    tag: int
    like: Value
    holder: Value
    """Placeholder of the value in the graph of a stage."""


class _StepBuilder:
    """Builds the graph of all tasks of a stage."""

    def __init__(self, built: NetGraph, parts: Sequence[tuple[int, StageGraph]]) -> None:
        """`parts` has the first sample and the stage graph of each micro-batch."""
        self._parts = parts
        self._images: list[dict[Value, Value]] = [{} for _ in parts]
        self._inputs = built.builder.inputs
        self.states = {name: info.value for name, info in built.builder.states.items()}
        """Value of each state after the micro-batches so far."""
        self.sums: dict[str, Value] = {}
        self.losses: dict[str, Value] = {}
        self._order: list[Value] = [Fill(1.0, ORDER_TOKEN)()]
        self._unconfirmed: dict[tuple[int, int], Value] = {}
        """Last value sent to each worker with each tag, which may not have arrived."""
        self._receiving: list[tuple[_Message, Value]] = []

    def run(self, tasks: Sequence[Task]) -> None:
        """Add all tasks."""
        self._start_receives(tasks[0])
        for task, following in zip(tasks, [*tasks[1:], None], strict=True):
            image = self._images[task.part]
            for message, raw in self._receiving:
                with in_scope(_communicating(message.like.node)):
                    arrived, *self._order = JoinReceive(message.source, message.tag).call_multi(raw, *self._order)
                image[message.holder] = arrived
            self._start_receives(following)
            results = self._forward(task.part) if task.forward else self._backward(task.part)
            self._order = [WithDependencies()(*self._order, *results)]
        if self._unconfirmed:
            channels, values = tuple(self._unconfirmed), self._unconfirmed.values()
            with in_scope(replace(NO_SCOPE, phase=COMMUNICATION)):
                self._order = [WaitSends(channels)(*self._order, *values)]

    def _start_receives(self, task: Task | None) -> None:
        """Start to receive the values that a task needs."""
        self._receiving = []
        for message in self._messages(task) if task is not None else ():
            with in_scope(_communicating(message.like.node)):
                op = StartReceive(message.source, message.tag, message.like.type)
                raw, *self._order = op.call_multi(*self._order)
            self._receiving.append((message, raw))

    def _messages(self, task: Task) -> list[_Message]:
        _, stage = self._parts[task.part]
        if task.forward:
            return [
                _Message(crossing.source, 2 * crossing.number, crossing.value, holder)
                for crossing, holder in stage.received.items()
            ]
        return [
            _Message(crossing.target, 2 * crossing.number + 1, crossing.value, holder)
            for crossing, holder in stage.back.items()
        ]

    def _forward(self, part: int) -> list[Value]:
        """Add forward of a micro-batch; return losses and moving averages."""
        (first, stage), image = self._parts[part], self._images[part]
        for node in stage.ahead:
            self._copy(node, image, first)
        for name, value in stage.updates.items():
            self.states[name] = image[value]
        for name, value in stage.losses.items():
            self.losses[name] = self.losses[name] + image[value] if name in self.losses else image[value]
        for crossing, value in stage.sent.items():
            self._send(crossing.target, 2 * crossing.number, image[value])
        return [*self.losses.values(), *(image[value] for value in stage.updates.values())]

    def _backward(self, part: int) -> list[Value]:
        """Add backward of a micro-batch; return the sums of gradients."""
        (first, stage), image = self._parts[part], self._images[part]
        for node in stage.behind:
            self._copy(node, image, first)
        for crossing, value in stage.returned.items():
            self._send(crossing.source, 2 * crossing.number + 1, image[value])
        for name, value in stage.gradients.items():
            with in_scope(value.node.scope):
                self.sums[name] = self.sums[name] + image[value] if name in self.sums else image[value]
        self._images[part] = {}
        return list(self.sums.values())

    def _send(self, to: int, tag: int, value: Value) -> None:
        with in_scope(_communicating(value.node)):
            before = [self._unconfirmed[to, tag]] if (to, tag) in self._unconfirmed else []
            self._order = [Send(to, tag)(value, *self._order, *before)]
        self._unconfirmed[to, tag] = value

    def _copy(self, node: Node, image: dict[Value, Value], first: int) -> None:
        """Copy a node for this micro-batch."""
        if node.outputs[0] in image:
            return  # received, or computed by forward
        if isinstance(node.op, State):
            image[node.outputs[0]] = self.states.get(node.op.label, node.outputs[0])  # the loss has no layer
        elif isinstance(node.op, Input):
            image[node.outputs[0]] = self._micro_batch_input(node.op, first)
        else:
            inputs = tuple(image[value] for value in node.inputs)
            outputs = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            image.update(zip(node.outputs, outputs, strict=True))

    def _micro_batch_input(self, op: Input, first: int) -> Value:
        """Return a micro-batch's slice of an input."""
        batch = self._inputs[op.label]
        with in_scope(batch.node.scope):
            if op.label == RNG_INPUT:
                return Add()(batch, constant(np.array([0, 0, first]))) if first else batch
            size = op.type.shape[0]
            return batch if batch.shape[0] == size else Slice(0, first, first + size)(batch)

    def global_losses(self, names: Sequence[str], like: Value, *, alone: bool) -> dict[str, Value]:
        """Return the losses with these names, summed over all stages, after all tasks."""
        with in_scope(replace(NO_SCOPE, phase=COMMUNICATION)):
            own_losses = {name: self.losses.get(name, Fill(0.0, like.type)()) for name in names}
            losses = {name: WithDependencies()(value, *self._order) for name, value in own_losses.items()}
            if alone:
                return losses
            return {name: AllReduce(deferred=True, contents=(name,))(value) for name, value in losses.items()}


def _communicating(node: Node) -> Scope:
    return replace(node.scope, phase=COMMUNICATION)


@dataclass(frozen=True, kw_only=True)
class PipelinedTraining(Training):
    """Training of one stage of a net."""

    config: PipelineConfig

    def step(self, built: NetGraph) -> StepGraph:
        """Build the step of a batch, which passes in micro-batches and updates the parameters of this stage."""
        self.trained(built)
        forward_graph(self.spec, built)
        stage = self.config.stage
        sizes = self.config.sizes(built.builder.inputs[next(iter(self.spec.inputs))].shape[0])
        scale, stages, first, parts = self.loss_scale(), dict[int, StageGraph](), 0, list[tuple[int, StageGraph]]()
        for size in sizes:
            if size not in stages:
                micro = build(self.spec, size, training=True, dtype=self.dtype)
                stages[size] = StageGraph(
                    PipelineStages(self.spec, micro, self.config), stage, size / sum(sizes), scale
                )
            parts.append((first, stages[size]))
            first += size
        builder = _StepBuilder(built, parts)
        builder.run(self._tasks(len(sizes)))
        alone = self.config.stages == 1
        global_losses = builder.global_losses(list(built.losses), next(iter(built.losses.values())), alone=alone)
        starts = {name: builder.states[name] for name in parts[0][1].trained}
        others = {name: builder.states[name] for name in parts[0][1].updates if name not in starts}
        update = self.apply_solver(built, starts, builder.sums, others)
        loss = total(global_losses.values())
        outputs = {
            LOSS: loss,
            **{f"{LOSS}/{name}": value for name, value in global_losses.items()},
            **update.graph.outputs,
        }
        graph = Graph(outputs, update.graph.updates, guard=loss)
        return StepGraph(graph, update.states, update.evaluated if alone else {})

    def evaluated(self, built: NetGraph) -> Mapping[str, str]:
        """Return, by parameter, the label of the slot that replaces it outside of training, as in evaluations."""
        params = [Param(name, info.value, info.value) for name, info in self.trained(built).items()]
        unit = scalar(1.0, self.dtype)
        return self.solver.build(params, [unit] * len(scheduled_inputs(self.solver)), unit).evaluated

    def cross_worker_sums(self, built: NetGraph, starts: Mapping[str, Value], totals: list[Value]) -> CrossWorkerSums:
        """Return sums over all stages, some of which may have no parameters."""
        return CrossWorkerSums(list(self.trained(built)), partial(sum_over_workers, totals))

    def _tasks(self, parts: int) -> list[Task]:
        if self.config.interleaved:
            return one_forward_one_backward(parts, self.config.stage, self.config.stages)
        return gpipe(parts)
