"""What a net file may say: inputs, layers, outputs, losses and metrics."""

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
    """One input of a net: an array of a batch of samples."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "dim": "`dim` is Caffe's name: here it is `shape`, without the batch axis",
        "dims": "here it is `shape`, without the batch axis",
        "size": "here it is `shape`, without the batch axis",
        "type": "here it is `dtype`",
    }

    shape: Shape
    """sizes of one sample, without the batch axis; `[]` for a single number per sample"""
    dtype: InputDType = "float32"
    """element type; `float32` follows the precision the net is compiled for"""


class NetSpec(Spec):
    """A network: what goes in, the layers, what comes out, and what it is judged by."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "layer": "here it is `layers`, a list",
        "input_shape": "here it is `inputs`: `{image: {shape: [1, 28, 28]}}`",
        "loss": "here it is `losses`, a list",
        "variables": "here it is `vars`",
        "params": "here it is `vars`",
        "data": "`data` goes into the train file: a net only declares its `inputs`",
        "solver": "`solver` goes into the train file",
        "train": "`train` goes into the train file",
        "optimizer": "the solver goes into the train file, under `solver`",
        "batch_size": "`batch_size` goes into the train file, under `data.train`",
        "learning_rate": "`learning_rate` goes into the train file, under `solver`",
        "version": "here it is `netspec`",
        "block": "here it is `blocks`",
        "includes": "here it is `include`",
    }

    netspec: Literal[1]
    """version of the spec language"""
    name: Name = "net"
    """name of the net"""
    description: str = ""
    """what the net is for"""
    vars: dict[str, Variable] = Field(default_factory=dict)
    """values for `${…}` expressions: numbers, texts, lists and mappings of these"""
    include: Include = Field(default=(), exclude=True)
    """files (relative to this one) whose `vars` and `blocks` are taken as if they stood here"""
    blocks: Blocks = Field(default_factory=dict, exclude=True)
    """layers that are written once, under a name that is then a type of layers"""
    inputs: dict[Name, InputSpec] = Field(min_length=1)
    """the arrays a batch consists of, by name"""
    layers: list[AnyEntry] = Field(min_length=1)
    """the layers, each after those it reads"""
    outputs: Names | None = None
    """the layers whose values `predict` returns; default: the last layer"""
    losses: list[AnyLoss] = Field(default_factory=list)
    """what training makes small; several are added up by their weights"""
    metrics: list[AnyMetric] = Field(default_factory=list)
    """what evaluation measures besides"""
    expect: NetExpectation | None = None
    """what `netspec check` is to find: shapes, the number of parameters, operations"""
