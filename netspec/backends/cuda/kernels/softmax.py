"""Ops along one axis: softmax, its gradient and logarithm, cross-entropy, argmax, one-hot.

A block handles a vector at a time, with as many threads as the vector has elements, up to 256. Vectors extend along the
axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.common.axis_loops import AxisKernel, AxisLoops, without_axis
from netspec.backends.cuda.launch import THREADS, WARP, Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.cross_entropy import SoftmaxCrossEntropyLoss
from netspec.graph.ops.reduce import ArgMax
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.softmax import LogSoftmax, Softmax, SoftmaxGrad
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

EACH = "for (Index c = threadIdx.x; c < length; c += blockDim.x)"
MAX_AND_TOTAL = f"""
NUMBER most = -INFINITY;
{EACH} most = Greater<NUMBER>()(most, x[c * xc]);
most = of_block(most, scratch, Greater<NUMBER>());
NUMBER total = 0;
{EACH} total += exp_NUMBER(x[c * xc] - most);
total = of_block(total, scratch, Add<NUMBER>());
"""
SOFTMAX = f"""{MAX_AND_TOTAL}
{EACH} y[c * yc] = exp_NUMBER(x[c * xc] - most) / total;
"""
LOG_SOFTMAX = f"""{MAX_AND_TOTAL}
{EACH} y[c * yc] = x[c * xc] - most - log_NUMBER(total);
"""
SOFTMAX_GRAD = f"""
NUMBER total = 0;
{EACH} total += y[c * yc] * dy[c * dyc];
total = of_block(total, scratch, Add<NUMBER>());
{EACH} dx[c * dxc] = y[c * yc] * (dy[c * dyc] - total);
"""
LOSS = """
if (threadIdx.x == 0) {
    const int64 right = label[0];
    loss[0] = right >= 0 && right < length ? log_NUMBER(total) - (x[right * xc] - most) : (NUMBER)0;
}
__syncthreads();  // y may lie where x does
"""
ARG_MAX = f"""
NUMBER most = x[0];
{EACH} most = Greater<NUMBER>()(most, x[c * xc]);
most = of_block(most, scratch, Greater<NUMBER>());
int64 first = length;
{EACH} if (c < first && (x[c * xc] == most || (x[c * xc] != x[c * xc] && most != most))) first = c;
first = of_block(first, index_scratch, Less<int64>());
if (threadIdx.x == 0) y[0] = first;
"""
ONE_HOT = f"""
{EACH} y[c * yc] = c == x[0] ? 1 : 0;
"""


def bound(body: str, axis: int, arrays: dict[str, Any], dtype: DType, results: Sequence[str]) -> Thunk:
    """A call that runs a body for each vector along `axis` of the largest arrays.

    Other arrays have one element per vector. In the body, an array is a pointer to its vector, and `xc` is the stride
    of `x` along the vector.
    """
    shape = max((array.shape for array in arrays.values()), key=len)
    long = {name: array.ndim == len(shape) for name, array in arrays.items()}
    outer_shape = shape[:axis] + shape[axis + 1 :]
    loops = AxisLoops.of(
        outer_shape, [without_axis(array, axis) if long[name] else array for name, array in arrays.items()]
    )
    assert loops is not None
    moves = list[str]()
    steps = dict[str, int]()
    for (name, array), (outer, inner) in zip(arrays.items(), loops.steps, strict=True):
        moves.append(f"auto {name} = {name}_ + unit / inner * {name}0 + unit % inner * {name}1;")
        steps |= {f"{name}0": outer, f"{name}1": inner}
        if long[name]:
            steps[f"{name}c"] = array.strides[axis] // array.itemsize
    threads = min(THREADS, max(WARP, 1 << (shape[axis] - 1).bit_length()))
    shared = [f"__shared__ {dtype} scratch[{threads // WARP}];", f"__shared__ int64 index_scratch[{threads // WARP}];"]
    used = [line for line in shared if line.split("[")[0].rsplit(" ", 1)[1] + "," in body]
    lines = [*used, "BLOCKS(unit, count) {", *moves, body.replace("NUMBER", str(dtype)), "}"]
    reach = max(sum(abs(step) * (size - 1) for step, size in zip(a.strides, a.shape, strict=True)) // a.itemsize
                for a in arrays.values())  # fmt: skip
    parameters = [
        *(pointer(f"{name}_", array, written=name in results) for name, array in arrays.items()),
        *sizes(max(loops.count, reach), count=loops.count, length=shape[axis], inner=loops.inner, **steps),
    ]
    return Launch(parameters, "\n".join(lines), loops.count, of_blocks=True, threads=threads).bind()


@kernel(Softmax, LogSoftmax, backend="cuda", rank=5)
class SoftmaxKernel(AxisKernel):
    """eˣ / Σ eˣ, or its logarithm."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = {"x": buffers.inputs[0], "y": buffers.outputs[0]}
        body = LOG_SOFTMAX if isinstance(node.op, LogSoftmax) else SOFTMAX
        return bound(body, self.axis(node), arrays, node.inputs[0].dtype, ["y"])


@kernel(SoftmaxGrad, backend="cuda", rank=5)
class SoftmaxGradKernel(AxisKernel):
    """dx = y · (dy - Σ y · dy); each vector is read twice."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = {"y": buffers.inputs[0], "dy": buffers.inputs[1], "dx": buffers.outputs[0]}
        return bound(SOFTMAX_GRAD, self.axis(node), arrays, node.inputs[0].dtype, ["dx"])


@kernel(SoftmaxCrossEntropyLoss, backend="cuda", rank=5)
class CrossEntropyKernel(AxisKernel):
    """The loss of each vector and the log-probabilities, as needed."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays, body = {"x": buffers.inputs[0]}, MAX_AND_TOTAL
        loss, log_prob = buffers.outputs
        if loss is not None:
            arrays |= {"label": buffers.inputs[1], "loss": loss}
            body += LOSS
        if log_prob is not None:
            arrays["y"] = log_prob
            body += LOG_SOFTMAX.removeprefix(MAX_AND_TOTAL)
        return bound(body, self.axis(node), arrays, node.inputs[0].dtype, ["loss", "y"])


@kernel(ArgMax, backend="cuda", rank=5)
class ArgMaxKernel(AxisKernel):
    """Index of the first maximum, or of the first NaN."""

    def reject_reason(self, op: ArgMax, *types: TensorType) -> str | None:
        if op.last:
            return "the last index of equal maxima is requested"
        return None if types[0].dtype.is_float else f"no maxima of {types[0].dtype}"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = {"x": buffers.inputs[0], "y": buffers.outputs[0]}
        return bound(ARG_MAX, self.axis(node), arrays, node.inputs[0].dtype, ["y"])


@kernel(OneHot, backend="cuda", rank=5)
class OneHotKernel(Kernel):
    """One-hot vectors."""

    def reject_reason(self, op: OneHot, *types: TensorType) -> str | None:
        return None if op.dtype != DType.BOOL else "no vectors of bool"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op = node.op
        assert isinstance(op, OneHot)
        arrays = {"x": buffers.inputs[0], "y": buffers.outputs[0]}
        return bound(ONE_HOT, op.axis % len(node.types[0].shape), arrays, node.types[0].dtype, ["y"])
