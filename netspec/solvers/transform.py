"""Transforms: (init, update) pairs that are chained to form the update rule of a solver.

A transform maps updates to updates, one for each parameter; the first transform gets the gradients. State that persists
between steps is stored in slots: `init` declares them, `update` reads them and returns their next values. The result of
the last transform is added to the parameter. The design is optax's (https://optax.readthedocs.io); here `update` builds
graph values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType
from netspec.graph.value import Scope, Value, in_scope
from netspec.solvers.schedules.base import ScheduleSpec


@dataclass(frozen=True)
class Param:
    """A parameter to train: its value, its gradient (of the same type), and its settings."""

    name: str
    value: Value
    gradient: Value
    learning_rate_multiplier: float = 1.0
    weight_decay_multiplier: float = 1.0
    project: Callable[[Value], Value] | None = None
    """Projects the updated value onto the values that the layer's constraint allows."""
    learning_rate: Value | None = None
    """The scheduled learning rate of its group, if that differs from the step's; a float scalar of the same type."""
    weight_decay: float | None = None
    """The weight decay of its group, if that sets one."""
    family: str = ""
    """Name of the parameters with the same solver and the same scheduled rate, which can share slots."""

    def decay(self, usual: float) -> float:
        """Return the weight decay of the parameter; `usual` is the solver's."""
        return (usual if self.weight_decay is None else self.weight_decay) * self.weight_decay_multiplier

    @property
    def scope(self) -> Scope:
        """The scope of the nodes of this parameter's update: its layer, in the phase `update`."""
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
        """Return the learning rate of `param`, in its element type."""
        factor, scheduled = param.learning_rate_multiplier, self.scheduled(param)
        return cast(scheduled if factor == 1 else scheduled * factor, param.value.dtype)

    def now(self, coefficient: float | ScheduleSpec, dtype: DType) -> float | Value:
        """Return the value of a momentum at this step: a number, or a scalar of type `dtype` if it is scheduled."""
        if isinstance(coefficient, ScheduleSpec):
            return cast(self.momenta[coefficient.key], dtype)
        return coefficient

    def scheduled(self, param: Param) -> Value:
        """Return the scheduled rate of `param`, before its multiplier."""
        return self.learning_rate if param.learning_rate is None else param.learning_rate


@dataclass(frozen=True)
class SlotSpec:
    """Declaration of a slot: a state that persists between steps."""

    initial: float | None = 0.0
    """The value of all elements before the first step; None: the value of the parameter."""
    shape: tuple[int, ...] | None = None
    """Shape; None: that of the parameter."""
    dtype: DType | None = None
    """Element type; None: that of the parameter."""
    shared: bool = False
    """Whether the parameters of a family share the slot: all must return the same next value. Requires `shape`."""


DeclaredSlots: TypeAlias = Mapping[str, "SlotSpec | float"]
"""Slots by name; a number means `SlotSpec(number)`."""
Updates: TypeAlias = Sequence[Value]
"""One for each parameter, of its type."""
Slots: TypeAlias = Sequence[dict[str, Value]]
"""One mapping from slot name to value for each parameter."""
ParamSlots: TypeAlias = dict[str, Value]
"""The slots of one parameter by name."""
ParamUpdate: TypeAlias = tuple[Value, ParamSlots]
"""The new update of one parameter, and the next values of its slots."""
Rule: TypeAlias = Callable[[Param, Value, ParamSlots], ParamUpdate]
"""The update of one parameter: (parameter, update, slots) → (new update, next values of the slots)."""


class UpdateTransform:
    """One transform: `init` declares a parameter's slots, `update` maps all updates and returns new slot values."""

    def init(self, param: Param) -> DeclaredSlots:
        """Return the slots of `param` by name: the initial value of each, or a `SlotSpec`."""
        return {}

    def evaluated(self, param: Param) -> str | None:
        """Return the name of the slot that replaces `param` outside of training; None: the parameter itself."""
        return None

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        """Return the new updates, and the next value of every slot that `init` declared; by default by `update_one`."""
        return for_each(updates, slots, step, partial(self.update_one, step))

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        """Return the new update of a parameter, and the next value of its slots, if they depend on nothing else."""
        raise NotImplementedError


def for_each(updates: Updates, slots: Slots, step: Step, rule: Rule) -> tuple[Updates, Slots]:
    """Apply `rule` to each parameter separately, with its nodes in the parameter's scope."""
    results = []
    for param, update, param_slots in zip(step.params, updates, slots, strict=True):
        with in_scope(param.scope):
            results.append(rule(param, update, param_slots))
    return [update for update, _ in results], [new_slots for _, new_slots in results]


@dataclass(frozen=True)
class Chain(UpdateTransform):
    """Transforms that are applied one after the other. `init` raises `ValueError` if two declare the same slot."""

    links: tuple[UpdateTransform, ...]

    def init(self, param: Param) -> DeclaredSlots:
        slots: dict[str, SlotSpec | float] = {}
        for link in self.links:
            declared = link.init(param)
            if duplicates := slots.keys() & declared.keys():
                raise ValueError(f"two transforms of a chain declare the slot {', '.join(sorted(duplicates))}")
            slots.update(declared)
        return slots

    def evaluated(self, param: Param) -> str | None:
        return next((name for link in self.links if (name := link.evaluated(param)) is not None), None)

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        next_slots: list[dict[str, Value]] = [{} for _ in step.params]
        for link in self.links:
            link_slots = [
                {name: values[name] for name in link.init(param)}
                for param, values in zip(step.params, slots, strict=True)
            ]
            updates, new_slots = link.update(updates, link_slots, step)
            for values, new_values in zip(next_slots, new_slots, strict=True):
                values.update(new_values)
        return updates, next_slots


@dataclass(frozen=True)
class Partition(UpdateTransform):
    """One transform for the parameters that a predicate selects, another for the rest."""

    selects: Callable[[Param], bool]
    link: UpdateTransform
    other: UpdateTransform

    def init(self, param: Param) -> DeclaredSlots:
        return self._link_of(param).init(param)

    def evaluated(self, param: Param) -> str | None:
        return self._link_of(param).evaluated(param)

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        results: dict[int, tuple[Value, dict[str, Value]]] = {}
        for link in (self.link, self.other):
            indices = [index for index, param in enumerate(step.params) if self._link_of(param) is link]
            link_step = replace(step, params=tuple(step.params[index] for index in indices))
            result = link.update([updates[index] for index in indices], [slots[index] for index in indices], link_step)
            results.update(zip(indices, zip(*result, strict=True), strict=True))
        in_order = [results[index] for index in range(len(step.params))]
        return [update for update, _ in in_order], [new_slots for _, new_slots in in_order]

    def _link_of(self, param: Param) -> UpdateTransform:
        return self.link if self.selects(param) else self.other
