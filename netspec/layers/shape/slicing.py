"""Parts of an input along an axis: Split, Slice, Crop."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from netspec.graph.ops import shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, as_items, is_integer, require, sample_axis
from netspec.layers.shape.indexing import MAX_STEPPED_ELEMENTS
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem

MAX_PARTS = 2**16
"""Largest number of parts; each one is a named output of the layer."""


def _sections(value: Any) -> Any:
    sizes = as_items(
        value,
        lambda size: is_integer(size) and size >= 1,
        "an integer of 1 or more",
        "a list with the size of each part",
    )
    if isinstance(value, int) and value > MAX_PARTS:
        raise problem("`sections` is too large", expected=f"up to {MAX_PARTS:,}", got=describe(value))
    return value if isinstance(value, int) else sizes


Sections = Annotated[int | tuple[int, ...], BeforeValidator(_sections, json_schema_input_type=int | list[int])]
"""Number of equal parts, or the size of each."""


@LAYERS.register
class Split(LayerSpec):
    """Split the input along an axis: one output for each part, called `0`, `1` and so on.

    Input (N, C, …), outputs (N, C₀, …), (N, C₁, …) …: a later layer reads the second part of a layer called `split`
    with `from: split.1`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "slice_point": "`slice_point` is Caffe's name: use `sections`, the sizes of the parts",
        "slice_dim": "`slice_dim` is Caffe's name: use `axis`",
        "chunks": "`chunks` is PyTorch's name: use `sections`",
        "dim": "`dim` is PyTorch's name: use `axis`",
        "num_or_size_splits": "use `sections`",
    }

    type: Literal["Split"] = "Split"
    sections: Sections
    """The number of equal parts, or a list with the size of each."""
    axis: int = 1
    """The axis to split; 1 is the channels."""

    samples: ClassVar = (
        Sample.of((2, 6, 2), sections=3),
        Sample.of((2, 2, 5), sections=[1, 4], axis=-1),
    )

    def output_names(self) -> tuple[str, ...]:
        """Names of the parts: their indices."""
        count = self.sections if isinstance(self.sections, int) else len(self.sections)
        return tuple(map(str, range(count)))

    def build(self, builder: Builder, x: Value) -> tuple[Value, ...]:
        """x: (N, C, …) → (N, C₀, …), (N, C₁, …) …"""
        axis = sample_axis(x, self.axis, "to split")
        size = x.shape[axis]
        if isinstance(self.sections, int):
            require(
                size % self.sections == 0,
                f"{size} along axis {axis} cannot be split into {self.sections} equal parts",
                expected=f"a multiple of {self.sections}",
                got=x.type,
                hint="`sections` may be a list of sizes",
            )
            sizes = (size // self.sections,) * self.sections
        else:
            sizes = self.sections
            require(
                sum(sizes) == size,
                f"the parts {list(sizes)} do not add up to the size of axis {axis}",
                expected=f"sizes that add up to {size}",
                got=f"{sum(sizes)}",
            )
        return shape.Split(axis, sizes).call_multi(x)


@LAYERS.register
class Slice(LayerSpec):
    """Keep a part of the input along an axis.

    Input (N, …), output the same with `stop` - `start` elements along the axis, fewer with a `step`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "slice_point": "Caffe's Slice is Split here, with `sections`",
        "slice_dim": "Caffe's Slice is Split here, with `axis`",
        "length": "use `size`",
        "end": "use `stop`",
        "dim": "`dim` is PyTorch's name: use `axis`",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Cropping1D", "Cropping2D", "Cropping3D", "Gather")

    type: Literal["Slice"] = "Slice"
    axis: int = 1
    """The axis to slice; 1 is the channels."""
    start: int = 0
    """The first element to keep, counted from 0; a negative one is counted from the end."""
    stop: int | None = None
    """The first element after the part to keep; a negative one is counted from the end; default: keep all to
    the end."""
    size: PositiveInt | None = None
    """Instead of `stop`: number of elements from `start` on."""
    step: PositiveInt = 1
    """Keep every `step`-th element."""

    samples: ClassVar = (
        Sample.of((2, 5, 2), start=1, stop=-1),
        Sample.of((2, 3, 5), axis=-1, start=-3, size=2),
        Sample.of((2, 5), start=1, step=2),
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.stop is not None and self.size is not None:
            raise problem("`stop` and `size` are both given", field="size", expected="one of them")
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axis = sample_axis(x, self.axis, "to slice")
        count = x.shape[axis]
        start = self.start + (count if self.start < 0 else 0)
        stop = count if self.stop is None else self.stop + (count if self.stop < 0 else 0)
        if self.size is not None:
            stop = start + self.size
        require(
            0 <= start < stop <= count,
            f"the slice is empty or out of range along axis {axis}",
            expected=f"a non-empty range within 0 to {count}",
            got=f"from {start} to {stop}",
        )
        if self.step > 1:
            count_with_step = (stop - start - 1) // self.step + 1
            require(
                count_with_step <= MAX_STEPPED_ELEMENTS,
                "a slice with a `step` has too many elements",
                expected=f"at most {MAX_STEPPED_ELEMENTS:,} with a `step`",
                got=f"{count_with_step:,}",
            )
            return shape.Take(axis, tuple(range(start, stop, self.step)))(x)
        return x if stop - start == count else shape.Slice(axis, start, stop)(x)


def _offsets(value: Any) -> Any:
    return as_items(value, lambda item: is_integer(item) and item >= 0, "an integer of 0 or more", "one for each axis")


Offsets = Annotated[tuple[int, ...], BeforeValidator(_offsets, json_schema_input_type=int | list[int])]
"""One integer of 0 or more, or several."""


@LAYERS.register
class Crop(LayerSpec):
    """Crop the first input to the size of the second, as Caffe's Crop does.

    Inputs (N, C, H, W) and (N, …, h, w), output (N, C, h, w): all axes from `axis` on get the second input's sizes.
    Only the shape of the second input is used.
    """

    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Slice", "Cropping1D", "Cropping2D", "Cropping3D")

    type: Literal["Crop"] = "Crop"
    axis: int = 2
    """The first axis to crop; 2 is the height of images."""
    offset: Offsets = (0,)
    """Offset of the part to keep along these axes: one number for all, or one for each."""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), (2, 1, 2, 3), offset=[1, 2]),
        Sample.of((2, 5, 4), (2, 3, 4), axis=1, offset=[2, 0]),
        Sample.of((2, 3, 4), (2, 3, 3), offset=1),
    )

    def build(self, builder: Builder, x: Value, reference: Value) -> Value:
        """x: (N, …), reference: (N, …) → (N, …)."""
        axis = sample_axis(x, self.axis, "to crop")
        rank, count = len(x.shape), len(x.shape) - axis
        require(
            len(reference.shape) == rank,
            "the inputs differ in their number of axes",
            expected=f"{rank} axes",
            got=reference.type,
        )
        require(
            len(self.offset) in (1, count),
            "`offset` needs one entry, or one for each axis that is cropped",
            expected=f"1 offset, or {count}",
            got=len(self.offset),
        )
        offsets = self.offset * (count if len(self.offset) == 1 else 1)
        for k, start in enumerate(offsets, axis):
            size, length = x.shape[k], reference.shape[k]
            require(
                start + length <= size,
                f"the first input is too small along axis {k}",
                expected=f"{start + length} or more: the offset {start} plus the second input's {length}",
                got=f"{size}",
            )
            x = x if size == length else shape.Slice(k, start, start + length)(x)
        return x
