"""FractionalMaxPooling, 2D and 3D: maxima of windows at random distances. Graham 2014, arXiv:1412.6071."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.indexing import GatherElements
from netspec.graph.ops.pooling import MaxPool
from netspec.graph.ops.reduce import Broadcast, reshape_to
from netspec.graph.ops.rounding import Floor
from netspec.graph.ops.shape import Concat, Slice, Take
from netspec.graph.ops.source import constant
from netspec.graph.ops.window import Window
from netspec.graph.types import DType
from netspec.graph.value import Value, require_listable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.layers.spatial import AXIS_NAMES, Size2D, Size3D, require_spatial
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem

INFERENCE_SAMPLE = 0.5
"""The value of u in inference, for every axis and channel."""


def _ratios(rank: int) -> BeforeValidator:
    """A validator for one ratio per spatial axis, or one for all of them."""

    def validate(value: Any) -> Any:
        ratios = value if isinstance(value, (list, tuple)) else (value,) * rank
        numbers = all(isinstance(ratio, (int, float)) and not isinstance(ratio, bool) for ratio in ratios)
        if len(ratios) != rank or not numbers or not all(0 < ratio < 1 for ratio in ratios):
            expected = f"a number between 0 and 1, or a list of {rank} ({AXIS_NAMES[rank]})"
            raise problem("not between 0 and 1", expected=expected, got=str(value))
        return tuple(map(float, ratios))

    return BeforeValidator(validate, json_schema_input_type=float | list[float])


class FractionalMaxPooling(LayerSpec):
    """Base of FractionalMaxPooling2D and 3D."""

    rank: ClassVar[int]
    onnx_roundtrip_blocker: ClassVar = "it is written as a pooling of stride 1, and a selection of its elements"
    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "kernel_size": "`kernel_size` is PyTorch's name: use `pool_size`",
        "return_indices": "not available: the positions of the maxima are not an output of this layer",
        "_random_samples": "not needed: the samples follow from the run's seed, the step and the layer's name",
    }

    pool_size: tuple[int, ...]
    output_size: tuple[int, ...] | None
    output_ratio: tuple[float, ...] | None

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if (self.output_size is None) == (self.output_ratio is None):
            raise problem(
                "the size of the output must be given by one field", expected="either `output_size` or `output_ratio`",
                got="both" if self.output_size else "neither",
            )  # fmt: skip
        return self

    def counts(self, x: Value) -> tuple[int, ...]:
        """Number of windows along each axis."""
        if self.output_ratio is None:
            assert self.output_size is not None
            return self.output_size
        return tuple(int(size * ratio) for size, ratio in zip(x.shape[2:], self.output_ratio, strict=True))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, C, *output_size)."""
        require_spatial(x, self.rank)
        counts, sizes = self.counts(x), x.shape[2:]
        for count, window, size in zip(counts, self.pool_size, sizes, strict=True):
            require(
                1 <= count <= size - window + 1,
                f"{count} distinct windows of {window} elements do not fit into {size} elements",
                expected=f"1 to {size - window + 1} windows" if window <= size else f"windows of up to {size} elements",
                got=x.type,
                hint="change `output_size`, `output_ratio` or `pool_size`",
            )  # fmt: skip
        ones = (1,) * self.rank
        y = MaxPool(Window.of(sizes, self.pool_size, ones, "valid")).call_multi(builder.floating(x))[0]
        samples = builder.uniform((*x.shape[:2], self.rank)) if builder.training else None
        for axis, (size, window, count) in enumerate(zip(sizes, self.pool_size, counts, strict=True)):
            sample = None if samples is None else Slice(2, axis, axis + 1)(samples)
            y = _sampled(y, 2 + axis, sample, size - window, count)
        return y


def _sampled(x: Value, axis: int, sample: Value | None, last: int, count: int) -> Value:
    """Select the elements of `x` along `axis` at which windows begin; the last window begins at `last`."""
    import numpy as np

    dtype = str(x.dtype)
    require_listable(count, "windows")
    steps = np.arange(count - 1, dtype=dtype)
    slope = last / max(1, count - 1)
    if sample is None:
        starts = window_starts(steps, np.asarray(INFERENCE_SAMPLE, dtype), slope, np.floor)
        return Take(axis, (*map(int, starts), last))(x)
    n, c, *_ = x.shape
    index = Broadcast((n, c, 1))(constant(np.full((1, 1, 1), last, dtype)))
    if count > 1:
        index = Concat(2)(window_starts(constant(steps), sample, slope, Floor()), index)
    others = (1,) * (len(x.shape) - 3)
    column = reshape_to(cast(index, DType.INT32), (n, c, *others[: axis - 2], count, *others[axis - 2 :]))
    return GatherElements(axis)(x, Broadcast((*x.shape[:axis], count, *x.shape[axis + 1 :]))(column))


def window_starts(steps: Any, sample: Any, slope: float, floor: Callable[[Any], Any]) -> Any:
    """First indices of all windows but the last, as floats; the operands are arrays or graph values."""
    return floor((sample + steps) * slope) - floor(sample * slope)


@LAYERS.register
class FractionalMaxPooling2D(FractionalMaxPooling):
    """The maximum of each of `output_size` windows at random distances, in each channel.

    Input (N, C, H, W), output (N, C, *output_size). The windows have the size `pool_size`, cover the image from edge to
    edge and may overlap or leave gaps. In training the distances are drawn for each channel of each sample; they depend
    on the run's seed, the step, the layer's name and the sample's index in the global batch. In inference they are
    fixed (those of u = ½) and the same for all channels, so that predictions are reproducible; PyTorch draws them in
    inference too. Graham 2014, arXiv:1412.6071.
    """

    rank: ClassVar[int] = 2

    type: Literal["FractionalMaxPooling2D"] = "FractionalMaxPooling2D"
    pool_size: Size2D = (2, 2)
    """Height and width of the windows; a single number sets both."""
    output_size: Size2D | None = None
    """Height and width of the output; a single number sets both."""
    output_ratio: Annotated[tuple[float, ...], _ratios(2)] | None = None
    """Height and width of the output as a share of the input's, rounded down; a single number sets both."""

    samples: ClassVar = (
        Sample.of((2, 3, 6, 5), output_size=(4, 3)),
        Sample.of((2, 2, 7, 6), pool_size=3, output_ratio=0.5),
        Sample.of((1, 2, 5, 4), pool_size=(2, 1), output_size=(1, 4)),
    )


@LAYERS.register
class FractionalMaxPooling3D(FractionalMaxPooling):
    """The maximum of each of `output_size` windows at random distances in a volume, in each channel.

    Input (N, C, D, H, W), output (N, C, *output_size). Like FractionalMaxPooling2D, for volumes.
    """

    rank: ClassVar[int] = 3

    type: Literal["FractionalMaxPooling3D"] = "FractionalMaxPooling3D"
    pool_size: Size3D = (2, 2, 2)
    """Depth, height and width of the windows; a single number sets all."""
    output_size: Size3D | None = None
    """Depth, height and width of the output; a single number sets all."""
    output_ratio: Annotated[tuple[float, ...], _ratios(3)] | None = None
    """Depth, height and width of the output as a share of the input's, rounded down; a single number sets all."""

    samples: ClassVar = (
        Sample.of((2, 2, 4, 5, 4), output_size=(2, 3, 2)),
        Sample.of((1, 2, 4, 4, 5), pool_size=(1, 2, 2), output_ratio=(0.8, 0.6, 0.5)),
    )
