"""Normalization of each sample over axes: Layer-, RMS- and UnitNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import layer_normalization as rows
from netspec.graph.ops.elementwise import Maximum, Pow, call_elementwise
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, require, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, Ones
from netspec.layers.normalization.batch import AffineFields, move_axes_last
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS

LEAST_SQUARE = 1e-24
"""Square of the least vector length to divide by, Keras's 1e-12."""


def normalized_axes(x: Value, axes: Sequence[int]) -> tuple[int, ...]:
    """Axes to normalize over, counted from the front and sorted. Raises for missing or repeated axes and the batch."""
    normalized_axes = tuple(sorted(sample_axis(x, axis, "to normalize over") for axis in axes))
    require(
        len(set(normalized_axes)) == len(normalized_axes),
        "an axis is repeated",
        expected="different axes",
        got=list(axes),
    )
    return normalized_axes


@LAYERS.register
class LayerNormalization(AffineFields):
    """Normalize each sample along `axis` to mean 0 and variance 1, then apply learned `beta` and `gamma`.

    Input (N, …), output the same. Mean and variance are computed over the given axes for each position of the others,
    in training and in inference. y = gamma · (x - mean) / √(variance + epsilon) + beta. Ba, Kiros and Hinton 2016,
    arXiv:1607.06450.
    """

    type: Literal["LayerNormalization"] = "LayerNormalization"
    axis: Axes = (-1,)
    """The axis or axes to normalize over: by default the last, the features of a sequence (N, T, features). Of images
    (N, C, H, W), 1 is the channels, [1, 2, 3] all elements of an image."""

    samples: ClassVar = (
        Sample.of((3, 4, 5)),
        Sample.of((2, 6), center=False, epsilon=0.1),
        Sample.of((2, 3, 2, 4), axis=1, scale=False),
        Sample.of((2, 3, 2, 4), axis=[3, 1], gamma_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 2), axis=[1, 2]),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axes, x = normalized_axes(x, self.axis), builder.floating(x)
        gamma, beta = self.factors(builder, x, tuple(x.shape[axis] for axis in axes))
        normalized = rows.LayerNormalization(len(x.shape) - len(axes), self.epsilon)
        return move_axes_last(x, axes, lambda turned: normalized.call_multi(turned, gamma, beta)[0])


@LAYERS.register
class RMSNormalization(LayerSpec):
    """Divide each sample along `axis` by the root of its mean square, then multiply by a learned `scale`.

    Input (N, …), output the same: y = scale · x / √(mean of x² + epsilon), with the mean over the given axes for each
    position of the others. Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as several operators"
    passes_mask: ClassVar = True
    type: Literal["RMSNormalization"] = "RMSNormalization"
    axis: Axes = (-1,)
    """The axis or axes to normalize over: by default the last, the features of a sequence (N, T, features)."""
    epsilon: float = Field(default=1e-6, gt=0)
    """Added to the mean square, so that zeros are not divided by 0."""
    scale_initializer: Initializer = Ones()
    """First values of `scale` (sizes of the axes)."""
    scale_regularizer: Regularizer | None = None
    """Penalty on `scale`, added to the loss."""
    scale_constraint: Constraint | None = None
    """Constraint on `scale`, applied after each step."""

    samples: ClassVar = (
        Sample.of((3, 4, 5)),
        Sample.of((2, 3, 2, 4), axis=1, epsilon=0.1),
        Sample.of((2, 3, 2), axis=[1, 2]),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axes, x = normalized_axes(x, self.axis), builder.floating(x)
        shape = tuple(x.shape[axis] for axis in axes)
        scale = builder.parameter_of(self, "scale", shape)
        normalized = rows.RMSNormalization(len(x.shape) - len(axes), self.epsilon)
        return move_axes_last(x, axes, lambda turned: normalized.call_multi(turned, scale)[0])


@LAYERS.register
class UnitNormalization(LayerSpec):
    """Divide each sample's vectors along `axis` by their length: Σ x² over the axes becomes 1.

    Input (N, …), output the same. Zeros stay zeros.
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as several operators"
    passes_mask: ClassVar = True
    type: Literal["UnitNormalization"] = "UnitNormalization"
    axis: Axes = (-1,)
    """The axis or axes of the vectors."""

    samples: ClassVar = (Sample.of((3, 5)), Sample.of((2, 3, 2, 4), axis=[1, 3]))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axes, x = normalized_axes(x, self.axis), builder.floating(x)
        squares = ReduceSum(axes, keepdims=True)(x * x)
        return x * Pow(-0.5)(call_elementwise(Maximum(), squares, LEAST_SQUARE))
