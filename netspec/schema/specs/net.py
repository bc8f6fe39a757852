"""Fields of a net file: inputs, layers, outputs, losses and metrics."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.schema.language.blocks import Blocks, Include
from netspec.schema.specs.expect import NetExpectation
from netspec.schema.specs.field_types import Name, Names, Shape
from netspec.schema.specs.kinds import AnyEntry, AnyLoss, AnyMetric
from netspec.schema.specs.spec import Spec

InputDType = Literal["float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
Variable = int | float | bool | str | list[Any] | dict[str, Any]


class InputSpec(Spec):
    """An input of a net: an array with a batch of samples."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "dim": "`dim` is Caffe's name: use `shape`, without the batch axis",
        "dims": "use `shape`, without the batch axis",
        "size": "use `shape`, without the batch axis",
        "type": "use `dtype`",
    }

    shape: Shape
    """Shape of a sample, without the batch axis; `[]` for one number per sample."""
    dtype: InputDType = "float32"
    """Element type. `float32` becomes the precision for which the net is compiled."""


class NetSpec(Spec):
    """A net file: inputs, layers, outputs, losses and metrics of a network."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "layer": "use `layers`, a list",
        "input_shape": "use `inputs`: `{image: {shape: [1, 28, 28]}}`",
        "loss": "use `losses`, a list",
        "variables": "use `vars`",
        "params": "use `vars`",
        "data": "`data` belongs in the training file: a net only declares its `inputs`",
        "solver": "`solver` belongs in the training file",
        "train": "`train` belongs in the training file",
        "optimizer": "the optimizer belongs in the training file, under `solver`",
        "batch_size": "`batch_size` belongs in the training file, under `data.train`",
        "learning_rate": "`learning_rate` belongs in the training file, under `solver`",
        "version": "use `netspec`",
        "block": "use `blocks`",
        "includes": "use `include`",
    }

    netspec: Literal[1]
    """Version of the spec language."""
    name: Name = "net"
    """Name of the net."""
    description: str = ""
    """Purpose of the net, in free text."""
    vars: dict[str, Variable] = Field(default_factory=dict)
    """Values for `${…}` expressions: numbers, texts, lists and mappings of these."""
    include: Include = Field(default=(), exclude=True)
    """Files whose `vars` and `blocks` are added to those of this file. Paths are relative to this file."""
    blocks: Blocks = Field(default_factory=dict, exclude=True)
    """Reusable layers: the name of a block can be used as the `type` of a layer."""
    inputs: dict[Name, InputSpec] = Field(min_length=1)
    """The inputs by name."""
    layers: list[AnyEntry] = Field(min_length=1)
    """The layers, each after the layers that it reads."""
    outputs: Names | None = None
    """The layers whose values `predict` returns. By default the last layer."""
    losses: list[AnyLoss] = Field(default_factory=list)
    """The losses that training minimizes, as a sum weighted by `weight`."""
    metrics: list[AnyMetric] = Field(default_factory=list)
    """Metrics that are computed in evaluations, in addition to the loss."""
    expect: NetExpectation | None = None
    """Results that `netspec check` must find: shapes, the number of parameters, operations."""
