"""Operators on blocks of channels (com.microsoft.nchwc), which onnxruntime's optimizer writes for one kind of CPU.

A tensor keeps the shape (N, C, …), with C a multiple of the block size; only its values are stored block by block. All
its readers expect that, so the importer keeps tensors in the usual order and only reorders kernels. A file does not
contain the block size: like onnxruntime, the importer assumes the one of this CPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import BLOCKED, rule
from netspec.exchange.lift.rules.contrib import MICROSOFT, channels_first, channels_last, fused_convolution
from netspec.exchange.onnx_runtime import load_onnxruntime
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature


@rule("ReorderInput", domain=BLOCKED)
def into_blocks(ctx: LiftContext, node: OperatorNode) -> None:
    """Pad the channels with zeros to a multiple of the block size."""
    steps, x, rank = Expansion(ctx, node), node.inputs[0], ctx.tensors.rank(node.inputs[0])
    last = node.attributes.get("channels_last")
    missing = -ctx.tensors.shape(x)[-1 if last else 1] % block_size()
    x = channels_first(steps, x, rank) if last else steps.node("Identity", x)
    if missing:
        steps.node("Pad", x, steps.integers([0] * (rank + 1) + [missing] + [0] * (rank - 2)))
    steps.lift()


@rule("ReorderOutput", domain=BLOCKED)
def out_of_blocks(ctx: LiftContext, node: OperatorNode) -> None:
    """Remove the padded channels."""
    steps, rank = Expansion(ctx, node), ctx.tensors.rank(node.inputs[0])
    bounds = (steps.integers([value]) for value in (0, node.attributes["channels"], 1))
    result = steps.node("Slice", node.inputs[0], *bounds)
    if node.attributes.get("channels_last"):
        channels_last(steps, result, rank)
    steps.lift()


@rule("Conv", domain=BLOCKED)
def convolution(ctx: LiftContext, node: OperatorNode) -> None:
    """Import a fused convolution, with its kernel in the usual order."""
    name = ctx.tensors.fresh_name(node.inputs[1], reads=0)
    ctx.tensors.constants[name] = _kernel(
        ctx.tensors.constant(node.inputs[1], "kernel"), node.attributes.get("group", 1)
    )
    ctx.report.remarks.add(f"channels are read in blocks of {block_size()}, the size of onnxruntime on this CPU")
    inputs = (node.inputs[0], name, *node.inputs[2:])
    fused_convolution(ctx, replace(node, op_type="FusedConv", domain=MICROSOFT, inputs=inputs))


@rule("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Upsample", domain=BLOCKED)
def of_each_channel(ctx: LiftContext, node: OperatorNode) -> None:
    """Replace the node by ONNX's operator, which computes each channel by itself."""
    steps, have = Expansion(ctx, node), dict(node.attributes)
    if node.op_type == "Upsample":
        scales = steps.constant(np.asarray(have.pop("scales"), "float32"))
        steps.node("Resize", node.inputs[0], "", scales, **{"nearest_mode": "floor", **have})
    else:
        steps.node(node.op_type, node.inputs[0], **have)
    steps.lift()


def _kernel(array: NDArray[Any], groups: int) -> NDArray[Any]:
    """Reorder a kernel (O, I, …), which is stored in blocks of O, and of I unless I is small."""
    (outputs, inputs, *window), block = array.shape, block_size()
    if outputs % block:
        raise UnsupportedFeature(f"{outputs} channels are not a multiple of {block}: the file is for another CPU")
    if inputs < block and (groups == 1 or inputs == 1):
        wide = np.moveaxis(array.reshape(outputs // block, inputs, *window, block), -1, 1)
    elif inputs % block:
        raise UnsupportedFeature(f"{inputs} channels are not a multiple of {block}: the file is for another CPU")
    else:
        parts = array.reshape(outputs // block, inputs // block, *window, block, block)
        wide = np.moveaxis(parts, (-1, -2), (1, 3))
    return np.ascontiguousarray(wide.reshape(array.shape))


@cache
def block_size() -> int:
    """Number of channels in onnxruntime's blocks on this CPU. Raises `UnsupportedFeature` without blocks."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 2, 2]) for name in "xy"]
    kernel = numpy_helper.from_array(np.ones((1, 1, 1, 1), "float32"), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "probe", infos[:1], infos[1:], [kernel])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        with TemporaryDirectory() as folder:
            options.optimized_model_filepath = str(Path(folder) / "probe.onnx")
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            optimized = onnx.load(options.optimized_model_filepath).graph
    except Exception as error:  # onnxruntime's error classes have no other common base
        raise UnsupportedFeature(f"the block size of onnxruntime is unknown: {error}") from error
    if optimized.node[0].domain != BLOCKED:
        raise UnsupportedFeature("onnxruntime does not put channels into blocks on this CPU")
    return int(next(initializer.dims[0] for initializer in optimized.initializer))
