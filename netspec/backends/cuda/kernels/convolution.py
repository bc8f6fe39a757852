"""Convolutions as tiled matrix products, used if no library is available or accepts them.

The im2col matrix is never stored: each tile reads its part from the image. Images are channels-last. Each sum is
computed by one thread, in the same order each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.kernels.matmul import SLOWER, TileSplit, bound
from netspec.backends.cuda.launch import pointer, substitute
from netspec.backends.cuda.windows import AXES, extents, geometry
from netspec.graph.kernel import Buffers, Example, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

IN, OUT = (f"Sizes<Index>{{{', '.join(f'{name}_{axis}' for axis in AXES)}}}" for name in ("in", "out"))


def window_type(conv: Conv) -> str:
    """Window geometry as compile-time constants."""
    window = geometry(conv.window)
    numbers = [str(number) for word in ("KERNEL", "STRIDE", "PAD", "DILATION") for number in window[word]]
    return f"Window<{', '.join(numbers)}>"


class TiledConvolution(Kernel):
    """Base class: images are channels-last, kernels plain."""

    low_precision = LowPrecision.ALL
    weights: int | None = None
    """Index of the operand that is the convolution kernel; None if that is the result."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        if not types[0].dtype.is_float:
            return f"no convolution of {types[0].dtype}"
        spatial = types[0].rank - 2
        return None if spatial <= len(AXES) else f"{spatial} spatial axes"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.inputs[0].type.rank)
        layouts = [PLAIN if index == self.weights else last for index in range(len(offered))]
        return LayoutSignature(tuple(layouts), (PLAIN if self.weights is None else last,))

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return SLOWER * super().estimated_seconds(node, signature)

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        return self.cut(node).nbytes(node.types[0])

    def cut(self, node: Node) -> TileSplit:
        """The split of each group's product into tiles."""
        raise NotImplementedError  # abstract

    def bound(
        self, node: Node, conv: Conv, arrays: dict[str, Any], replacements: dict[str, str], buffers: Buffers
    ) -> Thunk:
        """The call; `arrays` are x, w and dy, two of them operands and the third one the result."""
        (result,) = buffers.outputs
        assert result is not None
        x, w, y = (arrays.get(name, result) for name in ("x", "w", "dy"))
        channels, filters = w.shape[1], w.shape[0] // conv.groups
        numbers = {
            **extents("in", x.shape[2:]), **extents("out", y.shape[2:]), "channels": x.shape[1], "own": channels,
            "filters": filters, "all_filters": w.shape[0], "taps": prod(conv.window.size),
            "x_positions": x.size // x.shape[1], "y_positions": y.size // y.shape[1],
        }  # fmt: skip
        parameters = [pointer(name, array) for name, array in arrays.items()]
        kinds = {"WINDOW": window_type(conv)} | {
            f"TYPE_{name.upper()}": stored_type(array) for name, array in arrays.items()
        }
        replacements = {name: substitute(text, kinds) for name, text in replacements.items()}
        large = max(array.size for array in (x, w, y))
        return bound(self.cut(node), parameters, replacements, numbers, large, result, buffers.workspace)


@kernel(Conv, backend="cuda", rank=1)
class ConvKernel(TiledConvolution):
    """Rows are positions of the result, columns are filters, the depth is window elements and channels."""

    weights = 1

    def cut(self, node: Node) -> TileSplit:
        (w, y), op = (node.inputs[1].type, node.types[0]), node.op
        assert isinstance(op, Conv)
        return TileSplit(y.size // y.shape[1], w.shape[0] // op.groups, prod(w.shape[1:]), op.groups)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, w) = node.op, buffers.inputs
        assert isinstance(op, Conv)
        patches = f"Patches<WINDOW, TYPE_X, Index>{{x + unit * own, y_positions, channels, own, {IN}, {OUT}}}"
        replacements = {
            "LEFT": f"ByPlace<Index, Patches<WINDOW, TYPE_X, Index>>{{{patches}}}",
            "RIGHT": "Kernels<WINDOW, TYPE_W, Index, true>"
            "{w + unit * filters * own * taps, filters, own * taps, own, taps}",
            "TARGET": "row * all_filters + unit * filters + column",
        }
        return self.bound(node, op, {"x": x, "w": w}, replacements, buffers)


@kernel(ConvInputGrad, backend="cuda", rank=1)
class ConvInputGradKernel(TiledConvolution):
    """Rows are positions of the operand, columns are channels, the depth is window elements and filters."""

    weights = 1

    def cut(self, node: Node) -> TileSplit:
        op, w = node.op, node.inputs[1].type
        assert isinstance(op, ConvInputGrad)
        depth = w.size // w.shape[1] // op.conv.groups
        return TileSplit(op.x.size // op.x.shape[1], w.shape[1], depth, op.conv.groups)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy, w) = node.op, buffers.inputs
        assert isinstance(op, ConvInputGrad)
        flows = f"Flows<WINDOW, TYPE_DY, Index>{{dy + unit * filters, x_positions, all_filters, filters, {IN}, {OUT}}}"
        replacements = {
            "LEFT": f"ByPlace<Index, Flows<WINDOW, TYPE_DY, Index>>{{{flows}}}",
            "RIGHT": "Kernels<WINDOW, TYPE_W, Index, false>"
            "{w + unit * filters * own * taps, own, taps, filters, own * taps}",
            "TARGET": "row * channels + unit * own + column",
        }
        return self.bound(node, op.conv, {"dy": dy, "w": w}, replacements, buffers)


@kernel(ConvWeightGrad, backend="cuda", rank=1)
class ConvWeightGradKernel(TiledConvolution):
    """Rows are filters, columns are window elements and channels, the depth is positions of the result."""

    def samples(self) -> Sequence[Example]:
        # Two groups, each with several tiles and parts.
        conv = Conv(Window((3, 2), (2, 1), ((1, 0), (0, 1)), (1, 2)), 2)
        x, dy, w = (
            TensorType(shape, DType.FLOAT32) for shape in ((3, 24, 21, 10), (3, 4, 10, 9), (4, 12, 3, 2))
        )  # fmt: skip
        return ((ConvWeightGrad(conv, w), (dy, x)),)

    def cut(self, node: Node) -> TileSplit:
        op, dy = node.op, node.inputs[0].type
        assert isinstance(op, ConvWeightGrad)
        return TileSplit(op.w.shape[0] // op.conv.groups, prod(op.w.shape[1:]), dy.size // dy.shape[1], op.conv.groups)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (dy, x) = node.op, buffers.inputs
        assert isinstance(op, ConvWeightGrad)
        patches = f"Patches<WINDOW, TYPE_X, Index>{{x + unit * own, y_positions, channels, own, {IN}, {OUT}}}"
        replacements = {
            "LEFT": "Matrix<TYPE_DY, Index, false>{dy + unit * filters, filters, 1, all_filters}",
            "RIGHT": f"ByTap<Index, Patches<WINDOW, TYPE_X, Index>>{{{patches}, columns}}",
            "TARGET": "((unit * filters + row) * own + column % own) * taps + column / own",
        }
        return self.bound(node, op.conv, {"dy": dy, "x": x}, replacements, buffers)
