"""Identity, ActivityRegularization, and Parameter, a tensor of the net that is the same for every sample."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netspec.graph.ops.reduce import BroadcastRows, reshape_to
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import as_items, is_integer
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, Zeros
from netspec.layers.regularizers import L1L2, Regularizer
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.net import InputDType
from netspec.schema.specs.spec import describe, problem


@LAYERS.register
class Identity(LayerSpec):
    """Return the input: a name to read from, or a placeholder for another layer.

    Input (N, …), output the same.
    """

    type: Literal["Identity"] = "Identity"

    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3)),
        Sample.of((2, 3), activity_regularizer={"type": "L2", "l2": 0.3}),
        Sample.of((2, 3, 2), dtypes=("int32",)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → the same."""
        return x


@LAYERS.register
class ActivityRegularization(LayerSpec):
    """Add a penalty on the input to the loss: l1 · Σ|x| + l2 · Σx², divided by the number of samples.

    Input (N, …), output the same.
    """

    type: Literal["ActivityRegularization"] = "ActivityRegularization"
    l1: float = Field(default=0.0, ge=0)
    """Factor of the absolute values."""
    l2: float = Field(default=0.0, ge=0)
    """Factor of the squares."""

    passes_mask: ClassVar = True
    samples: ClassVar = (Sample.of((2, 3), l1=0.3), Sample.of((3, 2, 2), l1=0.1, l2=0.2))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → the same."""
        builder.penalize_activity(L1L2(l1=self.l1, l2=self.l2), x)
        return x


def _shape(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise problem(
            "has an invalid value", expected="a list of sizes of 1 or more, [] for a scalar", got=describe(value)
        )
    return as_items(value, lambda size: is_integer(size) and size >= 1, "an integer of 1 or more") if value else ()


@LAYERS.register
class Parameter(LayerSpec):
    """A tensor of the net, the same for every sample, to be combined with computed values by layers with two inputs.

    Input (N, …), of which only the number of samples is used; output (N, *shape). Floats are learned, unless
    `trainable` is false; integers are not. For factors and offsets along axes of an input, use the layers Scale and
    Bias.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"filler": "`filler` is Caffe's name: use an initializer"}
    onnx_roundtrip_blocker: ClassVar = "an importer makes it part of the layer that reads it, if possible"

    type: Literal["Parameter"] = "Parameter"
    shape: Annotated[tuple[int, ...], BeforeValidator(_shape, json_schema_input_type=list[int])]
    """Shape of a sample, without the batch axis."""
    dtype: InputDType = "float32"
    """The element type; `float32` follows the precision the net is compiled for."""
    value_initializer: Initializer = Zeros()
    """First values of `value`."""
    value_regularizer: Regularizer | None = None
    """Penalty on `value`, added to the loss."""
    value_constraint: Constraint | None = None
    """Constraint on `value`, applied after each step."""

    samples: ClassVar = (
        Sample.of((2, 3), shape=[4, 2], value_initializer={"type": "RandomNormal"}),
        Sample.of((2, 3), shape=[], value_initializer="ones", value_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3), shape=[3], dtype="int64"),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, *shape)."""
        if self.dtype == "float32":
            value = builder.parameter_of(self, "value", self.shape)
        else:
            value = builder.statistic("value", self.shape, self.value_initializer, DType(self.dtype))
        return BroadcastRows()(reshape_to(value, (1, *self.shape)), x)
