"""If, Loop and Scan are replaced by the nodes of their subgraphs, and agree with onnxruntime."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from netspec.errors import InputError
from tests.exchange.lift.models.generic import agrees, floats, graph, imported, ints, model, node


@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_of_a_constant_condition_is_taken(condition: bool, tmp_path: Path) -> None:
    yes = graph([node("MatMul", "t w", "m"), node("Add", "m b", "yes")], [], "yes", b=floats(2))
    no = graph([node("Neg", "t", "no")], [], "no")
    nodes = [
        node("Relu", "x", "t"),
        helper.make_node("If", ["c"], ["z"], then_branch=yes, else_branch=no),
        node("Tanh", "z"),
    ]  # fmt: skip
    text = agrees(model(nodes, ("N", 3), c=np.array(condition), w=floats(3, 2)), tmp_path)
    assert ("Dense" in text) == condition


def test_branches_that_the_shape_chooses_are_not_taken_for_constants(tmp_path: Path) -> None:
    """The result of an If depends on what its branches read, even if its condition is constant."""
    branches = {
        name: graph([node(op, "same", "z")], [], "z") for name, op in (("then_branch", "Tanh"), ("else_branch", "Neg"))
    }
    nodes = [
        node("Relu", "x", "t"),
        node("Identity", "t", "same"),
        node("Shape", "x", "s"),
        node("Gather", "s one", "width"),
        node("Equal", "width three", "c"),
        helper.make_node("If", ["c"], ["z"], **branches),
        node("Sigmoid", "z"),
    ]  # fmt: skip
    assert "sigmoid" in agrees(model(nodes, ("N", 3), one=np.array(1), three=np.array(3)), tmp_path)


def state(name: str = "s") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


COUNTERS = [
    helper.make_tensor_value_info("i", TensorProto.INT64, []),
    helper.make_tensor_value_info("go", TensorProto.BOOL, []),
]  # fmt: skip


def turns(*nodes: onnx.NodeProto, outputs: str, **weights: Any) -> onnx.NodeProto:
    """Return a loop of `m` iterations over a state `s`, which starts as x."""
    inside = graph([*nodes, node("Identity", "go", "on")], [*COUNTERS, state()], f"on {outputs}", **weights)
    inside.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    return helper.make_node("Loop", ["m", "", "x"], ["y", "all"][: len(outputs.split())], body=inside)


def test_loops_are_unrolled(tmp_path: Path) -> None:
    loop = turns(
        node("MatMul", "s w", "a"), node("Add", "a b", "c"), node("Relu", "c", "d"), node("Identity", "d", "e"),
        outputs="d e", w=floats(3, 3), b=floats(3),
    )  # fmt: skip
    proto = model([loop], ("N", 3), m=np.array(3))
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("all", TensorProto.FLOAT, None))
    text = agrees(model([loop], ("N", 3), m=np.array(3)), tmp_path)
    assert text.count("type: Dense") == 3
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    agrees(proto, tmp_path)  # the results of iterations are stacked along a new first axis


def test_a_loop_without_iterations_returns_its_initial_states(tmp_path: Path) -> None:
    loop = turns(node("Sin", "s", "t"), outputs="t t")
    text = agrees(model([loop], ("N", 3), m=np.array(0)), tmp_path)
    assert "sin" not in text


def test_loops_end_if_their_condition_becomes_a_constant(tmp_path: Path) -> None:
    inside = graph([node("Less", "i two", "on"), node("Sin", "s", "t")], [*COUNTERS, state()], "on t", two=np.array(2))
    inside.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    proto = model([helper.make_node("Loop", ["", "c", "x"], ["y"], body=inside)], ("N", 3), c=np.array(True))
    assert agrees(proto, tmp_path).count("sin(x)") == 3


@pytest.mark.exhaustive
def test_endless_loops_are_refused(tmp_path: Path) -> None:
    loop = turns(node("Sin", "s", "t"), outputs="t")
    start = time.process_time()
    with pytest.raises(InputError, match="the loop runs more than 4096 iterations"):
        imported(model([loop], ("N", 3), m=np.array(2**40)), tmp_path)
    assert time.process_time() - start < 60


def test_scans_are_unrolled(tmp_path: Path) -> None:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "sp"]
    inside = graph(
        [node("Mul", "s k", "a"), node("Add", "a p", "t"), node("Identity", "t", "u")], infos, "t u", k=floats(4)
    )
    scan = helper.make_node(
        "Scan", ["z", "x"], ["y", "all"], body=inside, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
    )  # fmt: skip
    proto = model([node("ReduceMax", "x", "z", axes=[1], keepdims=0), scan], ("N", 3, 4))
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("all", TensorProto.FLOAT, None))
    agrees(proto, tmp_path)


@pytest.mark.parametrize("lengths", ["", "five"])
def test_scans_over_batches_of_sequences_are_unrolled(lengths: str, tmp_path: Path) -> None:
    """In opset 8, Scan takes a batch of sequences; here all have the same length."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "sp"]
    inside = graph([node("Sub", "p s", "t"), node("Identity", "t", "u")], infos, "t u")
    for output in inside.output:
        output.type.tensor_type.shape.dim.add().dim_value = 4
    scan = helper.make_node("Scan", [lengths, "z", "x"], ["y", "all"], body=inside, num_scan_inputs=1, directions=[1])
    proto = model([node("ReduceMax", "x", "z", axes=[1], keepdims=0), scan], (2, 5, 4), opset=8, five=ints(5, 5))
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("all", TensorProto.FLOAT, None))
    agrees(proto, tmp_path)


