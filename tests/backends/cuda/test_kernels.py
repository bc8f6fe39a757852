"""Every kernel of the backend `cuda` against the reference, its CUDA C++ run on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from netspec.backends.cuda import launch
from netspec.graph.kernel import Kernel
from tests.backends.cuda.calls import DEVICE, KERNELS, prepared
from tests.backends.cuda.emulator import Emulator, compiler
from tests.interpret import evaluate
from tests.registry.kernel_calls import agree, array, code_of, fetch, is_double, is_narrow, over

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
every_kernel = pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.label)


@pytest.fixture(autouse=True, scope="module")
def emulator() -> Iterator[None]:
    before = launch.use(Emulator())
    yield
    launch.use(before)


@every_kernel
def test_agrees_with_the_reference_each_time_and_leaves_its_operands_alone(one: Kernel) -> None:
    cases = list(prepared(one))
    assert cases, "no layer, op or sample reaches it: give the kernel `samples`"
    for case in cases:
        given = [DEVICE.fetch(x) for x in case.inputs]
        case.run()
        nodes = case.made.node.outputs
        results = [(value.type, layout) for value, layout in zip(nodes, case.lying.outputs, strict=True)]
        first = [fetch(DEVICE, y, *how) for y, how in zip(case.outputs, results, strict=True)]
        for got, right in zip(first, evaluate(nodes, case.made.feeds), strict=True):
            agree(got, right)
        for y, (kind, layout) in zip(case.outputs, results, strict=True):
            DEVICE.upload(y, DEVICE.fetch(array(DEVICE, kind, None, layout)))
        case.run()
        for y, before, how in zip(case.outputs, first, results, strict=True):
            np.testing.assert_array_equal(fetch(DEVICE, y, *how), before)
        for x, before in zip(case.inputs, given, strict=True):
            np.testing.assert_array_equal(DEVICE.fetch(x), before)


@every_kernel
def test_may_write_over_an_operand_where_the_op_says_so(one: Kernel) -> None:
    known = set[Any]()
    for case in prepared(one):
        made, lying = case.made, case.lying
        kind = code_of(made), over(made), is_narrow(lying)
        if is_double(made) or kind in known:
            continue  # of elementwise ops it does not matter what they compute
        known.add(kind)
        given = [DEVICE.fetch(x) for x in case.inputs]
        right = evaluate(made.node.outputs, made.feeds)
        for result, layout in zip(made.node.outputs, lying.outputs, strict=True):
            for operand in made.op.overwritable(result.index, made.node.inputs):
                place = made.node.inputs.index(operand)
                if operand.type != result.type or lying.inputs[place] != layout:
                    continue
                written = case.over(result.index, place)
                for x, before in zip(written.inputs, given, strict=True):
                    DEVICE.upload(x, before)
                written.run()
                for y, wanted in zip(written.outputs, right, strict=True):
                    agree(DEVICE.fetch(y), wanted)
