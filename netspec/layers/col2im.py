"""Col2Im: windows added up to the image that they are of, the opposite of cutting an image into windows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Op, Xp
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Slice, TakeGrad
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.layers.window import Window
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem


def _col2im_to_onnx(g: Emitter, y: Value, x: str) -> str:
    assert isinstance(y.op, Col2ImOp)
    one, sizes = y.op.window, (y.op.spatial, y.op.window.size)
    pads = [side[k] for k in (0, 1) for side in one.pads]
    image, block = (g.constant(list(size), "int64") for size in sizes)
    return g.node("Col2Im", x, image, block, dilations=list(one.dilation), strides=list(one.strides), pads=pads)


@dataclass(frozen=True)
class Col2ImOp(Op):
    """Windows of an image of `spatial` sizes, (N, C · places of a window, windows) → (N, C, spatial…), added up."""

    window: Window
    spatial: tuple[int, ...]
    onnx = OnnxExpansion(_col2im_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        inside, windows = prod(self.window.size), prod(self.window.out(self.spatial))
        self.check(
            x.rank == 3 and x.shape[1] % inside == 0 and x.shape[2] == windows,
            "these are not the windows of such an image",
            expected=f"(batch, a multiple of {inside}, {windows})",
            got=x,
        )
        return x.with_shape(x.shape[0], x.shape[1] // inside, *self.spatial)

    def forward(self, xp: Xp, x: Array) -> Array:
        out = self.window.out(self.spatial)
        channels = x.shape[1] // prod(self.window.size)
        given = x.reshape(x.shape[0], channels, *self.window.size, *out)
        image = xp.zeros(self.window.padded_shape((*x.shape[:1], channels, *self.spatial)), x.dtype)
        for place, where in self.window.offsets(out):
            image[where] += given[(slice(None), slice(None), *place)]
        return self.window.unpadded(image)

    def decompose(self, x: Value) -> Value:
        import numpy as np

        _, channels, *padded = self.window.padded_shape(self.infer(x.type).shape)
        numbers = np.arange(prod(padded)).reshape(1, 1, *padded)
        index = [numbers[where].reshape(-1) for _, where in self.window.offsets(self.window.out(self.spatial))]
        rows = reshape_to(x, (x.shape[0], channels, x.type.size // (x.shape[0] * channels)))
        image = TakeGrad(2, tuple(np.concatenate(index).tolist()), prod(padded))(rows)
        image = reshape_to(image, (x.shape[0], channels, *padded))
        for axis, (begin, size) in enumerate(
            ((begin, size) for (begin, _), size in zip(self.window.pads, self.spatial, strict=True)), 2
        ):
            image = image if image.shape[axis] == size else Slice(axis, begin, begin + size)(image)
        return image

    def simplified(self, x: Value) -> Value:
        return self.decompose(x)


def _numbers(least: int) -> BeforeValidator:
    def check(value: Any) -> Any:
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if not numbers or any(type(one) is not int or one < least for one in numbers):
            expected = f"a whole number of {least} or more, or one for each axis"
            raise problem("not a size", expected=expected, got=describe(value))
        return tuple(numbers)

    return BeforeValidator(check, json_schema_input_type=int | list[int])


Several = Annotated[tuple[int, ...], _numbers(1)]
"""Whole numbers of 1 or more, for each axis; one stands for all."""
Sides = Annotated[tuple[int, ...], _numbers(0)]
"""Whole numbers of 0 or more: for each axis, or before each and then after each; one stands for all."""


@LAYERS.register
class Col2Im(LayerSpec):
    """Add windows up to the image that they are of: where windows overlap, the sum. PyTorch calls it Fold.

    Input (N, C · places of a window, windows), output (N, C, *output_size), of as many axes as `output_size` has.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "image_shape": "`image_shape` is ONNX's name: here it is `output_size`",
        "block_shape": "`block_shape` is ONNX's name: here it is `kernel_size`",
        "dilations": "`dilations` is ONNX's name: here it is `dilation_rate`",
        "pads": "`pads` is ONNX's name: here it is `padding`",
    }

    type: Literal["Col2Im"] = "Col2Im"
    output_size: Several
    """the sizes of the image"""
    kernel_size: Several
    """the sizes of a window"""
    strides: Several = (1,)
    """steps from one window to the next"""
    padding: Sides = (0,)
    """how far windows reach beyond the image: for each axis, or before each and then after each"""
    dilation_rate: Several = (1,)
    """steps from one place of a window to the next"""

    samples: ClassVar = (
        Sample.of((2, 8, 6), output_size=[3, 4], kernel_size=2),
        Sample.of(
            (1, 4, 4), output_size=[4, 3], kernel_size=2, strides=[2, 1], padding=[0, 1, 1, 0], dilation_rate=[1, 2]
        ),
        Sample.of((2, 2, 3), output_size=5, kernel_size=2, strides=2, padding=1),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C · places, windows) → (N, C, *output_size)."""
        rank = len(self.output_size)

        def each(field: str, count: int = rank) -> tuple[int, ...]:
            given: tuple[int, ...] = getattr(self, field)
            need(
                len(given) in (1, rank, count), f"`{field}` does not fit to {rank} axes",
                expected=f"1 number, or {rank}", got=list(given),
            )  # fmt: skip
            return given * (count // len(given))

        sides = each("padding", 2 * rank)
        pads = tuple(zip(sides[:rank], sides[rank:], strict=True))
        window = Window(each("kernel_size"), each("strides"), pads, each("dilation_rate"))
        return Col2ImOp(window, self.output_size)(net.floating(x))
