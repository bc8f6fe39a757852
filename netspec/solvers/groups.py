"""`groups` of a solver: parameters, by patterns of their names, that have a rate, a decay or a rule of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.specs.field_types import Names
from netspec.schema.specs.kinds import AnySolver
from netspec.schema.specs.patterns import Pattern, matches
from netspec.schema.specs.spec import Spec, problem
from netspec.solvers.schedules.constant import Constant, Schedule

OF_THE_WHOLE = ("groups", "ema")
"""Fields of a solver that one within a group cannot have."""


class GroupSpec(Spec):
    """Parameters of which something else is said than of the others."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "params": "`params` is PyTorch's name: here it is `match`, with names or patterns such as `*/bias`",
        "lr": "here it is `learning_rate`",
        "lr_mult": "`lr_mult` is Caffe's name: here it is `learning_rate_multiplier`",
        "decay_mult": "here it is `weight_decay`: the number itself, not a factor",
        "optimizer": "here it is `solver`",
        "type": "a rule of the group's own is its `solver: {type: …}`",
        "trainable": "a layer says `trainable: false`, or `init_from` names it under `freeze`",
    }

    match: Names
    """which parameters: names as `netspec plan` lists them, or patterns such as `*/bias`, where `*` stands for any
    characters; the first group that matches a parameter applies"""
    learning_rate: Schedule | None = None
    """their learning rate: a number or a schedule; default: the solver's"""
    learning_rate_multiplier: float = Field(default=1.0, gt=0)
    """factor of their learning rate, in addition to the factor of their layer"""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """their weight decay; default: the solver's"""
    solver: AnySolver | None = None
    """a solver of their own, with a learning rate, weight decay and clipping of its own; default: this one"""

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        if self.solver is None:
            return self
        for name in ("learning_rate", "weight_decay"):
            if getattr(self, name) is not None:
                raise problem(
                    f"a group with a solver of its own has the `{name}` of that",
                    field=name,
                    expected=f"`{name}` inside of `solver`",
                    got="both",
                )
        if getattr(self.solver, "full_batch", False):
            raise problem(
                f"{getattr(self.solver, 'type', '')} moves all parameters together",
                field="solver",
                expected="it as the solver itself, without groups; or another solver here",
                got="a solver of a group",
            )
        for name in OF_THE_WHOLE:
            if getattr(self.solver, name, None):  # what a run has written down says the defaults too
                raise problem(
                    f"`{name}` inside of a group",
                    field="solver",
                    expected=f"`{name}` of the solver that the group belongs to",
                    got=f"`{name}` of its own",
                )
        return self

    def says(self) -> str:
        """What the group has of its own, in a line."""
        told = []
        if self.learning_rate is not None:
            rate = self.learning_rate
            told.append(f"learning_rate {rate.initial:g}" if isinstance(rate, Constant) else rate.type)
        if self.learning_rate_multiplier != 1:
            told.append(f"learning_rate × {self.learning_rate_multiplier:g}")
        if self.weight_decay is not None:
            told.append(f"weight_decay {self.weight_decay:g}")
        if self.solver is not None:
            told.append(str(getattr(self.solver, "type", "")))
        return ", ".join(told) or "nothing of its own"

    def takes(self, name: str) -> bool:
        """Whether a parameter is named by the patterns."""
        return matches(self.match, name)


def group_of(groups: Sequence[GroupSpec], name: str) -> int | None:
    """The group of a parameter, by its number; None for one that is in none."""
    return next((index for index, group in enumerate(groups) if group.takes(name)), None)


def group_problems(groups: Sequence[GroupSpec], names: Sequence[str]) -> Iterator[Problem]:
    """A problem for each pattern that adds no parameter to its group, of those with these names."""
    left = list(names)
    for index, group in enumerate(groups):
        path = f"solver.groups.{index}.match"
        yield from of_nothing(group, "match", group.match, path, names)
        for text, place in _places(group, "match", group.match):
            pattern = Pattern(text)
            if any(name in pattern for name in names) and not any(name in pattern for name in left):
                hint = "the first group that fits a parameter counts: put this one before"
                message = f"all parameters that `{text}` fits are in groups before this one"
                yield Problem(message, place, path, hint=hint)
        left = [name for name in left if not group.takes(name)]


def of_nothing(spec: Spec, field: str, texts: Names, path: str, names: Sequence[str]) -> Iterator[Problem]:
    """A problem for each pattern in a field that fits none of the names."""
    for text, place in _places(spec, field, texts):
        if not any(name in Pattern(text) for name in names):
            expected, hint = f"one of {listing(names)}", did_you_mean(text, names)
            yield Problem(f"`{text}` fits no parameter of the net", place, path, expected=expected, hint=hint)


def _places(spec: Spec, field: str, texts: Names) -> Iterator[tuple[str, Location | None]]:
    """Each pattern in a field, and where it was written."""
    for number, text in enumerate(texts):
        yield text, spec.where(field, number) if len(texts) > 1 else spec.where(field)
