"""`expect`: results that `netspec check` must find for a net or a training file."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from netspec.schema.specs.field_types import Name, Shape
from netspec.schema.specs.spec import Spec


class NetExpectation(Spec):
    """Expected properties of a net, which are checked without data."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "flops": "use `max_flops`",
        "params": "use `parameters`",
        "shapes": "use `outputs`",
        "first_loss": "`first_loss` belongs under `expect` of the training file",
        "overfits": "`overfits` belongs under `expect` of the training file",
    }

    outputs: dict[Name, Shape] = Field(default_factory=dict)
    """Shapes of the outputs of layers, without the batch axis: `{logits: [10]}`."""
    parameters: NonNegativeInt | None = None
    """Number of elements of all parameters, without moving statistics."""
    max_flops: PositiveFloat | None = None
    """Maximum number of operations for the outputs of one sample; a multiplication and an addition count as two."""


class FirstLoss(Spec):
    """Expected loss before the first update."""

    value: float
    """The loss; ln C for C classes that are equally likely."""
    within: PositiveFloat = 0.1
    """Largest accepted difference from `value`."""


class Overfits(Spec):
    """Expect that the net can memorize a few samples. If it cannot, the net or the training has an error."""

    samples: PositiveInt
    """Number of training samples to use, from the first on."""
    steps: PositiveInt = 500
    """Largest number of steps, but at least one pass over the samples. Ends earlier when the samples are learned."""
    loss: float | None = None
    """Upper bound of the mean loss of a pass over the samples. By default, as for `--overfit`, the samples are learned
    if it is at most 5 % of that of the first pass, or at most 50 % and all are classified correctly."""


class TrainExpectation(Spec):
    """Expected results of a training, which `netspec check --run` tests."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "outputs": "`outputs` belongs under `expect` of the net file",
        "parameters": "`parameters` belongs under `expect` of the net file",
        "max_flops": "`max_flops` belongs under `expect` of the net file",
        "overfit": "use `overfits`",
    }

    first_loss: FirstLoss | None = None
    """The loss of the first training batch, with the initial weights."""
    overfits: Overfits | None = None
    """The loss after some steps on a few samples."""
