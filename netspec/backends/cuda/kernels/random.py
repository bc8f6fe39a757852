"""Random numbers: Philox4x32-10, bit-identical to `graph.ops.random`."""

from __future__ import annotations

from math import prod

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.random import LOW, GlobalSampleIndex, RandomUniform
from netspec.graph.types import TensorType
from netspec.graph.value import Node

BODY = """
const uint64 seed = rng[0], step = rng[1], start = (uint64)rng[2] * per_sample;
const int cut = start % 4;
UNITS(unit, blocks) {
    const uint64 block = start / 4 + unit;
    const Words words = philox((uint32)block, (uint32)(block >> 32) ^ (uint32)(step >> 32), (uint32)step,
                               (uint32)stream, (uint32)seed, (uint32)(seed >> 32));
    for (int k = 0; k < 4; ++k) {
        const Index to = 4 * unit + k - cut;
        if (to >= 0 && to < count) y[to] = (words.at[k] >> 8) * (NUMBER)0x1p-24;
    }
}
"""


FIRST = "if (threadIdx.x < 3) y[threadIdx.x] = rng[threadIdx.x] - (threadIdx.x == 2 ? before : 0);"


@kernel(GlobalSampleIndex, backend="cuda", rank=5)
class GlobalSampleIndexKernel(Kernel):
    """Copy three values; `before` is subtracted from the last, the index of the first sample."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (rng,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, GlobalSampleIndex)
        parameters = [pointer("rng", rng), pointer("y", y, written=True), *sizes(op.before, before=op.before)]
        return Launch(parameters, FIRST, 1, of_blocks=True).bind()


@kernel(RandomUniform, backend="cuda", rank=5)
class RandomUniformKernel(Kernel):
    """Uniform values in [0, 1), four per thread."""

    def reject_reason(self, op: RandomUniform, *types: TensorType) -> str | None:
        return None if op.type.dtype.is_float else f"no random {op.type.dtype}"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, kind = node.op, node.types[0]
        assert isinstance(op, RandomUniform)
        blocks = -(-kind.size // 4) + 1  # one more if the first one is partial
        parameters = [
            pointer("rng", buffers.inputs[0]), pointer("y", buffers.outputs[0], written=True),
            *sizes(4 * blocks, blocks=blocks, count=kind.size),
            *sizes(2**31, stream=op.stream & LOW, per_sample=prod(kind.shape[1:])),
        ]  # fmt: skip
        return Launch(parameters, BODY.replace("NUMBER", str(kind.dtype)), blocks).bind()
