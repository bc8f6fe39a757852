"""PReLU: a rectifier whose slope is learned. He et al. 2015, arXiv:1502.01852."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.functions import PRelu
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, need, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import Initializer, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS


@LAYERS.register
class PReLU(LayerSpec):
    """Let positive numbers pass, and multiply the others by learned slopes.

    Input (N, …), output the same: x where x > 0, else alpha · x. Each place of a sample has a slope of its own, or
    shares one along `shared_axes`: of images [2, 3] leaves one for each channel, as Caffe's and PyTorch's PReLU have.
    """

    type: Literal["PReLU"] = "PReLU"
    alpha_initializer: Initializer = Zeros()
    """first values of `alpha` (sizes of a sample, 1 along the shared axes)"""
    alpha_regularizer: Regularizer | None = None
    """penalty on `alpha`, added to the loss"""
    alpha_constraint: Constraint | None = None
    """what `alpha` is projected on after each step"""
    shared_axes: Axes | None = None
    """axes along which one slope serves all places; default: none"""

    passes_mask: ClassVar = True
    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 2, 2), shared_axes=[2, 3]),
        Sample.of((3, 4), shared_axes=1, alpha_regularizer={"type": "L2", "l2": 0.1}),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        shared = {sample_axis(x, axis, "to share slopes along") for axis in self.shared_axes or ()}
        need(len(x.shape) >= 2, "the input has no features", expected="(batch, …, features)", got=x.type)
        x = net.floating(x)
        shape = tuple(1 if axis in shared else size for axis, size in enumerate(x.shape[1:], 1))
        alpha = net.parameter("alpha", shape, self.alpha_initializer, self.alpha_regularizer, self.alpha_constraint)
        return PRelu()(x, alpha)
