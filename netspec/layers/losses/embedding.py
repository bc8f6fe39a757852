"""Losses of distances between embeddings: Contrastive, Triplet, Circle."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Pow, Where, cast, elementwise
from netspec.graph.ops.functions import Abs, Exp, Log, Relu, Softplus, Sqrt
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceMax, ReduceSum, reshape_to
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import need
from netspec.layers.judging import Judged, LossSpec, PairLoss
from netspec.layers.targets import EPSILON, alike
from netspec.schema.kinds import LOSSES

FAR_BELOW = -1e9
"""Stands for minus infinity in a sum of exponentials, of which it leaves nothing."""


@LOSSES.register
class Contrastive(LossSpec):
    """½ of d² for pairs that are alike and of max(0, margin - d)² for others, averaged; d is their distance: Caffe's.

    `from: [first, second, target]`: embeddings (N, …) and whether they are alike, 1 or 0. Hadsell et al. 2006.
    """

    type: Literal["Contrastive"] = "Contrastive"
    margin: float = Field(default=1.0, gt=0)
    """how far embeddings that are not alike are to be apart"""
    legacy_version: bool = False
    """true: max(0, margin - d²) for those that are not alike, as old versions of Caffe had it"""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), (4,), dtypes=("float32", "float32", "int32"), high=2, margin=3.0),
        Sample.of(
            (4, 3), (4, 3), (4, 1), dtypes=("float32", "float32", "int32"), high=2, margin=9.0, legacy_version=True,
            weight=(4,),
        ),
    )  # fmt: skip

    def build(self, net: Builder, first: Value, second: Value, target: Value) -> Value:
        """first, second: (N, …), target: (N) → scalar."""
        first, second = alike(net, first, second)
        batch = first.shape[:1]
        fits = target.shape in (batch, (*batch, 1))
        need(fits, "whether a pair is alike is one number per sample", expected="a shape of []", got=target.type)
        alike_ = reshape_to(net.floating(target), batch)
        error = first - second
        square = ReduceSum(tuple(range(1, len(error.shape))))(error * error)
        if self.legacy_version:
            apart = Relu()(self.margin - square)
        else:
            short = Relu()(self.margin - Sqrt()(elementwise(Maximum(), square, EPSILON**2)))
            apart = short * short
        return self.reduced(net, Judged((alike_ * square + (1.0 - alike_) * apart) * 0.5))


@LOSSES.register
class Triplet(LossSpec):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), averaged: PyTorch's TripletMarginLoss.

    `from: [anchor, positive, negative]`: embeddings (N, …, D); d is the p-norm of their difference along the last axis.
    """

    type: Literal["Triplet"] = "Triplet"
    margin: float = Field(default=1.0, gt=0)
    """how much farther than the positive the negative is to be"""
    p: float = Field(default=2.0, ge=1)
    """of the norm: 1 for the sum of the differences, 2 for the usual distance"""
    epsilon: float = Field(default=1e-6, ge=0)
    """added to differences, so that a distance of 0 has a gradient"""
    swap: bool = False
    """true: the distance to the negative is from the positive where that is less"""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), (4, 3)),
        Sample.of((4, 3), (4, 3), (4, 3), p=1.0, margin=2.0, swap=True, weight=(4,)),
        Sample.of((2, 2, 3), (2, 2, 3), (2, 2, 3), p=3.0, margin=4.0),
    )

    def build(self, net: Builder, anchor: Value, positive: Value, negative: Value) -> Value:
        """anchor, positive, negative: (N, …, D) → scalar."""
        need(len(anchor.shape) >= 2, "the anchor is no embedding", expected="(batch, …, size)", got=anchor.type)
        anchor, positive = alike(net, anchor, positive)
        anchor, negative = alike(net, anchor, negative)
        far = self._distance(anchor, negative)
        if self.swap:
            far = Minimum()(far, self._distance(positive, negative))
        return self.reduced(net, Judged(Relu()(self._distance(anchor, positive) - far + self.margin)))

    def _distance(self, one: Value, other: Value) -> Value:
        size = Abs()(one - other + self.epsilon)
        total = ReduceSum((len(size.shape) - 1,))
        if self.p == 1:
            return total(size)
        return Sqrt()(total(size * size)) if self.p == 2 else Pow(1 / self.p)(total(Pow(self.p)(size)))


@LOSSES.register
class Circle(PairLoss):
    """ln(1 + Σ e^(γ α⁺ (d - m)) · Σ e^(γ α⁻ (1 - m - d))) of each sample, averaged over those that have a loss.

    Prediction (N, D) embeddings of length 1, target (N) class numbers. d is the distance, 1 - cosine, from those of the
    own class in the first sum, from the others in the second; α⁺ = m + d, α⁻ = 1 + m - d, both at least 0. Sun et al.
    2020, arXiv:2002.10857.
    """

    type: Literal["Circle"] = "Circle"
    gamma: float = Field(default=80.0, gt=0)
    """factor of the exponents"""
    margin: float = Field(default=0.4, ge=0, le=1)
    """m, how strict it is"""
    remove_diagonal: bool = True
    """false: a sample is compared with itself too"""

    samples: ClassVar = (
        Sample.of((5, 3), (5,), dtypes=("float32", "int32"), high=2, ranges=((-0.7, 0.7), None), gamma=4.0),
        Sample.of(
            (5, 3), (5, 1), dtypes=("float32", "int32"), high=2, ranges=((-0.7, 0.7), None), gamma=2.0, margin=0.2,
            remove_diagonal=False,
        ),
    )  # fmt: skip

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, D), label: (N) → (N)."""
        rank = len(prediction.shape)
        need(rank == 2, "the prediction is no embedding", expected="(batch, size)", got=prediction.type)
        count = prediction.shape[0]
        fits = not label.dtype.is_float and label.shape in ((count,), (count, 1))
        expected = "an input with `shape: []` and `dtype: int32`"
        need(fits, "class numbers must be one whole number per sample", expected=expected, got=label.type)
        x = net.floating(prediction)
        distance = elementwise(Maximum(), 1.0 - MatMul(transpose_b=True)(x, x), 0.0)
        same = cast(Equal()(reshape_to(label, (count, 1)), reshape_to(label, (1, count))), x.dtype)
        own = same * self._others(net, count) if self.remove_diagonal else same
        near = _exponents(distance + self.margin, distance - self.margin, self.gamma, own)
        far = _exponents(1 + self.margin - distance, 1 - self.margin - distance, self.gamma, 1.0 - same)
        losses = Softplus()(near + far)
        return Judged(losses, mask=elementwise(Greater(), losses, 0.0))

    def _others(self, net: Builder, count: int) -> Value:
        import numpy as np

        return constant(1 - np.eye(count, dtype=str(net.dtype)))


def _exponents(weight: Value, distance: Value, gamma: float, chosen: Value) -> Value:
    """ln Σ e^(γ · weight · distance) over the chosen ones of each row; far below 0 where there are none."""
    exponents = Relu()(weight) * distance * gamma
    exponents = elementwise(Where(), elementwise(Greater(), chosen, 0.5), exponents, FAR_BELOW)
    most = ReduceMax((1,), keepdims=True)(exponents)
    return Log()(ReduceSum((1,))(Exp()(exponents - most))) + reshape_to(most, (most.shape[0],))
