"""A real net predicts the same with batch normalization folded into its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.compile import PASSES, Compiler, ProgramKind, planning
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.ops.batch_normalization import BatchNormalization
from netspec.graph.verify import verify, verify_layouts
from netspec.passes.weight_folding import FoldIntoWeights
from netspec.schema.load import load_net

NET = Path(__file__).parents[2] / "benchmarks/nets/resnet20.yaml"


def per_run(plan: ExecutionPlan) -> int:
    """Return the FLOPs of each run, without invariant nodes."""
    nodes = [node for node in plan.order[plan.invariant_count :] if node in plan.choices]
    return sum(node.op.flops(*(value.type for value in node.inputs)) for node in nodes)


@pytest.mark.slow
def test_a_folded_net_predicts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random, batch = np.random.default_rng(3), 4
    compiler = Compiler(load_net(NET))
    for state in (*compiler.names("statistic"), *compiler.names("parameter")):
        shape = compiler.info[state].value.shape
        if len(shape) == 1:  # means, variances, factors and offsets, none of which is trivial
            compiler.states.assign(state, random.uniform(0.5, 1.5, shape))
    folded = compiler.program(ProgramKind.PREDICT, batch)
    monkeypatch.setattr(planning, "PASSES", tuple(pass_ for pass_ in PASSES if not isinstance(pass_, FoldIntoWeights)))
    other = Compiler(load_net(NET))
    for state in compiler.states:
        other.states.assign(state, compiler.states[state])
    unfolded = other.program(ProgramKind.PREDICT, batch)
    for plan in (folded.plan, unfolded.plan):
        verify_layouts(verify(plan.graph), plan.layouts)
    assert any(isinstance(node.op, BatchNormalization) for node in compiler.graph(ProgramKind.PREDICT, batch).nodes())
    assert per_run(folded.plan) < per_run(unfolded.plan)

    inputs = {key: random.standard_normal(value.shape, np.float32) for key, value in folded.inputs.items()}
    for label, expected in unfolded(inputs).items():
        actual = folded(inputs)[label]
        assert np.isfinite(expected).all()
        # Folding rounds each weight once more (6e-8), in 20 consecutive layers with sums of hundreds of terms: errors
        # grow with the square roots of both.
        np.testing.assert_allclose(actual, expected, atol=2e-5 * float(np.abs(expected).max()), rtol=0)
        assert not np.array_equal(actual, expected), "nothing was folded"
