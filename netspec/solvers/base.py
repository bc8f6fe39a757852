"""`SolverSpec`: what every solver has in YAML, and how its transforms become the update in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from netspec.graph.ops.source import State
from netspec.graph.value import Scope, Value, in_scope
from netspec.schema.spec import Spec, problem
from netspec.solvers.clipping import ClipByGlobalNorm, ClipByNorm, ClipByValue
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import Chain, Param, Step, Transform

__all__ = ["Param", "Slot", "Solution", "SolverSpec"]

Limit = Annotated[float, Field(gt=0)]
CLIPPING = {"clipnorm": ClipByNorm, "clipvalue": ClipByValue, "global_clipnorm": ClipByGlobalNorm}


def slot_label(param: str, name: str) -> str:
    """The name of the state that a slot is kept in. The prefix keeps it apart from the parameters."""
    return f"solver/{param}/{name}"


@dataclass(frozen=True)
class Slot:
    """A state that a solver keeps for a parameter, of the parameter's type."""

    param: str
    name: str
    value: Value
    initial: float
    """The number that it is filled with before the first step."""

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


class SolverSpec(Spec):
    """Base of solvers: clipping, then the solver's own `transforms`, then the sum with the parameter."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Small configurations for the registry-wide tests."""
    foreign_fields: ClassVar[dict[str, str]] = {
        "lr": "here it is `learning_rate`",
        "base_lr": "`base_lr` is Caffe's name: here it is `learning_rate`",
        "lr_policy": "a schedule is a value of `learning_rate`: `{type: StepDecay, initial: 0.01, …}`",
        "decay": "here it is `weight_decay`, or `learning_rate: {type: InverseTimeDecay, …}`",
        "regularization_type": "`weight_decay` is L2; for L1 give the layers a `kernel_regularizer`",
        "clip_gradients": "`clip_gradients` is Caffe's name: here it is `global_clipnorm`",
        "max_grad_norm": "here it is `global_clipnorm`",
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

    def transforms(self) -> Sequence[Transform]:
        """The links that turn (clipped) gradients into what is added to the parameters."""
        raise NotImplementedError

    def build(self, params: Sequence[Param], learning_rate: Value, step: Value) -> Solution:
        """The update of all `params`, in the phase `update` of the layers they belong to.

        `learning_rate` and `step` are float scalars of one type: the scheduled rate, and the number of the update,
        from 1. The new values of the parameters and slots have the parameters' types.
        """
        clipping = [kind(limit) for name, kind in CLIPPING.items() if (limit := getattr(self, name)) is not None]
        chain = Chain((*clipping, *self.transforms()))
        with in_scope(Scope("", self.type, self.where(), "update")):
            slots = [_slots(param, chain) for param in params]
            known = [{slot.name: slot.value for slot in own} for own in slots]
            given = Step(tuple(params), learning_rate, step)
            changes, following = chain.update([param.gradient for param in params], known, given)
            solution = Solution(slots=[slot for own in slots for slot in own])
            for param, change in zip(params, changes, strict=True):
                with in_scope(param.scope):
                    moved = param.value + change
                    solution.updates[param.name] = moved if param.project is None else param.project(moved)
        for own, new in zip(slots, following, strict=True):
            solution.slot_updates.update({slot.label: new[slot.name] for slot in own})
        return solution


def _slots(param: Param, transform: Transform) -> list[Slot]:
    """The slots that `transform` wants for `param`, made."""
    made = []
    for name, initial in transform.init(param).items():
        with in_scope(param.scope):
            value = State(slot_label(param.name, name), param.value.type)()
        made.append(Slot(param.name, name, value, initial))
    return made
