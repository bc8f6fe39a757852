"""The greatest or least elements and their indices: ArgMax, ArgMin, TopK, Hardmax; and OneHot."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from netspec.graph.ops import reduce, shape, softmax, topk
from netspec.graph.ops.elementwise import Greater, Where, call_elementwise, scalar
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require, sample_axis
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.net import InputDType
from netspec.schema.specs.spec import problem


class ArgExtremum(LayerSpec):
    """Base of ArgMax and ArgMin."""

    op: ClassVar[type[reduce.ArgExtremum]]

    foreign_fields: ClassVar[dict[str, str]] = {
        "k": "use `top_k`",
        "dim": "`dim` is PyTorch's name: use `axis`",
        "keepdim": "use `keepdims`",
    }
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Reshape", "Flatten")

    axis: int = 1
    """The axis to search along; 1 is the channels."""
    keepdims: bool = False
    """Keep the axis, with size 1; with `top_k` of 2 or more it is always kept."""
    select_last_index: bool = False
    """Selects the last of equal elements, not the first."""

    def build(self, builder: Builder, x: Value) -> Value | tuple[Value, ...]:
        """x: (N, …) → (N, …), int64."""
        axis = sample_axis(x, self.axis, "to search along")
        kept_axis = (1,) if self.keepdims else ()
        return reduce.reshape_to(
            self.op(axis, self.select_last_index)(x), (*x.shape[:axis], *kept_axis, *x.shape[axis + 1 :])
        )


@LAYERS.register
class ArgMax(ArgExtremum):
    """The index of the greatest element along an axis, or of several; of equal ones the first.

    Input (N, …), output integers (int64) without this axis, or with size 1 or `top_k` there. With `out_max_val` the
    second output, `NAME.values`, has the elements. Gradients flow only through these.
    """

    op: ClassVar = reduce.ArgMax

    type: Literal["ArgMax"] = "ArgMax"
    top_k: PositiveInt = 1
    """Number of indices, starting with that of the greatest element."""
    out_max_val: bool = False
    """Also output the elements: the outputs are `NAME.places` and `NAME.values`."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 5), axis=-1),
        Sample.of((2, 3, 4), axis=2, keepdims=True),
        Sample.of((2, 5, 2), top_k=3, no_onnx_roundtrip=True),
        Sample.of((2, 3, 4), axis=-1, out_max_val=True, no_onnx_roundtrip=True),
        Sample.of((2, 6), select_last_index=True, dtypes=("int32",)),
    )

    @model_validator(mode="after")
    def _last_of_one(self) -> Self:
        if self.select_last_index and (self.top_k > 1 or self.out_max_val):
            raise problem(
                "`select_last_index` has no effect with `top_k` or `out_max_val`", field="select_last_index",
                expected="`select_last_index: false`, or neither `top_k` nor `out_max_val`",
            )  # fmt: skip
        return self

    def output_names(self) -> tuple[str, ...]:
        """Names for the indices and, if wanted, the elements."""
        return ("places", "values") if self.out_max_val else ()

    def build(self, builder: Builder, x: Value) -> Value | tuple[Value, ...]:
        """x: (N, …) → indices (N, …), int64, and elements."""
        axis = sample_axis(x, self.axis, "to search along")
        require_k(x, axis, self.top_k, "top_k")
        if self.top_k == 1 and not self.out_max_val:
            return super().build(builder, x)
        keep_axis = self.keepdims or self.top_k > 1
        shape = (*x.shape[:axis], *((self.top_k,) if keep_axis else ()), *x.shape[axis + 1 :])
        values, indices = topk.TopK(self.top_k, axis).call_multi(builder.floating(x))
        outputs = reduce.reshape_to(indices, shape), reduce.reshape_to(values, shape)
        return outputs if self.out_max_val else outputs[0]


def require_k(x: Value, axis: int, count: int, field: str) -> None:
    """Raise unless the axis has at least `count` elements."""
    size = x.shape[axis]
    require(
        count <= size, f"axis {axis} has fewer than {count} elements", expected=f"`{field}` up to {size}", got=count
    )


