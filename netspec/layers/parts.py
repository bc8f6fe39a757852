"""Layers that take inputs apart: Split."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netspec.graph.ops import shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample, need, sample_axis
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
