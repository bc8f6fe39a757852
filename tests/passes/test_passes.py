"""Each pass, with graphs before and after it, and all passes on random graphs: results stay bit-identical."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from netspec.compile import PASSES
from netspec.graph.graph import Graph
from netspec.graph.ops.random import RNG_TYPE, RandomUniform
from netspec.graph.ops.reduce import Broadcast, ReduceSum
from netspec.graph.ops.shape import Identity, Reshape
from netspec.graph.ops.source import Constant, Fill, Input, State
from netspec.graph.ops.unary import Exp, Relu
from netspec.graph.types import DType, TensorType
from netspec.graph.verify import InvalidGraphError, verify
from netspec.passes.base import Pass, run_passes
from netspec.passes.constant_folding import MAX_BYTES, FoldConstants
from netspec.passes.cse import CommonSubexpressions, exact_key
from netspec.passes.state_aliasing import CopyAliasedStates
from tests.interpret import run
from tests.passes.graphs import feeds, graphs, same_bits, typed


def names(graph: Graph) -> list[str]:
    """Return the names of the graph's ops, without sources."""
    return sorted(node.op.name for node in graph.nodes() if not node.op.traits.source)


def fold(graph: Graph) -> Graph:
    return run_passes(graph, [FoldConstants()], check=True)


def cse(graph: Graph) -> Graph:
    return run_passes(graph, [CommonSubexpressions()], check=True)


@pytest.mark.parametrize(
    "single_pass", [*PASSES, None], ids=lambda single_pass: single_pass.name if single_pass else "all"
)
@given(graph=graphs())
def test_results_stay_the_same(single_pass: Pass | None, graph: Graph) -> None:
    passes = PASSES if single_pass is None else (single_pass,)
    inputs, _, states = feeds(graph)
    with np.errstate(all="ignore"):
        expected = run(graph, inputs, states)
        actual = run(run_passes(graph, passes, check=True), inputs, states)
    if all(each.exact for each in passes):
        same_bits(actual[0], expected[0])
        same_bits(actual[1], expected[1])
    for results, right in zip(
        actual,
        expected,
        strict=True,
        # Passes that are not exact may change the sign of a zero.
    ):
        assert results.keys() == right.keys()
        for name, array in results.items():
            np.testing.assert_array_equal(array, right[name])


@given(graph=graphs())
def test_passes_are_idempotent(graph: Graph) -> None:
    once = run_passes(graph, PASSES)
    twice = run_passes(once, PASSES)
    assert [(node.op, node.types) for node in once.nodes()] == [(node.op, node.types) for node in twice.nodes()]


def test_run_passes_checks_requirements_and_verifies() -> None:
    class Breaks(Pass):
        name = "breaks"
        requires = frozenset({"constant_folding"})

        def run(self, graph: Graph) -> Graph:
            return Graph(updates={"s": Fill(1.0, typed((7,)))()}, outputs={"y": State("s", typed((3,)))()})

    graph = Graph({"y": Fill(0.0, typed(()))()})
    with pytest.raises(ValueError, match="pass breaks needs constant_folding before it"):
        run_passes(graph, [Breaks()])
    with pytest.raises(InvalidGraphError, match="the update of 's'"):
        run_passes(graph, [FoldConstants(), Breaks()], check=True)


def test_fold_computes_constants() -> None:
    x = Input("x", typed((2, 3)))()
    seed = Fill(1.0, typed(()))() * 0.25
    graph = fold(Graph({"y": x * Broadcast((2, 3))(Reshape((1, 1))(seed))}))
    assert names(graph) == ["Mul"]
    (constant,) = [value for value in graph.outputs["y"].inputs if value.op.traits.pure]
    assert constant.op == Fill(0.25, typed((2, 3)))


def test_fold_keeps_types_and_signs() -> None:
    half = Fill(0.5, typed(()))()
    mixed = Constant(np.array([0.0, -1.0], "float32").tobytes(), typed((2,)))()
    graph = fold(Graph({"scalar": Exp()(half), "vector": mixed * 0.0}))
    assert graph.outputs["scalar"].type == typed(())
    assert graph.outputs["vector"].op == Constant(np.array([0.0, -0.0], "float32").tobytes(), typed((2,)))


def test_fold_skips_random_large_and_input_values() -> None:
    rng = Constant(bytes(24), RNG_TYPE)()
    large = Broadcast((MAX_BYTES // 4 + 1,))(Fill(1.0, typed(()))())
    given_ = Relu()(State("s", typed((3,)))())
    graph = fold(Graph({"large": large, "state": given_, "random": RandomUniform(typed((3,)), 1)(rng)}))
    # RandomUniform of constants is constant, since the op is pure.
    assert names(graph) == ["Broadcast", "Relu"]


def test_fold_does_not_warn_of_non_finite_values() -> None:
    graph = fold(Graph({"y": Exp()(Fill(1e30, typed(()))()) / Fill(0.0, typed(()))()}))
    assert graph.outputs["y"].op == Fill(float("inf"), typed(()))


def test_cse_merges_equal_ops_on_equal_operands() -> None:
    x = Input("x", typed((2, 3)))()
    graph = cse(Graph({"a": Relu()(x) * 2.0, "b": Relu()(x) * 2.0, "c": Relu()(x) * 3.0}))
    assert names(graph) == ["Mul", "Mul", "Relu"]
    assert graph.outputs["a"] is graph.outputs["b"]


def test_cse_keeps_the_order_of_operands_and_distinct_attributes() -> None:
    x, y = Input("x", typed((2,)))(), Input("y", typed((2,)))()
    graph = cse(Graph({"a": x - y, "b": y - x, "c": ReduceSum()(x), "d": ReduceSum(keepdims=True)(x)}))
    assert names(graph) == ["ReduceSum", "ReduceSum", "Sub", "Sub"]


def test_cse_distinguishes_signed_zeros_and_types() -> None:
    keys = [exact_key(Fill(value, typed(()))) for value in (0.0, -0.0, float("nan"))]
    assert len(set(keys)) == 3
    assert exact_key(Fill(float("nan"), typed(()))) == keys[2]
    assert exact_key(Fill(0.0, TensorType((), DType.FLOAT64))) != keys[0]
    x = Input("x", typed(()))()
    graph = cse(Graph({"a": x / Fill(0.0, typed(()))(), "b": x / Fill(-0.0, typed(()))()}))
    assert names(graph) == ["Div", "Div"]


def test_aliased_states_are_copied() -> None:
    a, b, frozen = (State(name, typed((2, 3)))() for name in ("a", "b", "frozen"))
    flat = Reshape((6,))(a)
    graph = verify(
        CopyAliasedStates().run(Graph({"old": a, "flat": flat, "frozen": frozen}, {"a": a + 1.0, "b": frozen}))
    )
    assert isinstance(graph.outputs["old"].op, Identity)
    assert isinstance(graph.outputs["flat"].op, Identity)
    assert graph.outputs["frozen"] is frozen
    assert graph.updates["b"] is frozen
    swapped = CopyAliasedStates().run(Graph({}, {"a": b, "b": a}))
    assert [value.op for value in swapped.updates.values()] == [Identity(), Identity()]


def test_unchanged_state_is_not_copied() -> None:
    a = State("a", typed((2, 3)))()
    graph = CopyAliasedStates().run(Graph({"y": a}, {"a": Reshape((2, 3))(Reshape((6,))(a))}))
    assert graph.outputs["y"] is a
    assert names(graph) == ["Reshape", "Reshape"]
