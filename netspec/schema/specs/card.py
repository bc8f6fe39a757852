"""`card.yaml`: facts about a model of the zoo that commands show, and that tests and `netspec zoo verify` check."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, StringConstraints

from netspec.schema.specs.spec import Spec

Text = Annotated[str, StringConstraints(min_length=1)]
Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Count(Spec):
    """A number that the net must have."""

    count: PositiveInt
    """The number."""
    of: str = ""
    """The paper or implementation that has the same number; empty if it is this net's alone."""


class RecordedResult(Spec):
    """A result that was measured."""

    metric: Text
    """Name of the loss or metric, as in the net file if there is one."""
    value: float
    """The value."""
    on: Text
    """The samples that it was measured on: `10,000 test images`."""
    at_least: float | None = None
    """Lower bound that the model must reach."""
    at_most: float | None = None
    """Upper bound that the model must reach."""
    command: Text
    """The command that repeats it."""
    seed: int = 1
    """Seed of the run."""
    date: Day
    """Day of the measurement, as in 2026-11-28."""
    machine: Text
    """Processor or GPU that it was measured on."""
    seconds: NonNegativeFloat | None = None
    """Duration of the command."""
    tolerance: PositiveFloat = 0.002
    """Largest difference that another machine may find with the same weights."""

    @property
    def reaches_its_goal(self) -> bool:
        """Whether the value is within the bounds."""
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)


class CardSpec(Spec):
    """Facts about a model of the zoo."""

    netspec: PositiveInt = 1
    """Version of the format."""
    task: Text
    """What the model is for, in a few words."""
    data: Text
    """What is needed to train it: data, where it is from, and its size. The first line of the model's `README.md`."""
    source: Text
    """The paper or program that the net is from."""
    license: Text
    """License of the files in the folder."""
    parameters: Count
    """Number of elements of all parameters."""
    flops: Count
    """Multiplications and additions of convolutions, matrix products and recurrent cells, for one sample."""
    results: list[RecordedResult] = Field(default_factory=list)
    """Results that were measured; empty if the net was not trained."""
    weights_sha256: Digest | None = None
    """SHA-256 of `weights.h5`; None if there are no trained weights."""
