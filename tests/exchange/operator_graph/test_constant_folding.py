"""Results of nodes with constant operands are computed, unless they are too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.exchange.operator_graph.constant_folding import fold, slice_range, stored_size
from netspec.exchange.operator_graph.evaluate import compute
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

HUGE = 10**12


def made(op_type: str, *operands: Any, opset: int = 17, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Any:
    names = tuple("" if operand is None else name for name, operand in zip("abcdef", operands, strict=False))
    arrays = [None if operand is None else np.asarray(operand) for operand in operands]
    return compute(OperatorNode(op_type, "", names, outputs, attributes, opset), arrays)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "expected"),
    [
        ("Equal", ([1, 2], [1, 3]), {}, [True, False]),
        ("Mod", ([7], [4]), {"fmod": 0}, [3]),
        ("Range", (0, 6, 2), {}, [0, 2, 4]),
        ("Clip", ([1, 9], None, 5), {}, [1, 5]),
        ("Where", ([True, False], [1, 2], [3, 4]), {}, [1, 4]),
        ("ReduceProd", ([[2, 3]],), {"axes": [1], "keepdims": 0}, [6]),
        ("Size", (np.ones((3, 4)),), {}, 12),
    ],
)
def test_the_result_equals_onnx(op_type: str, operands: Any, attributes: Any, expected: Any) -> None:
    (actual,) = made(op_type, *operands, **attributes)
    np.testing.assert_array_equal(actual, expected)


def test_several_results() -> None:
    first, second = made("Split", [1, 2, 3, 4], outputs=("p", "q"), axis=0)
    np.testing.assert_array_equal([first, second], [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "message"),
    [
        ("Range", (0, HUGE, 1), {}, "a constant of 1,000,000,000,000 elements exceeds the limit of 4,194,304"),
        ("Tile", ([1, 2], [HUGE]), {}, "exceeds the limit"),
        ("Pad", (np.ones((2, 2), "float32"), [0, 0, HUGE, HUGE]), {"mode": "constant"}, "exceeds the limit"),
        ("OneHot", ([1], HUGE, [0, 1]), {"axis": -1}, "exceeds the limit"),
        ("Mod", (np.ones((10**5, 1), int), np.ones((1, 10**5), int)), {"fmod": 0}, "exceeds the limit"),
        ("Not", (np.ones(2**22 + 1, bool),), {}, "more than 4,194,304 elements"),
        ("RandomNormal", (), {"shape": [2]}, "it draws numbers"),
        ("Mod", ([1, 2], [1, 2, 3]), {"fmod": 0}, "it cannot be computed"),
        ("Imagined", ([1],), {}, "not computed on constants"),
    ],
)
def test_operators_that_are_not_evaluated(op_type: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message):
        made(op_type, *operands, **attributes)


TABLE = np.zeros((17_000, 1), "float32")
REPEATED = np.broadcast_to(TABLE, (7919, *TABLE.shape))


def folded(op_type: str, *operands: Any, batch_size: int = 7919, **attributes: Any) -> Any:
    names = tuple("abcdef"[: len(operands)])
    (result,) = fold(OperatorNode(op_type, "", names, ("y",), attributes, 17), [*map(np.asarray, operands)], batch_size)
    return result


def test_a_constant_repeated_for_each_sample_is_stored_once() -> None:
    repeated = folded("Expand", TABLE, [7919, 1, 2])
    assert repeated.shape == (7919, 17_000, 2)
    assert stored_size(repeated) == TABLE.size
    assert stored_size(folded("Transpose", repeated, perm=[1, 0, 2])) == TABLE.size


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Expand", (TABLE, [7907, 1, 2]), {}),
        ("Expand", (TABLE, [7919, 1, 10**5]), {}),
        ("Reshape", (REPEATED, [-1]), {}),
        ("Flatten", (REPEATED,), {"axis": 2}),
        ("Cast", (REPEATED,), {"to": 11}),
    ],
)
def test_a_repeated_constant_that_is_too_large_is_refused(op_type: str, operands: Any, attributes: Any) -> None:
    with pytest.raises(UnsupportedFeature, match="elements exceeds the limit"):
        folded(op_type, *operands, **attributes)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [((-9, 9, 1), [0, 1, 2, 3]), ((-1, -9, -1), [3, 2, 1, 0]), ((9, -9, -2), [3, 1]), ((-9, -(2**63), -1), [0])],
)
def test_slices_are_clipped_as_onnx_does(bounds: tuple[int, int, int], expected: list[int]) -> None:
    assert list(slice_range(*bounds, 4)) == expected
