"""Normalization over the batch and over axes of a sample: Batch, Layer, RMS and UnitNormalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import layer_normalization as rows
from netspec.graph.ops import normalization as ops
from netspec.graph.ops.elementwise import Maximum, Pow, elementwise
from netspec.graph.ops.reduce import ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import Fill
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, need, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import Initializer, Ones, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.layers.workers import mean_over_workers
from netspec.schema.kinds import LAYERS

LEAST_SQUARE = 1e-24
"""Of a vector's length: Keras's 1e-12, which what is shorter is divided by."""


class Affine(LayerSpec):
    """Base of normalizations that shift and scale what they have normalized by learned numbers."""

    passes_mask: ClassVar = True
    epsilon: float = Field(default=1e-3, gt=0)
    """added to the variance, so that equal numbers are not divided by 0"""
    center: bool = True
    """add the learned offset `beta`"""
    scale: bool = True
    """multiply by the learned factor `gamma`"""
    beta_initializer: Initializer = Zeros()
    """first values of `beta`"""
    gamma_initializer: Initializer = Ones()
    """first values of `gamma`"""
    beta_regularizer: Regularizer | None = None
    """penalty on `beta`, added to the loss"""
    beta_constraint: Constraint | None = None
    """what `beta` is projected on after each step"""
    gamma_regularizer: Regularizer | None = None
    """penalty on `gamma`, added to the loss"""
    gamma_constraint: Constraint | None = None
    """what `gamma` is projected on after each step"""

    def factors(self, net: Builder, x: Value, shape: tuple[int, ...]) -> tuple[Value, Value]:
        """`gamma` and `beta` of that shape; ones and zeros where they are left out."""
        gamma, beta = Fill(1.0, x.type.with_shape(*shape))(), Fill(0.0, x.type.with_shape(*shape))()
        if self.scale:
            gamma = net.parameter("gamma", shape, self.gamma_initializer, self.gamma_regularizer, self.gamma_constraint)
        if self.center:
            beta = net.parameter("beta", shape, self.beta_initializer, self.beta_regularizer, self.beta_constraint)
        return gamma, beta


def moved_last(x: Value, axes: tuple[int, ...], made: Callable[[Value], Value]) -> Value:
    """What `made` makes of `x` with `axes` as the last ones, in their order, with the axes where they were."""
    rank = len(x.shape)
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    if order == tuple(range(rank)):
        return made(x)
    return Transpose(tuple(sorted(order, key=order.__getitem__)))(made(Transpose(order)(x)))


def axes_of(x: Value, axes: Sequence[int]) -> tuple[int, ...]:
    """Axes to normalize over, counted from the front and sorted; each must be there, once, and not be the batch."""
    found = tuple(sorted(sample_axis(x, axis, "to normalize over") for axis in axes))
    need(len(set(found)) == len(found), "an axis is given twice", expected="different axes", got=list(axes))
    return found


@LAYERS.register
class BatchNormalization(Affine):
    """Shift and scale each channel to mean 0 and variance 1, then by a learned offset `beta` and factor `gamma`.

    Input (N, C, …), output the same. In training, mean and variance are those of the batch (per channel, over all other
    axes), and moving averages of them are kept; in inference, and with `trainable: false`, those averages are used.
    Places that a mask leaves out count in them (in Keras they do not).
    y = gamma · (x - mean) / √(variance + epsilon) + beta. Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    type: Literal["BatchNormalization"] = "BatchNormalization"
    axis: int = 1
    """the axis of the channels. Keras's default, -1, is the same axis in channels-last data"""
    momentum: float = Field(default=0.99, ge=0, le=1)
    """share of the old value in the new moving average: moving · momentum + batch · (1 - momentum)"""
    moving_mean_initializer: Initializer = Zeros()
    """first values of `moving_mean` (C)"""
    moving_variance_initializer: Initializer = Ones()
    """first values of `moving_variance` (C)"""
    synchronized: bool = False
    """in training on several workers, mean and variance are those of the whole batch; else each worker's are those of
    its part"""

    samples: ClassVar = (
        Sample.of((4, 3, 2, 3)),
        Sample.of((6, 3), scale=False, momentum=0.9),
        Sample.of((3, 2, 5), axis=-1, center=False, epsilon=0.1),
        Sample.of((3, 2, 2, 2), trainable=False),
    )
    foreign_fields: ClassVar[dict[str, str]] = {"sync": "here it is `synchronized`"}

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        axis = sample_axis(x, self.axis, "of channels")
        x = net.floating(x)
        shape = (x.shape[axis],)
        gamma, beta = self.factors(net, x, shape)
        moving_mean = net.statistic("moving_mean", shape, self.moving_mean_initializer)
        moving_variance = net.statistic("moving_variance", shape, self.moving_variance_initializer)
        if not net.learning:
            use = ops.BatchNormalization(axis, self.epsilon, self.momentum)
            return use(x, gamma, beta, moving_mean, moving_variance)
        moving = net.latest(moving_mean), net.latest(moving_variance)
        if self.synchronized and net.workers > 1:
            y, mean, variance = self._of_all(net, axis, x, gamma, beta)
            for state, old, found in zip((moving_mean, moving_variance), moving, (mean, variance), strict=True):
                net.update(state, old * self.momentum + found * (1 - self.momentum))
            return y
        made = ops.BatchNormalizationUpdating(axis, self.epsilon, self.momentum).many(x, gamma, beta, *moving)
        y, mean, variance = made
        net.update(moving_mean, mean)
        net.update(moving_variance, variance)
        return y

    def _of_all(self, net: Builder, axis: int, x: Value, gamma: Value, beta: Value) -> tuple[Value, Value, Value]:
        """The result, and mean and variance of the parts of all workers."""
        others = tuple(one for one in range(len(x.shape)) if one != axis)
        shape = tuple(size if one == axis else 1 for one, size in enumerate(x.shape))
        mean = mean_over_workers(net, ReduceMean(others)(x))
        centered = x - reshape_to(mean, shape)
        variance = mean_over_workers(net, ReduceMean(others)(centered * centered))
        return ops.BatchNormalization(axis, self.epsilon)(x, gamma, beta, mean, variance), mean, variance


