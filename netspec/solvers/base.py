"""`SolverSpec`: what every solver has in YAML, and how its transforms become the update in the graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from netspec.errors import SpecError
from netspec.graph.ops.source import State
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from netspec.schema.specs.field_types import Names
from netspec.schema.specs.spec import Spec, problem
from netspec.solvers.averaging import AVERAGE, EMA, follow
from netspec.solvers.clipping import ClipByGlobalNorm, ClipByNorm, ClipByValue
from netspec.solvers.groups import GroupSpec, group_of, group_problems, of_nothing
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import Chain, Kept, Param, Step, UpdateTransform

__all__ = ["CrossWorkerSums", "Param", "Slot", "Solution", "SolverSpec"]

Limit = Annotated[float, Field(gt=0)]
CLIPPING = {"clipnorm": ClipByNorm, "clipvalue": ClipByValue, "global_clipnorm": ClipByGlobalNorm}


def slot_label(param: str, name: str) -> str:
    """The name of the state that a slot is kept in. The prefix keeps it apart from the parameters."""
    return f"solver/{param}/{name}"


@dataclass(frozen=True)
class Slot:
    """A state that a solver keeps: for a parameter, or for a family of them."""

    param: str
    """The parameter's name; `$` and the family's for one that several share."""
    name: str
    value: Value
    initial: float | None
    """The number that it is filled with before the first step; None: it starts as the parameter."""

    @property
    def label(self) -> str:
        """The name of the state."""
        return slot_label(self.param, self.name)


@dataclass(frozen=True)
class Solution:
    """An update as graph values."""

    updates: dict[str, Value] = field(default_factory=dict)
    """Name of a parameter → its value after the step."""
    slots: list[Slot] = field(default_factory=list)
    slot_updates: dict[str, Value] = field(default_factory=dict)
    """Label of a slot → its value after the step."""
    evaluated: dict[str, str] = field(default_factory=dict)
    """Name of a parameter → label of the slot that replaces it in evaluation."""


@dataclass(frozen=True)
class CrossWorkerSums:
    """How workers that update shards of the parameters sum over all of them."""

    names: Sequence[str]
    """The parameters that the workers update together, in the same order on all workers."""
    total: Callable[[Value], Value]
    """Sums a scalar over all workers."""
    pieces: Container[str] | None = None
    """The parameters of which each worker updates a shard; all workers update the others in full. None: all of them."""


class SolverSpec(Spec):
    """Base of solvers: clipping, then the solver's own `transforms`, then the sum with the parameter."""

    full_batch: ClassVar[bool] = False
    """Whether a step reads the whole training set any number of times, instead of being a chain of transforms."""
    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Small configurations for the registry-wide tests."""
    foreign_fields: ClassVar[dict[str, str]] = {
        "lr": "here it is `learning_rate`",
        "base_lr": "`base_lr` is Caffe's name: here it is `learning_rate`",
        "lr_policy": "a schedule is a value of `learning_rate`: `{type: StepDecay, initial: 0.01, …}`",
        "decay": "here it is `weight_decay`, or `learning_rate: {type: InverseTimeDecay, …}`",
        "regularization_type": "`regularization_type` is Caffe's name: here it is `weight_decay_norm`",
        "clip_gradients": "`clip_gradients` is Caffe's name: here it is `global_clipnorm`",
        "max_grad_norm": "here it is `global_clipnorm`",
        "use_ema": "here it is `ema: {decay: …}`",
        "ema_momentum": "here it is `ema: {decay: …}`",
        "ema_overwrite_frequency": "here it is `ema: {overwrite_every: …}`",
        "param_groups": "here it is `groups`: `[{match: '*/bias', weight_decay: 0}, …]`",
        "betas": "`betas` is PyTorch's name: here they are `beta_1` and `beta_2`",
        "eps": "here it is `epsilon`",
        "delta": "`delta` is Caffe's name: here it is `epsilon`",
        "max_iter": "how long to train is said in `train`: `max_steps`",
    }

    type: str
    """name of the update rule"""
    learning_rate: Schedule = Constant(initial=0.01)
    """factor of a step: a number, or a schedule such as `{type: CosineDecay, initial: 0.1}`"""
    clipnorm: Limit | None = None
    """shrink each parameter's gradient to at most this L2 norm"""
    clipvalue: Limit | None = None
    """cut each element of the gradients to ± this value"""
    global_clipnorm: Limit | None = None
    """shrink all gradients by one factor so that their L2 norm, taken together, is at most this"""
    weight_decay: float = Field(default=0.0, ge=0)
    """coupled weight decay: `weight_decay · w` is added to the gradient, as in Caffe and PyTorch (Keras's is
    decoupled: see AdamW)"""
    ema: EMA | None = None
    """a moving average of the weights, which evaluation and saved weights use: its decay, or a mapping"""
    groups: tuple[GroupSpec, ...] = Field(default=(), strict=False)
    """parameters with a rate, a decay or a rule of their own: `[{match: "*/bias", weight_decay: 0}]`; of the groups
    that fit a parameter the first counts"""

    @model_validator(mode="after")
    def _one_clipping(self) -> Self:
        given = [name for name in CLIPPING if getattr(self, name) is not None]
        if len(given) > 1:
            raise problem(
                "gradients can be clipped in one way only",
                field=given[1],
                expected=f"one of {', '.join(CLIPPING)}",
                got=" and ".join(given),
            )
        return self

    averages: ClassVar[bool] = False
    """Whether evaluation uses an average of the weights that the solver makes itself."""

    @model_validator(mode="after")
    def _one_average(self) -> Self:
        if self.ema is not None and (self.averages or any(self._of_group(group).averages for group in self.groups)):
            raise problem(
                "evaluation can't use two averages of the weights",
                field="ema",
                expected="no `ema` where a solver averages the weights itself",
                got="both",
            )
        return self

    @property
    def decouples(self) -> bool:
        """Whether weights shrink by their decay before the rule moves them: then no link needs to add it."""
        return False

    def transforms(self) -> Sequence[UpdateTransform]:
        """The links that turn (clipped) gradients into what is added to the parameters."""
        raise NotImplementedError  # abstract: subclasses say

    def usual_decay(self, param: Param) -> float:
        """The weight decay of a parameter of which neither group nor layer says another."""
        return self.weight_decay

    def patterns(self) -> Mapping[str, Names]:
        """Fields that are given as patterns of parameters, which must be there; not those of the groups."""
        return {}

    def check(self, names: Sequence[str]) -> None:
        """Raise `SpecError` with every pattern of the solver and its groups that fits none of a net's parameters."""
        problems = list(group_problems(self.groups, names))
        own = [(f"groups.{index}.solver.", self._of_group(group)) for index, group in enumerate(self.groups)]
        for path, solver in {id(solver): (path, solver) for path, solver in [*own, ("", self)]}.values():
            for field_, texts in solver.patterns().items():
                if (
                    texts != type(solver).model_fields[field_].default
                ):  # which may name layers that the net does not have
                    problems += of_nothing(solver, field_, texts, f"solver.{path}{field_}", names)
        if problems:
            raise SpecError(problems)

    def history_types(self, size: int, dtype: DType) -> dict[str, TensorType]:
        """Types of the states of a `whole` solver, by name, for parameters with `count` elements in total."""
        return {}

    def schedules(self) -> tuple[ScheduleSpec, ...]:
        """The different learning rates of the solver and its groups, its own first: each has a value at every step."""
        found: list[ScheduleSpec] = [self.learning_rate]
        for group in self.groups:
            one = self._of_group(group).learning_rate if group.learning_rate is None else group.learning_rate
            if one not in found:
                found.append(one)
        return tuple(found)

    def momenta(self) -> tuple[ScheduleSpec, ...]:
        """The different schedules of momenta of the solver and its groups, its own first."""
        solvers = [self, *(self._of_group(group) for group in self.groups)]
        scheduled = [one for solver in solvers for one in solver.scheduled_momenta().values()]
        return tuple({one.key: one for one in scheduled}.values())

    def scheduled_momenta(self) -> dict[str, ScheduleSpec]:
        """The solver's own fields other than the rate that are schedules, by their names."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "learning_rate"}
        return {name: value for name, value in fields.items() if isinstance(value, ScheduleSpec)}

    def build(
        self, params: Sequence[Param], rates: Sequence[Value], step: Value, together: CrossWorkerSums | None = None
    ) -> Solution:
        """The update of all `params`, in the phase `update` of the layers they belong to.

        `rates` are the values of the `schedules` and then of the `momenta`, `step` is the number of the update, from 1:
        float scalars of one type. The new values of the parameters have the parameters' types, those of slots the
        slots'. With `together` the `params` are those of this worker, pieces of parameters among them.
        """
        schedules = self.schedules()
        scheduled = {one.key: value for one, value in zip(schedules, rates, strict=False)}
        momenta = {one.key: value for one, value in zip(self.momenta(), rates[len(schedules) :], strict=True)}
        known = {param.name: param for param in params}
        parts: dict[int | None, list[Param]] = {}
        for name in known if together is None else together.names:
            index = group_of(self.groups, name)
            group = None if index is None else self.groups[index]
            own = index if group is not None and group.solver is not None else None
            family, several = "all" if own is None else f"group-{own}", parts.setdefault(own, [])
            if name in known:
                several.append(self._in_group(known[name], group, family, scheduled))
        solution = Solution()
        for own, several in parts.items():
            solver = self if own is None else self._of_group(self.groups[own])
            given = Step(tuple(several), scheduled[solver.learning_rate.key], step, momenta)
            given = given if together is None else replace(given, total=together.total, pieces=together.pieces)
            solver._move(several, given, solution)
        if self.ema is not None:
            self._average(self.ema, params, step, solution)
        return solution

    def _of_group(self, group: GroupSpec) -> SolverSpec:
        """The solver of a group's parameters."""
        if group.solver is None:
            return self
        assert isinstance(group.solver, SolverSpec)
        return group.solver

    def _in_group(self, param: Param, group: GroupSpec | None, family: str, scheduled: dict[str, Value]) -> Param:
        """The parameter with what its group says of it."""
        if group is None:
            return replace(param, family=family)
        rate = group.learning_rate
        return replace(
            param,
            learning_rate_multiplier=param.learning_rate_multiplier * group.learning_rate_multiplier,
            weight_decay=group.weight_decay,
            learning_rate=None if rate is None else scheduled[rate.key],
            family=family if rate is None else f"{family}-{list(scheduled).index(rate.key)}",
        )

    def _move(self, params: Sequence[Param], given: Step, solution: Solution) -> None:
        """Add the update of `params`, which are all that this solver moves, to the solution."""
        clipping = [kind(limit) for name, kind in CLIPPING.items() if (limit := getattr(self, name)) is not None]
        chain = Chain((*clipping, *self.transforms()))
        with in_scope(Scope("", self.type, self.where(), "update")):
            if self.decouples:
                params = [_shrunk(param, given, self.usual_decay(param)) for param in params]
                given = replace(given, params=tuple(params))
            known: dict[str, Slot] = {}
            slots = [_slots(param, chain, known) for param in params]
            solution.slots.extend(known.values())
            values = [{name: slot.value for name, slot in own.items()} for own in slots]
            changes, following = chain.update([param.gradient for param in params], values, given)
            for param, change in zip(params, changes, strict=True):
                with in_scope(param.scope):
                    moved = param.value + change
                    solution.updates[param.name] = moved if param.project is None else param.project(moved)
        for param, own, new in zip(params, slots, following, strict=True):
            solution.slot_updates.update({slot.label: new[name] for name, slot in own.items()})
            evaluated = chain.evaluated(param)
            if evaluated is not None:
                solution.evaluated[param.name] = own[evaluated].label

    def _average(self, ema: EMA, params: Sequence[Param], step: Value, solution: Solution) -> None:
        """Let an average follow each parameter, and stand for it."""
        with in_scope(Scope("", self.type, self.where("ema"), "update")):
            for param in params:
                slot = _slot(param, AVERAGE, Kept(None))
                with in_scope(param.scope):
                    average, moved = follow(ema, slot.value, solution.updates[param.name], step)
                solution.slots.append(slot)
                solution.updates[param.name], solution.slot_updates[slot.label] = moved, average
                solution.evaluated[param.name] = slot.label


def _shrunk(param: Param, given: Step, usual: float) -> Param:
    """The parameter after decoupled decay: w ← w - lr · decay · w, from where the rule moves it on."""
    decay = param.decay(usual)
    if not decay:
        return param
    with in_scope(param.scope):
        return replace(param, value=param.value * (1.0 - given.rate(param) * decay))


def _slots(param: Param, transform: UpdateTransform, known: dict[str, Slot]) -> dict[str, Slot]:
    """The slots that `transform` wants for `param`, by name; made unless they are known by their label."""
    found = {}
    for name, declared in transform.init(param).items():
        slot = _slot(param, name, declared if isinstance(declared, Kept) else Kept(declared))
        found[name] = known.setdefault(slot.label, slot)
    return found


def _slot(param: Param, name: str, kept: Kept) -> Slot:
    """A slot of a parameter, or of its family, made."""
    kind = param.value.type
    own = TensorType(kind.shape if kept.shape is None else kept.shape, kept.dtype or kind.dtype)
    owner = f"${param.family}" if kept.shared else param.name
    with in_scope(Scope("", "", None, "update") if kept.shared else param.scope):
        return Slot(owner, name, State(slot_label(owner, name), own)(), kept.initial)
