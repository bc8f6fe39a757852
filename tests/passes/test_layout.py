"""Layouts and kernels are chosen by cost: chosen layouts, copies, and their weighing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from netspec.graph.cost_model import DEFAULT_CORE
from netspec.graph.graph import Graph
from netspec.graph.kernel import Kernel, KernelCandidates, KernelOption
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Reorder, Reshape
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, Precision
from netspec.graph.value import Node, Value
from netspec.graph.verify import InvalidGraphError, verify, verify_layouts
from netspec.passes.layout import LayoutAssignment, NarrowedValues, assign_layouts
from tests.passes.graphs import typed

LAST = Layout.channels_last(4)
MILLISECOND = 1e-3


class Known:
    """Simulated kernels by op class, by default `Plain`; `times` are measured times."""

    def __init__(self, kernels: dict[type[Op], Sequence[Kernel]], times: dict[Kernel, float] | None = None) -> None:
        self.kernels, self.times = kernels, times

    rates, has_tuner = DEFAULT_CORE, True

    def candidates(self, node: Node, precision: Precision = Precision.FLOAT32) -> KernelCandidates:
        return KernelCandidates(tuple(self.kernels.get(type(node.op), (Plain(),))), ())

    def measured_seconds(self, node: Node, offers: Sequence[KernelOption]) -> Sequence[float] | None:
        return None if self.times is None else [self.times[offer.kernel] for offer in offers]


def assigned(graph: Graph, kernels: Known, narrow: NarrowedValues | None = None) -> LayoutAssignment:
    assignment = assign_layouts(graph, kernels, narrow)
    verify_layouts(verify(assignment.graph), assignment.layouts)
    assert assignment.choices.keys() == {
        node for node in assignment.graph.nodes() if not (node.op.traits.source or node.op.traits.view)
    }
    return assignment


def x(*shape: int, name: str = "x") -> Value:
    return Input(name, typed(shape))()


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes() if not node.op.traits.source]


def conv(a: Value, filters: int = 4, name: str = "w") -> Value:
    w = x(filters, a.shape[1], 3, 3, name=name)
    return Conv(Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))(a, w)


class MadeUp(Kernel):
    """Base class of the simulated kernels."""

    backend, rank = "made up", 5


class ChannelsLast(MadeUp):
    """A kernel with channels-last operands and results, if they have four axes."""

    def layouts(self, node: Node, input_layouts: Sequence[Layout]) -> LayoutSignature:
        def wanted(value: Value) -> Layout:
            return LAST if len(value.shape) == 4 else PLAIN

        return LayoutSignature(tuple(map(wanted, node.inputs)), tuple(map(wanted, node.outputs)))


class Plain(MadeUp):
    """A kernel with plain operands and results."""


def test_values_have_preferred_layouts_and_are_copied_once() -> None:
    a = Input("a", typed((2, 4, 5, 6)))()
    first = conv(a)
    second = conv(Relu()(first), name="w2")
    flat = Reshape((2, 120))(second)
    assignment = assigned(
        Graph({"y": MatMul()(flat, x(120, 3, name="m")), "z": ReduceSum((1,))(second)}),
        Known({Conv: [ChannelsLast()]}),
    )
    graph, layouts = assignment.graph, assignment.layouts
    # for both Reshape and ReduceSum
    assert names(graph).count("Reorder") == 1
    for node in graph.nodes():
        for value in node.outputs:
            # inputs have the layout of their first reader
            lies = len(value.shape) == 4 and not isinstance(node.op, Reorder)
            assert layouts[value] == (LAST if lies else PLAIN), node


def test_equivalent_layouts_are_not_copied() -> None:
    assignment = assigned(Graph({"y": Reshape((2, 4))(conv(x(2, 1, 1, 1)))}), Known({Conv: [ChannelsLast()]}))
    assert "Reorder" not in names(assignment.graph)


def test_states_stay_plain() -> None:
    state = State("s", typed((2, 4, 5, 6)))()
    assignment = assigned(Graph({}, {"s": conv(state)}), Known({Conv: [ChannelsLast()]}))
    assert isinstance(assignment.graph.updates["s"].op, Reorder)
    assert assignment.layouts[assignment.graph.updates["s"]] == PLAIN


@dataclass(frozen=True)
class Blocks:
    """An opaque layout."""

    size: int
    nbytes: int = 4096


class OwnWeights(ChannelsLast):
    """A kernel with an opaque layout for its second operand, and for the gradient of that operand."""

    def layouts(self, node: Node, input_layouts: Sequence[Layout]) -> LayoutSignature:
        assert all(layout.opaque is None for layout in input_layouts), "only its maker could read that"
        inputs, outputs = super().layouts(node, input_layouts).inputs, super().layouts(node, input_layouts).outputs
        if isinstance(node.op, ConvWeightGrad):
            return LayoutSignature(inputs, (Layout(opaque=Blocks(8)),))
        opaque = Layout(opaque=Blocks(8 if isinstance(node.op, Conv) else 16))
        return LayoutSignature((inputs[0], opaque), outputs)


OWN = OwnWeights()
CONVOLVING = Known({Conv: [OWN], ConvInputGrad: [OWN], ConvWeightGrad: [OWN]})


def test_opaque_layout_is_converted_once_and_hidden_from_others() -> None:
    a, w, v = x(2, 4, 5, 6), State("w", typed((4, 4, 3, 3)))(), State("v", typed((4, 4, 3, 3)))()
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    y = Conv(window)(a, w)
    z = Conv(window)(Relu()(y), w)
    dw, da = ConvWeightGrad(Conv(window), w.type)(z, a), ConvInputGrad(Conv(window), a.type)(z, w)
    ends = Graph({"da": da, "dw": dw, "w": Relu()(w)}, {"w": w - dw * 0.1, "v": v + dw}, guard=ReduceSum()(dw))
    assignment = assigned(ends, CONVOLVING)
    reorders = [node.op for node in assignment.graph.nodes() if isinstance(node.op, Reorder) and node.op.opaque]
    assert [(str(op.source), str(op.target)) for op in reorders] == [
        ("plain", str(Blocks(8))),  # for both convolutions
        ("plain", str(Blocks(16))),
        (str(Blocks(8)), "plain"),  # for all readers of the gradient
    ]


def test_inputs_and_results_are_plain() -> None:
    a, w = x(2, 4, 5, 6), x(4, 4, 3, 3, name="w")
    conv = Conv(Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))
    assignment = assigned(Graph({"dw": ConvWeightGrad(conv, w.type)(conv(a, w), a)}), CONVOLVING)
    assert assignment.layouts[assignment.graph.outputs["dw"]] == PLAIN
    assert assignment.layouts[assignment.graph.inputs()["w"]] == PLAIN


class Rated(MadeUp):
    """A kernel with the given layouts and estimated time."""

    def __init__(self, seconds: float, first: Layout = PLAIN, second: Layout = PLAIN, result: Layout = PLAIN) -> None:
        self.lying, self.taken = LayoutSignature((first, second), (result,)), seconds

    def layouts(self, node: Node, input_layouts: Sequence[Layout]) -> LayoutSignature:
        return self.lying

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return self.taken


def chosen(assignment: LayoutAssignment, kind: type[Op]) -> list[Kernel]:
    return [choice.kernel for node, choice in assignment.choices.items() if isinstance(node.op, kind)]


def test_layout_is_chosen_if_it_gains_more_than_its_copies_cost() -> None:
    """Copying a million elements takes about a millisecond."""
    a = Relu()(x(16, 64, 32, 32))
    for gain, wins in ((0.2 * MILLISECOND, False), (5 * MILLISECOND, True)):
        usual, other = Rated(8 * MILLISECOND), Rated(8 * MILLISECOND - gain, LAST, PLAIN, PLAIN)
        assert chosen(assigned(Graph({"y": conv(a, 64)}), Known({Conv: [usual, other]})), Conv) == [
            other if wins else usual
        ]


def test_copies_for_readers_are_counted() -> None:
    usual, other = Rated(8 * MILLISECOND), Rated(7 * MILLISECOND, PLAIN, PLAIN, LAST)
    y = conv(Relu()(x(16, 64, 32, 32)), 64)
    assert chosen(assigned(Graph({"y": Relu()(y)}), Known({Conv: [usual, other]})), Conv) == [other]
    assert chosen(assigned(Graph({"y": ReduceSum((1,))(y)}), Known({Conv: [usual, other]})), Conv) == [usual]


def test_small_estimated_advantage_is_ignored() -> None:
    usual, other = Rated(1.00 * MILLISECOND), Rated(0.97 * MILLISECOND)
    assert chosen(assigned(Graph({"y": conv(x(2, 4, 5, 6))}), Known({Conv: [usual, other]})), Conv) == [usual]


def test_measured_times_replace_estimates() -> None:
    usual, other = Rated(MILLISECOND), Rated(2 * MILLISECOND)
    assignment = assigned(Graph({"y": conv(x(2, 4, 5, 6))}), Known({Conv: [usual, other]}, {usual: 3e-6, other: 2e-6}))
    (choice,) = (choice for node, choice in assignment.choices.items() if isinstance(node.op, Conv))
    assert choice.kernel is other
    assert choice.seconds == 2e-6
    assert choice.rejected == (("made up:Rated", "lost the race: 3.0 µs to 2.0 µs"),)


class Packing(Rated):
    """A kernel that takes its second operand plainly or, faster, in an opaque layout."""

    def __init__(self, form: int, packed: float, plain: float, usual: Layout = PLAIN) -> None:
        super().__init__(plain, PLAIN, usual)
        self.own, self.packed = Layout(opaque=Blocks(form, 1 << 22)), packed

    def alternatives(self, node: Node, input_layouts: Sequence[Layout]) -> Sequence[LayoutSignature]:
        return (LayoutSignature((PLAIN, self.own), (PLAIN,)),)

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return self.taken if signature.inputs[1].opaque is None else self.packed


def test_copies_of_invariant_values_are_free() -> None:
    w = State("w", typed((1024, 1024)))()
    y = MatMul()(x(4, 1024), w)
    kernels = Known({MatMul: [Packing(1, 1 * MILLISECOND, 1.2 * MILLISECOND)]})
    still = assigned(Graph({"y": y}), kernels)
    assert names(still.graph) == ["Reorder", "MatMul"]
    ((_, reason),) = next(choice.rejected for node, choice in still.choices.items() if isinstance(node.op, MatMul))
    assert reason == "is rated slower: 1,200.0 µs to 1,000.0 µs"
    trained = assigned(Graph({"y": y}, {"w": w + 1.0}), kernels)
    assert "Reorder" not in names(trained.graph)


def test_shared_copies_are_weighed_over_the_graph() -> None:
    """Each reader alone would pack the weights for itself; a common layout costs only one copy of the same price."""
    turned = Layout((1, 0))
    w, a = State("w", typed((1024, 1024)))(), x(4, 1024)
    plain, other = MatMul()(a, w), MatMul(transpose_b=True)(a, w)
    ends = Graph({"y": plain, "z": other}, {"w": w + 1.0})

    class Either(Packing):
        """Has a different opaque layout for transposed weights."""

        def alternatives(self, node: Node, input_layouts: Sequence[Layout]) -> Sequence[LayoutSignature]:
            transposed = node.op == MatMul(transpose_b=True)
            return (LayoutSignature((PLAIN, Layout(opaque=Blocks(2 if transposed else 1, 1 << 22))), (PLAIN,)),)

    assignment = assigned(ends, Known({MatMul: [Either(1, 1.0 * MILLISECOND, 1.4 * MILLISECOND, turned)]}))
    assert [str(node.op.target) for node in assignment.graph.nodes() if isinstance(node.op, Reorder)] == [str(turned)]


def test_elementwise_ops_take_the_layout_with_least_copies() -> None:
    kernels = Known({Conv: [ChannelsLast()]})
    left, right = conv(x(2, 4, 5, 6)), Reshape((2, 4, 5, 6))(x(240, name="flat"))
    assignment = assigned(Graph({"y": conv(Add()(left, right), name="v")}), kernels)
    # copies the plain operand, instead of the other one and the sum
    assert names(assignment.graph).count("Reorder") == 1
    assignment = assigned(Graph({"y": Reshape((240,))(Add()(left, right))}), kernels)
    # copies one operand or the sum
    assert names(assignment.graph).count("Reorder") == 1


class Narrowing(Rated):
    """A kernel that also accepts 16-bit operands and results."""

    def low_precision_signature(self, node: Node, signature: LayoutSignature) -> LayoutSignature:
        return signature

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return self.taken * (0.5 if signature.inputs[0].dtype else 1)


def test_float32_kernel_competes_with_16_bit_kernel() -> None:
    first = conv(x(2, 4, 5, 6))
    second = conv(first, name="v")
    wide, narrow = Rated(1.0 * MILLISECOND), Narrowing(1.2 * MILLISECOND)
    kernels = Known({Conv: [wide, narrow]})
    graph = Graph({"y": second})
    assert set(chosen(assigned(graph, kernels), Conv)) == {wide}
    rounded = assigned(graph, kernels, NarrowedValues(frozenset([first, second.inputs[0]]), DType.BFLOAT16))
    assert set(chosen(rounded, Conv)) == {narrow}


def test_verify_layouts_rejects_invalid_layouts() -> None:
    opaque = Layout(opaque=Blocks(8))
    state = State("s", typed((2, 3)))()
    packed = Reorder(PLAIN, opaque)(state)
    back = Reorder(opaque, PLAIN)(packed)
    verify_layouts(Graph({"y": back}), {state: PLAIN, packed: opaque, back: PLAIN})
    for graph, layouts, message in (
        (Graph({"y": packed}), {state: PLAIN, packed: opaque}, "the result .* has an opaque layout"),
        (Graph({"y": Relu()(packed)}), {state: PLAIN, packed: opaque}, "has an operand or result in an opaque layout"),
        (Graph({"y": packed}), {state: opaque, packed: opaque}, "must be plain"),
        (Graph({"y": packed}), {state: PLAIN, packed: PLAIN}, "but names plain and"),
        (Graph({}, {"s": state}), {state: Layout((1, 0))}, "the update of 's' has the layout 1-0"),
    ):
        all_layouts = {value: PLAIN for node in graph.nodes() for value in node.outputs} | layouts
        with pytest.raises(InvalidGraphError, match=message):
            verify_layouts(graph, all_layouts)


@pytest.mark.parametrize("order", [None, (0, 2, 3, 1), (3, 2, 1, 0)])
def test_layout_strides_match_numpy(order: tuple[int, ...] | None) -> None:
    shape = (2, 3, 4, 5)
    axes = order or (0, 1, 2, 3)
    strided = np.zeros([shape[axis] for axis in axes]).transpose([axes.index(axis) for axis in range(4)])
    assert strided.shape == shape
    assert Layout(order).strides(typed(shape)) == tuple(step // 8 for step in strided.strides)
