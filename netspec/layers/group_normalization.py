"""Normalization of each sample over groups of its channels: GroupNormalization, InstanceNormalization, Caffe's MVN."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import group_normalization as ops
from netspec.graph.ops.reduce import ReduceMean
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import Fill
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.layers.normalization import Affine
from netspec.schema.kinds import LAYERS


class Grouping(Affine):
    """Base of normalizations over groups of channels."""

    axis: int = 1
    """the axis of the channels. Keras's default, -1, is the same axis in channels-last data"""

    def count(self, channels: int) -> int:
        """How many groups so many channels make."""
        raise NotImplementedError  # abstract: subclasses say

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        axis, x = sample_axis(x, self.axis, "of channels"), net.floating(x)
        channels = x.shape[axis]
        normalized = ops.GroupNormalization(self.count(channels), self.epsilon)
        gamma, beta = self.factors(net, x, (channels,))
        if axis == 1:
            return normalized.many(x, gamma, beta)[0]
        order = (0, axis, *(other for other in range(1, len(x.shape)) if other != axis))
        turned = normalized.many(Transpose(order)(x), gamma, beta)[0]
        return Transpose(tuple(sorted(order, key=order.__getitem__)))(turned)


@LAYERS.register
class GroupNormalization(Grouping):
    """Shift and scale groups of neighbouring channels of each sample to mean 0 and variance 1, then by `beta`, `gamma`.

    Input (N, C, …), output the same. Mean and variance are taken over the channels of a group and all places, in
    training and in inference alike; `beta` and `gamma` (C) are learned for each channel.
    y = gamma · (x - mean) / √(variance + epsilon) + beta. Wu and He 2018, arXiv:1803.08494.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "num_groups": "`num_groups` is PyTorch's name: here it is `groups`",
        "num_channels": "not needed: it follows from what the layer reads",
    }

    type: Literal["GroupNormalization"] = "GroupNormalization"
    groups: PositiveInt | Literal[-1] = 32
    """how many groups the channels make; -1: each channel is one, as in InstanceNormalization"""

    alike: ClassVar = ("InstanceNormalization",)
    samples: ClassVar = (
        Sample.of((3, 4, 2, 3), groups=2, one_way=True),
        Sample.of((2, 6), groups=3, epsilon=0.1, center=False, one_way=True),
        Sample.of((2, 3, 4), groups=2, axis=-1, scale=False, one_way=True),
        Sample.of((2, 3, 5), groups=-1),
    )

    def count(self, channels: int) -> int:
        """As many as the field says."""
        groups = channels if self.groups == -1 else self.groups
        need(
            channels % groups == 0, f"{channels} channels do not make {groups} equal groups",
            expected=f"`groups` of which {channels} is a multiple", got=groups,
        )  # fmt: skip
        return groups


@LAYERS.register
class InstanceNormalization(Grouping):
    """Shift and scale each channel of each sample to mean 0 and variance 1, then by learned `beta` and `gamma`.

    Input (N, C, …), output the same: GroupNormalization with as many groups as channels. Without `center` and `scale`
    it is PyTorch's InstanceNorm as it is by default. Ulyanov, Vedaldi and Lempitsky 2016, arXiv:1607.08022.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "affine": "`affine` is PyTorch's name: here it is `center` and `scale`",
        "num_features": "not needed: it follows from what the layer reads",
    }

    type: Literal["InstanceNormalization"] = "InstanceNormalization"
    epsilon: float = Field(default=1e-5, gt=0)

    samples: ClassVar = (
        Sample.of((3, 4, 2, 3)),
        Sample.of((2, 5, 3), axis=-1, epsilon=0.1, one_way=True),
        Sample.of((2, 3, 5), center=False, scale=False),
    )

    def count(self, channels: int) -> int:
        """One for each channel."""
        return channels


@LAYERS.register
class MVN(LayerSpec):
    """Caffe's mean-variance normalization: shift each channel of each sample to mean 0, and scale it to variance 1.

    Input (N, C, …), output the same: y = (x - mean) / √(variance + epsilon²). (Caffe adds epsilon to the deviation,
    which makes a difference only where the deviation is as small.)
    """

    type: Literal["MVN"] = "MVN"
    normalize_variance: bool = True
    """false: shift alone"""
    across_channels: bool = False
    """true: one mean and variance of all channels together"""
    epsilon: float = Field(default=1e-9, gt=0)
    """what the deviation is not smaller than, about"""

    alike: ClassVar = ("InstanceNormalization",)
    samples: ClassVar = (
        Sample.of((3, 4, 2, 3), epsilon=1e-3),
        Sample.of((2, 3, 4), across_channels=True, one_way=True),
        Sample.of((2, 3, 4), normalize_variance=False, one_way=True),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        need(
            len(x.shape) > 2 or self.across_channels, "a channel has one number alone: there is nothing to normalize",
            expected="(batch, channels, …)", got=x.type, hint="`across_channels: true` takes all channels together",
        )  # fmt: skip
        x = net.floating(x)
        if not self.normalize_variance:
            axes = tuple(range(1 if self.across_channels else 2, len(x.shape)))
            return x - ReduceMean(axes, keepdims=True)(x)
        vector = x.type.with_shape(x.shape[1])
        normalized = ops.GroupNormalization(1 if self.across_channels else x.shape[1], self.epsilon**2)
        return normalized.many(x, Fill(1.0, vector)(), Fill(0.0, vector)())[0]
