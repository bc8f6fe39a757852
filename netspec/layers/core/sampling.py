"""`Sampling`: draws from a normal distribution whose parameters a net computes."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.unary import Exp
from netspec.graph.types import batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.schema.specs.kinds import LAYERS


@LAYERS.register
class Sampling(LayerSpec):
    """Draw from normal distributions of given means and log-variances in training, as variational autoencoders do.

    Inputs mean and log_variance (N, …) of one shape, output the same: mean + exp(½ · log_variance) · ε with normal
    random numbers ε, so that both inputs have gradients (the reparametrization trick); in inference the mean. ε depends
    only on the run's seed, the step, the layer's name and the element's index in the global batch. Kingma and Welling
    2013, arXiv:1312.6114.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Identity",)
    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "seed": "not needed: the noise follows from the run's seed, the step and the layer's name",
    }

    type: Literal["Sampling"] = "Sampling"

    samples: ClassVar = (Sample.of((4, 3), (4, 3)), Sample.of((2, 3, 2), (2, 3, 2)))

    def build(self, builder: Builder, mean: Value, log_variance: Value) -> Value:
        """mean, log_variance: (N, …) → (N, …)."""
        mean, log_variance = builder.to_common_dtype([builder.floating(mean), builder.floating(log_variance)])
        require(
            mean.shape == log_variance.shape, "the means and the log-variances differ in shape",
            expected=f"log-variances of {batch_shape(mean.shape)}", got=log_variance.type,
        )  # fmt: skip
        if not builder.training:
            return mean
        return mean + Exp()(log_variance * 0.5) * builder.normal(mean.shape)
