"""Elementary functions that compile to vector instructions; imported by generated modules only.

For float32 they are written out here, exact to about 2 units in the last place; for float64, the C library is called,
one element at a time. After S. Moshier's Cephes library (exp, log) and the usual identities for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from netspec.backends.numba.intrinsics import bits, from_bits, maximum
from netspec.backends.numba.native import INLINED, REASSOCIATE
from netspec.graph.ops.random import LOW, MULTIPLIERS, ROUNDS, WEYL

F = np.float32
I = np.int32

ROUND, LOG2_E = F(12582912.0), F(1.44269504088896341)  # adding 1.5 · 2²³ rounds to an integer
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)
EXP_LEAST, EXP_MOST = F(-104.0), F(89.0)  # beyond this range: 0 and infinity
EXPM1_LEAST, EXPM1_MOST = F(-18.0), F(89.0)
TANH_MOST = F(9.5)  # beyond this: 1
E0, E1, E2 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
E3, E4, E5 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)
L0, L1, L2 = F(7.0376836292e-2), F(-1.1514610310e-1), F(1.1676998740e-1)
L3, L4, L5 = F(-1.2420140846e-1), F(1.4249322787e-1), F(-1.6668057665e-1)
L6, L7, L8 = F(2.0000714765e-1), F(-2.4999993993e-1), F(3.3333331174e-1)
NORMAL, TO_NORMAL, SQRT_HALF = F(1.17549435e-38), F(8388608.0), F(0.707106781186547524)
ZERO, HALF, ONE, TWO, INFINITY, NAN = F(0), F(0.5), F(1), F(2), F(np.inf), F(np.nan)
SHIFT, BIAS, ROUND_BITS = I(23), I(127), I(0x4B400000)
MANTISSA, HALF_EXPONENT, SUBNORMAL = I(0x007FFFFF), I(0x3F000000), I(23)

WORD = np.uint64
MASK, HALF_WORD, DROPPED = WORD(LOW), WORD(32), WORD(8)
M0, M1, W0, W1 = WORD(MULTIPLIERS[0]), WORD(MULTIPLIERS[1]), WORD(WEYL[0]), WORD(WEYL[1])
UNIT = 2.0**-24


def inlined(function: Callable[..., Any], flags: frozenset[str] = frozenset({"contract"})) -> Any:
    """Compile for inlining; by default, fusing products and sums is the only fast-math optimization."""
    return njit(**INLINED, fastmath=set(flags))(function)


def _add(a: Any, b: Any) -> Any:
    """a + b, which may be reassociated with other such sums: loops compute vectors of partial sums."""
    return a + b


@inlined
def maximum_float32(a: Any, b: Any) -> Any:
    """max(a, b), NaN if one is."""
    return maximum(a, b)


add_float32 = add_float64 = inlined(_add, REASSOCIATE)
maximum_float64 = maximum_float32


@inlined
def _reduced(x: Any) -> Any:
    """n and r with x = n · ln 2 + r, |r| ≤ ½ ln 2."""
    shifted = x * LOG2_E + ROUND
    n = shifted - ROUND
    return I(bits(shifted) - ROUND_BITS), (x - n * LN2_HIGH) - n * LN2_LOW


@inlined
def _power_of_2(n: Any) -> Any:
    """2ⁿ for -126 ≤ n ≤ 127."""
    return from_bits(I(I(n + BIAS) << SHIFT))


@inlined
def _expm1_near_0(r: Any) -> Any:
    p = ((((E0 * r + E1) * r + E2) * r + E3) * r + E4) * r + E5
    return p * (r * r) + r


@inlined
def exp_float32(x: Any) -> Any:
    """eˣ. The power of 2 is applied in two factors, from subnormal numbers to infinity."""
    x = min(x, EXP_MOST)
    x = max(x, EXP_LEAST)
    n, r = _reduced(x)
    half = I(n >> I(1))
    return (_expm1_near_0(r) + ONE) * _power_of_2(half) * _power_of_2(I(n - half))


@inlined
def expm1_float32(x: Any) -> Any:
    """eˣ - 1, exact near 0. Half of it is computed first, so that 2¹²⁸ does not overflow too early."""
    x = min(x, EXPM1_MOST)
    x = max(x, EXPM1_LEAST)
    n, r = _reduced(x)
    scale = _power_of_2(I(n - I(1)))
    return TWO * (scale * _expm1_near_0(r) + (scale - HALF))


@inlined
def tanh_float32(x: Any) -> Any:
    """tanh x = (e²ˣ - 1) / (e²ˣ + 1)"""
    y = abs(x)
    y = min(y, TANH_MOST)
    t = expm1_float32(y + y)
    t = t / (t + TWO)
    return -t if x < ZERO else t


@inlined
def log_float32(x: Any) -> Any:
    """ln x"""
    small = x < NORMAL
    word = bits(x * TO_NORMAL if small else x)
    exponent = I(I(word >> SHIFT) - I(126)) - (SUBNORMAL if small else I(0))
    m = from_bits(I(I(word & MANTISSA) | HALF_EXPONENT))  # ½ ≤ m < 1
    low = m < SQRT_HALF
    n = F(exponent) - (ONE if low else ZERO)
    m = (m + m if low else m) - ONE
    z = m * m
    p = (((((((L0 * m + L1) * m + L2) * m + L3) * m + L4) * m + L5) * m + L6) * m + L7) * m + L8
    y = m * z * p + n * LN2_LOW - HALF * z
    y = m + y + n * LN2_HIGH
    y = y if x < INFINITY else x  # infinity and NaN
    y = y if x != ZERO else -INFINITY
    return NAN if x < ZERO else y


@inlined
def log1p_float32(x: Any) -> Any:
    """ln(1 + x), exact near 0: ln u for the rounded u = 1 + x, plus the rounding error."""
    u = ONE + x
    y = log_float32(u) + (x - (u - ONE)) / u
    return x if x == INFINITY else -INFINITY if u == ZERO else y


def _of_library(function: Callable[[Any], Any], name: str) -> tuple[Any, Any]:
    """A function of one argument from the C library, for float32 and float64."""

    def single(x: Any) -> Any:
        return F(function(x))

    def double(x: Any) -> Any:
        return function(x)

    single.__doc__ = double.__doc__ = name
    return inlined(single), inlined(double)


sin_float32, sin_float64 = _of_library(math.sin, "sin x")
cos_float32, cos_float64 = _of_library(math.cos, "cos x")
atan_float32, atan_float64 = _of_library(math.atan, "The angle whose tangent is x")
asin_float32, asin_float64 = _of_library(math.asin, "The angle whose sine is x")
acos_float32, acos_float64 = _of_library(math.acos, "The angle whose cosine is x")
sinh_float32, sinh_float64 = _of_library(math.sinh, "sinh x")
cosh_float32, cosh_float64 = _of_library(math.cosh, "cosh x")
asinh_float32, asinh_float64 = _of_library(math.asinh, "The number whose sinh is x")
acosh_float32, acosh_float64 = _of_library(math.acosh, "The number whose cosh is x")
atanh_float32, atanh_float64 = _of_library(math.atanh, "The number whose tanh is x")
sqrt_float32, sqrt_float64 = _of_library(math.sqrt, "√x")
exp_float64 = _of_library(math.exp, "eˣ")[1]
expm1_float64 = _of_library(math.expm1, "eˣ - 1")[1]
tanh_float64 = _of_library(math.tanh, "tanh x")[1]
log_float64 = _of_library(math.log, "ln x")[1]
log1p_float64 = _of_library(math.log1p, "ln(1 + x)")[1]
floor_float32, floor_float64 = _of_library(np.floor, "⌊x⌋")
ceil_float32, ceil_float64 = _of_library(np.ceil, "⌈x⌉")
rint_float32, rint_float64 = _of_library(np.rint, "x rounded, to an even number where two are as near")


@inlined
def fmod_float32(x: Any, y: Any) -> Any:
    """Remainder of x / y with the sign of x, from the C library."""
    return F(np.fmod(x, y))


@inlined
def fmod_float64(x: Any, y: Any) -> Any:
    """Remainder of x / y with the sign of x."""
    return np.fmod(x, y)


@inlined
def pow_float32(x: Any, y: Any) -> Any:
    """xʸ, from the C library."""
    return F(math.pow(x, y))


@inlined
def pow_float64(x: Any, y: Any) -> Any:
    """xʸ"""
    return math.pow(x, y)


@inlined
def _philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Philox4x32-10 (see `graph.ops.random`): 32-bit words in uint64, whose products are vector instructions."""
    for _ in range(ROUNDS):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> HALF_WORD) ^ c1 ^ k0, p1 & MASK, (p0 >> HALF_WORD) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + W0) & MASK, (k1 + W1) & MASK
    return c0 >> DROPPED, c1 >> DROPPED, c2 >> DROPPED, c3 >> DROPPED


@inlined
def uniform_float32(counter: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Four uniform values in [0, 1) from a counter and a key, with 24 bits each."""
    a, b, c, d = _philox(counter, c1, c2, c3, k0, k1)
    return F(I(a)) * F(UNIT), F(I(b)) * F(UNIT), F(I(c)) * F(UNIT), F(I(d)) * F(UNIT)


@inlined
def uniform_float64(counter: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Like `uniform_float32`."""
    a, b, c, d = _philox(counter, c1, c2, c3, k0, k1)
    return I(a) * UNIT, I(b) * UNIT, I(c) * UNIT, I(d) * UNIT


__all__ = [name for name in globals() if name.endswith(("_float32", "_float64"))]
