"""Losses of distances between embeddings: Contrastive, CosineEmbedding, Triplet, Circle."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Pow, Where, call_elementwise, cast
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceMax, ReduceSum, reshape_to
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Abs, Exp, Log, Relu, Softplus, Sqrt
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses_and_metrics import ElementLosses, LossSpec, PairLoss
from netspec.layers.targets import EPSILON, align_target, to_signs
from netspec.schema.specs.kinds import LOSSES

TINY = 1e-12
"""Added to squared norms, as in PyTorch, so that the cosine of a zero embedding is defined."""
FAR_BELOW = -1e9
"""Replaces minus infinity in a sum of exponentials, where it contributes nothing."""


def _dot(first: Value, second: Value) -> Value:
    """Dot products along the last axis."""
    return ReduceSum((len(first.shape) - 1,))(first * second)


@LOSSES.register
class Contrastive(LossSpec):
    """Mean of ½d² over similar pairs and ½max(0, margin - d)² over others, where d is their distance: Caffe's loss.

    `from: [first, second, target]`: embeddings (N, …) and 1 for similar pairs, else 0. Hadsell et al. 2006.
    """

    type: Literal["Contrastive"] = "Contrastive"
    margin: float = Field(default=1.0, gt=0)
    """Distance from which dissimilar pairs add nothing to the loss."""
    legacy_version: bool = False
    """`true`: use max(0, margin - d²) for pairs that are not similar, as old versions of Caffe did."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), (4,), dtypes=("float32", "float32", "int32"), high=2, margin=3.0),
        Sample.of(
            (4, 3), (4, 3), (4, 1), dtypes=("float32", "float32", "int32"), high=2, margin=9.0, legacy_version=True,
            weight=(4,),
        ),
    )  # fmt: skip

    def build(self, builder: Builder, first: Value, second: Value, target: Value) -> Value:
        """first, second: (N, …), target: (N) → scalar."""
        first, second = align_target(builder, first, second, ("first", "second input"))
        batch = first.shape[:1]
        fits = target.shape in (batch, (*batch, 1))
        require(
            fits,
            "the target of a pair must be one value per sample",
            expected="(batch), an input with `shape: []`",
            got=target.type,
        )
        alike_ = reshape_to(builder.floating(target), batch)
        error = first - second
        square = ReduceSum(tuple(range(1, len(error.shape))))(error * error)
        if self.legacy_version:
            apart_loss = Relu()(self.margin - square)
        else:
            short = Relu()(self.margin - Sqrt()(call_elementwise(Maximum(), square, EPSILON**2)))
            apart_loss = short * short
        return self.reduce(builder, ElementLosses((alike_ * square + (1.0 - alike_) * apart_loss) * 0.5))


