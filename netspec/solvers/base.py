"""`SolverSpec`: the YAML fields of every solver, and the conversion of its transforms to an update in the graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from netspec.errors import Location, SpecError
from netspec.graph.ops.source import State
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from netspec.schema.specs.field_types import Names
from netspec.schema.specs.spec import Spec, problem
from netspec.solvers.averaging import AVERAGE, EMA, EMASpec, SWASpec, follow
from netspec.solvers.clipping import ClipByGlobalNorm, ClipByNorm, ClipByValue
from netspec.solvers.groups import GroupSpec, group_of, group_problems, unmatched_patterns
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import Chain, Param, SlotSpec, Step, UpdateTransform

__all__ = ["CrossWorkerSums", "Param", "Slot", "Solution", "SolverSpec"]

Limit = Annotated[float, Field(gt=0)]
CLIPPING = {"clipnorm": ClipByNorm, "clipvalue": ClipByValue, "global_clipnorm": ClipByGlobalNorm}


def slot_label(param: str, name: str) -> str:
    """Return the name of a slot's state. The prefix distinguishes slots from parameters."""
    return f"solver/{param}/{name}"


@dataclass(frozen=True)
class Slot:
    """A state that a solver keeps for a parameter, or for a family of parameters."""

    param: str
    """Name of the parameter; for a shared slot `$` and the name of the family."""
    name: str
    value: Value
    initial: float | None
    """The value of all elements before the first step; None: the value of the parameter."""

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
    """Sums over all workers that update shards of the parameters."""

    names: Sequence[str]
    """Names of the parameters that the workers update together, in the same order on all workers."""
    total: Callable[[Value], Value]
    """Sums a scalar over all workers."""
    pieces: Container[str] | None = None
    """The parameters of which each worker updates a shard; all workers update the others in full. None: all of them."""


