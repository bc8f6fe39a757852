"""Training steps as graphs: of one batch, or of several whose gradients are summed up before the update.

The loss may be scaled before the gradients are made, so that small ones survive 16 bits; they are divided by the scale
before anything looks at them. Micikevicius et al. 2018, "Mixed precision training", arXiv:1710.03740, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add

from netspec.compile.build import LOSS, Built
from netspec.compile.division import Divide, Division, division, looks_at_whole
from netspec.compile.spreading import COMMUNICATION, Spread, send_plainly
from netspec.compile.steps import FIRST, SHARE, STEP, TOTAL, forward_graph, rate_inputs, start_of
from netspec.errors import Problem, SpecError
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.communication import WEIGHT, AllReduce, Sending
from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Where, cast, scalar
from netspec.graph.ops.gathering import Factoring
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input, State
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from netspec.layers.states import Constant, Piece, StateInfo
from netspec.schema.net import NetSpec
from netspec.schema.train import LossScale
from netspec.solvers.base import Param, Slot, Solution, SolverSpec, Together

SCALE, GOOD_STEPS, SKIPPED = "loss_scale/scale", "loss_scale/good_steps", "loss_scale/skipped"
"""States of a loss scale that adapts: its value, the steps since it changed, the steps that were skipped."""
TOGETHER = "$together"
"""First part of the names of outputs that are sums which all workers who move pieces of the parameters compute."""
MOST_SCALE = 2.0**127
"""The scale grows no further: an infinite one would be infinite for ever, and every step be skipped."""
LEAST_SCALE = 2.0**-14
"""It is not halved below this: gradients that are still not finite are so without it too."""


def sum_label(name: str) -> str:
    """The name of the state in which the gradients of a parameter are summed up."""
    return f"gradient/{name}"


@dataclass
class Made:
    """A graph, and what of its states no layer made."""

    graph: Graph
    states: dict[str, StateInfo] = field(default_factory=dict)
    evaluated: dict[str, str] = field(default_factory=dict)
    """Name of a parameter → label of the state that stands for it wherever the net is not trained."""


@dataclass(frozen=True)
class Training:
    """How the parameters of a net are trained."""

    spec: NetSpec
    solver: SolverSpec
    dtype: DType
    scaling: LossScale | None = None
    workers: int = 1
    """How many train together: what a step finds is the mean over all of them."""
    sending: Callable[[tuple[int, ...]], Sending] = send_plainly
    """How they send each other gradients, by their shapes."""
    division: Division | None = None
    """Which pieces of the parameters this worker moves, where each moves some."""
    factoring: Factoring | None = None
    """Of which gradients they send each other the factors instead."""

    @property
    def _adapts(self) -> bool:
        """Whether the scale of the loss changes, and steps can be skipped."""
        return self.scaling is not None and self.scaling.growth_steps is not None

    def step(self, built: Built) -> Made:
        """A step of one batch: losses, gradients, update. Raises `SpecError` where there is nothing to train."""
        spread = self._spread(built)
        forward, gradient = self._gradients(built, spread)
        starts = {name: start_of(forward, name, info) for name, info in self._trained(built).items()}
        if spread is not None:
            forward = replace(
                forward, outputs=spread.means(forward.outputs), updates=spread.statistics(forward.updates)
            )
        made = self._moved(built, starts, _of_batch(gradient, spread), forward.updates, spread)
        made.graph = replace(made.graph, outputs=forward.outputs | made.graph.outputs, guard=forward.outputs[LOSS])
        return made

    def weighed(self, built: Built) -> dict[str, Value]:
        """The gradients of a worker's part of a batch, as they are added to those of the others."""
        return self._gradients(built, self._spread(built))[1]

    def sums(self, built: Built) -> Made:
        """Losses of one of several batches, and its gradients added to the sums of those before.

        Raises `SpecError` where there is nothing to train.
        """
        spread = self._spread(built)
        forward, gradient = self._gradients(built, spread)
        if spread is not None:
            forward = replace(forward, outputs={**spread.means(forward.outputs), TOTAL: spread.total})
        scalar_type = TensorType((), self.dtype)
        weight = built.builder.input(WEIGHT, scalar_type)
        first = built.builder.input(FIRST, TensorType((), DType.BOOL))
        states, updates = {}, dict(forward.updates)
        for name, value in _of_batch(gradient, spread).items():
            label, info = self._sum_of(built, name)
            with in_scope(info.value.node.scope):
                before = Where()(first, scalar(0.0, value.dtype), info.value)
                updates[label] = before + (value if spread is not None else cast(weight, value.dtype) * value)
            states[label] = info
        if self.solver.whole:
            check_whole(built, Graph(forward.outputs, forward.updates))
            states |= self._kept(built)
        return Made(Graph(forward.outputs, updates, guard=forward.outputs[LOSS]), {**states, **self._scale_states()})

    def update(self, built: Built) -> Made:
        """The update by the mean of the gradients that were summed up."""
        trained, spread = self._trained(built), self._spread(built)
        gradient, sums, others = {}, {}, dict[str, Value]()
        for name in trained:
            label, info = self._sum_of(built, name)
            with in_scope(info.value.node.scope):
                gradient[name] = self._mean_of(built, info.value) if spread is None else info.value
            sums[label] = info
        if spread is not None:
            kept = {name: info.value for name, info in built.builder.states.items() if name in built.builder.updates}
            others = spread.statistics(kept)
        made = self._moved(built, {name: info.value for name, info in trained.items()}, gradient, others, spread)
        made.states |= sums
        return made

    def divide(self, built: Built, how: Divide) -> Division:
        """Who moves which piece of the parameters. Raises `SpecError` where there is nothing to train."""
        return division(how, *self._imagined(built))

    def looking_at_whole(self, built: Built) -> list[str]:
        """The parameters that are pieces, and that the solver would have to see the whole of."""
        params, solution = self._imagined(built)
        own = [param for param in params if built.builder.states[param.name].piece is not None]
        return [param.name for param in own if looks_at_whole(param, solution)]

    def _imagined(self, built: Built) -> tuple[list[Param], Solution]:
        """The parameters, and an update by which they could be moved, whatever their gradients are."""
        params = [
            Param(
                name, info.value, info.value, project=info.constraint.project if info.constraint is not None else None
            )
            for name, info in self._trained(built).items()
        ]
        one = scalar(1.0, self.dtype)
        together = Together([param.name for param in params], lambda _: one)
        return params, self.solver.build(params, [one] * len(rate_inputs(self.solver)), one, together)

    def update_of_pieces(self, built: Built) -> Made:
        """The update of a worker whose parameters are pieces, states of their names, by those of their gradients.

        The states `gradient/NAME` hold what the parameters are moved by: means over all samples of the step.
        """
        assert self.division is not None
        starts, gradient = dict[str, Value](), dict[str, Value]()
        held: dict[str, StateInfo] = {}
        for name in self.division.own():
            info, piece = built.builder.states[name], self.division.pieces[name]
            kind = info.value.type.with_shape(*piece.part)
            for label, found, role in ((name, starts, info.role), (sum_label(name), gradient, "gradient")):
                with in_scope(replace(info.value.node.scope, phase="update")):
                    found[name] = State(label, kind)()
                initial = info.initial if role == info.role else Constant()
                held[label] = replace(info, value=found[name], initial=initial, role=role, piece=piece)
        made = self._update(built, starts, gradient, {}, None, starts)
        made.states = {**held, **made.states}
        return made

    def _mean_of(self, built: Built, summed: Value) -> Value:
        """The mean over the samples of all batches of a step."""
        return summed * cast(built.builder.input(SHARE, TensorType((), self.dtype)), summed.dtype)

    def _spread(self, built: Built) -> Spread | None:
        """Means over the workers, where there are several."""
        return Spread(built, self.dtype, self.sending, self.factoring) if self.workers > 1 else None

    def _kept(self, built: Built) -> dict[str, StateInfo]:
        """What a solver of the whole training set remembers of the steps before."""
        size = sum(info.value.type.size for info in self._trained(built).values())
        with in_scope(Scope("", self.solver.type, None, "update")):
            found = self.solver.kept(size, self.dtype).items()
            return {label: StateInfo(State(label, kind)(), Constant(), "slot") for label, kind in found}

    def _trained(self, built: Built) -> dict[str, StateInfo]:
        """The parameters that are trained. Raises `SpecError` where there are none."""
        states = built.builder.states
        trained = {name: info for name, info in states.items() if info.trainable}
        if not trained:
            frozen = any(info.role == "parameter" for info in states.values())
            hint = "`trainable: false` and a `learning_rate_multiplier` of 0 freeze a layer" if frozen else None
            message = f"there is nothing to train: {'every layer is frozen' if frozen else 'no layer has parameters'}"
            raise SpecError(Problem(message, self.spec.where("layers"), "layers", hint=hint))
        return trained

    def _sum_of(self, built: Built, name: str) -> tuple[str, StateInfo]:
        """The state in which the gradients of a parameter are summed up, by its name."""
        info, label = built.builder.states[name], sum_label(name)
        with in_scope(replace(info.value.node.scope, phase="update")):
            return label, StateInfo(State(label, info.value.type)(), Constant(), "gradient", piece=info.piece)

    def _gradients(self, built: Built, spread: Spread | None = None) -> tuple[Graph, dict[str, Value]]:
        """The losses with new statistics, and the gradient by each trained parameter, times the scale of the loss.

        With `spread` the gradients are weighed as what this worker has counts.
        """
        trained, forward = self._trained(built), forward_graph(self.spec, built)
        starts = [start_of(forward, name, info) for name, info in trained.items()]
        loss, scale = forward.outputs[LOSS], self._scale()
        loss = loss if spread is None else spread.weighed(loss)
        scaled = loss if scale is None else loss * cast(scale, loss.dtype)
        return forward, dict(zip(trained, gradients(scaled, starts), strict=True))

    def _moved(
        self,
        built: Built,
        starts: Mapping[str, Value],
        gradient: Mapping[str, Value],
        others: Mapping[str, Value],
        spread: Spread | None,
    ) -> Made:
        """The update of parameters that move on from `starts`, by the means of what all workers have as `gradient`.

        Where they divide it among them, each moves its pieces, and all get the others'.
        """
        if spread is None or self.division is None:
            mean = gradient if spread is None else spread.gradients(gradient, self._scale())
            return self._update(built, starts, mean, others, spread)
        wholes, division = {name: info.value for name, info in self._trained(built).items()}, self.division
        pieces, beside = spread.pieces(gradient, division)
        start, before = ({name: division.cut(name, one[name]) for name in division.own()} for one in (starts, wholes))
        made = self._update(built, start, pieces, others, spread, before)
        totals, updates = made.graph.outputs, made.graph.updates
        with in_scope(Scope("", "GatherPieces", None, COMMUNICATION)):
            gathered = division.gathered(updates, wholes, beside, list(totals.values()))
        made.graph = Graph(totals, {**updates, **gathered})
        return made

    def _update(
        self,
        built: Built,
        starts: Mapping[str, Value],
        scaled: Mapping[str, Value],
        others: Mapping[str, Value],
        spread: Spread | None,
        before: Mapping[str, Value] | None = None,
    ) -> Made:
        """The solver's update of parameters that move on from `starts`; `others` are further states with new values.

        `before` are their values where nothing moves them, if these are not the states of the net.
        """
        states = built.builder.states
        self.solver.check([name for name, info in states.items() if info.role == "parameter"])
        totals: list[Value] = []
        scalar_type = TensorType((), self.dtype)
        rates = [built.builder.input(name, scalar_type) for name in rate_inputs(self.solver)]
        count, scale = built.builder.input(STEP, scalar_type), self._scale()
        if self._adapts:
            count = count - cast(self._state(SKIPPED), count.dtype)  # a skipped step is none to the solver
        params = []
        for name, start in starts.items():
            info, gradient = states[name], scaled[name]
            if scale is not None:
                with in_scope(replace(info.value.node.scope, phase="update")):
                    gradient = gradient / cast(scale, gradient.dtype)
            project = info.constraint.project if info.constraint is not None else None
            factors = info.learning_rate_multiplier, info.weight_decay_multiplier
            params.append(Param(name, start, gradient, *factors, project))
        pieces, together = self._pieces(built), self._together(built, starts, totals)
        solution = self.solver.build(params, rates, count, together)
        kept = {slot.label: _slot(slot, pieces.get(slot.param)) for slot in solution.slots}
        updates = {**others, **solution.updates, **solution.slot_updates}
        if spread is not None:
            kept |= spread.states
            updates |= spread.updates
        if self._adapts:
            old = {**{name: info.value for name, info in {**states, **kept}.items()}, **(before or {})}
            updates = self._unless_skipped(updates, old, list(scaled.values()), totals if together else None)
        together_found = {f"{TOGETHER}/{number}": value for number, value in enumerate(totals)}
        # Of pieces no worker has all that is evaluated: `Compiler` has wholes of them gathered.
        evaluated = solution.evaluated if self.division is None else {}
        return Made(Graph(together_found, updates), {**kept, **self._scale_states()}, evaluated)

    def _pieces(self, built: Built) -> Mapping[str, Piece]:
        """What of the parameters this worker has a piece of, or moves one of."""
        if self.division is not None:
            return self.division.pieces
        return {name: info.piece for name, info in built.builder.states.items() if info.piece is not None}

    def _together(self, built: Built, starts: Mapping[str, Value], totals: list[Value]) -> Together | None:
        """What workers have to know of each other who move pieces of the parameters, or some of them."""
        pieces = self._pieces(built)
        if not pieces:
            return None
        apart = None if self.division is not None else pieces
        names = list(pieces) if apart is None else list(starts)
        return Together(names, partial(over_all, totals), apart)

    def _state(self, label: str) -> Value:
        """A state of the loss scale."""
        with in_scope(Scope("", "LossScale", None, "update")):
            return State(label, TensorType((), self.dtype))()

    def _scale(self) -> Value | None:
        """What the loss is multiplied by."""
        if self.scaling is None:
            return None
        return self._state(SCALE) if self._adapts else scalar(self.scaling.initial, self.dtype)

    def _scale_states(self) -> dict[str, StateInfo]:
        """The states of the loss scale, if it adapts."""
        if self.scaling is None or not self._adapts:
            return {}
        first = {SCALE: self.scaling.initial, GOOD_STEPS: 0.0, SKIPPED: 0.0}
        return {label: StateInfo(self._state(label), Constant(value), "slot") for label, value in first.items()}

    def _unless_skipped(
        self,
        updates: Mapping[str, Value],
        old: Mapping[str, Value],
        scaled: Sequence[Value],
        totals: list[Value] | None,
    ) -> dict[str, Value]:
        """The updates where all gradients are finite, the old values else; and how the scale goes on.

        Where each worker has some of the gradients alone, what all found is summed up.
        """
        assert self.scaling is not None
        assert self.scaling.growth_steps is not None
        with in_scope(Scope("", "LossScale", None, "update")):
            zero, one = scalar(0.0, self.dtype), scalar(1.0, self.dtype)
            # What is not finite stays so times 0; a sum of the values themselves could overflow.
            nothing = reduce(add, [zero, *(cast(ReduceSum()(value * 0.0), self.dtype) for value in scaled)])
            nothing = nothing if totals is None else over_all(totals, nothing)
            finite = Equal()(nothing, zero)
            made = {name: Where()(finite, value, old[name]) for name, value in updates.items()}
            scale, good, skipped = map(self._state, (SCALE, GOOD_STEPS, SKIPPED))
            # Of workers that train by themselves it is a mean, which need be no whole number.
            grows = Greater()(good + one, scalar(self.scaling.growth_steps - 0.5, self.dtype))
            grown = Where()(grows, Minimum()(scale * 2.0, scalar(MOST_SCALE, self.dtype)), scale)
            made[SCALE] = Where()(finite, grown, Maximum()(scale * 0.5, scalar(LEAST_SCALE, self.dtype)))
            made[GOOD_STEPS] = Where()(finite, Where()(grows, zero, good + one), zero)
            made[SKIPPED] = Where()(finite, skipped, skipped + one)
        return made


