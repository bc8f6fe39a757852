"""Every kernel of the backend `cuda` against the reference, its CUDA C++ run on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netspec.backends.cuda import launch
from netspec.graph.kernel import Kernel
from tests.backends.cuda.calls import DEVICE, KERNELS, check, prepared
from tests.backends.cuda.emulator import Emulator, compiler
from tests.backends.cuda.gaps import gaps
from tests.interpret import evaluate
from tests.registry.kernel_calls import agree, code_of, is_double, is_narrow, over

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
every_kernel = pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.label)


@pytest.fixture(autouse=True, scope="module")
def emulator() -> Iterator[None]:
    before = launch.use(Emulator())
    yield
    launch.use(before)


@every_kernel
def test_agrees_with_the_reference_each_time_and_leaves_its_operands_alone(one: Kernel) -> None:
    check(one)


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


def test_the_guide_lists_the_ops_that_have_no_kernel() -> None:
    guide = (Path(__file__).parents[3] / "docs/gpu.md").read_text(encoding="utf-8")
    assert gaps() in " ".join(guide.split()), "write what `python -m tests.backends.cuda.gaps` prints"
