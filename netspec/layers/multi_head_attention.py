"""MultiHeadAttention: several attentions side by side. Vaswani et al. 2017, arXiv:1706.03762."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Greater, elementwise
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.attention import need_sequences, weighted_mean
from netspec.layers.base import Builder, Initial, LayerSpec, PositiveInt, Sample, need
from netspec.layers.initializers import GlorotUniform, Initializer, Zeros
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS

HEADS = (0, 2, 1, 3)
"""Axes (N, T, heads, size) in the order (N, heads, T, size), and back."""


@dataclass(frozen=True)
class _OfMatrix:
    """First values of a kernel of several axes: those of the matrix (inputs, outputs) that it stands for."""

    initial: Initial
    matrix: tuple[int, int]

    def sample(self, seed: int, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of the kernel's shape."""
        return self.initial.sample(seed, name, self.matrix, dtype).reshape(shape)


@LAYERS.register
class MultiHeadAttention(LayerSpec):
    """Attention in `num_heads` subspaces at once: each place takes from all others what it finds fitting.

    Inputs query (N, T, …), value (N, S, …), key (N, S, …) and a mask (N, T, S); what is left out is the one before:
    of one input alone each place looks at all places of the same sequence. Output (N, T, output_shape). For each head
    softmax(q · kᵀ / √key_dim) · v, where q, k and v are learned projections; another one brings the heads together.
    """

    type: Literal["MultiHeadAttention"] = "MultiHeadAttention"
    num_heads: PositiveInt
    """how many heads"""
    key_dim: PositiveInt
    """size of queries and keys in each head"""
    value_dim: PositiveInt | None = None
    """size of values in each head; without it `key_dim`"""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """share of the weights that become 0 in training"""
    use_bias: bool = True
    """add a learned number to each output of the projections"""
    output_shape: PositiveInt | None = None
    """number of outputs; without it as many as the query has"""
    use_causal_mask: bool = False
    """place t looks at the places up to t only. An argument of the call in Keras"""
    kernel_initializer: Initializer = GlorotUniform()
    """first values of `query/kernel`, `key/kernel` (features, heads, key_dim), `value/kernel` (features, heads,
    value_dim) and `attention_output/kernel` (heads, value_dim, outputs)"""
    bias_initializer: Initializer = Zeros()
    """first values of `query/bias`, `key/bias` (heads, key_dim), `value/bias` (heads, value_dim) and
    `attention_output/bias` (outputs)"""
    kernel_regularizer: Regularizer | None = None
    """penalty on each kernel, added to the loss"""
    bias_regularizer: Regularizer | None = None
    """penalty on each bias, added to the loss"""

    one_way: ClassVar = "it is written as products and a softmax, which are not put together again"
    samples: ClassVar = (
        Sample.of((2, 3, 4), num_heads=2, key_dim=3),
        Sample.of((2, 3, 4), (2, 5, 3), (2, 5, 2), num_heads=2, key_dim=2, value_dim=3, output_shape=5, use_bias=False),
        Sample.of((2, 4, 3), (2, 4, 3), num_heads=1, key_dim=2, use_causal_mask=True, dropout=0.4),
        Sample.of(
            (3, 2, 4), (3, 3, 2), (3, 3, 2), (3, 2, 3), dtypes=("float32", "float32", "float32", "int32"), high=5,
            num_heads=2, key_dim=2, kernel_regularizer={"type": "L2", "l2": 0.1},
        ),
    )  # fmt: skip

    def build(
        self,
        net: Builder,
        query: Value,
        value: Value | None = None,
        key: Value | None = None,
        attention_mask: Value | None = None,
    ) -> Value:
        """query: (N, T, …), value, key: (N, S, …), attention_mask: (N, T, S), not 0 where may be looked → (N, T, …)."""
        query = net.floating(query)
        value = query if value is None else net.floating(value)
        key = value if key is None else net.floating(key)
        need_sequences(query, value, key)
        value_dim = self.value_dim or self.key_dim
        q = self._heads(net, "query", query, self.key_dim, factor=1 / sqrt(self.key_dim))
        k = self._heads(net, "key", key, self.key_dim)
        v = self._heads(net, "value", value, value_dim)
        mask = None if attention_mask is None else _mask(attention_mask, (query.shape[0], query.shape[1], key.shape[1]))
        scores = MatMul(transpose_b=True)(q, k)
        made = weighted_mean(net, scores, v, self.dropout, use_causal_mask=self.use_causal_mask, mask=mask)
        joined = reshape_to(Transpose(HEADS)(made), (*query.shape[:2], self.num_heads * value_dim))
        outputs = self.output_shape or query.shape[-1]
        y = MatMul()(joined, self._kernel(net, "attention_output", (self.num_heads, value_dim, outputs), inputs=2))
        if not self.use_bias:
            return y
        return y + net.parameter("attention_output/bias", (outputs,), self.bias_initializer, self.bias_regularizer)

    def _heads(self, net: Builder, name: str, x: Value, size: int, factor: float = 1.0) -> Value:
        """The projection called `name` of x: (N, T, …) → (N, heads, T, size), times `factor`."""
        y = MatMul()(x, self._kernel(net, name, (x.shape[-1], self.num_heads, size), inputs=1))
        if self.use_bias:
            bias = net.parameter(f"{name}/bias", (self.num_heads, size), self.bias_initializer, self.bias_regularizer)
            y = y + reshape_to(bias, (self.num_heads * size,))
        y = y if factor == 1 else y * factor
        return Transpose(HEADS)(reshape_to(y, (*x.shape[:2], self.num_heads, size)))

    def _kernel(self, net: Builder, name: str, shape: tuple[int, int, int], inputs: int) -> Value:
        """The kernel of a projection as a matrix; the first `inputs` axes are those of what goes in."""
        first, second, third = shape
        matrix = (first * second, third) if inputs == 2 else (first, second * third)
        initial = _OfMatrix(self.kernel_initializer, matrix)
        return reshape_to(net.parameter(f"{name}/kernel", shape, initial, self.kernel_regularizer), matrix)


def _mask(given: Value, shape: tuple[int, int, int]) -> Value:
    """The mask as bool, with an axis for the heads."""
    n, t, s = shape
    need(
        given.shape in (shape, (n, 1, s)),
        "the mask does not say for each place where it may look",
        expected=f"(batch, {t}, {s}), or (batch, 1, {s}) for all places alike",
        got=given.type,
        hint=f"Reshape with `target_shape: [1, {s}]` before it" if given.shape == (n, s) else None,
    )
    x = reshape_to(given, (n, 1, *given.shape[1:]))
    return x if x.dtype == DType.BOOL else elementwise(Greater(), x, 0.5 if x.dtype.is_float else 0)
