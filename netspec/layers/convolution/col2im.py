"""Col2Im: sums windows into the image that they were cut from, the inverse of im2col."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops import convolution
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import as_items, is_integer, require
from netspec.schema.specs.kinds import LAYERS


def _integers(minimum: int) -> BeforeValidator:
    def check(value: Any) -> Any:
        return as_items(
            value, lambda item: is_integer(item) and item >= minimum, f"an integer of {minimum} or more",
            "one for each axis",
        )  # fmt: skip

    return BeforeValidator(check, json_schema_input_type=int | list[int])


SizePerAxis = Annotated[tuple[int, ...], _integers(1)]
"""Integers of 1 or more, one per axis; a single one is used for all axes."""
PadPerAxis = Annotated[tuple[int, ...], _integers(0)]
"""Integers of 0 or more: one per axis, or all before and then all after; a single one is used for all."""


@LAYERS.register
class Col2Im(LayerSpec):
    """Sum windows into the image that they were cut from: overlapping elements add up. PyTorch calls it Fold.

    Input (N, C · elements of a window, windows), output (N, C, *output_size), with as many axes as `output_size` has.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "image_shape": "`image_shape` is ONNX's name: use `output_size`",
        "block_shape": "`block_shape` is ONNX's name: use `kernel_size`",
        "dilations": "`dilations` is ONNX's name: use `dilation_rate`",
        "pads": "`pads` is ONNX's name: use `padding`",
    }

    type: Literal["Col2Im"] = "Col2Im"
    output_size: SizePerAxis
    """The sizes of the image."""
    kernel_size: SizePerAxis
    """The sizes of a window."""
    strides: SizePerAxis = (1,)
    """Step from one window to the next."""
    padding: PadPerAxis = (0,)
    """Padding of the image: for each axis, or before each axis and then after each."""
    dilation_rate: SizePerAxis = (1,)
    """Step from one element of a window to the next."""

    samples: ClassVar = (
        Sample.of((2, 8, 6), output_size=[3, 4], kernel_size=2),
        Sample.of(
            (1, 4, 4), output_size=[4, 3], kernel_size=2, strides=[2, 1], padding=[0, 1, 1, 0], dilation_rate=[1, 2]
        ),
        Sample.of((2, 2, 3), output_size=5, kernel_size=2, strides=2, padding=1),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C · elements, windows) → (N, C, *output_size)."""
        rank = len(self.output_size)

        def per_axis(field: str, count: int = rank) -> tuple[int, ...]:
            values: tuple[int, ...] = getattr(self, field)
            require(
                len(values) in (1, rank, count), f"`{field}` must have one entry, or one for each of {rank} axes",
                expected=f"1 number, or {rank}", got=list(values),
            )  # fmt: skip
            return values * (count // len(values))

        padding = per_axis("padding", 2 * rank)
        pads = tuple(zip(padding[:rank], padding[rank:], strict=True))
        window = Window(per_axis("kernel_size"), per_axis("strides"), pads, per_axis("dilation_rate"))
        return convolution.Col2Im(window, self.output_size)(builder.floating(x))
