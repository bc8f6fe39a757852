"""SpectralNormalization: a layer whose kernel stretches nothing by more than about 1."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Maximum, Pow, Where, elementwise
from netspec.graph.ops.functions import Abs
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceMax, ReduceSum
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.drawn_initializers import TruncatedNormal
from netspec.layers.wrappers import WrapperSpec, called, made_inside
from netspec.schema.kinds import LAYERS, AnyLayer

KERNELS = ("kernel", "embeddings")
"""What a layer calls the parameter that is normalized."""
LEAST_SQUARE = 1e-14
"""Of a vector's length: Keras's 1e-7, which what is shorter is divided by."""


@LAYERS.register
class SpectralNormalization(WrapperSpec):
    """Divide the kernel of a layer by its spectral norm: the most that it stretches any vector by.

    Inputs and outputs are those of the layer inside, which has a `kernel` or `embeddings`: Dense, a convolution,
    Embedding. Each training step starts from the kernel divided by σ = v · kernel · u, where u and v come from
    `power_iterations` rounds of the power method on the kernel as a matrix with a column for each output, from the last
    step's u, which is kept as `vector_u` (1, outputs). The solver moves the divided kernel, by the gradient by it: σ
    has no part in that. In inference, and frozen by `trainable: false`, the kernel is taken as it is.
    A kernel of zeros stays one. Miyato et al. 2018, arXiv:1802.05957; in the form of Keras.
    """

    type: Literal["SpectralNormalization"] = "SpectralNormalization"
    layer: AnyLayer
    """the layer: `{type: Conv2D, filters: 8, kernel_size: 3}`. Its parameters are called `conv2d/kernel` and so on"""
    power_iterations: PositiveInt = 1
    """rounds of the power method in a step"""

    samples: ClassVar = (
        Sample.of((3, 4), layer={"type": "Dense", "units": 3, "activation": "tanh"}),
        Sample.of(
            (2, 3, 5, 4), power_iterations=2,
            layer={"type": "Conv2D", "filters": 4, "kernel_size": 2, "kernel_regularizer": {"type": "L2", "l2": 0.1}},
        ),
        Sample.of((2, 5), dtypes=("int32",), layer={"type": "Embedding", "input_dim": 4, "output_dim": 3}),
        Sample.of((2, 3, 4), layer={"type": "Conv1DTranspose", "filters": 2, "kernel_size": 2, "use_bias": False}),
        Sample.of((2, 2, 5), layer={"type": "DepthwiseConv1D", "kernel_size": 2, "depth_multiplier": 3}),
    )  # fmt: skip

    def output_names(self) -> tuple[str, ...]:
        """Those of the layer inside."""
        return self.layer.output_names()

    def build(self, net: Builder, *inputs: Value) -> Value | tuple[Value, ...]:
        """Inputs and outputs of the layer inside."""
        found: list[str] = []

        def revised(name: str, parameter: Value) -> Value:
            if name not in KERNELS:
                return parameter
            found.append(name)
            return self._normalized(net, parameter)

        made: Value | tuple[Value, ...] = made_inside(net, self.layer, called(self.layer), *inputs, parameters=revised)
        need(
            bool(found),
            "the layer inside has no kernel to normalize",
            expected="a layer with a `kernel` or `embeddings`: Dense, Conv2D, Embedding …",
            got=str(getattr(self.layer, "type", "")),
        )
        return made

    def mask(self, net: Builder, *inputs: Value) -> Value | tuple[Value | None, ...] | None:
        """That of the layer inside."""
        assert isinstance(self.layer, LayerSpec)
        return self.layer.mask(net, *inputs)

    def _normalized(self, net: Builder, kernel: Value) -> Value:
        """What the layer computes with; in training the kernel becomes that."""
        assert isinstance(self.layer, LayerSpec)
        matrix = self.layer.kernel_matrix(kernel)
        kept = net.statistic("vector_u", (1, matrix.shape[1]), TruncatedNormal(stddev=0.02))
        if not net.trains(kernel):
            return kernel
        done = net.latest(kernel)
        if done is not kernel:  # by a layer that shares it: once a step
            return done
        u = kept
        for _ in range(self.power_iterations):
            v = _to_length_1(MatMul(transpose_b=True)(u, matrix))
            u = _to_length_1(MatMul()(v, matrix))
        sigma = ReduceSum()(MatMul()(v, matrix) * u)
        nothing = elementwise(Equal(), ReduceMax()(Abs()(kernel)), 0.0)
        new = kernel / elementwise(Where(), nothing, 1.0, sigma)
        net.update(kept, elementwise(Where(), nothing, kept, u))
        net.update(kernel, new)
        return new


def _to_length_1(vector: Value) -> Value:
    """x / max(|x|, 1e-7)"""
    square = elementwise(Maximum(), ReduceSum()(vector * vector), LEAST_SQUARE)
    return vector * Pow(-0.5)(square)
