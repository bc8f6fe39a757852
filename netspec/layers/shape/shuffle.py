"""Layers that rearrange channels and positions: DepthToSpace, SpaceToDepth, ChannelShuffle."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.spatial import require_image
from netspec.schema.specs.kinds import LAYERS


class ChannelShuffling(LayerSpec):
    """Base of layers that end in a reshape in ONNX, which an importer may restore as a Reshape."""

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Reshape",)


@LAYERS.register
class DepthToSpace(ChannelShuffling):
    """Rearrange groups of channels into blocks of pixels: a larger image with fewer channels.

    Input (N, C · b², H, W), output (N, C, H · b, W · b). In mode CRD the b² elements of a block come from adjacent
    channels, as in PyTorch's PixelShuffle; in mode DCR from channels at a distance of C, as in TensorFlow.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "upscale_factor": "`upscale_factor` is PyTorch's name: use `block_size`",
        "blocksize": "`blocksize` is ONNX's name: use `block_size`",
    }

    type: Literal["DepthToSpace"] = "DepthToSpace"
    block_size: PositiveInt
    """Side b of a block."""
    mode: Literal["CRD", "DCR"] = "CRD"
    """The order of the channels, as ONNX names it: column-row-depth or depth-column-row."""

    samples: ClassVar = (
        Sample.of((2, 8, 2, 3), block_size=2),
        Sample.of((1, 9, 1, 2), block_size=3),
        Sample.of((2, 8, 2, 1), block_size=2, mode="DCR"),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C · b², H, W) → (N, C, H · b, W · b)."""
        require_image(x)
        (n, channels, height, width), b = x.shape, self.block_size
        require(
            channels % b**2 == 0,
            f"{channels} channels cannot be divided into blocks of {b} by {b}",
            expected=f"a multiple of {b**2} channels",
            got=x.type,
        )
        depth = channels // b**2
        if self.mode == "CRD":
            y = Transpose((0, 1, 4, 2, 5, 3))(reshape_to(x, (n, depth, b, b, height, width)))
        else:
            y = Transpose((0, 3, 4, 1, 5, 2))(reshape_to(x, (n, b, b, depth, height, width)))
        return reshape_to(y, (n, depth, height * b, width * b))


@LAYERS.register
class SpaceToDepth(ChannelShuffling):
    """Rearrange blocks of pixels into channels: a smaller image with more channels, the inverse of DepthToSpace.

    Input (N, C, H · b, W · b), output (N, C · b², H, W).
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "downscale_factor": "`downscale_factor` is PyTorch's name: use `block_size`",
        "blocksize": "`blocksize` is ONNX's name: use `block_size`",
    }

    type: Literal["SpaceToDepth"] = "SpaceToDepth"
    block_size: PositiveInt
    """Side b of a block."""
    mode: Literal["CRD", "DCR"] = "CRD"
    """The order of the channels, as DepthToSpace has it: PyTorch's PixelUnshuffle is CRD, ONNX's
    SpaceToDepth is DCR."""

    samples: ClassVar = (
        Sample.of((2, 2, 4, 6), block_size=2),
        Sample.of((2, 3, 2, 4), block_size=2, mode="DCR"),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, H · b, W · b) → (N, C · b², H, W)."""
        require_image(x)
        (n, channels, height, width), b = x.shape, self.block_size
        require(
            height % b == 0 and width % b == 0,
            f"the image cannot be divided into blocks of {b} by {b}",
            expected=f"multiples of {b} for height and width",
            got=x.type,
        )
        blocks = reshape_to(x, (n, channels, height // b, b, width // b, b))
        y = Transpose((0, 1, 3, 5, 2, 4) if self.mode == "CRD" else (0, 3, 5, 1, 2, 4))(blocks)
        return reshape_to(y, (n, channels * b**2, height // b, width // b))


@LAYERS.register
class ChannelShuffle(ChannelShuffling):
    """Interleave the channels of all groups, so that the next grouped layer sees each of them.

    Input (N, C, …), output the same: channel i · groups + g is channel g · C / groups + i of the input. Zhang et al.
    2017, arXiv:1707.01083.
    """

    type: Literal["ChannelShuffle"] = "ChannelShuffle"
    groups: PositiveInt
    """Number of groups of channels."""

    samples: ClassVar = (Sample.of((2, 6, 2), groups=2), Sample.of((2, 6, 2, 1), groups=3))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, …)."""
        require(len(x.shape) >= 3, "the input has no channels", expected="(batch, channels, …)", got=x.type)
        n, channels, *rest = x.shape
        require(
            channels % self.groups == 0,
            f"{channels} channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups} channels",
            got=x.type,
        )
        grouped = reshape_to(x, (n, self.groups, channels // self.groups, *rest))
        turned = Transpose((0, 2, 1, *range(3, len(x.shape) + 1)))(grouped)
        return reshape_to(turned, x.shape)
