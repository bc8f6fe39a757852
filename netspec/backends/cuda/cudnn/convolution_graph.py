"""`ConvolutionGraph`: a convolution, or one of its gradients, as a cuDNN graph."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from netspec.backends.cuda.cudnn.plans import GraphDescription, Operation, Tensor
from netspec.graph.ops.window import Window
from netspec.graph.types import DType


class ConvolutionKind(Enum):
    """The computed tensor: result, input gradient or weight gradient."""

    FORWARD = "forward"
    INPUT = "input"
    WEIGHT = "weight"


@dataclass(frozen=True)
class ConvolutionGraph(Operation):
    """The operation to plan: `a` and `b` are image and kernel, gradient and kernel, or gradient and image."""

    max_measured_plans: ClassVar[int] = 8
    kind: ConvolutionKind
    window: Window
    a: Tensor
    b: Tensor
    y: Tensor
    biased: bool = False
    """Whether a vector along the channels, of y's element type, is added to y."""

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def geometry(self) -> dict[str, list[int]]:
        """The library's operation."""
        window = self.window
        more = 2 - len(window.size)
        before, after = zip(*((0, 0) for _ in range(more)), *window.pads, strict=True)
        strides, dilation = (1,) * more + tuple(window.strides), (1,) * more + tuple(window.dilation)
        return {"pre_padding": [*before], "post_padding": [*after], "stride": [*strides], "dilation": [*dilation]}

    def describe(self, to: GraphDescription) -> None:
        """Operands are `a` and `b`, and the bias if there is one."""
        graph, result = to.graph, self.y.square
        a, b = to.read(self.a.square), to.read(self.b.square)
        if self.kind is ConvolutionKind.FORWARD:
            y = graph.conv_fprop(image=a, weight=b, **self.geometry)
        elif self.kind is ConvolutionKind.INPUT:
            y = graph.conv_dgrad(loss=a, filter=b, **self.geometry)
        else:
            y = graph.conv_wgrad(image=b, loss=a, **self.geometry)
        if self.biased:
            y.set_dim([*result.shape]).set_stride([*result.strides])
            y = graph.bias(input=y, bias=to.read(result.channels(result.dtype)))
        to.written(y, result)
