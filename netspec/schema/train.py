"""What a train file may say (DESIGN §4): the net, the data, the solver and the training loop."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from netspec.schema.data import DataSpec
from netspec.schema.kinds import AnySolver, Name
from netspec.schema.net import NetSpec, Scalar
from netspec.schema.spec import Spec, problem

Count = Annotated[int, Field(ge=0)]


class LoopSpec(Spec):
    """The training loop: how long, how often what, and the seed."""

    max_steps: PositiveInt | None = None
    """stop after this many steps (updates)"""
    max_epochs: PositiveInt | None = None
    """stop after this many passes over the training data; one of `max_steps` and `max_epochs` is needed"""
    test_every: Count | None = None
    """evaluate on the test data every this many steps; 0: only at the end; default: once an epoch"""
    checkpoint_every: Count | None = None
    """write a checkpoint every this many steps; 0: only at the end; default: once an epoch"""
    keep_checkpoints: PositiveInt = 2
    """how many checkpoints stay on disk"""
    log_every: PositiveInt = 100
    """write the training loss to the log every this many steps"""
    seed: Count = 1
    """seed of everything random: initial weights, shuffling, dropout, augmentation"""
    precision: Literal["float32", "float64"] = "float32"
    """element type the net is computed in"""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.max_steps is None) == (self.max_epochs is None):
            both = self.max_steps is not None
            raise problem(
                "both `max_steps` and `max_epochs` are given" if both else "how long to train is not said",
                field="max_epochs" if both else None,
                expected="exactly one of `max_steps` and `max_epochs`",
                got="both" if both else "neither",
            )
        return self


class TrainSpec(Spec):
    """A training: which net, on what data, how."""

    netspec: Literal[1]
    """version of the spec language"""
    name: Name | None = None
    """name of the run; default: the net's name"""
    description: str = ""
    """what this training is for"""
    vars: dict[str, Scalar] = Field(default_factory=dict)
    """values for `${…}` expressions"""
    net: NetSpec
    """the net: the path of a net file (relative to this file), or the net itself"""
    data: DataSpec
    """where the samples come from"""
    solver: AnySolver
    """the update rule and its learning rate"""
    train: LoopSpec
    """the training loop"""
