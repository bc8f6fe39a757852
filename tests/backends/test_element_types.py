"""All element types through the compiler and the kernels of this machine: moves, casts, comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.backends.numba.scalar_code import why_untraceable
from netspec.compile import Compiler, ProgramKind
from netspec.graph.ops.elementwise import Add
from netspec.graph.types import DType, TensorType
from tests.backends.numba.run import by_numba
from tests.compile.nets import net

WHOLE = [dtype for dtype in DType if not dtype.is_float and dtype != DType.BOOL]

MOVED = """\
netspec: 1
inputs: {{x: {{shape: [3, 4], dtype: {dtype}}}}}
layers:
  - {{name: turned, type: Permute, dims: [2, 1]}}
  - {{name: padded, type: ZeroPadding1D, padding: 1}}
  - {{name: part, type: Slice, axis: 2, start: 1, stop: 4}}
  - {{name: places, type: Gather, indices: [3, 0, 0], axis: 1}}
  - {{name: float, type: Cast, dtype: float32}}
  - {{name: back, type: Cast, dtype: {dtype}, from: float}}
outputs: [places, float, back]
"""


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.slow
def test_integer_net_moves_and_casts(tmp_path: Path, dtype: DType) -> None:
    compiler = Compiler(net(MOVED.format(dtype=dtype), tmp_path))
    limits = np.iinfo(str(dtype))
    x = np.arange(24).reshape(2, 3, 4).astype(str(dtype))
    x[0, 0, :2] = limits.min, limits.max
    expected = np.swapaxes(x, 1, 2)[:, [3, 0, 0]]
    compiled = compiler.program(ProgramKind.PREDICT, 2)({"x": x})
    assert compiled["places"].dtype == str(dtype)
    np.testing.assert_array_equal(compiled["places"], expected)
    np.testing.assert_array_equal(compiled["float"], expected.astype(np.float32))
    small = np.abs(expected.astype(np.float64)) < 2**23  # float32 represents larger integers only in part
    assert small.mean() > 0.8
    np.testing.assert_array_equal(compiled["back"][small], expected[small])


def test_kernels_decline_arithmetic_that_their_code_is_not_written_for() -> None:
    kind = TensorType((2,), DType.INT8)
    assert why_untraceable(Add(), (kind, kind)) == "it computes in int8"
    assert why_untraceable(Add(), (kind.with_dtype(DType.INT32),) * 2) is None
    with pytest.raises(Exception, match="it computes in uint16"):
        by_numba(Add(), *[np.zeros(2, np.uint16)] * 2)
