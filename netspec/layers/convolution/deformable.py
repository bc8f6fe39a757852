"""Convolution at positions shifted by learned offsets: DeformConv2D."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.grid_sample import add, gather_taps, taps
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import BroadcastLike, reshape_to
from netspec.graph.ops.shape import Slice, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.types import batch_shape
from netspec.graph.value import Value, require_precomputable
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, require, require_countable
from netspec.layers.convolution.conv import GroupedConvolution, Kernel2D
from netspec.schema.specs.kinds import LAYERS


@LAYERS.register
class DeformConv2D(Kernel2D, GroupedConvolution):
    """Slide `filters` learned kernels over an image; a second input shifts the position of each kernel element.

    Inputs (N, C, H, W), offsets (N, offset_groups · elements · 2, OH, OW), down and to the right for each element of
    the kernel, and optionally factors (N, offset_groups · elements, OH, OW); output (N, filters, OH, OW) as for Conv2D.
    Positions between elements are interpolated bilinearly; outside of the image are zeros. Dai et al. 2017,
    arXiv:1703.06211; Zhu et al. 2018, arXiv:1811.11168. https://onnx.ai/onnx/operators/onnx__DeformConv.html
    """

    onnx_roundtrip_blocker: ClassVar = "it is written as gathered elements"

    type: Literal["DeformConv2D"] = "DeformConv2D"
    offset_groups: PositiveInt = 1
    """Number of groups that the channels are split into, each with its own offsets."""

    samples: ClassVar = (
        Sample.of((2, 2, 4, 5), (2, 8, 3, 4), filters=3, kernel_size=2),
        Sample.of((1, 4, 4, 4), (1, 12, 2, 4), (1, 6, 2, 4), filters=2, kernel_size=(3, 1), strides=(2, 1),
                  padding="same", groups=2, offset_groups=2, use_bias=False, activation="tanh"),
    )  # fmt: skip

    def build(self, builder: Builder, x: Value, offsets: Value, factors: Value | None = None) -> Value:
        """x: (N, C, H, W), offsets: (N, …, OH, OW), factors: (N, …, OH, OW) → (N, filters, OH, OW)."""
        import numpy as np

        x = self.spatial_input(builder, x)
        count, channels, offset_groups = x.shape[0], x.shape[1], self.offset_groups
        require(
            channels % offset_groups == 0, f"{channels} input channels cannot be split into {offset_groups} groups",
            expected=f"a multiple of the `offset_groups`, {offset_groups}", got=x.type,
        )  # fmt: skip
        window, elements = self.window(x), prod(self.kernel_size)
        out = window.out(x.shape[2:])
        for noun, value, per_sample in (("offsets", offsets, 2), ("factors", factors, 1)):
            shape = (count, offset_groups * elements * per_sample, *out)
            require(
                value is None or (value.dtype.is_float and value.shape == shape),
                f"the {noun} do not match the input",
                expected=f"floats {batch_shape(shape)}",
                got=value.type if value is not None else None,
            )
        require_countable(elements * prod(out), 1)
        moved_by = reshape_to(builder.floating(offsets), (count, offset_groups, elements, 2, *out))
        sampled_shape = (count, offset_groups * elements * prod(out))
        axis_taps = []
        for axis, size in enumerate(x.shape[2:]):
            require_precomputable(elements * prod(out), "positions to sample")
            in_window = np.indices(self.kernel_size)[axis].reshape(-1, 1, 1) * window.dilation[axis]
            start = np.indices(out)[axis] * window.strides[axis] - window.pads[axis][0]
            grid = constant((start + in_window).astype(str(x.dtype)))
            positions = reshape_to(Slice(3, axis, axis + 1)(moved_by), (count, offset_groups, elements, *out)) + grid
            rows = reshape_to(positions, sampled_shape)
            axis_taps.append(taps(rows, size, "linear", "zeros", align_corners=False))
        group = BroadcastLike()(constant(np.repeat(np.arange(offset_groups), elements * prod(out))[None]), rows)
        by_group = reshape_to(x, (count, offset_groups, channels // offset_groups, *x.shape[2:]))
        sampled = gather_taps(by_group, axis_taps, add, group)
        if factors is not None:
            sampled = sampled * reshape_to(builder.floating(factors), (*sampled_shape, 1))
        sampled = reshape_to(sampled, (count, offset_groups, elements, prod(out), channels // offset_groups))
        group_channels = channels // self.groups
        columns = reshape_to(
            Transpose((0, 1, 4, 2, 3))(sampled), (count, self.groups, group_channels * elements, prod(out))
        )
        kernel = builder.parameter_of(self, "kernel", (self.filters, group_channels, *self.kernel_size))
        weights = reshape_to(kernel, (1, self.groups, self.filters // self.groups, group_channels * elements))
        return self.add_bias_and_activate(builder, reshape_to(MatMul()(weights, columns), (count, self.filters, *out)))
