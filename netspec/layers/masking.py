"""Masks: which places of a sequence count. `Masking` makes one; what other layers do with it they declare.

A mask is a bool value (N, …) of the graph, True where a place counts; its shape is that of the first axes of what it
belongs to. A layer passes the mask of its first input on (`passes_mask`), makes one of its own (`mask`), uses it in
`build` (`net.mask()`), or stops it, which is the default. Losses and metrics find the prediction's in `net.mask()`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Greater, Where, cast, elementwise
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.schema.kinds import LAYERS


def as_mask(given: Value) -> Value:
    """A mask as bool: True where there is not 0 (of floats: where there is more than ½)."""
    return given if given.dtype == DType.BOOL else elementwise(Greater(), given, 0.5 if given.dtype.is_float else 0)


def both(one: Value | None, other: Value | None) -> Value | None:
    """True where both masks, which broadcast, are; None stands for a mask that is True everywhere."""
    if one is None or other is None:
        return other if one is None else one
    return And()(one, other)


def over(mask: Value, x: Value) -> Value:
    """A mask of the first axes of `x` with axes of size 1 for the others, so that it broadcasts to `x`."""
    return reshape_to(mask, mask.shape + (1,) * (len(x.shape) - len(mask.shape)))


def need_steps(mask: Value, x: Value) -> None:
    """Raise a located error unless the mask is one of the steps (N, T) of the sequence `x`."""
    need(
        mask.shape == x.shape[:2],
        "the mask does not say for each step whether it counts",
        expected=f"{list(x.shape[1:2])} per sample",
        got=f"{list(mask.shape[1:])}",
    )


def steps_that_count(net: Builder, x: Value, index: int = 0) -> Value | None:
    """The mask of the steps (N, T) of the sequence `x`, input number `index`; None where all count."""
    mask = net.mask(index)
    if mask is not None:
        need_steps(mask, x)
    return mask


@LAYERS.register
class Masking(LayerSpec):
    """Say which places of a sequence count: layers behind it that know masks pass over the others.

    Inputs (N, …, features) and, where what is given does not tell, a mask (N, …), not 0 where a place counts; output as
    the first input, with zeros where none does. Without a mask those places do not count where all features are
    `mask_value`. Recurrent layers skip such steps, attention does not look there, losses and metrics leave them out.
    """

    type: Literal["Masking"] = "Masking"
    mask_value: float = 0.0
    """a place of which all features are this number does not count"""

    one_way: ClassVar = "it is written as comparisons, which are not put together again"
    samples: ClassVar = (
        Sample.of((2, 3, 2), ranges=[(0.0, 2.0)]),
        Sample.of((2, 3, 2), dtypes=("int32",), high=2, mask_value=1.0),
        Sample.of((2, 3, 2), (2, 3), dtypes=("float32", "int32"), high=2),
    )

    def _counts(self, x: Value, given: Value | None) -> Value:
        if given is not None:
            need(
                given.shape == x.shape[: len(given.shape)] and 2 <= len(given.shape) <= len(x.shape),
                "the mask does not say for each place whether it counts",
                expected=f"{list(x.shape[1:-1])} per sample",
                got=f"{list(given.shape[1:])}",
            )
            return as_mask(given)
        need(
            len(x.shape) >= 3,
            "the input is not a sequence of vectors",
            expected="(batch, …, places, features)",
            got=x.type,
            hint="an Embedding has `mask_zero: true` for this" if len(x.shape) == 2 else None,
        )
        same = ReduceSum((-1,))(cast(elementwise(Equal(), x, self.mask_value), DType.FLOAT32))
        return elementwise(Greater(), x.shape[-1] - 0.5, same)

    def build(self, net: Builder, x: Value, mask: Value | None = None) -> Value:
        """x: (N, …, features), mask: (N, …) → as x."""
        x = net.floating(x)
        return elementwise(Where(), over(self._counts(x, mask), x), x, 0.0)

    def mask(self, net: Builder, *inputs: Value) -> Value:
        """The places that count."""
        x, given = (*inputs, None)[:2]
        assert x is not None
        return self._counts(net.floating(x), given)