def body(
    nodes: list[onnx.NodeProto], states: str, outputs: str, on: str = "on", go: str = "go", **weights: Any
) -> onnx.GraphProto:
    """Return the body of a loop over several states."""
    proto = graph(nodes, [*COUNTERS, *map(state, states.split())], f"{on} {outputs}", **weights)
    proto.input[1].name = go
    proto.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    return proto


def with_outputs(proto: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    proto.graph.output.extend(state(name) for name in names)
    return proto


def test_states_of_a_loop_swap_and_outer_tensors_are_read(tmp_path: Path) -> None:
    inside = body(
        [
            node("Identity", "go", "on"), node("MatMul", "s w", "a"), node("Add", "a r", "b"), node("Tanh", "b", "t"),
            node("Identity", "s", "p"), node("Mul", "t r", "row"), node("Sigmoid", "q", "last"),
        ],
        "s q", "t p row last", w=floats(3, 3),
    )  # fmt: skip
    loop = helper.make_node("Loop", ["m", "", "z", "x"], ["y", "other", "rows", "lasts"], body=inside)
    proto = model([node("Relu", "x", "r"), loop], (2, 3), m=np.array(3), z=floats(2, 3))
    agrees(with_outputs(proto, "other", "rows", "lasts"), tmp_path)


def test_a_loop_of_constants_and_outer_constants_is_folded(tmp_path: Path) -> None:
    """Folding the loop allows `silu` to be found after it: its operands are constants, but its result is not."""
    inside = body([node("Identity", "go", "on"), node("Add", "s r", "t")], "s", "t")
    loop = helper.make_node("Loop", ["m", "", "z"], ["all"], body=inside)
    nodes = [node("Relu", "x", "r"), loop, node("Sigmoid", "all", "a"), node("Mul", "all a")]
    assert "silu" in agrees(model(nodes, ("N", 3), m=np.array(2), z=floats(1, 3)), tmp_path)


def test_other_names_may_be_those_that_a_loop_reads(tmp_path: Path) -> None:
    inside = body([node("Identity", "go", "on"), node("Add", "s r", "t")], "s", "t")
    loop = helper.make_node("Loop", ["m", "", "x"], ["y"], body=inside)
    nodes = [node("Exp", "x", "e"), node("Identity", "e", "r"), loop]
    agrees(model(nodes, ("N", 3), m=np.array(2)), tmp_path)


def test_branches_and_loops_nest_in_loops(tmp_path: Path) -> None:
    more, less = graph([node("Add", "s one", "n")], [], "n", one=floats(1, 3)), graph([node("Tanh", "s", "l")], [], "l")
    inner = body(
        [node("Identity", "going", "still"), node("Mul", "u s", "v")], "u", "v", on="still", go="going"
    )  # fmt: skip
    inner.input[0].name = "j"
    inside = body(
        [
            node("Identity", "go", "on"), node("Equal", "i k", "c"),
            helper.make_node("If", ["c"], ["b"], then_branch=more, else_branch=less),
            helper.make_node("Loop", ["k2", "", "b"], ["t"], body=inner),
        ],
        "s", "t", k=np.array(1), k2=np.array(2),
    )  # fmt: skip
    loop = helper.make_node("Loop", ["m", "", "x"], ["y"], body=inside)
    agrees(model([loop], ("N", 3), m=np.array(3)), tmp_path)


@pytest.mark.parametrize(("axes", "back"), [([1, 1], [0, 1]), ([1, 2], [0, 0]), ([2, 2], [0, 0])])
def test_a_scan_runs_over_a_tensor_in_several_ways(axes: list[int], back: list[int], tmp_path: Path) -> None:
    inside = graph(
        [node("Mul", "s p", "a"), node("Sub", "a q", "t"), node("Sub", "p q", "row")], [*map(state, "spq")], "t row"
    )
    scan = helper.make_node(
        "Scan", ["z", "x", "x"], ["y", "all"], body=inside, num_scan_inputs=2, scan_input_axes=axes,
        scan_input_directions=back, scan_output_axes=[-1], scan_output_directions=[1],
    )  # fmt: skip
    proto = model([node("ReduceMax", "x", "z", axes=[1], keepdims=0), scan], ("N", 4, 4))
    agrees(with_outputs(proto, "all"), tmp_path)