@LAYERS.register
class ArgMin(ArgExtremum):
    """The index of the least element along an axis; of equal ones the first.

    Input (N, …), output integers (int64) without this axis, or with size 1 there. No gradient flows.
    """

    op: ClassVar = reduce.ArgMin

    type: Literal["ArgMin"] = "ArgMin"

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 6), axis=-1, keepdims=True, select_last_index=True, dtypes=("int32",)),
    )


@LAYERS.register
class TopK(LayerSpec):
    """The `k` greatest elements along an axis in descending order, and their indices; or the least, in ascending order.

    Input (N, …), outputs `NAME.values` and `NAME.indices` (int64), with size `k` along the axis. Of equal elements the
    first comes first. Gradients flow through the values. Integers stay integers.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "dim": "`dim` is PyTorch's name: use `axis`",
        "sorted": "the results are always sorted",
    }

    type: Literal["TopK"] = "TopK"
    k: PositiveInt
    """Number of elements."""
    axis: int = -1
    """The axis to search along."""
    largest: bool = True
    """`false`: return the smallest elements."""

    samples: ClassVar = (
        Sample.of((2, 5), k=3),
        Sample.of((2, 4, 2), k=2, axis=1, largest=False),
        Sample.of((2, 6), k=6, dtypes=("int64",)),
    )

    def output_names(self) -> tuple[str, ...]:
        """Return ONNX's names of the outputs."""
        return ("values", "indices")

    def build(self, builder: Builder, x: Value) -> tuple[Value, ...]:
        """x: (N, …, size, …) → twice (N, …, k, …)."""
        axis = sample_axis(x, self.axis, "to search along")
        require_k(x, axis, self.k, "k")
        return topk.TopK(self.k, axis, self.largest).call_multi(x)


@LAYERS.register
class OneHot(LayerSpec):
    """A one-hot vector for each integer: `on_value` at its index, `off_value` elsewhere.

    Input (N, …) integers, output (N, …, depth), the new axis at `axis`. Negative integers count from the end; an
    integer out of range gives a vector without `on_value`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "num_classes": "use `depth`",
        "num_tokens": "use `depth`",
    }

    type: Literal["OneHot"] = "OneHot"
    depth: PositiveInt
    """Length of the vectors."""
    axis: int = -1
    """Position of the new axis in the output."""
    on_value: float = 1.0
    """Value at the index."""
    off_value: float = 0.0
    """Value elsewhere."""
    dtype: InputDType = "float32"
    """The element type; `float32` follows the precision the net is compiled for."""

    samples: ClassVar = (
        Sample.of((2, 3), depth=4, dtypes=("int64",)),
        Sample.of((2,), depth=3, axis=1, dtypes=("int32",), on_value=0.9, off_value=-0.5, no_onnx_roundtrip=True),
        Sample.of((2, 3), depth=5, axis=1, dtypes=("uint8",), dtype="int64", no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …, depth)."""
        rank = len(x.shape) + 1
        require(
            not x.dtype.is_float and x.dtype != DType.BOOL,
            "the input does not hold integers",
            expected="integers",
            got=x.type,
        )
        require(
            -rank < self.axis < rank and self.axis != 0,
            f"an axis cannot be inserted at {self.axis}",
            expected="axis 1" if rank == 2 else f"an axis from 1 to {rank - 1}, or -1 for the last",
            got=x.type,
        )
        dtype = builder.dtype if self.dtype == "float32" else DType(self.dtype)
        if not x.dtype.startswith("u"):
            x = Where()(call_elementwise(Greater(), 0, x), x + float(self.depth), x)
        y = shape.OneHot(self.depth, dtype, self.axis)(x)
        if (self.on_value, self.off_value) == (1.0, 0.0):
            return y
        on = call_elementwise(Greater(), y, 0.0)
        return Where()(on, scalar(self.on_value, dtype), scalar(self.off_value, dtype))


@LAYERS.register
class Hardmax(LayerSpec):
    """1 at the greatest element along an axis, 0 at all others; of equal ones the first. No gradient flows.

    Input and output have the same shape.
    """

    type: Literal["Hardmax"] = "Hardmax"
    axis: int = -1
    """The axis to search along."""

    samples: ClassVar = (Sample.of((2, 4)), Sample.of((2, 3, 2), axis=1))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        return softmax.Hardmax(sample_axis(x, self.axis, "to search along"))(builder.floating(x))
