"""Ops that oneDNN's kernels accept and decline, with the reasons that users read."""

from __future__ import annotations

import pytest

from netspec.backends.device_registry import open_device
from netspec.backends.onednn.kernel import desc
from netspec.backends.onednn.kernels.convolution import ConvolutionInputGradientKernel, forward_desc
from netspec.graph.fused import EpilogueFused, FusedStep
from netspec.graph.kernel import kernels_for
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.convolution import Conv, ConvInputGrad
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Concat, Reorder
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import Input
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType

NAME = "onednn"
LAST = Layout.channels_last(4)


def typed(*shape: int, dtype: DType = DType.FLOAT32) -> TensorType:
    return TensorType(shape, dtype)


def reasons(op: Op, *types: TensorType) -> list[str | None]:
    """Return why each kernel of the library declines the op; None for a kernel that accepts it."""
    return [
        kernel.reject_reason(op, *types)
        for kernel in kernels_for(type(op), open_device("cpu").kernels)
        if kernel.backend == NAME
    ]


def window(dilation: int = 1) -> Window:
    return Window((2, 2), (2, 2), ((0, 0), (0, 0)), (dilation, dilation))


def normalized(channels: int, size: int = 4) -> tuple[TensorType, ...]:
    image, vector = typed(2, channels, size, size), typed(channels)
    return image, vector, vector, vector, image


PADDED = Window((2, 2), (2, 2), ((1, 1), (1, 1)), (1, 1))

TAKEN = {
    "average": (AveragePool(window()), (typed(2, 16, 8, 8),)),
    "counted padding": (AveragePool(PADDED, PADDED.pads), (typed(2, 16, 8, 8),)),
    "counted padding's gradient": (AveragePoolGrad(PADDED, (2, 16, 8, 8), PADDED.pads), (typed(2, 16, 5, 5),)),
    "volume": (AveragePool(Window((2,) * 3, (2,) * 3, ((0, 0),) * 3, (1,) * 3)), (typed(2, 16, 4, 4, 4),)),
    "average's gradient": (AveragePoolGrad(window(), (2, 16, 8, 8)), (typed(2, 16, 4, 4),)),
    "short vectors": (Softmax(-1), (typed(64, 128),)),
    "normalization": (BatchNormalizationTraining(), normalized(16)[:3]),
    "normalization's gradient": (BatchNormalizationGrad(), normalized(16)),
    "planes of many channels": (Reorder(source=LAST), (typed(2, 64, 8, 8),)),
    "behind one another": (Concat(0), (typed(8, 16), typed(3, 16))),
}
DECLINED = {
    "partly counted padding": (AveragePool(PADDED, ((1, 0), (0, 1))), (typed(2, 16, 8, 8),), "all padding or none"),
    "gaps": (AveragePool(window(dilation=2)), (typed(2, 16, 8, 8),), "nothing faster than"),
    "float64": (AveragePool(window()), (typed(2, 16, 8, 8, dtype=DType.FLOAT64),), "not float64"),
    "scattered vectors": (Softmax(1), (typed(2, 16, 8, 8),), "not contiguous"),
    "long vectors": (Softmax(-1), (typed(64, 1000),), "vectors of 1000"),
    "three channels": (BatchNormalizationTraining(), normalized(3)[:3], "nothing faster than"),
    "large images": (BatchNormalizationGrad(), normalized(64, 256), "is slower for"),
    "rows": (BatchNormalizationTraining(), (typed(8, 16), typed(16), typed(16)), "axis 1 of images"),
    "planes of few channels": (Reorder(source=LAST), (typed(2, 3, 8, 8),), "3 channels"),
    "sums of columns": (ReduceSum((0,)), (typed(8, 16),), "rows of a matrix"),
    "whole numbers": (ReduceSum((1,)), (typed(512, 64, dtype=DType.INT32),), "not int32"),
}


@pytest.mark.parametrize(("op", "types"), TAKEN.values(), ids=TAKEN)
def test_accepts(engine: object, op: Op, types: tuple[TensorType, ...]) -> None:
    assert None in reasons(op, *types)


@pytest.mark.parametrize(("op", "types", "reason"), DECLINED.values(), ids=DECLINED)
def test_declines(engine: object, op: Op, types: tuple[TensorType, ...], reason: str) -> None:
    assert any(reason in (why or "") for why in reasons(op, *types))
    assert None not in reasons(op, *types)


def test_a_strided_gradient_of_channels_convolved_one_by_one_runs_code_for_such(engine: object) -> None:
    """In bfloat16, the implementation that the library prefers is twelve times slower."""
    conv = Conv(Window((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)), groups=64)
    x, w = (TensorType(shape, DType.FLOAT32) for shape in ((2, 64, 14, 14), (64, 1, 3, 3)))
    node = ConvInputGrad(conv, x)(Input("dy", conv.infer(x, w))(), Input("w", w)()).node
    kernel = ConvolutionInputGradientKernel()
    wide = kernel.layouts(node, (PLAIN, PLAIN))
    expected = LayoutSignature(
        *(tuple(layout.with_dtype(DType.BFLOAT16) for layout in signature) for signature in (wide.inputs, wide.outputs))
    )
    for signature in filter(
        None, (wide, kernel.low_precision_signature(node, expected))
    ):  # an old CPU has no fast code for bfloat16
        assert "dw" in kernel.computation(node, signature).primitive.implementation


@pytest.mark.parametrize("size", [224, 231])  # AlexNet, OverFeat
def test_relu_joins_a_convolution_unless_that_multiplies_matrices(engine: object, size: int) -> None:
    conv = Conv(Window((11, 11), (4, 4), ((2, 2), (2, 2)) if size == 224 else ((0, 0),) * 2, (1, 1)))
    x, w, bias = typed(8, 3, size, size), typed(64, 3, 11, 11), typed(64, 1, 1)
    y = conv.infer(x, w)
    assert isinstance(y, TensorType)
    name = forward_desc(conv, desc(x, LAST), w, desc(y, LAST)).implementation
    assert None in reasons(EpilogueFused(conv, 2, (FusedStep(Add(), (0, 1)),)), x, w, bias)
    with_relu = EpilogueFused(conv, 2, (FusedStep(Add(), (0, 1)), FusedStep(Relu(), (2,))))
    declined = f"`{name}` computes post-ops slowly" in reasons(with_relu, x, w, bias)
    assert declined == ("gemm" in name)
    assert (None in reasons(with_relu, x, w, bias)) != declined
