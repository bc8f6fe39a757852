"""Parameter: a tensor that belongs to the net and is the same for every sample."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops.reduce import BroadcastRows, reshape_to
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import Initializer, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS
from netspec.schema.net import InputDType
from netspec.schema.spec import describe, problem


def _shape(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or any(type(size) is not int or size < 1 for size in value):
        raise problem("not a shape", expected="a list of sizes of 1 or more, [] for a number", got=describe(value))
    return tuple(value)


@LAYERS.register
class Parameter(LayerSpec):
    """A tensor of its own, the same for every sample: what layers of two inputs join with one that is computed.

    Input (N, …), of which only the number of samples counts; output (N, *shape). Floats are learned, unless
    `trainable` is false; whole numbers are not. Factors and offsets along axes of one input are rather the layers Scale
    and Bias.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"filler": "`filler` is Caffe's name: it is an initializer here"}
    one_way: ClassVar = "where it can, an importer makes it part of the layer that reads it"

    type: Literal["Parameter"] = "Parameter"
    shape: Annotated[tuple[int, ...], BeforeValidator(_shape, json_schema_input_type=list[int])]
    """of a sample, without the batch"""
    dtype: InputDType = "float32"
    """the element type; `float32` follows the precision the net is compiled for"""
    value_initializer: Initializer = Zeros()
    """first values of `value`"""
    value_regularizer: Regularizer | None = None
    """penalty on `value`, added to the loss"""
    value_constraint: Constraint | None = None
    """what `value` is projected on after each step"""

    samples: ClassVar = (
        Sample.of((2, 3), shape=[4, 2], value_initializer={"type": "RandomNormal"}),
        Sample.of((2, 3), shape=[], value_initializer="ones", value_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3), shape=[3], dtype="int64"),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, *shape)."""
        if self.dtype == "float32":
            value = net.parameter(
                "value", self.shape, self.value_initializer, self.value_regularizer, self.value_constraint
            )
        else:
            value = net.statistic("value", self.shape, self.value_initializer, DType(self.dtype))
        return BroadcastRows()(reshape_to(value, (1, *self.shape)), x)
