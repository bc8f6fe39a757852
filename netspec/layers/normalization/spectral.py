"""SpectralNormalization: divides a layer's kernel by its greatest singular value."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Maximum, Pow, Where, call_elementwise
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceMax, ReduceSum
from netspec.graph.ops.unary import Abs
from netspec.graph.value import Value, require_unrollable
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.initializers.random import TruncatedNormal
from netspec.layers.recurrent.wrappers import WrapperSpec, build_inner, inner_name
from netspec.schema.specs.kinds import LAYERS, AnyLayer

KERNELS = ("kernel", "embeddings")
"""Names of the parameter that is normalized."""
LEAST_SQUARE = 1e-14
"""Square of the least vector length to divide by, Keras's 1e-7."""


@LAYERS.register
class SpectralNormalization(WrapperSpec):
    """Divide the kernel of a layer by its spectral norm, the largest factor by which it lengthens a vector.

    Inputs and outputs are those of the inner layer, which has a `kernel` or `embeddings`: Dense, a convolution,
    Embedding. Each training step starts from the kernel divided by σ = v · kernel · u, where u and v come from
    `power_iterations` rounds of the power method on the kernel as a matrix with a column for each output, starting from
    the last step's u, which is stored as `vector_u` (1, outputs). The solver updates the divided kernel by the gradient
    with respect to it; the gradient of σ is ignored. In inference, and if frozen by `trainable: false`, the kernel is
    used as it is. A kernel of zeros stays zero. Miyato et al. 2018, arXiv:1802.05957; in Keras's form.
    """

    type: Literal["SpectralNormalization"] = "SpectralNormalization"
    layer: AnyLayer
    """The layer: `{type: Conv2D, filters: 8, kernel_size: 3}`. Its parameters are called `conv2d/kernel` and so on."""
    power_iterations: PositiveInt = 1
    """Number of iterations of the power method per step."""

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
        """Names of the inner layer's outputs."""
        return self.layer.output_names()

    def build(self, builder: Builder, *inputs: Value) -> Value | tuple[Value, ...]:
        """The inputs and outputs are those of the inner layer."""
        normalized: list[str] = []

        def normalize_kernel(name: str, parameter: Value) -> Value:
            if name not in KERNELS:
                return parameter
            normalized.append(name)
            return self._normalized(builder, parameter)

        outputs: Value | tuple[Value, ...] = build_inner(
            builder, self.layer, inner_name(self.layer), *inputs, parameters=normalize_kernel
        )
        require(
            bool(normalized),
            "the inner layer has no kernel to normalize",
            expected="a layer with a `kernel` or `embeddings`: Dense, Conv2D, Embedding …",
            got=str(getattr(self.layer, "type", "")),
        )
        return outputs

    def mask(self, builder: Builder, *inputs: Value) -> Value | tuple[Value | None, ...] | None:
        """Return the mask of the inner layer."""
        assert isinstance(self.layer, LayerSpec)
        return self.layer.mask(builder, *inputs)

    def _normalized(self, builder: Builder, kernel: Value) -> Value:
        """The kernel that the layer computes with; in training the parameter is set to it."""
        assert isinstance(self.layer, LayerSpec)
        matrix = self.layer.kernel_matrix(kernel)
        vector_u = builder.statistic("vector_u", (1, matrix.shape[1]), TruncatedNormal(stddev=0.02))
        if not builder.is_trained(kernel):
            return kernel
        latest = builder.latest(kernel)
        if latest is not kernel:  # a layer that shares it has normalized it in this step
            return latest
        require_unrollable(self.power_iterations, "power iterations")
        u = vector_u
        for _ in range(self.power_iterations):
            v = _normalize(MatMul(transpose_b=True)(u, matrix))
            u = _normalize(MatMul()(v, matrix))
        sigma = ReduceSum()(MatMul()(v, matrix) * u)
        is_zero = call_elementwise(Equal(), ReduceMax()(Abs()(kernel)), 0.0)
        new = kernel / call_elementwise(Where(), is_zero, 1.0, sigma)
        builder.update(vector_u, call_elementwise(Where(), is_zero, vector_u, u))
        builder.update(kernel, new)
        return new


def _normalize(vector: Value) -> Value:
    """x / max(|x|, 1e-7)"""
    square = call_elementwise(Maximum(), ReduceSum()(vector * vector), LEAST_SQUARE)
    return vector * Pow(-0.5)(square)