class SolverSpec(Spec):
    """Base of solvers: gradients are clipped, pass through `transforms`, and are added to the parameters."""

    full_batch: ClassVar[bool] = False
    """Whether a step may read the training set any number of times. Such a solver is not a chain of transforms."""
    usual_learning_rates: ClassVar[tuple[float, float]] = (1e-5, 1.0)
    """Lowest and highest learning rate that the solver is normally used with."""
    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Small configurations for the registry-wide tests."""
    foreign_fields: ClassVar[dict[str, str]] = {
        "lr": "use `learning_rate`",
        "base_lr": "`base_lr` is Caffe's name: use `learning_rate`",
        "lr_policy": "a schedule is a value of `learning_rate`: `{type: StepDecay, initial: 0.01, …}`",
        "decay": "use `weight_decay`, or `learning_rate: {type: InverseTimeDecay, …}`",
        "regularization_type": "`regularization_type` is Caffe's name: use `weight_decay_norm`",
        "clip_gradients": "`clip_gradients` is Caffe's name: use `global_clipnorm`",
        "max_grad_norm": "use `global_clipnorm`",
        "use_ema": "use `ema: {decay: …}`",
        "ema_momentum": "use `ema: {decay: …}`",
        "ema_overwrite_frequency": "use `ema: {overwrite_every: …}`",
        "swa_start": "use `swa: {start_step: …}`",
        "swa_freq": "use `swa: {every: …}`",
        "param_groups": "use `groups`: `[{match: '*/bias', weight_decay: 0}, …]`",
        "betas": "`betas` is PyTorch's name: use `beta_1` and `beta_2`",
        "eps": "use `epsilon`",
        "delta": "`delta` is Caffe's name: use `epsilon`",
        "max_iter": "`max_iter` is Caffe's name: it is `max_steps` under `train`",
    }

    type: str
    """Name of the update rule."""
    learning_rate: Schedule = Constant(initial=0.01)
    """Learning rate: a number, or a schedule such as `{type: CosineDecay, initial: 0.1}`."""
    clipnorm: Limit | None = None
    """Maximum L2 norm of each parameter's gradient; larger gradients are scaled down to it."""
    clipvalue: Limit | None = None
    """Maximum absolute value of each element of the gradients; larger elements are clipped to it."""
    global_clipnorm: Limit | None = None
    """Maximum L2 norm of all gradients together; if it is larger, all gradients are scaled by one factor."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Coupled weight decay: `weight_decay · w` is added to the gradient, as in Caffe and PyTorch. Keras's weight decay
    is decoupled, as in AdamW."""
    ema: EMA | None = None
    """Exponential moving average of the weights, which evaluation and saved weights use: its decay, or a mapping."""
    swa: SWASpec | None = None
    """Mean of the weights at intervals (stochastic weight averaging), which evaluation and saved weights use."""
    groups: tuple[GroupSpec, ...] = Field(default=(), strict=False)
    """Groups of parameters with other losses, another learning rate, weight decay or solver: `[{match: "*/bias",
    weight_decay: 0}]`. The first group that matches a parameter applies."""

    @model_validator(mode="after")
    def _one_clipping(self) -> Self:
        names = [name for name in CLIPPING if getattr(self, name) is not None]
        if len(names) > 1:
            raise problem(
                "several kinds of gradient clipping are set",
                field=names[1],
                expected=f"one of {', '.join(CLIPPING)}",
                got=" and ".join(names),
            )
        return self

    averages: ClassVar[bool] = False
    """Whether the solver itself averages the weights for evaluation."""

    @model_validator(mode="after")
    def _one_average(self) -> Self:
        if self.ema is not None and self.swa is not None:
            raise problem("the weights would be averaged twice", field="swa", expected="`ema` or `swa`", got="both")
        field_ = "ema" if self.ema is not None else "swa"
        averages = self.averages or any(self._solver_of(group).averages for group in self.groups)
        if averages and getattr(self, field_) is not None:
            raise problem(
                "the weights would be averaged twice",
                field=field_,
                expected=f"no `{field_}` with a solver that averages the weights",
                got="both",
            )
        return self

    @property
    def decouples(self) -> bool:
        """Whether weight decay is decoupled: applied to the weights before the update, instead of by a transform."""
        return False

    def transforms(self) -> Sequence[UpdateTransform]:
        """Return the transforms from (clipped) gradients to the values that are added to the parameters."""
        raise NotImplementedError

    def usual_decay(self, param: Param) -> float:
        """Return the weight decay of a parameter, before those of its group and its layer apply."""
        return self.weight_decay

    def patterns(self) -> Mapping[str, Names]:
        """Return the fields, except those of groups, that hold patterns. Each pattern must match a parameter."""
        return {}

    def check(self, names: Sequence[str]) -> None:
        """Raise `SpecError` with every pattern of the solver and its groups that matches none of the parameters."""
        problems = list(group_problems(self.groups, names))
        solvers = [(f"groups.{index}.solver.", self._solver_of(group)) for index, group in enumerate(self.groups)]
        for path, solver in {id(solver): (path, solver) for path, solver in [*solvers, ("", self)]}.values():
            for field_, patterns in solver.patterns().items():
                if patterns != type(solver).model_fields[field_].default:  # a default may match nothing
                    problems += unmatched_patterns(solver, field_, patterns, f"solver.{path}{field_}", names)
        if problems:
            raise SpecError(problems)

    def losses_of(self, name: str) -> Names | None:
        """Return the names of the losses that a parameter minimizes; None if it minimizes all of them."""
        index = group_of(self.groups, name)
        return None if index is None else self.groups[index].losses

    def history_types(self, size: int, dtype: DType) -> dict[str, TensorType]:
        """Return the types of a `full_batch` solver's states, by name, for `size` elements of parameters in total."""
        return {}

    def schedules(self) -> tuple[ScheduleSpec, ...]:
        """Return the different learning rates of the solver and its groups, the solver's first."""
        schedules: list[ScheduleSpec] = [self.learning_rate]
        for group in self.groups:
            rate = self._solver_of(group).learning_rate if group.learning_rate is None else group.learning_rate
            if rate not in schedules:
                schedules.append(rate)
        return tuple(schedules)

    def momenta(self) -> tuple[ScheduleSpec, ...]:
        """Return the different schedules of momenta of the solver and its groups, the solver's first."""
        solvers = [self, *(self._solver_of(group) for group in self.groups)]
        schedules = [schedule for solver in solvers for schedule in solver.scheduled_momenta().values()]
        return tuple({schedule.key: schedule for schedule in schedules}.values())

    def scheduled_momenta(self) -> dict[str, ScheduleSpec]:
        """Return the fields, except the learning rate and those of groups, that are schedules, by name."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "learning_rate"}
        return {name: value for name, value in fields.items() if isinstance(value, ScheduleSpec)}

    def build(
        self, params: Sequence[Param], rates: Sequence[Value], step: Value, sums: CrossWorkerSums | None = None
    ) -> Solution:
        """Build the update of all `params`, in the phase `update` of their layers.

        `rates` are the values of the `schedules` and then of the `momenta`, and `step` is the number of the update,
        from 1: float scalars of one type. New values have the types of their parameters and slots. With `sums`, the
        `params` are those of this worker, which may be shards.
        """
        schedules = self.schedules()
        scheduled = {schedule.key: value for schedule, value in zip(schedules, rates, strict=False)}
        momenta = dict(zip((schedule.key for schedule in self.momenta()), rates[len(schedules) :], strict=True))
        by_name = {param.name: param for param in params}
        by_solver: dict[int | None, list[Param]] = {}  # key: the index of the group whose solver it is
        for name in by_name if sums is None else sums.names:
            index = group_of(self.groups, name)
            group = None if index is None else self.groups[index]
            owner = index if group is not None and group.solver is not None else None
            family, members = "all" if owner is None else f"group-{owner}", by_solver.setdefault(owner, [])
            if name in by_name:
                members.append(self._with_group_settings(by_name[name], group, family, scheduled))
        solution = Solution()
        for owner, members in by_solver.items():
            solver = self if owner is None else self._solver_of(self.groups[owner])
            inputs = Step(tuple(members), scheduled[solver.learning_rate.key], step, momenta)
            inputs = inputs if sums is None else replace(inputs, total=sums.total, pieces=sums.pieces)
            solver._add_updates(members, inputs, solution)
        for name in ("ema", "swa"):
            if (average := getattr(self, name)) is not None:
                self._add_average(average, self.where(name), params, step, solution)
        return solution

    def _solver_of(self, group: GroupSpec) -> SolverSpec:
        """Return the solver of a group's parameters."""
        if group.solver is None:
            return self
        assert isinstance(group.solver, SolverSpec)
        return group.solver

    def _with_group_settings(
        self, param: Param, group: GroupSpec | None, family: str, scheduled: dict[str, Value]
    ) -> Param:
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

    def _add_updates(self, params: Sequence[Param], step: Step, solution: Solution) -> None:
        """Add the updates of `params`, all parameters that this solver updates, to the solution."""
        clipping = [kind(limit) for name, kind in CLIPPING.items() if (limit := getattr(self, name)) is not None]
        chain = Chain((*clipping, *self.transforms()))
        with in_scope(Scope("", self.type, self.where(), "update")):
            if self.decouples:
                params = [_decayed(param, step, self.usual_decay(param)) for param in params]
                step = replace(step, params=tuple(params))
            slots_by_label: dict[str, Slot] = {}
            slots = [_slots(param, chain, slots_by_label) for param in params]
            solution.slots.extend(slots_by_label.values())
            values = [{name: slot.value for name, slot in param_slots.items()} for param_slots in slots]
            changes, next_values = chain.update([param.gradient for param in params], values, step)
            for param, change in zip(params, changes, strict=True):
                with in_scope(param.scope):
                    weight = param.value + change
                    solution.updates[param.name] = weight if param.project is None else param.project(weight)
        for param, param_slots, new in zip(params, slots, next_values, strict=True):
            solution.slot_updates.update({slot.label: new[name] for name, slot in param_slots.items()})
            evaluated = chain.evaluated(param)
            if evaluated is not None:
                solution.evaluated[param.name] = param_slots[evaluated].label

    def _add_average(
        self, spec: EMASpec | SWASpec, where: Location | None, params: Sequence[Param], step: Value, solution: Solution
    ) -> None:
        """Add the average of each parameter, which replaces it in evaluation."""
        with in_scope(Scope("", self.type, where, "update")):
            for param in params:
                slot = _slot(param, AVERAGE, SlotSpec(None))
                with in_scope(param.scope):
                    average, weight = follow(spec, slot.value, solution.updates[param.name], step)
                solution.slots.append(slot)
                solution.updates[param.name], solution.slot_updates[slot.label] = weight, average
                solution.evaluated[param.name] = slot.label


