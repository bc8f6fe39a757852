"""Normalization of each sample over groups of its channels: GroupNormalization, InstanceNormalization, Caffe's MVN."""

from __future__ import annotations

from math import prod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import group_normalization as ops
from netspec.graph.ops.reduce import ReduceMean
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import Fill
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, sample_axis
from netspec.layers.normalization.batch import AffineFields, MovingAverageFields
from netspec.schema.specs.kinds import LAYERS


class GroupNormalizationBase(AffineFields):
    """Base of normalizations over groups of channels."""

    axis: int = 1
    """The axis of the channels. Keras's default, -1, is the same axis in channels-last data."""

    def count(self, channels: int) -> int:
        """Number of groups for this number of channels."""
        raise NotImplementedError  # subclasses implement it

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        axis, x = sample_axis(x, self.axis, "for channels"), builder.floating(x)
        return self.normalized(x, axis, *self.factors(builder, x, (x.shape[axis],)))[0]

    def normalized(self, x: Value, axis: int, gamma: Value, beta: Value) -> tuple[Value, Value, Value]:
        """The result, and mean and variance of each group of each sample, (N, groups)."""
        op = ops.GroupNormalization(self.count(x.shape[axis]), self.epsilon)
        order = (0, axis, *(other for other in range(1, len(x.shape)) if other != axis))
        y, mean, variance = op.call_multi(x if axis == 1 else Transpose(order)(x), gamma, beta)
        return y if axis == 1 else Transpose(tuple(sorted(order, key=order.__getitem__)))(y), mean, variance


@LAYERS.register
class GroupNormalization(GroupNormalizationBase):
    """Normalize groups of adjacent channels of each sample to mean 0 and variance 1, then apply `beta` and `gamma`.

    Input (N, C, …), output the same. Mean and variance are computed over the channels of a group and all positions, in
    training and in inference; `beta` and `gamma` (C) are learned for each channel. y = gamma · (x - mean) / √(variance
    + epsilon) + beta. Wu and He 2018, arXiv:1803.08494.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "num_groups": "`num_groups` is PyTorch's name: use `groups`",
        "num_channels": "not needed: it follows from what the layer reads",
    }

    type: Literal["GroupNormalization"] = "GroupNormalization"
    groups: PositiveInt | Literal[-1] = 32
    """Number of groups of channels; -1: each channel is a group, as in InstanceNormalization."""

    onnx_equivalents: ClassVar = ("InstanceNormalization",)
    samples: ClassVar = (
        Sample.of((3, 4, 2, 3), groups=2, no_onnx_roundtrip=True),
        Sample.of((2, 6), groups=3, epsilon=0.1, center=False, no_onnx_roundtrip=True),
        Sample.of((2, 3, 4), groups=2, axis=-1, scale=False, no_onnx_roundtrip=True),
        Sample.of((2, 3, 5), groups=-1),
    )

    def count(self, channels: int) -> int:
        """Return the number of groups."""
        groups = channels if self.groups == -1 else self.groups
        require(
            channels % groups == 0, f"{channels} channels cannot be split into {groups} equal groups",
            expected=f"`groups` that divides {channels}", got=groups,
        )  # fmt: skip
        return groups


@LAYERS.register
class InstanceNormalization(GroupNormalizationBase, MovingAverageFields):
    """Shift and scale each channel of each sample to mean 0 and variance 1, then by learned `beta` and `gamma`.

    Input (N, C, …), output the same: GroupNormalization with as many groups as channels. Without `center` and `scale`
    it is PyTorch's InstanceNorm as it is by default. With `track_running_stats` moving averages of means and variances
    are kept in training, and used in inference and with `trainable: false`, as by BatchNormalization. Ulyanov, Vedaldi
    and Lempitsky 2016, arXiv:1607.08022.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "affine": "`affine` is PyTorch's name: use `center` and `scale`",
        "num_features": "not needed: it follows from what the layer reads",
    }

    type: Literal["InstanceNormalization"] = "InstanceNormalization"
    epsilon: float = Field(default=1e-5, gt=0)
    track_running_stats: bool = False
    """`true`: keep moving averages of each channel's mean and unbiased variance, averaged over the samples,
    and use them
    in inference. (PyTorch's name)."""
    momentum: Annotated[float, Field(ge=0, le=1)] | None = 0.9
    """Share of the old value in the new moving average with `track_running_stats`: moving · momentum + batch ·
    (1 - momentum). PyTorch's `momentum=0.1` is 0.9 here. `null`: the mean over all batches so far, whose number is kept
    in `num_batches_tracked` (PyTorch's InstanceNorm does not update the averages in this case)."""

    onnx_equivalents: ClassVar = ("BatchNormalization",)
    samples: ClassVar = (
        Sample.of((3, 4, 2, 3)),
        Sample.of((2, 5, 3), axis=-1, epsilon=0.1, no_onnx_roundtrip=True),
        Sample.of((2, 3, 5), center=False, scale=False),
        Sample.of((3, 2, 2, 3), track_running_stats=True),
        Sample.of((2, 4, 3), track_running_stats=True, momentum=0.6, axis=2, scale=False),
        Sample.of((3, 2, 4), track_running_stats=True, trainable=False),
        Sample.of((3, 2, 4), track_running_stats=True, momentum=None),
    )

    def count(self, channels: int) -> int:
        """One group per channel."""
        return channels

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        if not self.track_running_stats:
            return super().build(builder, x)
        axis, x = sample_axis(x, self.axis, "for channels"), builder.floating(x)
        gamma, beta = self.factors(builder, x, (x.shape[axis],))
        moving = self.averages(builder, x.shape[axis])
        if not builder.is_learning:
            return self.normalize_by_averages(builder, axis, x, gamma, beta, moving)
        count = prod(x.shape[1:]) // x.shape[axis]
        require(
            count > 1, "a channel of a sample has a single element, so it has no unbiased variance",
            expected="(batch, channels, …) with 2 or more elements in each channel", got=x.type,
            hint="BatchNormalization computes the variance over the batch",
        )  # fmt: skip
        y, mean, variance = self.normalized(x, axis, gamma, beta)
        mean, variance = map(ReduceMean((0,)), (mean, variance))
        self.update_averages(builder, moving, mean, variance * (count / (count - 1)))
        return y


