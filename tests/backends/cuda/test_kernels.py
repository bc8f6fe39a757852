"""Every kernel of the backend `cuda` against the reference; its CUDA C++ runs on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from netspec.backends.common.reduction_loops import reduction_loops
from netspec.backends.cuda import launch
from netspec.backends.cuda.kernels.elementwise import copy
from netspec.backends.cuda.kernels.reduction import ReduceKernel, ReductionSplit
from netspec.backends.op_call import OpCall, is_double, own_calls
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN
from netspec.graph.op import Op
from tests.backends.cuda.calls import KERNELS, taken
from tests.backends.cuda.check import errors, random_cases
from tests.backends.cuda.checks import CHECKS, Check, agrees, cases, checked
from tests.backends.cuda.emulator import Emulator, compiler
from tests.backends.cuda.gaps import gaps
from tests.backends.cuda.random_calls import FAMILIES, Family

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")


@pytest.fixture(autouse=True, scope="module")
def emulator() -> Iterator[Emulator]:
    result = Emulator()
    before = launch.use(result)
    yield result
    launch.use(before)


COSTLY = 2**20
"""Calls with more floating-point operations take the emulator a second or more."""


def is_costly(call: OpCall) -> bool:
    return call.op.flops(*(value.type for value in call.node.inputs)) > COSTLY


def calls_of(kernel: Kernel) -> tuple[list[OpCall], list[OpCall]]:
    """The first call of each op that a kernel accepts, in float32 and marked fast if possible, and all other calls."""
    calls = taken(kernel)
    assert calls, "no layer, op or sample reaches it: give the kernel `samples`"
    firsts: dict[type[Op], OpCall] = {}
    for call in sorted(calls, key=lambda call: (is_double(call), is_costly(call))):
        firsts.setdefault(type(call.op), call)
    return list(firsts.values()), [call for call in calls if call is not firsts[type(call.op)]]


CALLS = [
    *(pytest.param((kernel, True), id=kernel.label) for kernel in KERNELS),
    *(pytest.param((kernel, False), id=f"{kernel.label}-others", marks=pytest.mark.exhaustive) for kernel in KERNELS),
]
"""Kernels, each with the first call of each op, and with all others, which take minutes."""


@pytest.fixture(scope="module", params=CALLS)
def bound(request: pytest.FixtureRequest, emulator: Emulator) -> dict[Any, list[Check]]:
    """Run all checks of a kernel, bound together, so that the compiler is called once.

    The other calls only go through checks that the first calls have not covered.
    """
    kernel, is_first = request.param
    firsts, others = calls_of(kernel)
    count = len(cases(kernel, firsts))
    actual = cases(kernel, firsts if is_first else [*firsts, *others])
    passed_over = set[int]() if is_first else {id(case) for case in actual[:count]}
    result = {
        check: [check(emulator, case) for case in checked(check, actual) if id(case) not in passed_over]
        for check in CHECKS
    }
    for run in chain.from_iterable(result.values()):
        next(run)
    return result


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.slow
def test_each_kernel(check: Any, bound: dict[Any, list[Check]]) -> None:
    for run in bound.pop(check):
        next(run, None)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.exhaustive
def test_random_sizes(family: Family, emulator: Emulator) -> None:
    """One seed; `python -m tests.backends.cuda.check --seeds 1 2 3` checks others."""
    actual = list(random_cases(0, [family]))
    assert actual
    assert list(errors(emulator, agrees, actual)) == []


def test_samples_reach_both_kernels_of_a_reduction_in_one_stage_and_in_two() -> None:
    (kernel,) = (kernel for kernel in KERNELS if isinstance(kernel, ReduceKernel))
    nests = (reduction_loops(call.op, call.node.inputs[0].type, PLAIN) for call in own_calls(kernel))  # type: ignore[arg-type]  # a Reduction
    cuts = [ReductionSplit.of(loops) for loops in nests if loops is not None]
    assert {(cut.by_rows, cut.pieces > 1) for cut in cuts} >= {(False, False), (False, True), (True, True)}


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16], ids=str)
def test_float64_is_rounded_to_16_bits(dtype: Any) -> None:
    """Gradients of a float64 training may be sent in 16 bits."""
    powers = 2.0 ** np.random.default_rng(0).uniform(-30, 17, 4096)
    ties = np.array(
        [1 + 2**-11, 1 + 2**-11 + 2**-40, 1 + 3 * 2**-11, 65519.999, 65520, np.inf, -np.inf, 0, -0.0, 1e300]
    )
    x = np.concatenate([powers, -powers, ties])
    result = np.empty(x.shape, dtype)
    copy(x, result)()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result.astype(np.float32), x.astype(dtype).astype(np.float32))


def test_the_guide_lists_the_ops_that_have_no_kernel() -> None:
    guide = (Path(__file__).parents[3] / "docs/gpu.md").read_text(encoding="utf-8")
    assert gaps() in " ".join(guide.split()), "write what `python -m tests.backends.cuda.gaps` prints"
