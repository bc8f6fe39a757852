"""GridSample: interpolated elements at the positions that a second input gives."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.grid_sample import Interpolation, PaddingMode, add, column, gather_taps, image_indices, taps
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.schema.specs.kinds import LAYERS


@LAYERS.register
class GridSample(LayerSpec):
    """Interpolate an image, or a volume, at the positions in a second input: PyTorch's `grid_sample`.

    Inputs (N, C, H, W) and positions (N, OH, OW, 2), x first; output (N, C, OH, OW). For volumes (N, C, D, H, W)
    positions are (N, OD, OH, OW, 3). -1 is the beginning of an axis, and 1 its end. Samples may hold several images,
    each with its own positions: both inputs then have an axis of images after the batch.
    https://onnx.ai/onnx/operators/onnx__GridSample.html
    """

    foreign_fields: ClassVar[dict[str, str]] = {"interpolation": "use `mode`, as in ONNX"}
    onnx_roundtrip_blocker: ClassVar = "it is written as gathered elements"

    type: Literal["GridSample"] = "GridSample"
    mode: Interpolation = "linear"
    """`linear`: weight the elements around by their nearness; `nearest`: take the nearest; `cubic`: weight four along
    each axis (of images)."""
    padding_mode: PaddingMode = "zeros"
    """Values beyond the border: zeros, the element at the border, or the reflection at the border."""
    align_corners: bool = False
    """`true`: -1 and 1 are the centers of the first and the last element; false: their outer sides."""

    samples: ClassVar = (
        Sample.of((2, 2, 3, 4), (2, 2, 3, 2)),
        Sample.of((1, 2, 4, 3), (1, 3, 1, 2), mode="cubic", padding_mode="reflection", align_corners=True),
        Sample.of((2, 1, 3, 5), (2, 2, 2, 2), mode="nearest", padding_mode="border"),
        Sample.of((1, 2, 2, 3, 2), (1, 2, 1, 2, 3), padding_mode="reflection"),
        Sample.of((2, 2, 1, 3, 4), (2, 2, 1, 2, 2)),
    )

    def build(self, builder: Builder, x: Value, grid: Value) -> Value:
        """x: (N, [images,] C, …), grid: (N, [images,] out…, axes) → (N, [images,] C, out…)."""
        axes, lead = grid.shape[-1], len(grid.shape) - 1 - grid.shape[-1]
        require(
            grid.dtype.is_float and axes in (2, 3) and lead in (1, 2),
            "the second input does not hold positions",
            expected="floats (batch, …, …, 2), or for volumes (batch, …, …, …, 3)",
            got=grid.type,
        )
        require(
            len(x.shape) == lead + 1 + axes and x.shape[:lead] == grid.shape[:lead]
            and (axes == 2 or self.mode != "cubic"),
            "the first input is not an image"
            + (", as `mode: cubic` needs" if self.mode == "cubic" else " or a volume"),
            expected=f"(batch, {'images, ' * (lead - 1)}channels, {'' if axes == 2 else 'depth, '}height, width)"
            if axes == 2 or self.mode != "cubic" else "images, not volumes",
            got=x.type,
        )  # fmt: skip
        x, grid, images = builder.floating(x), builder.floating(grid), x.shape[1:lead]
        channels, *sizes = x.shape[lead:]
        count, out = x.shape[0], grid.shape[lead:-1]
        rows = reshape_to(grid, (count, prod((*images, *out)), axes))
        axis_taps = []
        for axis, size in enumerate(sizes):
            normalized = column(rows, axes - 1 - axis) + 1.0  # from 0 to 2
            positions = normalized * ((size - 1) / 2) if self.align_corners else normalized * (size / 2) - 0.5
            axis_taps.append(taps(positions, size, self.mode, self.padding_mode, self.align_corners))
        # Samples and images stay separate axes, so that the batch axis keeps its meaning.
        image_index = image_indices(images[0], prod(out), column(rows, 0)) if images else None
        elements = reshape_to(gather_taps(x, axis_taps, add, image_index), (count, *images, prod(out), channels))
        channels_first = Transpose((0, 2, 1) if not images else (0, 1, 3, 2))(elements)
        return reshape_to(channels_first, (count, *images, channels, *out))
