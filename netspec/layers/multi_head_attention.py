"""MultiHeadAttention and GroupQueryAttention: attentions side by side. Vaswani et al. 2017, arXiv:1706.03762."""

from __future__ import annotations

from functools import reduce
from math import prod, sqrt
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field

from netspec.graph.ops.attention import Band
from netspec.graph.ops.functions import Sigmoid
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.value import Value
from netspec.layers.attending import attended
from netspec.layers.attention import need_sequences, queries_mask, values_mask
from netspec.layers.attention_axes import Folding
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import Axes, PositiveInt, need
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import GlorotUniform, Initializer, OfMatrix, Zeros
from netspec.layers.masking import as_mask, both
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS

Inputs: TypeAlias = tuple[Value, Value, Value, Value | None]
"""Query, value, key, and a mask."""


class HeadsSpec(LayerSpec):
    """Base of attentions in several heads: learned projections before and behind them."""

    one_way: ClassVar = "it is written as products and a softmax, which are not put together again"
    passes_mask: ClassVar = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """share of the weights that become 0 in training"""
    use_bias: bool = True
    """add a learned number to each output of the projections"""
    use_causal_mask: bool = False
    """place t looks at the places up to t only. An argument of the call in Keras"""
    sliding_window: PositiveInt | None = None
    """place t looks only at places less than so many away: with 2, and the causal mask, at itself and the one before"""
    use_gate: bool = False
    """multiply what the heads find by sigmoid(a learned projection of the query). Qiu et al. 2025, arXiv:2505.06708"""
    kernel_initializer: Initializer = GlorotUniform()
    """first values of `query/kernel`, `key/kernel`, `value/kernel` and `gate/kernel` (features, heads, size), and of
    `attention_output/kernel` (heads, size, outputs)"""
    bias_initializer: Initializer = Zeros()
    """first values of `query/bias`, `key/bias`, `value/bias` and `gate/bias` (heads, size), and of
    `attention_output/bias` (outputs)"""
    kernel_regularizer: Regularizer | None = None
    """penalty on each kernel, added to the loss"""
    kernel_constraint: Constraint | None = None
    """what each kernel is projected on after each step"""
    bias_regularizer: Regularizer | None = None
    """penalty on each bias, added to the loss"""
    bias_constraint: Constraint | None = None
    """what each bias is projected on after each step"""

    def attended(
        self, net: Builder, inputs: Inputs, heads: int, groups: int, sizes: tuple[int, int], outputs: int
    ) -> Value:
        """What `heads` find with keys and values of `groups`, (N, T, outputs); `sizes` are those of keys and values."""
        query, value, key, mask = inputs
        size, value_size = sizes
        each = (groups, heads // groups) if groups < heads else (heads,)
        q = self._heads(net, "query", query, each, size, factor=1 / sqrt(size))
        k = self._heads(net, "key", key, (groups,), size)
        v = self._heads(net, "value", value, (groups,), value_size)
        made = attended(net, q, k, v, self.dropout, Band(self.use_causal_mask, self.sliding_window), mask)
        joined = reshape_to(made, (*query.shape[:2], heads * value_size))
        if self.use_gate:
            joined = joined * Sigmoid()(self._projected(net, "gate", query, heads, value_size))
        y = MatMul()(joined, self._kernel(net, "attention_output", (heads, value_size, outputs), inputs=2))
        if not self.use_bias:
            return y
        return y + net.parameter(
            "attention_output/bias", (outputs,), self.bias_initializer, self.bias_regularizer, self.bias_constraint
        )

    def _heads(
        self, net: Builder, name: str, x: Value, heads: tuple[int, ...], size: int, factor: float = 1.0
    ) -> Value:
        """The projection called `name` of x: (N, T, …) → (N, T, *heads, size), times `factor`."""
        y = self._projected(net, name, x, prod(heads), size)
        return reshape_to(y if factor == 1 else y * factor, (*x.shape[:2], *heads, size))

    def _projected(self, net: Builder, name: str, x: Value, heads: int, size: int) -> Value:
        """The projection called `name` of x: (N, T, …) → (N, T, heads · size)."""
        y = MatMul()(x, self._kernel(net, name, (x.shape[-1], heads, size), inputs=1))
        if not self.use_bias:
            return y
        bias = net.parameter(
            f"{name}/bias", (heads, size), self.bias_initializer, self.bias_regularizer, self.bias_constraint
        )
        return y + reshape_to(bias, (heads * size,))

    def _kernel(self, net: Builder, name: str, shape: tuple[int, int, int], inputs: int) -> Value:
        """The kernel of a projection as a matrix; the first `inputs` axes are those of what goes in."""
        first, second, third = shape
        matrix = (first * second, third) if inputs == 2 else (first, second * third)
        initial = OfMatrix(self.kernel_initializer, matrix)
        return reshape_to(
            net.parameter(f"{name}/kernel", shape, initial, self.kernel_regularizer, self.kernel_constraint), matrix
        )


@LAYERS.register
class MultiHeadAttention(HeadsSpec):
    """Attention in `num_heads` subspaces at once: each place takes from all others what it finds fitting.

    Inputs query (N, T, …), value (N, S, …), key (N, S, …) and a mask (N, T, S); what is left out is the one before:
    of one input alone each place looks at all places of the same sequence. Output (N, T, output_shape). For each head
    softmax(q · kᵀ / √key_dim) · v, where q, k and v are learned projections; another one brings the heads together.
    Images and volumes (N, …, features) are attended over all of their places, or over those of `attention_axes`.
    Where the inputs have masks, no place looks at those that do not count, and those that do not count look nowhere.
    """

    type: Literal["MultiHeadAttention"] = "MultiHeadAttention"
    num_heads: PositiveInt
    """how many heads"""
    key_dim: PositiveInt
    """size of queries and keys in each head"""
    value_dim: PositiveInt | None = None
    """size of values in each head; without it `key_dim`"""
    output_shape: PositiveInt | None = None
    """number of outputs; without it as many as the query has"""
    attention_axes: Axes | None = None
    """of inputs with more axes than a sequence: those whose places look at each other; those of the other axes are as
    samples are. Default: all but the batch and the features"""

    samples: ClassVar = (
        Sample.of((2, 3, 4), num_heads=2, key_dim=3),
        Sample.of((2, 3, 4), (2, 5, 3), (2, 5, 2), num_heads=2, key_dim=2, value_dim=3, output_shape=5, use_bias=False),
        Sample.of((2, 4, 3), (2, 4, 3), num_heads=1, key_dim=2, use_causal_mask=True, dropout=0.4),
        Sample.of(
            (3, 2, 4), (3, 3, 2), (3, 3, 2), (3, 2, 3), dtypes=("float32", "float32", "float32", "int32"), high=5,
            num_heads=2, key_dim=2, kernel_regularizer={"type": "L2", "l2": 0.1},
        ),
        Sample.of((2, 3, 4), num_heads=2, key_dim=2, dropout=0.3, use_causal_mask=True, masks=[(2, 3)]),
        Sample.of((3, 2, 3), (3, 3, 3), num_heads=1, key_dim=2, masks=[None, (3, 3)]),
        Sample.of((2, 3, 2, 4), num_heads=2, key_dim=3),
        Sample.of((2, 2, 3, 4), (2, 4, 3, 2), num_heads=2, key_dim=2, attention_axes=[1]),
        Sample.of(
            (2, 3, 2, 4), (2, 3, 3, 2), (2, 3, 3, 2), (2, 3, 2, 3), dtypes=("float32", "float32", "float32", "int32"),
            high=5, num_heads=1, key_dim=2, attention_axes=2,
        ),
        Sample.of((2, 4, 3), num_heads=2, key_dim=2, value_dim=1, sliding_window=2, use_gate=True, use_bias=False),
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
        if len(query.shape) > 3:
            return self._over_axes(net, query, value, key, attention_mask)
        need(self.attention_axes in (None, (1,), (-2,)), "a sequence has one axis to attend over", expected="1",
             got=list(self.attention_axes or ()))  # fmt: skip
        return self._of_sequences(net, query, value, key, attention_mask)

    def _of_sequences(self, net: Builder, query: Value, *others: Value | None) -> Value:
        sizes = self.key_dim, self.value_dim or self.key_dim
        outputs = self.output_shape or query.shape[-1]
        return self.attended(net, _inputs(net, query, *others), self.num_heads, self.num_heads, sizes, outputs)

    def _over_axes(
        self, net: Builder, query: Value, value: Value | None, key: Value | None, mask: Value | None
    ) -> Value:
        """As of sequences, of which every place of the axes that are not attended over has one."""
        folding = Folding.of(query, self.attention_axes)
        for said, places in ((self.use_causal_mask, "before others"), (self.sliding_window, "near others")):
            need(not said, f"only a sequence has places {places}", expected="(batch, steps, features)", got=query.type)
        last = key if key is not None else value if value is not None else query
        y = self._of_sequences(
            net, folding.folded(query, query), *(None if x is None else folding.folded(query, x) for x in (value, key)),
            None if mask is None else folding.mask(query, last, mask),
        )  # fmt: skip
        return folding.unfolded(query, y)


@LAYERS.register
class GroupQueryAttention(HeadsSpec):
    """As MultiHeadAttention, but several heads share their keys and values: less to compute, and to remember.

    Inputs query (N, T, …), value (N, S, …), key (N, S, …) and a mask (N, T, S); what is left out is the one before.
    Output (N, T, …) with as many features as the query. Masks are heeded as there. Ainslie et al. 2023,
    arXiv:2305.13245.
    """

    type: Literal["GroupQueryAttention"] = "GroupQueryAttention"
    head_dim: PositiveInt
    """size of queries, keys and values in each head"""
    num_query_heads: PositiveInt
    """how many heads"""
    num_key_value_heads: PositiveInt
    """how many different keys and values: they are shared by num_query_heads / num_key_value_heads heads each"""

    samples: ClassVar = (
        Sample.of((2, 3, 4), head_dim=3, num_query_heads=4, num_key_value_heads=2),
        Sample.of((2, 3, 4), (2, 3, 5), head_dim=2, num_query_heads=3, num_key_value_heads=1, use_causal_mask=True),
        Sample.of(
            (3, 2, 4), (3, 3, 2), (3, 3, 2), (3, 2, 3), dtypes=("float32", "float32", "float32", "int32"), high=6,
            head_dim=2, num_query_heads=2, num_key_value_heads=1, use_bias=False,
        ),
        Sample.of(
            (3, 2, 3), (3, 4, 3), (3, 4, 3), head_dim=2, num_query_heads=2, num_key_value_heads=2,
            dropout=0.3, masks=[(3, 2), (3, 4), (3, 4)],
        ),
        Sample.of(
            (2, 3, 2), head_dim=2, num_query_heads=2, num_key_value_heads=1, use_causal_mask=True, sliding_window=2,
            use_gate=True,
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
        heads, groups = self.num_query_heads, self.num_key_value_heads
        need(
            heads % groups == 0,
            "the heads cannot share keys and values evenly",
            expected=f"`num_query_heads` to be a multiple of {groups}",
            got=f"{heads}",
        )
        inputs = _inputs(net, query, value, key, attention_mask)
        return self.attended(net, inputs, heads, groups, (self.head_dim, self.head_dim), query.shape[-1])


def _inputs(net: Builder, query: Value, value: Value | None, key: Value | None, mask: Value | None) -> Inputs:
    """Query, value and key as floats, what is left out being the one before, and the mask as bool."""
    given = sum(one is not None for one in (value, key))  # the number of the last input among these three
    query = net.floating(query)
    value = query if value is None else net.floating(value)
    key = value if key is None else net.floating(key)
    need_sequences(query, value, key)
    seen = None if mask is None else _mask(mask, (*query.shape[:2], key.shape[1]))
    masks = [queries_mask(net, query)]
    masks += [values_mask(net, min(index, given), x) for index, x in ((1, value), (2, key)) if index <= max(1, given)]
    return query, value, key, reduce(both, masks, seen)


def _mask(given: Value, shape: tuple[int, ...]) -> Value:
    """The mask as bool."""
    n, t, s = shape
    need(
        given.shape in (shape, (n, 1, s)),
        "the mask does not say for each place where it may look",
        expected=f"(batch, {t}, {s}), or (batch, 1, {s}) for all places alike",
        got=given.type,
        hint=f"Reshape with `target_shape: [1, {s}]` before it" if given.shape == (n, s) else None,
    )
    return as_mask(given)
