"""Masks, which mark the valid steps of a sequence. `Masking` creates one; other layers declare how they pass it on."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Greater, Where, call_elementwise, cast
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.schema.specs.kinds import LAYERS


def as_mask(x: Value) -> Value:
    """Convert to a bool mask: True for elements that are not 0 (for floats: greater than ½)."""
    return x if x.dtype == DType.BOOL else call_elementwise(Greater(), x, 0.5 if x.dtype.is_float else 0)


def combine_masks(first: Value | None, second: Value | None) -> Value | None:
    """Elementwise "and" of two masks that broadcast; None is a mask that is True everywhere."""
    if first is None or second is None:
        return second if first is None else first
    return And()(first, second)


def broadcast_mask(mask: Value, x: Value) -> Value:
    """A mask of the first axes of `x` with axes of size 1 for the others, so that it broadcasts to `x`."""
    return reshape_to(mask, mask.shape + (1,) * (len(x.shape) - len(mask.shape)))


def require_steps(mask: Value, x: Value) -> None:
    """Raise a located error unless the mask is (N, T), for the steps of the sequence `x`."""
    require(
        mask.shape == x.shape[:2],
        "the mask must have one entry for each step",
        expected=batch_shape(x.shape[:2]),
        got=mask.type,
    )


def step_mask(builder: Builder, x: Value, index: int = 0) -> Value | None:
    """The mask (N, T) of the steps of the sequence `x`, which is input `index`; None if all are valid."""
    mask = builder.mask(index)
    if mask is not None:
        require_steps(mask, x)
    return mask


@LAYERS.register
class Masking(LayerSpec):
    """Mark the valid steps of a sequence; layers that support masks skip the others.

    Inputs (N, …, features) and optionally a mask (N, …), nonzero for valid steps; output as the first input, with zeros
    for masked steps. Without the mask input, steps are masked if all their features are `mask_value`. Recurrent layers
    skip masked steps, attention does not attend to them, losses and metrics leave them out.
    """

    type: Literal["Masking"] = "Masking"
    mask_value: float = 0.0
    """A step is masked if all its features have this value."""

    onnx_roundtrip_blocker: ClassVar = "it is exported as comparisons"
    samples: ClassVar = (
        Sample.of((2, 3, 2), ranges=[(0.0, 2.0)]),
        Sample.of((2, 3, 2), dtypes=("int32",), high=2, mask_value=1.0),
        Sample.of((2, 3, 2), (2, 3), dtypes=("float32", "int32"), high=2),
    )

    def _step_mask(self, x: Value, mask: Value | None) -> Value:
        if mask is not None:
            require(
                mask.shape == x.shape[: len(mask.shape)] and 2 <= len(mask.shape) <= len(x.shape),
                "the mask must have one entry for each position",
                expected=batch_shape(x.shape[:-1]),
                got=mask.type,
            )
            return as_mask(mask)
        require(
            len(x.shape) >= 3,
            "the input is not a sequence of vectors",
            expected="(batch, …, steps, features)",
            got=x.type,
            hint="to mask integers, set `mask_zero: true` in the Embedding" if len(x.shape) == 2 else None,
        )
        same = ReduceSum((-1,))(cast(call_elementwise(Equal(), x, self.mask_value), DType.FLOAT32))
        return call_elementwise(Greater(), x.shape[-1] - 0.5, same)

    def build(self, builder: Builder, x: Value, mask: Value | None = None) -> Value:
        """x: (N, …, features), mask: (N, …) → like x."""
        x = builder.floating(x)
        return call_elementwise(Where(), broadcast_mask(self._step_mask(x, mask), x), x, 0.0)

    def mask(self, builder: Builder, *inputs: Value) -> Value:
        """The mask of the steps: False for masked ones."""
        x, second_input = (*inputs, None)[:2]
        assert x is not None
        return self._step_mask(builder.floating(x), second_input)
