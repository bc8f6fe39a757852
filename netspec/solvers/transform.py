"""Transforms: the links that an update is made of, as (init, update) pairs that chain.

A transform takes one update for each parameter (first the gradients) and gives one for each. What must outlive the
step is kept in slots: `init` names them, `update` reads them and gives their next values. After the last link the
update is added to the parameter. The design is optax's (https://optax.readthedocs.io); here both halves make graph.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType
from netspec.graph.value import Scope, Value, in_scope
from netspec.solvers.schedules.base import ScheduleSpec


@dataclass(frozen=True)
class Param:
    """A parameter to be trained: its value, its gradient (of the same type), and what is said of it alone."""

    name: str
    value: Value
    gradient: Value
    learning_rate_multiplier: float = 1.0
    weight_decay_multiplier: float = 1.0
    project: Callable[[Value], Value] | None = None
    """What brings the updated value back to where the layer allows it, if anything does."""
    learning_rate: Value | None = None
    """The scheduled rate of its group, where that has one of its own; a float scalar of the type of the step's."""
    weight_decay: float | None = None
    """The weight decay of its group, where that has one of its own."""
    family: str = ""
    """Shared by the parameters that have one rule and one scheduled rate; a slot can be kept for all of them."""

    def decay(self, usual: float) -> float:
        """Its weight decay, where that of its solver is `usual`."""
        return (usual if self.weight_decay is None else self.weight_decay) * self.weight_decay_multiplier

    @property
    def scope(self) -> Scope:
        """Where the nodes of this parameter's update belong: its layer, in the phase `update`."""
        return replace(self.value.node.scope, phase="update")


@dataclass(frozen=True)
class Step:
    """The inputs of a transform in addition to the updates."""

    params: tuple[Param, ...]
    learning_rate: Value
    """A float scalar: the solver's scheduled rate, before any parameter's multiplier."""
    count: Value
    """A float scalar of the same type: 1 at the first update."""
    momenta: Mapping[str, Value] = field(default_factory=dict)
    """Values of the scheduled momenta by `ScheduleSpec.key`: float scalars of the same type."""
    total: Callable[[Value], Value] = lambda value: value
    """Extends a sum over `params` to the parameters of all workers if each updates shards. All workers must call it the
    same number of times, also those without a shard."""
    pieces: Container[str] | None = None
    """The parameters of which each worker updates a shard; all workers update the others in full. None: all of them."""

    def rate(self, param: Param) -> Value:
        """The learning rate of `param`, in its element type."""
        factor, scheduled = param.learning_rate_multiplier, self.scheduled(param)
        return cast(scheduled if factor == 1 else scheduled * factor, param.value.dtype)

    def now(self, coefficient: float | ScheduleSpec, dtype: DType) -> float | Value:
        """The value of a momentum at this step: a number, or a scalar of type `dtype` if it is scheduled."""
        if isinstance(coefficient, ScheduleSpec):
            return cast(self.momenta[coefficient.key], dtype)
        return coefficient

    def scheduled(self, param: Param) -> Value:
        """The scheduled rate of `param`, before its multiplier."""
        return self.learning_rate if param.learning_rate is None else param.learning_rate


@dataclass(frozen=True)
class Kept:
    """A slot as a transform declares it: a state that persists between steps."""

    initial: float | None = 0.0
    """The number that it is filled with before the first step; None: it starts as the parameter."""
    shape: tuple[int, ...] | None = None
    """None: that of the parameter."""
    dtype: DType | None = None
    """None: that of the parameter."""
    shared: bool = False
    """One for all parameters of a family: all must give it the same next value. Its shape is to be given."""


Declared: TypeAlias = Mapping[str, "Kept | float"]
"""Slots by name; a number stands for `Kept(number)`."""
Updates: TypeAlias = Sequence[Value]
"""One for each parameter, of its type."""
Slots: TypeAlias = Sequence[dict[str, Value]]
"""One mapping from slot name to value for each parameter."""
Rule: TypeAlias = Callable[[Param, Value, dict[str, Value]], tuple[Value, dict[str, Value]]]
"""The update of one parameter: (parameter, update, slots) → (new update, next values of the slots)."""


class UpdateTransform:
    """One link: `init` declares a parameter's slots, `update` maps all updates and gives the slots' next values."""

    def init(self, param: Param) -> Declared:
        """The slots kept for `param`, by name: the number that each is filled with at first, or more of it."""
        return {}

    def evaluated(self, param: Param) -> str | None:
        """The slot that stands for `param` wherever the net is not trained; None: the parameter itself."""
        return None

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        """The new updates, and the next value of every slot that `init` declared."""
        raise NotImplementedError  # abstract: subclasses say


def for_each(updates: Updates, slots: Slots, step: Step, rule: Rule) -> tuple[Updates, Slots]:
    """Apply `rule` to each parameter by itself, its nodes in the parameter's scope."""
    made = []
    for param, update, own in zip(step.params, updates, slots, strict=True):
        with in_scope(param.scope):
            made.append(rule(param, update, own))
    return [update for update, _ in made], [own for _, own in made]


@dataclass(frozen=True)
class Chain(UpdateTransform):
    """Transforms one after the other, as one. Raises `ValueError` where two keep a slot of the same name."""

    links: tuple[UpdateTransform, ...]

    def init(self, param: Param) -> Declared:
        slots: dict[str, Kept | float] = {}
        for link in self.links:
            declared = link.init(param)
            if twice := slots.keys() & declared.keys():
                raise ValueError(f"two transforms of a chain keep a slot {', '.join(sorted(twice))}")
            slots.update(declared)
        return slots

    def evaluated(self, param: Param) -> str | None:
        return next((name for link in self.links if (name := link.evaluated(param)) is not None), None)

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        following: list[dict[str, Value]] = [{} for _ in step.params]
        for link in self.links:
            own = [{name: kept[name] for name in link.init(p)} for p, kept in zip(step.params, slots, strict=True)]
            updates, made = link.update(updates, own, step)
            for kept, new in zip(following, made, strict=True):
                kept.update(new)
        return updates, following


@dataclass(frozen=True)
class Either(UpdateTransform):
    """One link for the parameters that are chosen, another for the rest."""

    chosen: Callable[[Param], bool]
    link: UpdateTransform
    other: UpdateTransform

    def init(self, param: Param) -> Declared:
        return self._of(param).init(param)

    def evaluated(self, param: Param) -> str | None:
        return self._of(param).evaluated(param)

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        made: dict[int, tuple[Value, dict[str, Value]]] = {}
        for link in (self.link, self.other):
            own = [index for index, param in enumerate(step.params) if self._of(param) is link]
            part = replace(step, params=tuple(step.params[index] for index in own))
            found = link.update([updates[index] for index in own], [slots[index] for index in own], part)
            made.update(zip(own, zip(*found, strict=True), strict=True))
        results = [made[index] for index in range(len(step.params))]
        return [update for update, _ in results], [following for _, following in results]

    def _of(self, param: Param) -> UpdateTransform:
        return self.link if self.chosen(param) else self.other
