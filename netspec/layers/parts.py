"""Parts of an input: Split, Slice, Crop, Gather, BatchReindex."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from netspec.graph.ops import linear, shape
from netspec.graph.ops.indexing import GatherND
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem


def _sections(value: Any) -> Any:
    sizes = value if isinstance(value, (list, tuple)) else [value]
    for index, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise problem(
                "not a number of parts, or a list of their sizes",
                field=str(index) if sizes is value else None,
                expected="a whole number of 1 or more, or a list of them",
                got=describe(size),
            )
    if not sizes:
        raise problem("a list without sizes", expected="the size of each part", got="[]")
    return value if isinstance(value, int) else tuple(value)


Sections = Annotated[int | tuple[int, ...], BeforeValidator(_sections, json_schema_input_type=int | list[int])]
"""How many equal parts, or the size of each."""


@LAYERS.register
class Split(LayerSpec):
    """Take the input apart along an axis: one output for each part, called `0`, `1` and so on.

    Input (N, C, …), outputs (N, C₀, …), (N, C₁, …) …: a later layer reads the second part of a layer called `split`
    with `from: split.1`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "slice_point": "`slice_point` is Caffe's name: here it is `sections`, the sizes of the parts",
        "slice_dim": "`slice_dim` is Caffe's name: here it is `axis`",
        "chunks": "`chunks` is PyTorch's name: here it is `sections`",
        "dim": "`dim` is PyTorch's name: here it is `axis`",
        "num_or_size_splits": "here it is `sections`",
    }

    type: Literal["Split"] = "Split"
    sections: Sections
    """the number of equal parts, or a list with the size of each"""
    axis: int = 1
    """the axis to split; 1 is the channels"""

    samples: ClassVar = (
        Sample.of((2, 6, 2), sections=3),
        Sample.of((2, 2, 5), sections=[1, 4], axis=-1),
    )

    def output_names(self) -> tuple[str, ...]:
        """The parts' numbers from 0."""
        count = self.sections if isinstance(self.sections, int) else len(self.sections)
        return tuple(map(str, range(count)))

    def build(self, net: Builder, x: Value) -> tuple[Value, ...]:
        """x: (N, C, …) → (N, C₀, …), (N, C₁, …) …"""
        axis = sample_axis(x, self.axis, "to split")
        size = x.shape[axis]
        if isinstance(self.sections, int):
            need(
                size % self.sections == 0,
                f"{size} along axis {axis} cannot be split into {self.sections} equal parts",
                expected=f"a multiple of {self.sections}",
                got=x.type,
                hint="`sections` may be a list of sizes",
            )
            sizes = (size // self.sections,) * self.sections
        else:
            sizes = self.sections
            need(
                sum(sizes) == size,
                f"the parts {list(sizes)} do not make up axis {axis}",
                expected=f"sizes that add up to {size}",
                got=f"{sum(sizes)}",
            )
        return shape.Split(axis, sizes).many(x)


MOST_TAKEN = 2**24
"""Elements that a Slice with a step takes, each by its number."""


@LAYERS.register
class Slice(LayerSpec):
    """Keep a part of the input along an axis.

    Input (N, …), output the same with `stop` - `start` elements along the axis, fewer with a `step`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "slice_point": "Caffe's Slice is Split here, with `sections`",
        "slice_dim": "Caffe's Slice is Split here, with `axis`",
        "length": "here it is `size`",
        "end": "here it is `stop`",
        "dim": "`dim` is PyTorch's name: here it is `axis`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Cropping1D", "Cropping2D", "Cropping3D", "Gather")

    type: Literal["Slice"] = "Slice"
    axis: int = 1
    """the axis to cut; 1 is the channels"""
    start: int = 0
    """the first element kept, counted from 0; a negative one is counted from the end"""
    stop: int | None = None
    """the first element no longer kept; a negative one is counted from the end; default: all to the end"""
    size: PositiveInt | None = None
    """in place of `stop`: how many elements from `start` on"""
    step: PositiveInt = 1
    """keep every so many elements"""

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

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        axis = sample_axis(x, self.axis, "to cut")
        count = x.shape[axis]
        start = self.start + (count if self.start < 0 else 0)
        stop = count if self.stop is None else self.stop + (count if self.stop < 0 else 0)
        if self.size is not None:
            stop = start + self.size
        need(
            0 <= start < stop <= count,
            f"there is no such part of axis {axis}",
            expected=f"a part of 0 to {count}, not empty",
            got=f"from {start} to {stop}",
        )
        if self.step > 1:
            taken = (stop - start - 1) // self.step + 1
            need(
                taken <= MOST_TAKEN,
                "elements that are taken one by one are too many",
                expected=f"at most {MOST_TAKEN:,} with a `step`",
                got=f"{taken:,}",
            )
            return shape.Take(axis, tuple(range(start, stop, self.step)))(x)
        return x if stop - start == count else shape.Slice(axis, start, stop)(x)


def _offsets(value: Any) -> Any:
    offsets = value if isinstance(value, (list, tuple)) else [value]
    if not offsets or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in offsets):
        expected = "a whole number of 0 or more, or one for each axis"
        raise problem("not an offset", expected=expected, got=describe(value))
    return tuple(offsets)


Offsets = Annotated[tuple[int, ...], BeforeValidator(_offsets, json_schema_input_type=int | list[int])]
"""One whole number of 0 or more, or several."""


@LAYERS.register
class Crop(LayerSpec):
    """Cut the first input to the size of the second, as Caffe's Crop does: to put it beside an earlier layer's output.

    Inputs (N, C, H, W) and (N, …, h, w), output (N, C, h, w): all axes from `axis` on get the second input's sizes. Of
    the second input nothing but the size is used.
    """

    alike: ClassVar[tuple[str, ...]] = ("Slice", "Cropping1D", "Cropping2D", "Cropping3D")

    type: Literal["Crop"] = "Crop"
    axis: int = 2
    """the first axis that is cut; 2 is the height of images"""
    offset: Offsets = (0,)
    """where along these axes the part kept begins: one number for all, or one for each"""

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), (2, 1, 2, 3), offset=[1, 2]),
        Sample.of((2, 5, 4), (2, 3, 4), axis=1, offset=[2, 0]),
        Sample.of((2, 3, 4), (2, 3, 3), offset=1),
    )

    def build(self, net: Builder, x: Value, reference: Value) -> Value:
        """x: (N, …), reference: (N, …) → (N, …)."""
        axis = sample_axis(x, self.axis, "to cut from")
        rank, count = len(x.shape), len(x.shape) - axis
        need(
            len(reference.shape) == rank,
            "the inputs differ in their number of axes",
            expected=f"{rank} axes",
            got=reference.type,
        )
        need(
            len(self.offset) in (1, count),
            "there is not one offset for each axis that is cut",
            expected=f"1 offset, or {count}",
            got=len(self.offset),
        )
        offsets = self.offset * (count if len(self.offset) == 1 else 1)
        for place, start in enumerate(offsets, axis):
            size, wanted = x.shape[place], reference.shape[place]
            need(
                start + wanted <= size,
                f"the first input is too small along axis {place}",
                expected=f"{start + wanted} or more: the second input's {wanted}, after {start}",
                got=f"{size}",
            )
            x = x if size == wanted else shape.Slice(place, start, start + wanted)(x)
        return x


def _indices(value: Any) -> Any:
    fits = isinstance(value, (list, tuple)) and value and all(type(one) is int for one in value)
    if not fits:
        raise problem("not a list of places", expected="whole numbers, such as [0, 2]", got=describe(value))
    return tuple(value)


Indices = Annotated[tuple[int, ...], BeforeValidator(_indices, json_schema_input_type=list[int])]
"""Whole numbers, at least one."""


@LAYERS.register
class Gather(LayerSpec):
    """Pick elements along an axis by their places: the same for all samples, or those that a second input names.

    Input (N, …, A, …), output (N, …, K, …) for K places. A second input (N, K…) holds whole numbers from -A to A - 1;
    its axes, any number of them or none, stand in place of the one that is picked along.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "index": "here it is `indices`",
        "dim": "`dim` is PyTorch's name: here it is `axis`",
    }
    alike: ClassVar[tuple[str, ...]] = ("Slice",)

    type: Literal["Gather"] = "Gather"
    indices: Indices | None = None
    """the places, counted from 0, negative ones from the end; left out where a second input names them"""
    axis: int = 1
    """the axis to pick along; 1 is the channels"""

    samples: ClassVar = (
        Sample.of((2, 4, 2), indices=[3, 0, 1, 0, -1]),
        Sample.of((2, 2, 3), indices=[2, 0], axis=-1),
        Sample.of((2, 4, 2), (2, 3), dtypes=("float32", "int32"), one_way=True),
        Sample.of((2, 2, 4), (2, 1), dtypes=("float32", "int64"), axis=2, one_way=True),
        Sample.of((2, 2, 4, 2), (2, 3, 2), dtypes=("float32", "int64"), axis=2, one_way=True),
        Sample.of((2, 4, 2), (2,), dtypes=("float32", "int64"), one_way=True),
    )

    def build(self, net: Builder, x: Value, places: Value | None = None) -> Value:
        """x: (N, …, A, …), places: (N, K) → (N, …, K, …)."""
        axis = sample_axis(x, self.axis, "to pick along")
        size = x.shape[axis]
        need(
            (self.indices is None) != (places is None),
            "it is not said what to pick" if places is None else "it is said twice what to pick",
            expected="`indices`, or a second input with whole numbers",
        )
        if places is None:
            assert self.indices is not None
            need(
                all(-size <= one < size for one in self.indices),
                f"there is no such place along axis {axis}",
                expected=f"numbers from {-size} to {size - 1}",
                got=f"{list(self.indices)}",
            )
            return shape.Take(axis, tuple(one % size for one in self.indices))(x)
        need(
            not places.dtype.is_float and places.dtype != DType.BOOL and places.shape[0] == x.shape[0],
            "the second input does not name places",
            expected="whole numbers (batch, …)",
            got=places.type,
        )
        net.require_range(places, -size, size, f"axis {axis} of what is picked from has {size} elements")
        others = [one for one in range(1, len(x.shape)) if one != axis]
        front = x if axis == 1 else shape.Transpose((0, axis, *others))(x)
        picked = GatherND(1)(front, reshape_to(places, (*places.shape, 1)))
        count = len(places.shape) - 1
        order = (0, *range(count + 1, count + axis), *range(1, count + 1), *range(count + axis, len(picked.shape)))
        return picked if axis == 1 else shape.Transpose(order)(picked)


@LAYERS.register
class BatchReindex(LayerSpec):
    """Put the samples of a batch in another order, as Caffe's BatchReindex does: some may come twice, some not at all.

    Input (N, …) and whole numbers (N) from 0 to N - 1, output (N, …): sample i is sample index[i] of the input.
    """

    type: Literal["BatchReindex"] = "BatchReindex"

    samples: ClassVar = (Sample.of((2, 3, 2), (2,), dtypes=("float32", "int32"), high=1),)

    def build(self, net: Builder, x: Value, index: Value) -> Value:
        """x: (N, …), index: (N) → (N, …)."""
        need(
            not index.dtype.is_float and len(index.shape) == 1,
            "the second input does not number samples",
            expected="one whole number for each sample: `{shape: [], dtype: int32}`",
            got=index.type,
        )
        return linear.Gather()(x, index)
