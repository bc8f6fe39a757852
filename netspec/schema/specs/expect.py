"""`expect`: what a net or a training is to be, for `netspec check` to find out."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from netspec.schema.specs.field_types import Name, Shape
from netspec.schema.specs.spec import Spec


class NetExpectation(Spec):
    """What a net is to be; checked without data."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "flops": "here it is `max_flops`",
        "params": "here it is `parameters`",
        "shapes": "here it is `outputs`",
        "first_loss": "`first_loss` belongs under `expect` of the train file",
        "overfits": "`overfits` belongs under `expect` of the train file",
    }

    outputs: dict[Name, Shape] = Field(default_factory=dict)
    """shapes of outputs of layers, without the batch axis: `{logits: [10]}`"""
    parameters: NonNegativeInt | None = None
    """how many numbers the parameters of all layers have; moving statistics do not count"""
    max_flops: PositiveFloat | None = None
    """most operations to compute the net's outputs for one sample; a multiplication and an addition are two"""


class FirstLoss(Spec):
    """The loss before anything is learned."""

    value: float
    """the loss; of C classes that are equally likely it is ln C"""
    within: PositiveFloat = 0.1
    """how far from it the loss may be"""


class Overfits(Spec):
    """Expect that the net can memorize a few samples; a net that cannot contains a mistake."""

    samples: PositiveInt
    """how many of the first training samples"""
    steps: PositiveInt
    """for how many steps"""
    loss: float
    """the loss that the last pass over them must not be above, in the mean"""


class TrainExpectation(Spec):
    """What a training is to do; `netspec check --run` finds out."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "outputs": "`outputs` belongs under `expect` of the net file",
        "parameters": "`parameters` belongs under `expect` of the net file",
        "max_flops": "`max_flops` belongs under `expect` of the net file",
        "overfit": "here it is `overfits`",
    }

    first_loss: FirstLoss | None = None
    """the training loss of the first batch, with the weights that the training starts from"""
    overfits: Overfits | None = None
    """what some steps on a few samples come to"""
