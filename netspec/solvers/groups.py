"""`groups` of a solver: parameters, selected by name, with other losses, another learning rate or another solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.specs.field_types import Names
from netspec.schema.specs.kinds import AnySolver
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.patterns import Pattern, matches
from netspec.schema.specs.spec import Spec, problem
from netspec.solvers.schedules.constant import Constant, Schedule

TOP_LEVEL_FIELDS = ("groups", "ema", "swa")
"""Fields of a solver that a group's solver cannot have."""


class GroupSpec(Spec):
    """Parameters with other losses, another learning rate, weight decay or solver."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "params": "`params` is PyTorch's name: use `match`, with names or patterns such as `*/bias`",
        "lr": "use `learning_rate`",
        "lr_mult": "`lr_mult` is Caffe's name: use `learning_rate_multiplier`",
        "decay_mult": "use `weight_decay`: the decay itself, not a factor",
        "optimizer": "use `solver`",
        "type": "a group selects another solver by `solver: {type: …}`",
        "loss": "use `losses`, with the names of losses of the net",
        "trainable": "set `trainable: false` in the layer, or name it in `init_from.freeze`",
    }

    match: Names
    """The parameters: names as `netspec plan` lists them, or patterns such as `*/bias`, in which `*` stands for any
    characters. The first group that matches a parameter applies."""
    learning_rate: Schedule | None = None
    """Learning rate: a number or a schedule. By default that of the solver."""
    learning_rate_multiplier: float = Field(default=1.0, gt=0)
    """Factor on the learning rate, in addition to the factor of the layer."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Weight decay. By default that of the solver."""
    solver: AnySolver | None = None
    """Another solver, with its own learning rate, weight decay and clipping. By default the solver of the net."""
    losses: Names | None = None
    """Losses of the net that these parameters minimize, by name: no other loss changes them, and penalties of layers
    always count. By default all losses."""

    @model_validator(mode="after")
    def _no_setting_twice(self) -> Self:
        if self.solver is None:
            return self
        for name in ("learning_rate", "weight_decay"):
            if getattr(self, name) is not None:
                raise problem(
                    f"`{name}` of a group with its own solver has no effect",
                    field=name,
                    expected=f"`{name}` inside `solver`",
                    got="both",
                )
        if getattr(self.solver, "full_batch", False):
            raise problem(
                f"{getattr(self.solver, 'type', '')} cannot be the solver of a group",
                field="solver",
                expected="a different solver, or this one for all parameters, without groups",
                hint="it updates all parameters together",
            )
        for name in TOP_LEVEL_FIELDS:
            if getattr(self.solver, name, None):  # the resolved spec of a run contains the defaults too
                raise problem(
                    f"the solver of a group cannot have `{name}`",
                    field="solver",
                    expected=f"`{name}` in the solver that the group belongs to",
                )
        return self

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield a problem for each of `losses` that the net does not have."""
        names = [loss.name for loss in resolve_names(training.net).losses]
        for text, location in _located_names(self, "losses", self.losses or ()):
            if text not in names:
                yield Problem(
                    f"`{text}` is not a loss of the net", location, "losses", hint=did_you_mean(text, names),
                    expected=f"one of {listing(names)}" if names else "a net with losses",
                )  # fmt: skip

    def summary(self) -> str:
        """Return the settings of the group in one line."""
        settings = []
        if self.losses is not None:
            settings.append(f"minimizes {' + '.join(self.losses)}")
        if self.learning_rate is not None:
            rate = self.learning_rate
            settings.append(f"learning_rate {rate.initial:g}" if isinstance(rate, Constant) else rate.type)
        if self.learning_rate_multiplier != 1:
            settings.append(f"learning_rate × {self.learning_rate_multiplier:g}")
        if self.weight_decay is not None:
            settings.append(f"weight_decay {self.weight_decay:g}")
        if self.solver is not None:
            settings.append(str(getattr(self.solver, "type", "")))
        return ", ".join(settings) or "the solver's settings"

    def selects(self, name: str) -> bool:
        """Whether the patterns match a parameter's name."""
        return matches(self.match, name)


def group_of(groups: Sequence[GroupSpec], name: str) -> int | None:
    """Return the index of a parameter's group; None if no group selects it."""
    return next((index for index, group in enumerate(groups) if group.selects(name)), None)


def group_problems(groups: Sequence[GroupSpec], names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each pattern that adds none of the named parameters to its group."""
    remaining = list(names)
    for index, group in enumerate(groups):
        path = f"solver.groups.{index}.match"
        yield from unmatched_patterns(group, "match", group.match, path, names)
        for text, location in _located_names(group, "match", group.match):
            pattern = Pattern(text)
            if any(name in pattern for name in names) and not any(name in pattern for name in remaining):
                hint = "the first group that matches a parameter applies: move this group up"
                message = f"all parameters that match `{text}` are in earlier groups"
                yield Problem(message, location, path, hint=hint)
        remaining = [name for name in remaining if not group.selects(name)]


def unmatched_patterns(spec: Spec, field: str, patterns: Names, path: str, names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each pattern in a field that matches none of the names."""
    for text, location in _located_names(spec, field, patterns):
        if not any(name in Pattern(text) for name in names):
            expected, hint = f"one of {listing(names)}", did_you_mean(text, names)
            yield Problem(f"`{text}` matches no parameter of the net", location, path, expected=expected, hint=hint)


def _located_names(spec: Spec, field: str, patterns: Names) -> Iterator[tuple[str, Location | None]]:
    """Yield each name or pattern in a field with its location."""
    for index, text in enumerate(patterns):
        yield text, spec.where(field, index) if len(patterns) > 1 else spec.where(field)
