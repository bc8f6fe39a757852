"""Nets that differ only in numbers share a plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from netspec.compile import LOSS, Compiler, ProgramKind
from netspec.compile.shared_plans import CONSTANT_PREFIX, SharedPlans
from tests.compile.nets import CLASSIFIER, batch, net, solver


def compiled(folder: Path, text: str = CLASSIFIER, **fields: float) -> Compiler:
    return Compiler(net(text, folder), solver=solver("AdamW", **fields), device="reference")


def test_nets_that_differ_in_numbers_share_a_plan_and_compute_what_they_compute_alone(tmp_path: Path) -> None:
    variants = [
        (CLASSIFIER, {"weight_decay": 0.1, "beta_1": 0.5}),
        (CLASSIFIER.replace("rate: 0.5", "rate: 0.25").replace("l2: 0.01", "l2: 0.1"), {"weight_decay": 0.2}),
        (CLASSIFIER.replace("units: 6", "units: 5"), {}),
    ]
    alone, together = ([compiled(tmp_path, text, **fields) for text, fields in variants] for _ in range(2))
    plans = SharedPlans()
    for compiler in together:
        plans.add(compiler)
    shared = [compiler.program(ProgramKind.TRAIN, 4) for compiler in together]
    assert shared[0].plan is shared[1].plan
    assert shared[0].plan is not shared[2].plan, "its shapes differ"
    assert [plans.compilers_sharing_with(compiler) for compiler in together] == [
        together[:2],
        together[:2],
        together[2:],
    ]
    numbers = [name for name in shared[0].plan.graph.states() if name.startswith(CONSTANT_PREFIX)]
    assert len(numbers) >= 4, "weight decay, beta, rate of the dropout, and penalty"
    assert not set(numbers) & set(together[0].states), "they are not states of the net"
    for step in range(3):
        inputs = batch(alone[0], 4, step)
        for one, program in zip(alone, shared, strict=True):
            expected = one.program(ProgramKind.TRAIN, 4)(inputs)
            assert program(inputs)[LOSS] == expected[LOSS]
    for one, other in zip(alone, together, strict=True):
        for name in one.states:
            np.testing.assert_array_equal(one.states[name], other.states[name], err_msg=name)


def test_constants_that_are_equal_in_all_nets_stay_constants(tmp_path: Path) -> None:
    plans, compilers = SharedPlans(), [compiled(tmp_path, weight_decay=0.1) for _ in range(2)]
    for compiler in compilers:
        plans.add(compiler)
    plan = compilers[0].plan(ProgramKind.TRAIN, 4)
    assert plan is compilers[1].plan(ProgramKind.TRAIN, 4)
    assert not [name for name in plan.graph.states() if name.startswith(CONSTANT_PREFIX)]
