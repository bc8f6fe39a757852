"""Simplification, epilogues and elementwise groups: before and after, and on random graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given

from netspec.graph.autodiff import gradients
from netspec.graph.fused import EpilogueFused, Fused, FusedStep, MultiTensor, PrologueFused
from netspec.graph.graph import Graph
from netspec.graph.layout import Layout
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalizationTraining
from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.elementwise import Add, Cast, Mul, Neg, Pow
from netspec.graph.ops.reduce import Broadcast, ReduceSum
from netspec.graph.ops.shape import Reshape, Transpose
from netspec.graph.ops.source import Fill, Input, State
from netspec.graph.ops.unary import Exp, Relu, Tanh
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.graph.verify import verify
from netspec.passes.base import run_passes
from netspec.passes.constant_folding import FoldConstants
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.elementwise_fusion import FuseElementwise
from netspec.passes.epilogue_fusion import FuseEpilogues
from netspec.passes.multi_tensor import MAX_BYTES, MAX_GROUP_BYTES, GroupMultiTensor
from netspec.passes.prologue_fusion import FusePrologues
from netspec.passes.schedule import schedule
from netspec.passes.simplify import Simplify
from tests.interpret import run
from tests.passes.graphs import feeds, graphs, typed

LAST = Layout.channels_last(4)


def everything(op: Op, types: Sequence[TensorType]) -> bool:
    """A device whose kernels accept every op."""
    return True


def x(*shape: int, name: str = "x") -> Value:
    return Input(name, typed(shape))()


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes() if not node.op.traits.source]


def optimized(graph: Graph) -> Graph:
    simple = (FoldConstants(), Simplify(), CommonSubexpressions())
    fusing = (
        FuseEpilogues(everything),
        FusePrologues(everything),
        FuseElementwise(everything),
        GroupMultiTensor(everything),
    )
    return run_passes(graph, (*simple, *fusing), check=True)


def test_identities_are_simplified_away() -> None:
    a = x(2, 3)
    all_ones, zeros = Fill(1.0, typed((2, 3)))(), Fill(0.0, typed((3,)))()
    same = Broadcast((2, 3))(Reshape((2, 3))(Reshape((6,))(Transpose((0, 1))(Cast(DType.FLOAT32)(a)))))
    graph = Graph({"y": Pow(1)((same * all_ones + zeros - zeros) / all_ones), "z": Neg()(-a)})
    simple = run_passes(graph, (FoldConstants(), Simplify()), check=True)
    assert simple.outputs == {"y": a, "z": a}


def test_repeated_constant_becomes_a_scalar() -> None:
    a, row = x(2, 3), x(3, name="row")
    half = Fill(0.5, typed((2, 3)))()
    simple = run_passes(Graph({"y": a * half, "z": row * half}), (Simplify(),), check=True)
    assert simple.outputs["y"].inputs[1].shape == ()
    assert simple.outputs["z"].inputs[1].shape == (2, 3)  # the constant determines the shape


def conv(a: Value, filters: int = 4, name: str = "w") -> Value:
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    return Conv(window)(a, x(filters, a.shape[1], 3, 3, name=name))


def test_bias_activation_and_residual_fuse_into_the_convolution() -> None:
    a, bias = x(2, 4, 5, 5), x(4, 1, 1, name="bias")
    graph = Graph({"y": Relu()(conv(a) + bias + a)})
    assert names(graph) == ["Conv", "Add", "Add", "Relu"]
    assert names(optimized(graph)) == ["Conv+Add+Add+Relu"]


def test_sum_of_two_convolutions_fuses_into_one_of_them() -> None:
    a, bias = x(2, 4, 5, 5), x(4, 1, 1, name="bias")
    graph = Graph({"y": Relu()((conv(a) + bias) + (conv(a, name="v") + bias))})
    assert sorted(names(optimized(graph))) == ["Conv+Add", "Conv+Add+Add+Relu"]


def test_limits_of_epilogues() -> None:
    a, bias = x(2, 4, 5, 5), x(4, 1, 1, name="bias")
    biased = conv(a) + bias
    assert names(optimized(Graph({"y": Relu()(biased), "z": biased}))) == ["Conv+Add", "Relu"]
    product = conv(a)
    with in_scope(Scope(phase="update")):
        assert names(optimized(Graph({"y": Relu()(product)}))) == ["Conv", "Relu"]

    def no_tanh(op: Op, types: Sequence[TensorType]) -> bool:
        return not (isinstance(op, EpilogueFused) and any(isinstance(step.op, Tanh) for step in op.body))

    fused = run_passes(
        Graph({"y": Tanh()(conv(a) + bias)}),
        (FoldConstants(), CommonSubexpressions(), FuseEpilogues(no_tanh)),
        check=True,
    )
    assert names(fused) == ["Conv+Add", "Tanh"]


def normalized(a: Value, name: str = "") -> tuple[Value, Value, Value]:
    gamma, beta = x(a.shape[1], name=f"gamma{name}"), x(a.shape[1], name=f"beta{name}")
    y, mean, variance = BatchNormalizationTraining().call_multi(a, gamma, beta)
    return y, mean, variance


def test_epilogue_of_a_normalization_keeps_its_statistics() -> None:
    a = x(2, 4, 5, 5)
    y, mean, variance = normalized(a)
    moving = State("moving", typed((4,)))()
    graph = Graph({"y": Relu()(y + a), "mean": mean}, {"moving": moving * 0.9 + variance * 0.1})
    fused = optimized(graph)
    assert names(fused).count("BatchNormalizationTraining+Add+Relu") == 1
    assert "Relu" not in names(fused)
    assert fused.outputs["mean"].node is fused.outputs["y"].node


def test_ops_that_read_statistics_are_not_in_the_epilogue() -> None:
    a = x(2, 4, 5, 5)
    y, mean, _ = normalized(a)
    fused = optimized(Graph({"y": y * Broadcast((2, 4, 5, 5))(Reshape((4, 1, 1))(mean))}))
    assert "BatchNormalizationTraining" in names(fused)


def test_normalizations_that_read_each_others_statistics_do_not_deadlock() -> None:
    a = x(2, 4, 5, 5)
    (y, mean, _), (z, other, _) = normalized(a), normalized(a * 2.0, "2")
    spread = [Broadcast((2, 4, 5, 5))(Reshape((4, 1, 1))(statistic)) for statistic in (mean, other)]
    verify(optimized(Graph({"y": y * spread[1], "z": z * spread[0]})))


def kinds(graph: Graph, kind: type[Op]) -> list[Node]:
    return [node for node in graph.nodes() if isinstance(node.op, kind)]


def test_normalization_gradient_recomputes_the_relu_mask() -> None:
    a = x(2, 4, 5, 5)
    y, flow = Relu()(normalized(a)[0]), x(2, 4, 5, 5, name="flow")
    (dx,) = gradients(ReduceSum()(y * flow), [a])
    (node,) = kinds(optimized(Graph({"y": y, "dx": dx})), PrologueFused)
    assert {value for value in node.inputs if value.shape == a.shape} == {a, flow}  # but not y


def test_normalization_gradient_after_a_sum_reads_the_relu_result() -> None:
    a, b = x(2, 4, 5, 5), x(2, 4, 5, 5, name="b")
    y = Relu()(normalized(a)[0] + b)
    (dx,) = gradients(ReduceSum()(y * x(2, 4, 5, 5, name="flow")), [a])
    fused = optimized(Graph({"y": y, "dx": dx}))
    (node,) = kinds(fused, PrologueFused)
    assert fused.outputs["y"] in node.inputs


def test_gradient_with_other_readers_is_stored() -> None:
    a, b = x(2, 4, 5, 5), x(2, 4, 5, 5, name="b")
    y = Relu()(normalized(a)[0] + b)
    dx, db = gradients(ReduceSum()(y * x(2, 4, 5, 5, name="flow")), [a, b])
    assert not kinds(optimized(Graph({"dx": dx, "db": db})), PrologueFused)


def test_fully_fused_normalization_is_bit_identical() -> None:
    a, b = x(3, 4, 5, 2), x(3, 4, 5, 2, name="b")
    y = Relu()(normalized(a)[0])
    z = Relu()(normalized(conv(y), "2")[0] + b)
    graph = Graph({"z": z, "da": gradients(ReduceSum()(z * z), [a])[0]})
    inputs, _, states = feeds(graph)
    expected, _ = run(graph, inputs, states)
    actual, _ = run(optimized(graph), inputs, states)
    for name, right in expected.items():
        np.testing.assert_array_equal(actual[name], right)


def test_neighbors_of_one_shape_fuse_into_one_op() -> None:
    w, v = State("w", typed((3, 2)))(), State("v", typed((3, 2)))()
    gradient, rate = x(3, 2), x(name="rate")
    velocity = v * 0.9 - gradient * rate
    graph = optimized(Graph({}, {"v": velocity, "w": w + velocity}))
    (fused,) = (node for node in graph.nodes() if isinstance(node.op, Fused))
    assert len(fused.outputs) == 2
    assert isinstance(fused.op, Fused)
    assert fused.op.arity == 4  # the constant is part of the body


def test_fusion_creates_no_cycle() -> None:
    a = x(3, 2)
    first = a * 2.0
    through = Broadcast((3, 2))(ReduceSum((0,))(first))  # a path that leaves the group and returns
    fused = optimized(Graph({"y": (first + 1.0) * through}))
    verify(fused)
    assert names(fused).count("Fused") <= 2


def test_fusion_does_not_cross_the_guard() -> None:
    a, s = x(3, 2), State("s", typed((3, 2)))()
    hidden = Exp()(a * 2.0)
    fused = optimized(Graph({}, {"s": s + hidden * 3.0}, guard=ReduceSum()(hidden)))
    scheduled = schedule(fused)
    parts = scheduled.order[: scheduled.before_guard_count], scheduled.order[scheduled.before_guard_count :]
    computing = [[node.op.name for node in part if node.inputs] for part in parts]
    assert computing == [["Fused", "ReduceSum"], ["Fused"]]


def test_rejected_groups_are_not_fused() -> None:
    graph = Graph({"y": Exp()(x(3, 2) * 2.0)})
    passes = (FoldConstants(), CommonSubexpressions(), FuseElementwise(lambda op, types: False))
    assert names(run_passes(graph, passes, check=True)) == names(graph)


@given(graph=graphs())
def test_fused_graphs_compute_equal_results(graph: Graph) -> None:
    inputs, _, states = feeds(graph)
    with np.errstate(all="ignore"):
        expected = run(graph, inputs, states)
        actual = run(optimized(graph), inputs, states)
    for results, right in zip(actual, expected, strict=True):
        assert results.keys() == right.keys()
        for name, array in results.items():
            np.testing.assert_array_equal(array, right[name])  # the same ops in the same order: equal numbers


RATE = x(name="rate")


def moved(name: str, *shape: int) -> Value:
    """Return the update of a state by its own gradient and a common rate."""
    return State(name, typed(shape))() - x(*shape, name=f"gradient of {name}") * RATE


def test_small_updates_become_one_multi_tensor_op() -> None:
    graph = Graph({}, {"a": moved("a", 3, 2), "b": moved("b", 5), "c": moved("c", 4)})
    assert names(optimized(graph)) == ["3x Fused"]


def test_large_parameters_and_different_updates_are_not_grouped() -> None:
    large = MAX_BYTES // 4 + 1
    updates = {name: moved(name, size) for name, size in (("a", large), ("b", large), ("c", 3), ("d", 4))}
    other = State("e", typed((3,)))()
    updates["e"] = other + x(3, name="gradient of e")
    assert sorted(names(optimized(Graph({}, updates)))) == ["2x Fused", "Add", "Fused", "Fused"]


def test_group_size_limits_waiting_gradients() -> None:
    size = MAX_BYTES // 4
    updates = {f"s{i}": moved(f"s{i}", size) for i in range(6)}
    assert sorted(names(optimized(Graph({}, updates)))) == ["2x Fused", f"{MAX_GROUP_BYTES // MAX_BYTES}x Fused"]


def test_results_with_readers_are_grouped_only_if_they_read_sources() -> None:
    a, b = x(3, name="a"), x(4, name="b")
    total = ReduceSum((0,))
    assert sorted(names(optimized(Graph({"y": total(Exp()(a)), "z": total(Exp()(b))})))) == [
        "2x Exp", "ReduceSum", "ReduceSum",
    ]  # fmt: skip
    computed = Graph({"y": total(Exp()(total(x(3, 4, name="m")))), "z": total(Exp()(b))})
    assert sorted(names(optimized(computed))) == ["Exp", "Exp", "ReduceSum", "ReduceSum", "ReduceSum"]


def test_dependent_updates_are_not_grouped() -> None:
    a, b = State("a", typed((3,)))(), State("b", typed((3,)))()
    assert sorted(names(optimized(Graph({}, {"a": a + b, "b": b + a})))) == ["Add", "Add"]


def test_group_does_not_overwrite_operands_of_other_sets() -> None:
    a, b, c, rate = x(3, name="a"), x(3, name="b"), x(3, name="c"), x(name="rate")
    group = MultiTensor(Fused(3, (FusedStep(Mul(), (0, 2)), FusedStep(Add(), (3, 1))), (3, 4)), 2)
    inputs = (a, b, rate, c, a, rate)
    assert [group.inplace_operands(result, inputs) for result in range(4)] == [[b], [b], [c], [c]]