def _decayed(param: Param, step: Step, usual: float) -> Param:
    """Return the parameter after decoupled decay, w ← w - lr · decay · w, to which the update is then added."""
    decay = param.decay(usual)
    if not decay:
        return param
    with in_scope(param.scope):
        return replace(param, value=param.value * (1.0 - step.rate(param) * decay))


def _slots(param: Param, transform: UpdateTransform, slots_by_label: dict[str, Slot]) -> dict[str, Slot]:
    """Return the slots that `transform` declares for `param`, by name; new ones are added to `slots_by_label`."""
    slots = {}
    for name, declaration in transform.init(param).items():
        slot = _slot(param, name, declaration if isinstance(declaration, SlotSpec) else SlotSpec(declaration))
        slots[name] = slots_by_label.setdefault(slot.label, slot)
    return slots


def _slot(param: Param, name: str, declaration: SlotSpec) -> Slot:
    """Create a slot of a parameter, or of its family if it is shared."""
    shape = param.value.shape if declaration.shape is None else declaration.shape
    slot_type = TensorType(shape, declaration.dtype or param.value.dtype)
    owner = f"${param.family}" if declaration.shared else param.name
    with in_scope(Scope("", "", None, "update") if declaration.shared else param.scope):
        return Slot(owner, name, State(slot_label(owner, name), slot_type)(), declaration.initial)
