"""MixtureOfExperts: a small net per expert, of which a router chooses a few for each vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.topk import TopK
from netspec.graph.value import Value
from netspec.layers.activation.base import Activation, activate
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer, InitializerSpec, Zeros
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import problem


@dataclass(frozen=True)
class ExpertsInitial:
    """First values of the kernels of all experts: each is initialized as a separate matrix."""

    initial: InitializerSpec
    axis: int
    """The axis of the experts."""

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of the parameter's shape."""
        import numpy as np

        matrix = self._matrix(shape)
        experts = [self.initial.sample(seed, f"{name}/{k}", matrix, dtype) for k in range(shape[self.axis])]
        return np.stack(experts, self.axis)

    def reject_reason(self, shape: tuple[int, ...]) -> str | None:
        """Return why the initializer rejects the shape of one expert's kernel; None if it does not."""
        return self.initial.reject_reason(self._matrix(shape))

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one expert's kernel."""
        return shape[: self.axis] + shape[self.axis + 1 :]


@LAYERS.register
class MixtureOfExperts(LayerSpec):
    """Sum of the outputs of `top_k` of `num_experts` small nets, which a router chooses for each vector.

    Input (N, …, features), output (N, …, units). An expert is activation(x · kernel + bias) with `hidden_units`, then a
    second product to `units`. The router computes softmax(x · router); the experts with the `top_k` highest
    probabilities are weighted by them, divided by their sum if `top_k` is 2 or more. All experts are computed for all
    vectors, and the others get weight 0: the computation is that of Dense layers with num_experts · hidden_units.

    In training, load_balancing · num_experts · Σ f · p is added to the loss, where f is the share of the choices that
    an expert gets, and p its mean probability; this is load_balancing if all experts get equal shares. Masked steps are
    included. Shazeer et al. 2017, arXiv:1701.06538; for the loss and `top_k: 1`, Fedus et al. 2021, arXiv:2101.03961.
    """

    type: Literal["MixtureOfExperts"] = "MixtureOfExperts"
    num_experts: PositiveInt
    """Number of experts."""
    hidden_units: PositiveInt
    """Number of hidden units of each expert."""
    top_k: PositiveInt = 2
    """Number of experts that are used for each vector."""
    units: PositiveInt | None = None
    """Number of outputs; by default as many as the input has features."""
    activation: Activation | None = None
    """Function applied to the hidden units."""
    load_balancing: float = Field(default=0.01, ge=0)
    """Weight of the loss that makes the router use all experts."""
    use_bias: bool = True
    """Add a learned offset to the hidden units and to the outputs of each expert."""
    router_initializer: Initializer = GlorotUniform()
    """First values of `router` (features, num_experts)."""
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `hidden/kernel` (features, num_experts, hidden_units) and `output/kernel` (num_experts,
    hidden_units, units): those of a matrix for each expert."""
    bias_initializer: Initializer = Zeros()
    """First values of `hidden/bias` (num_experts, hidden_units) and `output/bias` (num_experts, units)."""
    router_regularizer: Regularizer | None = None
    """Penalty on `router`, added to the loss."""
    kernel_regularizer: Regularizer | None = None
    """Penalty on each kernel, added to the loss."""
    bias_regularizer: Regularizer | None = None
    """Penalty on each bias, added to the loss."""
    router_constraint: Constraint | None = None
    """Constraint on `router`, applied after each step."""
    kernel_constraint: Constraint | None = None
    """Constraint on each kernel, applied after each step."""
    bias_constraint: Constraint | None = None
    """Constraint on each bias, applied after each step."""

    passes_mask: ClassVar = True
    onnx_roundtrip_blocker: ClassVar = "it is exported as products and a softmax"
    samples: ClassVar = (
        Sample.of((2, 3, 4), num_experts=3, hidden_units=2, activation="tanh"),
        Sample.of((4, 3), num_experts=4, hidden_units=2, top_k=1, units=2, use_bias=False, load_balancing=0.5),
        Sample.of((3, 4), num_experts=2, hidden_units=3, kernel_regularizer={"type": "L2", "l2": 0.1}),
    )

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.top_k > self.num_experts:
            raise problem(
                "`top_k` is larger than the number of experts", field="top_k",
                expected=f"at most {self.num_experts}, as `num_experts`", got=str(self.top_k),
            )  # fmt: skip
        return self

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, features) → (N, …, units)."""
        require(len(x.shape) >= 2, "the input has no features", expected="(batch, …, features)", got=x.type)
        x = builder.floating(x)
        lead, features = x.shape[:-1], x.shape[-1]
        experts, hidden, units = self.num_experts, self.hidden_units, self.units or features
        weights = self._expert_weights(builder, x)

        kernel = self._kernel(builder, "hidden/kernel", (features, experts, hidden), 1)
        y = reshape_to(MatMul()(x, reshape_to(kernel, (features, experts * hidden))), (*lead, experts, hidden))
        if self.use_bias:
            y = y + builder.parameter_of(self, "hidden/bias", (experts, hidden))
        y = activate(self.activation, y) * reshape_to(weights, (*lead, experts, 1))
        kernel = self._kernel(builder, "output/kernel", (experts, hidden, units), 0)
        y = MatMul()(reshape_to(y, (*lead, experts * hidden)), reshape_to(kernel, (experts * hidden, units)))
        if self.use_bias:
            y = y + MatMul()(weights, builder.parameter_of(self, "output/bias", (experts, units)))
        return y

    def _kernel(self, builder: Builder, name: str, shape: tuple[int, int, int], expert_axis: int) -> Value:
        """The kernels of all experts in one parameter."""
        initial = ExpertsInitial(self.kernel_initializer, expert_axis)
        return builder.parameter(name, shape, initial, self.kernel_regularizer, self.kernel_constraint)

    def _expert_weights(self, builder: Builder, x: Value) -> Value:
        """Weights of the experts for each vector, 0 for those that are not chosen; adds the loss of the load."""
        router = builder.parameter_of(self, "router", (x.shape[-1], self.num_experts))
        axis = len(x.shape) - 1
        probabilities = Softmax(axis)(MatMul()(x, router))
        _, indices = TopK(self.top_k, axis).call_multi(probabilities)
        chosen = ReduceSum((axis,))(OneHot(self.num_experts, x.dtype, axis + 1)(indices))
        if builder.is_learning and self.load_balancing:
            vectors = tuple(range(axis))
            share = ReduceMean(vectors)(chosen) * (1 / self.top_k)
            load = ReduceSum((0,))(share * ReduceMean(vectors)(probabilities))
            builder.penalties.append(load * (self.load_balancing * self.num_experts))
        weights = probabilities * chosen
        return weights if self.top_k == 1 else weights / ReduceSum((axis,), keepdims=True)(weights)
