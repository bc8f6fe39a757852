"""bfloat16 for compiled code: a pointer whose elements have 16 bits in memory, and are read and written as float32.

Imported only when something is compiled. An element is the upper half of a float32. Writing rounds to nearest, ties to
even; NaN stays NaN. Integer instructions do the rounding, so that the result is the same on every CPU, and loops are
vectorized.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import extending, types
from numba.core.typing import templates

# numba is only partly typed, and wrongly in places
lower: Callable[..., Callable[[Any], Any]] = extending.lower_builtin
register_model, infer_global = (
    cast("Any", decorator) for decorator in (extending.register_model, templates.infer_global)
)
signature = cast("Any", templates.signature)

HALF, WORD = ir.IntType(16), ir.IntType(32)
MAX_OF_REST = 0x7FFF
QUIET = 0x0040
"""The bit that keeps a NaN a NaN when the lower half is dropped."""


class BFloat16Pointer(types.Type):
    """The numba type of pointers to bfloat16."""

    def __init__(self) -> None:
        super().__init__(name="bfloat16*")


BFLOAT16_POINTER = BFloat16Pointer()


@register_model(BFloat16Pointer)
class _Model(extending.models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, HALF.as_pointer())  # type: ignore[no-untyped-call]  # numba is typed in part


@infer_global(operator.getitem)
class _Read(templates.AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        pointer, index = args
        if isinstance(pointer, BFloat16Pointer) and isinstance(index, types.Integer):
            return signature(types.float32, pointer, types.intp)
        return None


@infer_global(operator.setitem)
class _Write(templates.AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        pointer, index, _ = args
        if isinstance(pointer, BFloat16Pointer) and isinstance(index, types.Integer):
            return signature(types.none, pointer, types.intp, types.float32)
        return None


@lower(operator.getitem, BFloat16Pointer, types.Integer)
def _read(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    half = builder.load(builder.gep(args[0], [args[1]]))
    return builder.bitcast(builder.shl(builder.zext(half, WORD), WORD(16)), ir.FloatType())


@lower(operator.setitem, BFloat16Pointer, types.Integer, types.Float)
def _write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    pointer, index, value = args
    word = builder.bitcast(value, WORD)
    upper = builder.lshr(word, WORD(16))
    odd = builder.and_(upper, WORD(1))
    rounded = builder.lshr(builder.add(word, builder.add(odd, WORD(MAX_OF_REST))), WORD(16))
    upper_or_nan = builder.select(builder.fcmp_unordered("uno", value, value), builder.or_(upper, WORD(QUIET)), rounded)
    builder.store(builder.trunc(upper_or_nan, HALF), builder.gep(pointer, [index]))
    return context.get_dummy_value()