def _of_batch(gradient: Mapping[str, Value], spread: Spread | None) -> Mapping[str, Value]:
    """The gradients of a batch as they are moved by, or added up over several batches."""
    return gradient if spread is None else {name: spread.of_batch(name, value) for name, value in gradient.items()}


def _slot(slot: Slot, piece: Piece | None) -> StateInfo:
    """What is known of a slot of a parameter that is a piece, or whole."""
    if piece is not None and piece.part != slot.value.shape:  # rows of a matrix, say: it has all of that
        piece = None
    follows = slot.param if slot.initial is None else None
    return StateInfo(slot.value, Constant(slot.initial or 0.0), "slot", follows=follows, piece=piece)


def over_all(totals: list[Value], value: Value) -> Value:
    """The sum over all workers, which is noted: all compute it, one who makes no use of it too."""
    totals.append(AllReduce()(value))
    return totals[-1]


def check_whole(built: Built, forward: Graph) -> None:
    """Raise `SpecError` where the loss of a batch is not the same each time that it is computed, with each reason."""
    problems: list[Problem] = []
    why = "the solver computes one and the same loss several times"

    def tell(scope: Scope, what: str) -> None:
        problem = Problem(f"layer `{scope.layer}` {what}", scope.location, f"layers.{scope.layer}", hint=why)
        if problem not in problems:
            problems.append(problem)

    for node in forward.nodes():
        if any(isinstance(value.op, Input) and value.op.label == RNG_INPUT for value in node.inputs):
            tell(node.scope, "draws random numbers")
    for name, info in built.builder.states.items():
        if name in forward.updates:
            tell(info.value.node.scope, "changes with every batch")
        if info.trainable and info.constraint is not None:
            tell(info.value.node.scope, "constrains its parameters")
        if info.trainable and info.learning_rate_multiplier != 1.0:
            tell(info.value.node.scope, "has a rate of its own")
    if problems:
        raise SpecError(problems)
