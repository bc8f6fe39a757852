"""Training steps of a net that is cut into stages: the graph of one worker, which computes one stage.

A batch passes in micro-batches. What a stage does for one of them is made once, and copied for each: forward, then,
when its turn has come, backward, which adds to the sums of gradients. All that is sent and received is in one sequence,
that of the turns; each receives what the next turn needs while it computes. The losses of all micro-batches and stages
are summed up when the last turn is over, and are the guard of all workers.
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
    """What one stage computes of a micro-batch of some size; what it receives are inputs of that."""

    def __init__(self, cut: PipelineStages, stage: int, weight: float, scale: Value | None) -> None:
        """`weight` is what the micro-batch counts in the loss, `scale` what that is multiplied by for gradients."""
        self.arriving = [one for one in cut.crossings if one.target == stage]
        self.leaving = [one for one in cut.crossings if one.source == stage]
        self.given = {one: _placeholder("value", one) for one in self.arriving}
        self.back = {one: _placeholder("gradient", one) for one in self.leaving if one.returns}
        new: dict[Value, Value] = {one.value: made for one, made in self.given.items()}
        for node in cut.nodes(stage):
            inputs = tuple(new[value] for value in node.inputs)
            made = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            new.update((old, one) for old, one in zip(node.outputs, made, strict=True) if old not in new)
        forward = self._forward(cut, stage, weight, new)
        self.losses = {name.removeprefix(_PART): v for name, v in forward.outputs.items() if name.startswith(_PART)}
        """The sums of the parts of losses that are computed here, by their names, weighed."""
        self.sent = {one: forward.outputs[f"{_SENT}{one.number}"] for one in self.leaving}
        self.updates = forward.updates
        self.ahead = topological_order(forward.roots())
        """The nodes of forward."""
        states = cut.built.builder.states
        trained = {name: value for name, value in cut.starts().items() if cut.stage_of(name) == stage}
        self.trained = {name: forward.updates.get(name, states[name].value) for name in trained}
        self._differentiate(scale)

    @staticmethod
    def _forward(cut: PipelineStages, stage: int, weight: float, new: Mapping[Value, Value]) -> Graph:
        parts: dict[str, Value] = {}
        for name, value in cut.losses:
            if cut.place(value) in (None, stage) and (cut.place(value) is not None or stage == 0):
                parts[_PART + name] = parts[_PART + name] + new[value] if _PART + name in parts else new[value]
        sent = {f"{_SENT}{one.number}": new[one.value] for one in cut.crossings if one.source == stage}
        states = cut.built.builder.updates.items()
        updates = {name: new[value] for name, value in states if cut.stage_of(name) == stage}
        return run_passes(Graph({**{n: v * weight for n, v in parts.items()}, **sent}, updates), FORWARD_PASSES)

    def _differentiate(self, scale: Value | None) -> None:
        ys, dys = [], []
        if self.losses:
            loss = total(self.losses.values())
            ys, dys = [loss], [scalar(1.0, loss.dtype) if scale is None else cast(scale, loss.dtype)]
        ys += [self.sent[one] for one in self.back]
        dys += self.back.values()
        returned = [one for one in self.arriving if one.returns]
        found = pullback(ys, dys, [*self.trained.values(), *(self.given[one] for one in returned)])
        made = [
            Fill(0.0, value.type)() if gradient is None else gradient
            for gradient, value in zip(found, [*self.trained.values(), *(self.given[o] for o in returned)], strict=True)
        ]
        self.gradients = dict(zip(self.trained, made, strict=False))
        """By the parameters that are trained here."""
        self.returned = dict(zip(returned, made[len(self.trained) :], strict=True))
        """By what arrives."""
        known = set(self.ahead)
        self.behind = [node for node in topological_order(made) if node not in known]
        """The nodes of backward."""


_PART, _SENT = "part/", "sent/"


def _placeholder(what: str, crossing: Crossing) -> Value:
    with in_scope(crossing.value.node.scope):
        return Input(f"${what}/{crossing.number}", crossing.value.type)()


@dataclass(frozen=True)
class _Message:
    """A value that is received, and where from."""

    source: int
    tag: int
    like: Value
    holder: Value
    """What stands for it in what a stage computes."""


class _StepBuilder:
    """The graph of all turns of a stage, as it grows."""

    def __init__(self, built: NetGraph, parts: Sequence[tuple[int, StageGraph]]) -> None:
        """`parts` has the first sample of each micro-batch, and what the stage computes of it."""
        self._parts = parts
        self._images: list[dict[Value, Value]] = [{} for _ in parts]
        self._inputs = built.builder.inputs
        self.states = {name: info.value for name, info in built.builder.states.items()}
        """Each with the value that it has after the micro-batches so far."""
        self.sums: dict[str, Value] = {}
        self.losses: dict[str, Value] = {}
        self._order: list[Value] = [Fill(1.0, ORDER_TOKEN)()]
        self._held: dict[tuple[int, int], Value] = {}
        """What was sent last to a worker with a tag: it may not have arrived."""
        self._awaited: list[tuple[_Message, Value]] = []

    def run(self, turns: Sequence[Task]) -> None:
        """Add all turns."""
        self._await(turns[0])
        for turn, following in zip(turns, [*turns[1:], None], strict=True):
            image = self._images[turn.part]
            for message, raw in self._awaited:
                with in_scope(_communicating(message.like.node)):
                    arrived, *self._order = JoinReceive(message.source, message.tag).call_multi(raw, *self._order)
                image[message.holder] = arrived
            self._await(following)
            made = self._forward(turn.part) if turn.forward else self._backward(turn.part)
            self._order = [WithDependencies()(*self._order, *made)]
        if self._held:
            channels, values = tuple(self._held), self._held.values()
            with in_scope(replace(NO_SCOPE, phase=COMMUNICATION)):
                self._order = [WaitSends(channels)(*self._order, *values)]

    def _await(self, turn: Task | None) -> None:
        """Be ready for what a turn receives."""
        self._awaited = []
        for message in self._messages(turn) if turn is not None else ():
            with in_scope(_communicating(message.like.node)):
                op = StartReceive(message.source, message.tag, message.like.type)
                raw, *self._order = op.call_multi(*self._order)
            self._awaited.append((message, raw))

    def _messages(self, turn: Task) -> list[_Message]:
        _, stage = self._parts[turn.part]
        if turn.forward:
            return [_Message(one.source, 2 * one.number, one.value, held) for one, held in stage.given.items()]
        return [_Message(one.target, 2 * one.number + 1, one.value, held) for one, held in stage.back.items()]

    def _forward(self, part: int) -> list[Value]:
        """Losses, moving averages and what is sent."""
        (first, stage), image = self._parts[part], self._images[part]
        for node in stage.ahead:
            self._copy(node, image, first)
        for name, value in stage.updates.items():
            self.states[name] = image[value]
        for name, value in stage.losses.items():
            self.losses[name] = self.losses[name] + image[value] if name in self.losses else image[value]
        for one, value in stage.sent.items():
            self._send(one.target, 2 * one.number, image[value])
        return [*self.losses.values(), *(image[value] for value in stage.updates.values())]

    def _backward(self, part: int) -> list[Value]:
        """Sums of gradients, and what is sent."""
        (first, stage), image = self._parts[part], self._images[part]
        for node in stage.behind:
            self._copy(node, image, first)
        for one, value in stage.returned.items():
            self._send(one.source, 2 * one.number + 1, image[value])
        for name, value in stage.gradients.items():
            with in_scope(value.node.scope):
                self.sums[name] = self.sums[name] + image[value] if name in self.sums else image[value]
        self._images[part] = {}
        return list(self.sums.values())

    def _send(self, to: int, tag: int, value: Value) -> None:
        with in_scope(_communicating(value.node)):
            before = [self._held[to, tag]] if (to, tag) in self._held else []
            self._order = [Send(to, tag)(value, *self._order, *before)]
        self._held[to, tag] = value

    def _copy(self, node: Node, image: dict[Value, Value], first: int) -> None:
        """Copy a node for this micro-batch."""
        if node.outputs[0] in image:
            return  # what was received, or what forward has made
        if isinstance(node.op, State):
            image[node.outputs[0]] = self.states.get(node.op.label, node.outputs[0])  # the loss has no layer
        elif isinstance(node.op, Input):
            image[node.outputs[0]] = self._part_of(node.op, first)
        else:
            inputs = tuple(image[value] for value in node.inputs)
            made = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            image.update(zip(node.outputs, made, strict=True))

    def _part_of(self, op: Input, first: int) -> Value:
        """What a micro-batch has of an input."""
        whole = self._inputs[op.label]
        with in_scope(whole.node.scope):
            if op.label == RNG_INPUT:
                return Add()(whole, constant(np.array([0, 0, first]))) if first else whole
            size = op.type.shape[0]
            return whole if whole.shape[0] == size else Slice(0, first, first + size)(whole)

    def told(self, names: Sequence[str], like: Value, *, alone: bool) -> dict[str, Value]:
        """The losses of all stages, by these names, when all turns are over."""
        with in_scope(replace(NO_SCOPE, phase=COMMUNICATION)):
            own = {name: self.losses.get(name, Fill(0.0, like.type)()) for name in names}
            found = {name: WithDependencies()(value, *self._order) for name, value in own.items()}
            if alone:
                return found
            return {name: AllReduce(deferred=True, contents=(name,))(value) for name, value in found.items()}


def _communicating(node: Node) -> Scope:
    return replace(node.scope, phase=COMMUNICATION)


@dataclass(frozen=True, kw_only=True)
class PipelinedTraining(Training):
    """Training of one stage of a net."""

    staged: PipelineConfig

    def step(self, built: NetGraph) -> StepGraph:
        """A step of a batch that passes in micro-batches; of the parameters those of this stage move."""
        self.trained(built)
        forward_graph(self.spec, built)
        stage = self.staged.stage
        sizes = self.staged.sizes(built.builder.inputs[next(iter(self.spec.inputs))].shape[0])
        scale, stages, first, parts = self.loss_scale(), dict[int, StageGraph](), 0, list[tuple[int, StageGraph]]()
        for size in sizes:
            if size not in stages:
                micro = build(self.spec, size, training=True, dtype=self.dtype)
                stages[size] = StageGraph(
                    PipelineStages(self.spec, micro, self.staged), stage, size / sum(sizes), scale
                )
            parts.append((first, stages[size]))
            first += size
        made = _StepBuilder(built, parts)
        made.run(self._turns(len(sizes)))
        alone = self.staged.stages == 1
        told = made.told(list(built.losses), next(iter(built.losses.values())), alone=alone)
        starts = {name: made.states[name] for name in parts[0][1].trained}
        others = {name: made.states[name] for name in parts[0][1].updates if name not in starts}
        update = self.apply_solver(built, starts, made.sums, others)
        loss = total(told.values())
        outputs = {LOSS: loss, **{f"{LOSS}/{name}": value for name, value in told.items()}, **update.graph.outputs}
        graph = Graph(outputs, update.graph.updates, guard=loss)
        return StepGraph(graph, update.states, update.evaluated if alone else {})

    def evaluated(self, built: NetGraph) -> Mapping[str, str]:
        """Name of each parameter of the net → label of the slot that stands for it where it is not trained."""
        params = [Param(name, info.value, info.value) for name, info in self.trained(built).items()]
        one = scalar(1.0, self.dtype)
        return self.solver.build(params, [one] * len(scheduled_inputs(self.solver)), one).evaluated

    def cross_worker_sums(self, built: NetGraph, starts: Mapping[str, Value], totals: list[Value]) -> CrossWorkerSums:
        """Of all stages, some of which may have no parameters."""
        return CrossWorkerSums(list(self.trained(built)), partial(sum_over_workers, totals))

    def _turns(self, parts: int) -> list[Task]:
        if self.staged.interleaved:
            return one_forward_one_backward(parts, self.staged.stage, self.staged.stages)
        return gpipe(parts)
