"""Counter-based random numbers: Philox4x32-10.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A number depends only on (seed,
step, stream, element index), so it is the same on resume, in any execution order, and on any number of workers: element
indices count from the first sample of the global batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import NoOnnxForm
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.types import DType, TensorType

RNG_TYPE = TensorType((3,), DType.INT64)
"""Type of the random state: [seed, step, index of the batch's first sample in the global batch]."""

RNG_INPUT = "$rng"
"""Name of the input that holds the random state; inputs of nets cannot have this name."""

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def philox4x32(xp: Xp, counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, ...]:
    """Philox4x32-10: 4 × 32 random bits for each counter of four 32-bit words; all arrays are uint64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    low, shift = xp.uint64(LOW), xp.uint64(32)
    for _ in range(ROUNDS):
        p0, p1 = xp.uint64(MULTIPLIERS[0]) * c0, xp.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ xp.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ xp.uint64(k1), p0 & low
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


@dataclass(frozen=True)
class RandomUniform(NoGradient):
    """Uniform numbers in [0, 1) of the given type; axis 0 is the batch.

    Element i takes word i mod 4 of the counter (i div 4, step, stream) under the key `seed`. It uses 24 of its bits, so
    that the number is exact in float32.
    """

    type: TensorType
    stream: int
    onnx = NoOnnxForm("its numbers depend on the seed, the step and the layer, which ONNX cannot express")

    def infer(self, rng: TensorType) -> TensorType:
        self.check(rng == RNG_TYPE, "this is not a random state", expected=str(RNG_TYPE), got=rng)
        return self.type

    def forward(self, xp: Xp, rng: Array) -> Array:
        seed, step, first = (int(word) & (2**64 - 1) for word in rng)
        per_sample = prod(self.type.shape[1:])
        start, count = first * per_sample, self.type.size
        blocks = xp.arange(start // 4, (start + count + 3) // 4, dtype="uint64")
        constant = xp.ones_like(blocks)
        counter = (
            blocks & xp.uint64(LOW),
            (blocks >> xp.uint64(32)) ^ (constant * xp.uint64(step >> 32)),
            constant * xp.uint64(step & LOW),
            constant * xp.uint64(self.stream & LOW),
        )
        words = xp.stack(philox4x32(xp, counter, (seed & LOW, seed >> 32)), axis=1).reshape(-1)
        bits = words[start % 4 : start % 4 + count] >> xp.uint64(8)
        return (bits.astype(str(self.type.dtype)) * 2.0**-24).astype(str(self.type.dtype)).reshape(self.type.shape)


@dataclass(frozen=True)
class GlobalSampleIndex(NoGradient):
    """Random state for a worker's batch, whose first sample is number `before` → random state for the global batch."""

    before: int
    onnx = NoOnnxForm("communication between workers has no ONNX operator")

    def infer(self, rng: TensorType) -> TensorType:
        self.check(rng == RNG_TYPE, "this is not a random state", expected=str(RNG_TYPE), got=rng)
        return rng

    def forward(self, xp: Xp, rng: Array) -> Array:
        return rng - xp.asarray([0, 0, self.before])
