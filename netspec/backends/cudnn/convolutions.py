"""`Convolution`: one, or a gradient of one, in the library's words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from netspec.backends.cudnn.plans import Described, Operation, Tensor
from netspec.graph.types import DType
from netspec.layers.window import Window


class Kind(Enum):
    """What is computed: results from images and kernels, and what the gradients of these are."""

    FORWARD = "forward"
    INPUT = "input"
    WEIGHT = "weight"


@dataclass(frozen=True)
class Convolution(Operation):
    """What is to be planned: `a` and `b` are image and kernel, gradient and kernel, or gradient and image."""

    most_raced: ClassVar[int] = 8
    kind: Kind
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
        """As the library has it."""
        window = self.window
        more = 2 - len(window.size)
        before, after = zip(*((0, 0) for _ in range(more)), *window.pads, strict=True)
        strides, dilation = (1,) * more + tuple(window.strides), (1,) * more + tuple(window.dilation)
        return {"pre_padding": [*before], "post_padding": [*after], "stride": [*strides], "dilation": [*dilation]}

    def describe(self, to: Described) -> None:
        """Operands are those two, and the bias where there is one."""
        graph, made = to.graph, self.y.square
        a, b = to.read(self.a.square), to.read(self.b.square)
        if self.kind is Kind.FORWARD:
            y = graph.conv_fprop(image=a, weight=b, **self.geometry)
        elif self.kind is Kind.INPUT:
            y = graph.conv_dgrad(loss=a, filter=b, **self.geometry)
        else:
            y = graph.conv_wgrad(image=b, loss=a, **self.geometry)
        if self.biased:
            y.set_dim([*made.shape]).set_stride([*made.strides])
            y = graph.bias(input=y, bias=to.read(made.channels(made.dtype)))
        to.written(y, made)