@LAYERS.register
class MVN(LayerSpec):
    """Caffe's mean-variance normalization: shift each channel of each sample to mean 0, and scale it to variance 1.

    Input (N, C, …), output the same: y = (x - mean) / √(variance + epsilon²). (Caffe adds epsilon to the standard
    deviation, which differs only if the deviation is similarly small.)
    """

    type: Literal["MVN"] = "MVN"
    normalize_variance: bool = True
    """`false`: only subtract the mean."""
    across_channels: bool = False
    """`true`: one mean and variance over all channels."""
    epsilon: float = Field(default=1e-9, gt=0)
    """Approximate lower limit of the standard deviation."""

    onnx_equivalents: ClassVar = ("InstanceNormalization",)
    samples: ClassVar = (
        Sample.of((3, 4, 2, 3), epsilon=1e-3),
        Sample.of((2, 3, 4), across_channels=True, no_onnx_roundtrip=True),
        Sample.of((2, 3, 4), normalize_variance=False, no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        require(
            len(x.shape) > 2 or self.across_channels, "a channel has a single element, so it cannot be normalized",
            expected="(batch, channels, …)", got=x.type,
            hint="`across_channels: true` normalizes all channels together",
        )  # fmt: skip
        x = builder.floating(x)
        if not self.normalize_variance:
            axes = tuple(range(1 if self.across_channels else 2, len(x.shape)))
            return x - ReduceMean(axes, keepdims=True)(x)
        vector = x.type.with_shape(x.shape[1])
        normalized = ops.GroupNormalization(1 if self.across_channels else x.shape[1], self.epsilon**2)
        return normalized.call_multi(x, Fill(1.0, vector)(), Fill(0.0, vector)())[0]