@LAYERS.register
class LayerNormalization(Affine):
    """Shift and scale each sample's numbers along `axis` to mean 0 and variance 1, then by learned `beta` and `gamma`.

    Input (N, …), output the same. Mean and variance are taken over the given axes for each place of all others, in
    training and in inference alike. y = gamma · (x - mean) / √(variance + epsilon) + beta. Ba, Kiros and Hinton 2016,
    arXiv:1607.06450.
    """

    type: Literal["LayerNormalization"] = "LayerNormalization"
    axis: Axes = (-1,)
    """the axis or axes to normalize over: by default the last, the features of a sequence (N, T, features). Of images
    (N, C, H, W), 1 is the channels, [1, 2, 3] all of an image"""

    samples: ClassVar = (
        Sample.of((3, 4, 5)),
        Sample.of((2, 6), center=False, epsilon=0.1),
        Sample.of((2, 3, 2, 4), axis=1, scale=False),
        Sample.of((2, 3, 2, 4), axis=[3, 1], gamma_regularizer={"type": "L2", "l2": 0.1}),
        Sample.of((2, 3, 2), axis=[1, 2]),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axes, x = axes_of(x, self.axis), net.floating(x)
        gamma, beta = self.factors(net, x, tuple(x.shape[axis] for axis in axes))
        normalized = rows.LayerNormalization(len(x.shape) - len(axes), self.epsilon)
        return moved_last(x, axes, lambda turned: normalized.many(turned, gamma, beta)[0])


@LAYERS.register
class RMSNormalization(LayerSpec):
    """Divide each sample's numbers along `axis` by the root of their mean square, then scale by a learned `scale`.

    Input (N, …), output the same: y = scale · x / √(mean of x² + epsilon), the mean over the given axes for each place
    of all others. Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    one_way: ClassVar = "it is written as several operators"
    passes_mask: ClassVar = True
    type: Literal["RMSNormalization"] = "RMSNormalization"
    axis: Axes = (-1,)
    """the axis or axes to normalize over: by default the last, the features of a sequence (N, T, features)"""
    epsilon: float = Field(default=1e-6, gt=0)
    """added to the mean square, so that zeros are not divided by 0"""
    scale_initializer: Initializer = Ones()
    """first values of `scale` (sizes of the axes)"""
    scale_regularizer: Regularizer | None = None
    """penalty on `scale`, added to the loss"""
    scale_constraint: Constraint | None = None
    """what `scale` is projected on after each step"""

    samples: ClassVar = (
        Sample.of((3, 4, 5)),
        Sample.of((2, 3, 2, 4), axis=1, epsilon=0.1),
        Sample.of((2, 3, 2), axis=[1, 2]),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axes, x = axes_of(x, self.axis), net.floating(x)
        shape = tuple(x.shape[axis] for axis in axes)
        scale = net.parameter("scale", shape, self.scale_initializer, self.scale_regularizer, self.scale_constraint)
        normalized = rows.RMSNormalization(len(x.shape) - len(axes), self.epsilon)
        return moved_last(x, axes, lambda turned: normalized.many(turned, scale)[0])


@LAYERS.register
class UnitNormalization(LayerSpec):
    """Divide each sample's numbers along `axis` by their length: Σ x² over the axes is 1 afterwards.

    Input (N, …), output the same. Zeros stay zeros.
    """

    one_way: ClassVar = "it is written as several operators"
    passes_mask: ClassVar = True
    type: Literal["UnitNormalization"] = "UnitNormalization"
    axis: Axes = (-1,)
    """the axis or axes along which the vectors lie"""

    samples: ClassVar = (Sample.of((3, 5)), Sample.of((2, 3, 2, 4), axis=[1, 3]))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axes, x = axes_of(x, self.axis), net.floating(x)
        squares = ReduceSum(axes, keepdims=True)(x * x)
        return x * Pow(-0.5)(elementwise(Maximum(), squares, LEAST_SQUARE))
