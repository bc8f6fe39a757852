"""LocalResponseNormalization. The fields are those of Caffe's LRN."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import Pow
from netspec.graph.ops.lrn import LRN
from netspec.graph.ops.pooling import AveragePool
from netspec.graph.ops.shape import PadAxis
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.spatial import require_image
from netspec.schema.specs.kinds import LAYERS, LayerFields
from netspec.schema.specs.spec import problem


@LAYERS.register
class LocalResponseNormalization(LayerSpec):
    """Divide each element by a power of the mean square around it: in neighboring channels, or neighboring pixels.

    Input (N, C, …), output the same: y = x · (k + alpha/n · Σ x²)^-beta, with the sum over the n = size channels around
    (one more before than after if the size is even), or within a channel over the n = size² pixels around. Elements
    outside count as 0, and n stays the same there. This is Caffe's LRN and, across channels, PyTorch's; ONNX's is the
    same for odd sizes.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerFields.foreign_fields | {
        "local_size": "`local_size` is Caffe's name: use `size`",
        "norm_region": "`norm_region` is Caffe's name: use `region`, across_channels or within_channel",
    }

    type: Literal["LocalResponseNormalization"] = "LocalResponseNormalization"
    size: PositiveInt = 5
    """Window size: channels, or pixels along height and along width; must be odd within a channel."""
    alpha: float = Field(default=1.0, ge=0)
    """Factor of the mean square."""
    beta: float = Field(default=0.75, ge=0)
    """Exponent."""
    k: float = Field(default=1.0, gt=0)
    """Added to the mean square."""
    region: Literal["across_channels", "within_channel"] = "across_channels"
    """`across_channels`: the window covers adjacent channels at the same position; `within_channel`: adjacent positions
    in the same channel of an image."""

    samples: ClassVar = (
        Sample.of((2, 7, 3, 2)),
        Sample.of((2, 2, 4, 1), size=3, alpha=0.3, beta=0.6, k=2.0),
        Sample.of((2, 2, 5, 4), no_onnx_roundtrip=True, size=3, region="within_channel"),
        Sample.of((2, 5, 3, 2), no_onnx_roundtrip=True, size=4),
        Sample.of((2, 3, 2), no_onnx_roundtrip=True, size=2, alpha=0.3, beta=0.6, k=2.0),
    )

    @model_validator(mode="after")
    def _centered(self) -> Self:
        if self.region == "within_channel" and self.size % 2 == 0:
            raise problem(
                "`size` must be odd with `region: within_channel`", field="size", expected="an odd number",
                got=str(self.size),
            )  # fmt: skip
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        x = builder.floating(x)
        if self.region == "across_channels":
            require(len(x.shape) >= 2, "the input has no channels", expected="(batch, channels, …)", got=x.type)
            return LRN(self.size, self.alpha, self.beta, self.k)(x)
        require_image(x)
        reach = self.size // 2
        squares = PadAxis(3, reach, reach)(PadAxis(2, reach, reach)(x * x))
        window = Window.of(squares.shape[2:], (self.size, self.size), (1, 1), "valid")
        return x * Pow(-self.beta)(AveragePool(window)(squares) * self.alpha + self.k)
