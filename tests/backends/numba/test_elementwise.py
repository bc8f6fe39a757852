from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from netspec.backends.common.trace import TRACEABLE, Untraceable, power
from netspec.backends.numba.scalar_code import WRITER, scalar_code, why_untraceable
from netspec.backends.openmp import using_threads
from netspec.graph.fused import Fused, FusedStep, MultiTensor
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.op import Array, Op, Traits, Xp
from netspec.graph.ops.elementwise import Add, Cast, Div, Greater, Maximum, Minimum, Mul, Pow, Where
from netspec.graph.ops.reduce import Broadcast
from netspec.graph.ops.special import Erf
from netspec.graph.ops.unary import Elu, Exp, Log, Relu, Sigmoid, Sign, Softplus, Sqrt, Tanh
from netspec.graph.types import DType, TensorType
from tests.backends.numba.run import by_numba, by_reference

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-40, 3e38, -3e38] * 4, np.float32)
ULPS = 4 * 2.0**-23
"""Each function is within 2 to 3 units of the last place, NumPy's own within 1 to 4."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "op", [Relu(), Sigmoid(), Tanh(), Softplus(), Elu(0.3), Exp(), Log(), Sqrt(), Sign(), Erf(), Pow(-0.75), Pow(2.5)]
)  # fmt: skip
def test_non_finite_values_propagate_as_in_numpy(op: Op, dtype: str) -> None:
    x = np.abs(SPECIAL.astype(dtype)) if isinstance(op, Pow) else SPECIAL.astype(dtype)  # a base is positive
    (actual,), (right,) = by_numba(op, x), by_reference(op, x)
    np.testing.assert_allclose(actual, right, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("op", [Maximum(), Minimum(), Greater(), Add(), Div()])
def test_pairs_of_special_numbers(op: Op) -> None:
    a, b = (grid.reshape(-1) for grid in np.meshgrid(SPECIAL[:10], SPECIAL[:10]))
    (actual,), (right,) = by_numba(op, a, b), by_reference(op, a, b)
    np.testing.assert_array_equal(actual, right)


@pytest.mark.parametrize("op", [Exp(), Log(), Tanh(), Sigmoid(), Softplus(), Erf()])
def test_functions_are_exact_to_some_units_of_the_last_place(op: Op) -> None:
    random = np.random.default_rng(3)
    x = np.concatenate([random.uniform(-85, 85, 20000), random.normal(size=20000), random.normal(size=20000) * 1e-3])
    x = (np.abs(x) if isinstance(op, Log) else x).astype(np.float32)
    (actual,), (right,) = by_numba(op, x), by_reference(op, x.astype(np.float64))
    np.testing.assert_allclose(actual, right, rtol=2 * ULPS, atol=1e-37 if not isinstance(op, Erf) else ULPS)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_keep_their_type_and_wrap(dtype: str) -> None:
    top = np.iinfo(dtype).max
    a, b = np.array([1, 2, top, top], dtype), np.array([3, 0, 1, top], dtype)
    for op in (Add(), Mul(), Maximum()):
        np.testing.assert_array_equal(by_numba(op, a, b)[0], by_reference(op, a, b)[0])


@pytest.mark.parametrize("source", sorted(TRACEABLE))
@pytest.mark.parametrize("target", sorted(TRACEABLE))
def test_casts(source: str, target: DType) -> None:
    x = np.array([0, 1, 2, 100, 0, 7]).astype(source)
    np.testing.assert_array_equal(by_numba(Cast(target), x)[0], x.astype(str(target)))


@pytest.mark.parametrize("other", [dtype for dtype in DType if dtype == dtype.compute_dtype and dtype not in TRACEABLE])
def test_types_without_arithmetic_here_are_declined(other: DType) -> None:
    assert why_untraceable(Cast(other), [TensorType((2,), DType.FLOAT32)]) == f"it computes in {other}"


SHAPES = [
    ((5, 7), (7,)), ((5, 7), (5, 1)), ((5, 7), ()), ((2, 3, 4, 5), (3, 1, 1)), ((2, 3, 4, 5), (2, 1, 1, 5)),
    ((2, 3, 4, 5), (1, 3, 1, 5)), ((300, 200), (200,)), ((30000,), (1,)), ((2, 40, 30, 20), (40, 1, 1)), ((1, 1), ()),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "other"), SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_operands_broadcast_in_either_order_of_memory(
    shape: tuple[int, ...], other: tuple[int, ...], last: bool
) -> None:
    random = np.random.default_rng(1)
    a, b, c = random.normal(size=shape), random.normal(size=other), random.normal(size=shape)
    layout = Layout.channels_last(len(shape)) if last and len(shape) > 2 else PLAIN
    fused = Fused(3, (FusedStep(Mul(), (0, 1)), FusedStep(Add(), (3, 2)), FusedStep(Greater(), (4, 0))), (4, 5))
    actual = by_numba(fused, a, b, c, layouts=[layout, PLAIN, layout])
    np.testing.assert_allclose(actual[0], a * b + c, rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(actual[1], actual[0] > a)


def test_a_result_may_be_written_over_its_operand_while_others_are_read() -> None:
    """An update computes the new slot and the new weight in one pass."""
    random = np.random.default_rng(2)
    w, m, g = (random.normal(size=50001).astype(np.float32) for _ in range(3))
    body = (FusedStep(Mul(), (1, 1)), FusedStep(Add(), (3, 2)), FusedStep(Mul(), (4, 0)), FusedStep(Add(), (5, 2)))
    actual = by_numba(Fused(3, body, (6, 4)), w, m, g, over=0)
    np.testing.assert_allclose(actual[1], m * m + g, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(actual[0], (m * m + g) * w + g, rtol=1e-5, atol=1e-5)


def test_one_call_for_many_sets_shared_out_among_threads_and_written_over_operands() -> None:
    random = np.random.default_rng(3)
    update = Fused(3, (FusedStep(Mul(), (1, 2)), FusedStep(Add(), (0, 3))), (4, 3))
    sizes = (1, 100_003, 7, 64, 50_000)
    sets = [(random.normal(size=n), random.normal(size=n), np.array(0.1 * n)) for n in sizes]
    with using_threads(3):
        actual = by_numba(
            MultiTensor(update, len(sizes)), *(operand for operands in sets for operand in operands), over=0
        )
    for (w, g, rate), new, step in zip(sets, actual[::2], actual[1::2], strict=True):
        np.testing.assert_allclose(step, g * rate, rtol=1e-15)
        np.testing.assert_allclose(new, w + g * rate, rtol=1e-14, atol=1e-15)


def test_broadcast_and_where_on_bool() -> None:
    flags = np.array([[True], [False]])
    np.testing.assert_array_equal(by_numba(Broadcast((2, 3)), flags)[0], np.broadcast_to(flags, (2, 3)))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(by_numba(Where(), np.broadcast_to(flags, (2, 3)), x, -x)[0], np.where(flags, x, -x))


def test_arithmetic_of_float32_stays_in_float32() -> None:
    lines, _ = scalar_code(Sigmoid(), DType.FLOAT32)
    assert "float64" not in " ".join(lines)
    assert scalar_code(Elu(0.1), DType.FLOAT64) != scalar_code(Elu(0.1), DType.FLOAT32)


@pytest.mark.parametrize("exponent", [0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 3.0, 7.75, -0.5, -3.0, 0.3, -1.7])
def test_powers(exponent: float) -> None:
    x = np.linspace(0.1, 3, 50)
    np.testing.assert_allclose(by_numba(Pow(exponent), x)[0], x**exponent, rtol=1e-14)


@dataclass(frozen=True)
class Odd(Op):
    """An op that cannot be traced."""

    traits = Traits(elementwise=True)

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.nextafter(x, 1.0)


def test_untraceable_ops_are_declined_with_a_reason() -> None:
    assert why_untraceable(Odd(), [TensorType((2,), DType.FLOAT32)]) == "it uses xp.nextafter"
    with pytest.raises(Untraceable, match="power"):
        power(scalar_symbol(DType.INT32), 2.0)


def scalar_symbol(dtype: DType):
    from netspec.backends.common.trace import Symbol, Trace

    return Symbol(Trace(WRITER), "a0", dtype)


def test_compiling_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_numba(Fused(2, (FusedStep(Mul(), (0, 1)), FusedStep(Sqrt(), (2,))), (3,)), np.ones(3), np.ones(3))
