"""Batch normalization for training and its gradient as cuDNN graphs.

Mean and inverse standard deviation are always float32. The library can fuse only its own ReLU, which turns NaN into 0
(its default; no plan has the note STRICT_NAN_PROP). This would hide NaN from the guard, so no epilogue is fused. The
gradient of a ReLU hides none: it is 0 or dy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netspec.backends.cuda.cudnn.plans import GraphDescription, Operation, Tensor
from netspec.graph.types import DType


@dataclass(frozen=True)
class NormalizationGraph(Operation):
    """Base class: tensors have the layout of `x`, vectors along its channels are float32."""

    max_measured_plans: ClassVar[int] = 3  # each plan must be compiled before it is measured
    needs_driver: ClassVar[bool] = True
    oldest: ClassVar[tuple[int, int]] = (8, 0)
    x: Tensor

    @property
    def dtype(self) -> DType:
        return self.x.dtype


@dataclass(frozen=True)
class NormalizationTrainingGraph(NormalizationGraph):
    """x, gamma, beta → y, the batch's mean, 1 / √(variance + ε)."""

    epsilon: float

    def describe(self, to: GraphDescription) -> None:
        """Moving averages are not computed here."""
        x = self.x.square
        vector = x.channels(DType.FLOAT32)
        operand, gamma, beta = to.read(x), to.read(vector), to.read(vector)
        y, mean, inverse, *_ = to.graph.batchnorm(
            input=operand, scale=gamma, bias=beta, in_running_mean=None, in_running_var=None,
            epsilon=to.number(self.epsilon, len(x.shape)), momentum=None,
        )  # fmt: skip
        to.written(y, x)
        to.written(mean, vector)
        to.written(inverse, vector)


@dataclass(frozen=True)
class NormalizationGradientGraph(NormalizationGraph):
    """x, dy, gamma, mean, 1 / √(variance + ε) → dx, dgamma, dbeta."""

    past_relu: bool
    """Whether dy is the gradient of a ReLU of the result. The result is then recomputed, which reads beta."""

    def describe(self, to: GraphDescription) -> None:
        """Intermediate values have the element type of the operands, the only one that the library supports."""
        x, graph = self.x.square, to.graph
        vector = x.channels(DType.FLOAT32)
        operand, dy = to.read(x), to.read(x)
        gamma, mean, inverse = (to.read(vector) for _ in range(3))
        if self.past_relu:
            y = graph.batchnorm_inference(
                input=operand, mean=mean, inv_variance=inverse, scale=gamma, bias=to.read(vector)
            )
            y.set_data_type(operand.get_data_type())
            dy = graph.relu_backward(loss=dy, input=y)
            dy.set_data_type(operand.get_data_type())
        dx, dgamma, dbeta = graph.batchnorm_backward(
            grad=dy, input=operand, scale=gamma, mean=mean, inv_variance=inverse
        )
        to.written(dx, x)
        to.written(dgamma, vector)
        to.written(dbeta, vector)
