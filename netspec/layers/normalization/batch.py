"""BatchNormalization, and the base classes of normalizations with a scale and an offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import batch_normalization as ops
from netspec.graph.ops.all_reduce import WEIGHT, AllReduce
from netspec.graph.ops.elementwise import Maximum, cast, scalar
from netspec.graph.ops.reduce import ReduceMean, reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import Fill
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, Ones, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS

DEFAULT_MOMENTUM = 0.99
"""Momentum that is written to files for a layer without one."""


class AffineFields(LayerSpec):
    """Base of normalizations with learned offsets and factors."""

    passes_mask: ClassVar = True
    epsilon: float = Field(default=1e-3, gt=0)
    """Added to the variance, so that constant data is not divided by 0."""
    center: bool = True
    """Add the learned offset `beta`."""
    scale: bool = True
    """Multiply by the learned factor `gamma`."""
    beta_initializer: Initializer = Zeros()
    """First values of `beta`."""
    gamma_initializer: Initializer = Ones()
    """First values of `gamma`."""
    beta_regularizer: Regularizer | None = None
    """Penalty on `beta`, added to the loss."""
    beta_constraint: Constraint | None = None
    """Constraint on `beta`, applied after each step."""
    gamma_regularizer: Regularizer | None = None
    """Penalty on `gamma`, added to the loss."""
    gamma_constraint: Constraint | None = None
    """Constraint on `gamma`, applied after each step."""

    def factors(self, builder: Builder, x: Value, shape: tuple[int, ...]) -> tuple[Value, Value]:
        """`gamma` and `beta` of that shape; ones and zeros if they are disabled."""
        gamma, beta = Fill(1.0, x.type.with_shape(*shape))(), Fill(0.0, x.type.with_shape(*shape))()
        if self.scale:
            gamma = builder.parameter_of(self, "gamma", shape)
        if self.center:
            beta = builder.parameter_of(self, "beta", shape)
        return gamma, beta


def move_axes_last(x: Value, axes: tuple[int, ...], function: Callable[[Value], Value]) -> Value:
    """Apply `function` to `x` with `axes` moved to the end, in their order, and move the axes back."""
    rank = len(x.shape)
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    if order == tuple(range(rank)):
        return function(x)
    return Transpose(tuple(sorted(order, key=order.__getitem__)))(function(Transpose(order)(x)))


class MovingAverageFields(AffineFields):
    """Base of normalizations that keep moving averages of mean and variance in training, and use them in inference."""

    axis: int
    momentum: Annotated[float, Field(ge=0, le=1)] | None
    moving_mean_initializer: Initializer = Zeros()
    """First values of `moving_mean` (C)."""
    moving_variance_initializer: Initializer = Ones()
    """First values of `moving_variance` (C)."""

    def averages(self, builder: Builder, channels: int) -> tuple[Value, Value]:
        """Declare the moving mean and the moving variance."""
        mean = builder.statistic("moving_mean", (channels,), self.moving_mean_initializer)
        return mean, builder.statistic("moving_variance", (channels,), self.moving_variance_initializer)

    def normalize_by_averages(
        self, builder: Builder, axis: int, x: Value, gamma: Value, beta: Value, moving: tuple[Value, Value]
    ) -> Value:
        """Normalize by the moving averages, as in inference."""
        if self.momentum is None:
            self._counter(builder)  # declares the state in inference too
        momentum = DEFAULT_MOMENTUM if self.momentum is None else self.momentum
        return ops.BatchNormalization(axis, self.epsilon, momentum)(x, gamma, beta, *moving)

    def update_averages(self, builder: Builder, moving: tuple[Value, Value], mean: Value, variance: Value) -> None:
        """Update the moving averages with the mean and variance of a batch."""
        share = self._batch_share(builder, mean.dtype) if self.momentum is None else 1 - self.momentum
        old_share = 1.0 - share if self.momentum is None else self.momentum
        for state, current in zip(moving, (mean, variance), strict=True):
            builder.update(state, builder.latest(state) * old_share + current * share)

    def _counter(self, builder: Builder) -> Value:
        """State with the number of batches so far: a float, like all statistics that workers average."""
        return builder.statistic("num_batches_tracked", (), Zeros())

    def _batch_share(self, builder: Builder, dtype: DType) -> Value:
        """Count the batch, and return its weight 1 / n in the mean over all n batches so far."""
        counter = self._counter(builder)
        count = builder.latest(counter) + 1.0
        builder.update(counter, count)
        return 1.0 / cast(count, dtype)


@LAYERS.register
class BatchNormalization(MovingAverageFields):
    """Shift and scale each channel to mean 0 and variance 1, then by a learned offset `beta` and factor `gamma`.

    Input (N, C, …), output the same. In training, mean and variance are those of the batch (per channel, over all other
    axes), and moving averages of them are kept; in inference, and with `trainable: false`, those averages are used.
    Masked elements are included (in Keras they are not).
    y = gamma · (x - mean) / √(variance + epsilon) + beta. Ioffe and Szegedy 2015, arXiv:1502.03167. PyTorch's BatchNorm
    with `momentum=0.1` corresponds to `momentum: 0.9`, `epsilon: 1e-5` and `unbiased_moving_variance: true`.
    """

    type: Literal["BatchNormalization"] = "BatchNormalization"
    axis: int = 1
    """The axis of the channels. Keras's default, -1, is the same axis in channels-last data."""
    momentum: Annotated[float, Field(ge=0, le=1)] | None = 0.99
    """Share of the old value in the new moving average: moving · momentum + batch · (1 - momentum). `null`: the mean
    over all batches so far, whose number is kept in `num_batches_tracked`."""
    unbiased_moving_variance: bool = False
    """`true`: the moving average is of the unbiased variance, n / (n - 1) times that of the batch's n elements, as in
    PyTorch; the batch itself is always normalized by its biased variance."""
    track_running_stats: bool = True
    """`false`: keep no moving averages, and normalize by the batch's mean and variance in inference too; the
    result for a
    sample then depends on the other samples of its batch."""
    synchronized: bool = False
    """Computes mean and variance over the full batch if there are several workers; else each worker uses its part."""

    samples: ClassVar = (
        Sample.of((4, 3, 2, 3)),
        Sample.of((6, 3), scale=False, momentum=0.9),
        Sample.of((3, 2, 5), axis=-1, center=False, epsilon=0.1),
        Sample.of((3, 2, 2, 2), trainable=False),
        Sample.of((4, 3, 2), momentum=0.9, unbiased_moving_variance=True),
        Sample.of((4, 3, 2), momentum=None),
    )
    foreign_fields: ClassVar[dict[str, str]] = {"sync": "use `synchronized`"}

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        axis = sample_axis(x, self.axis, "for channels")
        x = builder.floating(x)
        gamma, beta = self.factors(builder, x, (x.shape[axis],))
        if not self.track_running_stats:
            return self._normalize_by_batch(builder, axis, x, gamma, beta)[0]
        moving = self.averages(builder, x.shape[axis])
        if not builder.is_learning:
            return self.normalize_by_averages(builder, axis, x, gamma, beta, moving)
        if self.momentum is not None and not self.unbiased_moving_variance and not self._uses_all_workers(builder):
            update = ops.BatchNormalizationMovingAverage(axis, self.epsilon, self.momentum)
            y, *new = update.call_multi(x, gamma, beta, *map(builder.latest, moving))
            for state, value in zip(moving, new, strict=True):
                builder.update(state, value)
            return y
        y, mean, variance = self._normalize_by_batch(builder, axis, x, gamma, beta)
        if self.unbiased_moving_variance:
            variance = variance * self._bessel(builder, axis, x)
        self.update_averages(builder, moving, mean, variance)
        return y

    def _uses_all_workers(self, builder: Builder) -> bool:
        """Whether mean and variance are computed over the batches of all workers."""
        return self.synchronized and builder.workers > 1 and builder.is_learning

    def _normalize_by_batch(
        self, builder: Builder, axis: int, x: Value, gamma: Value, beta: Value
    ) -> tuple[Value, Value, Value]:
        """The normalized input, and mean and variance of the batch."""
        if builder.is_learning and not self._uses_all_workers(builder):
            zeros = Fill(0.0, x.type.with_shape(x.shape[axis]))()
            # Exported to ONNX, unlike `BatchNormalizationTraining`.
            update = ops.BatchNormalizationMovingAverage(axis, self.epsilon, 0.0)
            y, mean, variance = update.call_multi(x, gamma, beta, zeros, zeros)
            return y, mean, variance

        def averaged(value: Value) -> Value:
            return mean_over_workers(builder, value) if builder.is_learning else value

        others = tuple(other for other in range(len(x.shape)) if other != axis)
        shape = tuple(size if other == axis else 1 for other, size in enumerate(x.shape))
        mean = averaged(ReduceMean(others)(x))
        centered = x - reshape_to(mean, shape)
        variance = averaged(ReduceMean(others)(centered * centered))
        return ops.BatchNormalization(axis, self.epsilon)(x, gamma, beta, mean, variance), mean, variance

    def _bessel(self, builder: Builder, axis: int, x: Value) -> Value | float:
        """Bessel's correction n / (n - 1) for the n elements of a channel; 1 for a single element."""
        n = x.type.size // x.shape[axis]
        if not self._uses_all_workers(builder):
            return n / max(n - 1, 1)
        total = sum_over_workers(builder, n, x.dtype)
        return total / Maximum()(total - 1.0, scalar(1.0, x.dtype))


def sum_over_workers(builder: Builder, count: int, dtype: DType) -> Value:
    """The sum of `count`, proportional to a worker's samples, over all workers; bit-identical on each worker."""
    weight = cast(builder.input(WEIGHT, TensorType((), builder.dtype)), dtype)
    count_per_weight = cast(cast(count / weight + 0.5, DType.INT64), dtype)
    return AllReduce()(weight) * count_per_weight


def mean_over_workers(builder: Builder, x: Value) -> Value:
    """The mean of x over all workers, each weighted by its number of samples."""
    weight = cast(builder.input(WEIGHT, TensorType((), builder.dtype)), x.dtype)
    return AllReduce()(x * weight) / AllReduce()(weight)