@LOSSES.register
class CosineEmbedding(LossSpec):
    """1 - cos for similar pairs and max(0, cos - margin) for others, averaged: PyTorch's CosineEmbeddingLoss.

    `from: [first, second, target]`: embeddings (N, …, D), compared along the last axis, and a target (N, …): 1 if a
    pair is similar, -1 (or 0) if not.
    """

    type: Literal["CosineEmbedding"] = "CosineEmbedding"
    margin: float = Field(default=0.0, ge=-1, le=1)
    """Cosine up to which dissimilar pairs add nothing to the loss."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), (4,), dtypes=("float32", "float32", "int32"), low=-1, high=2),
        Sample.of(
            (4, 3), (4, 3), (4, 1), dtypes=("float32", "float32", "int32"), low=-1, high=2, margin=0.3, weight=(4,)
        ),
    )

    def build(self, builder: Builder, first: Value, second: Value, target: Value) -> Value:
        """first, second: (N, …, D), target: (N, …) → scalar."""
        require(
            len(first.shape) >= 2, "the first input is not an embedding", expected="(batch, …, size)", got=first.type
        )
        first, second = align_target(builder, first, second, ("first", "second input"))
        lengths = Sqrt()((_dot(first, first) + TINY) * (_dot(second, second) + TINY))
        cosine, target = align_target(builder, _dot(first, second) / lengths, target)
        is_pair = (to_signs(target) + 1.0) * 0.5
        return self.reduce(
            builder, ElementLosses(is_pair * (1.0 - cosine) + (1.0 - is_pair) * Relu()(cosine - self.margin))
        )


@LOSSES.register
class Triplet(LossSpec):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), averaged: PyTorch's TripletMarginLoss.

    `from: [anchor, positive, negative]`: embeddings (N, …, D); d is the p-norm of their difference along the last axis.
    """

    type: Literal["Triplet"] = "Triplet"
    margin: float = Field(default=1.0, gt=0)
    """Margin by which the negative must be farther away than the positive."""
    p: float = Field(default=2.0, ge=1)
    """Order of the norm: 1 for the sum of absolute differences, 2 for the Euclidean distance."""
    epsilon: float = Field(default=1e-6, ge=0)
    """Added to differences, so that a distance of 0 has a gradient."""
    swap: bool = False
    """`true`: measure the distance to the negative from the positive if that is less."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), (4, 3)),
        Sample.of((4, 3), (4, 3), (4, 3), p=1.0, margin=2.0, swap=True, weight=(4,)),
        Sample.of((2, 2, 3), (2, 2, 3), (2, 2, 3), p=3.0, margin=4.0),
    )

    def build(self, builder: Builder, anchor: Value, positive: Value, negative: Value) -> Value:
        """anchor, positive, negative: (N, …, D) → scalar."""
        require(len(anchor.shape) >= 2, "the anchor is not an embedding", expected="(batch, …, size)", got=anchor.type)
        anchor, positive = align_target(builder, anchor, positive, ("anchor", "positive"))
        anchor, negative = align_target(builder, anchor, negative, ("anchor", "negative"))
        far = self._distance(anchor, negative)
        if self.swap:
            far = Minimum()(far, self._distance(positive, negative))
        return self.reduce(builder, ElementLosses(Relu()(self._distance(anchor, positive) - far + self.margin)))

    def _distance(self, a: Value, b: Value) -> Value:
        size = Abs()(a - b + self.epsilon)
        total = ReduceSum((len(size.shape) - 1,))
        if self.p == 1:
            return total(size)
        return Sqrt()(total(size * size)) if self.p == 2 else Pow(1 / self.p)(total(Pow(self.p)(size)))


@LOSSES.register
class Circle(PairLoss):
    """Mean of ln(1 + Σ e^(γ α⁺ (d - m)) · Σ e^(γ α⁻ (1 - m - d))) over the samples whose loss is not 0.

    Prediction (N, D): embeddings of length 1. Target (N): class indices. d is the distance, 1 - cosine, to samples of
    the same class in the first sum, to the others in the second; α⁺ = m + d, α⁻ = 1 + m - d, both at least 0. Sun et
    al. 2020, arXiv:2002.10857.
    """

    type: Literal["Circle"] = "Circle"
    gamma: float = Field(default=80.0, gt=0)
    """Factor of the exponents."""
    margin: float = Field(default=0.4, ge=0, le=1)
    """Margin m."""
    remove_diagonal: bool = True
    """`false`: a sample is compared with itself too."""

    samples: ClassVar = (
        Sample.of((5, 3), (5,), dtypes=("float32", "int32"), high=2, ranges=((-0.7, 0.7), None), gamma=4.0),
        Sample.of(
            (5, 3), (5, 1), dtypes=("float32", "int32"), high=2, ranges=((-0.7, 0.7), None), gamma=2.0, margin=0.2,
            remove_diagonal=False,
        ),
    )  # fmt: skip

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, D), label: (N) → (N)."""
        rank = len(prediction.shape)
        require(rank == 2, "the prediction is not an embedding", expected="(batch, size)", got=prediction.type)
        count = prediction.shape[0]
        fits = not label.dtype.is_float and label.shape in ((count,), (count, 1))
        expected = "int32 (batch), an input with `shape: []` and `dtype: int32`"
        require(fits, "class indices must be one integer per sample", expected=expected, got=label.type)
        x = builder.floating(prediction)
        distance = call_elementwise(Maximum(), 1.0 - MatMul(transpose_b=True)(x, x), 0.0)
        same = cast(Equal()(reshape_to(label, (count, 1)), reshape_to(label, (1, count))), x.dtype)
        positives = same * self._other_samples(builder, count) if self.remove_diagonal else same
        near = _exponents(distance + self.margin, distance - self.margin, self.gamma, positives)
        far = _exponents(1 + self.margin - distance, 1 - self.margin - distance, self.gamma, 1.0 - same)
        losses = Softplus()(near + far)
        return ElementLosses(losses, mask=call_elementwise(Greater(), losses, 0.0))

    def _other_samples(self, builder: Builder, count: int) -> Value:
        import numpy as np

        require_precomputable(count * count, "pairs of samples")
        return constant(1 - np.eye(count, dtype=str(builder.dtype)))


def _exponents(weight: Value, distance: Value, gamma: float, chosen: Value) -> Value:
    """ln Σ e^(γ · weight · distance) over the chosen elements of each row; very negative if there are none."""
    exponents = Relu()(weight) * distance * gamma
    exponents = call_elementwise(Where(), call_elementwise(Greater(), chosen, 0.5), exponents, FAR_BELOW)
    most = ReduceMax((1,), keepdims=True)(exponents)
    return Log()(ReduceSum((1,))(Exp()(exponents - most))) + reshape_to(most, (most.shape[0],))
