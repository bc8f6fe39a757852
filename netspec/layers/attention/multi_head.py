"""MultiHeadAttention and GroupQueryAttention: several attentions in parallel. Vaswani et al. 2017, arXiv:1706.03762."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod, sqrt
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field

from netspec.graph.ops.attention import AttentionBand
from netspec.graph.ops.elementwise import Greater, call_elementwise
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Concat, PadAxis, Transpose
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Sigmoid
from netspec.graph.types import batch_shape
from netspec.graph.value import Value
from netspec.layers.attention.attention import queries_mask, require_sequences, values_mask
from netspec.layers.attention.core import attend, attend_with_scores
from netspec.layers.base import Builder, LayerSpec, Sample, StepPosition, StepStates
from netspec.layers.checks import Axes, PositiveInt, require, sample_axis
from netspec.layers.constraints import Constraint
from netspec.layers.core.masking import as_mask, combine_masks
from netspec.layers.initializers.base import Initializer, MatrixInitial, Zeros
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS


@dataclass(frozen=True)
class AxisFolding:
    """Split of a query's axes: `axes`, which are attended over, and `others`, whose positions are independent."""

    axes: tuple[int, ...]
    others: tuple[int, ...]

    @classmethod
    def of(cls, query: Value, axes: Axes | None) -> AxisFolding:
        """Use the given axes, or all axes except the batch and the features."""
        middle = range(1, len(query.shape) - 1)
        selected = tuple(sorted(sample_axis(query, axis, "to attend over") for axis in axes)) if axes else tuple(middle)
        fits = bool(selected) and len(set(selected)) == len(selected) and set(selected) <= set(middle)
        require(fits, "cannot attend over these axes", expected="distinct axes, without the batch and the features",
             got=list(axes or ()))  # fmt: skip
        return cls(selected, tuple(axis for axis in middle if axis not in selected))

    def fold(self, query: Value, x: Value) -> Value:
        """Fold query, value or key x: (N, …, features) → (N · others, positions, features)."""
        rank, independent = len(query.shape), (0, *self.others)
        require(
            len(x.shape) == rank and all(x.shape[axis] == query.shape[axis] for axis in independent),
            "the inputs differ in axes that are not attended over",
            expected=f"{batch_shape(query.shape)}, as the query has, except on the axes {list(self.axes)}",
            got=x.type,
        )  # fmt: skip
        order = (0, *self.others, *self.axes, len(x.shape) - 1)
        axes_last = x if order == tuple(range(len(order))) else Transpose(order)(x)
        positions = prod(x.shape[axis] for axis in self.axes)
        return reshape_to(axes_last, (axes_last.type.size // (positions * x.shape[-1]), positions, x.shape[-1]))

    def mask(self, query: Value, key: Value, mask: Value) -> Value:
        """Fold a mask (N, others…, query positions…, key positions…) → (N · others, positions, positions)."""
        positions = [tuple(x.shape[axis] for axis in self.axes) for x in (query, key)]
        samples = tuple(query.shape[axis] for axis in (0, *self.others))
        expected = (*samples, *positions[0], *positions[1])
        require(mask.shape == expected, "the mask must have one entry for each pair of query and key",
             expected=batch_shape(expected), got=mask.type)  # fmt: skip
        return reshape_to(mask, (prod(samples), prod(positions[0]), prod(positions[1])))

    def scores(self, query: Value, key: Value, scores: Value) -> Value:
        """(N · others, heads, positions, positions) → (N, others…, heads, the query's positions…, the key's…)."""
        positions = [x.shape[axis] for x in (query, key) for axis in self.axes]
        samples = [query.shape[axis] for axis in (0, *self.others)]
        return reshape_to(scores, (*samples, scores.shape[1], *positions))

    def unfold(self, query: Value, y: Value) -> Value:
        """Unfold y: (N · others, positions, outputs) → the query's shape with other features."""
        order = (0, *self.others, *self.axes, len(query.shape) - 1)
        sizes = tuple(query.shape[axis] for axis in order[:-1])
        inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
        axes_last = reshape_to(y, (*sizes, y.shape[-1]))
        return axes_last if inverse == tuple(range(len(order))) else Transpose(inverse)(axes_last)


Inputs: TypeAlias = tuple[Value, Value, Value, Value | None]
"""Query, value, key, and a mask."""
AttentionResult: TypeAlias = Value | tuple[Value, Value]
"""The output, or the output and the attention scores."""


class HeadsSpec(LayerSpec):
    """Base of multi-head attentions: learned projections before and after the heads."""

    onnx_roundtrip_blocker: ClassVar = "it is exported as products and a softmax"
    passes_mask: ClassVar = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the weights that become 0 in training."""
    use_bias: bool = True
    """Add a learned offset to each output of the projections."""
    use_causal_mask: bool = False
    """Step t attends to steps up to t only. In Keras, an argument of the call."""
    sliding_window: PositiveInt | None = None
    """Step t attends only to steps less than this far away: with 2 and the causal mask, to itself and the previous
    step."""
    use_gate: bool = False
    """Multiply the heads' output by sigmoid(a learned projection of the query). Qiu et al. 2025, arXiv:2505.06708."""
    return_attention_scores: bool = False
    """`true`: the attention weights before dropout are a second output, `NAME.attention_scores` (N, heads, T, S). In
    Keras, this is an argument of the call."""
    kernel_initializer: Initializer = GlorotUniform()
    """First values of `query/kernel`, `key/kernel`, `value/kernel` and `gate/kernel` (features, heads, size), and of
    `attention_output/kernel` (heads, size, outputs)."""
    bias_initializer: Initializer = Zeros()
    """First values of `query/bias`, `key/bias`, `value/bias` and `gate/bias` (heads, size), and of
    `attention_output/bias` (outputs)."""
    kernel_regularizer: Regularizer | None = None
    """Penalty on each kernel, added to the loss."""
    kernel_constraint: Constraint | None = None
    """Constraint on each kernel, applied after each step."""
    bias_regularizer: Regularizer | None = None
    """Penalty on each bias, added to the loss."""
    bias_constraint: Constraint | None = None
    """Constraint on each bias, applied after each step."""

    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs: with `return_attention_scores`, the scores are the second."""
        return ("output", "attention_scores") if self.return_attention_scores else ()

    def extend_keys(self, builder: Builder, keys: Value, values: Value) -> tuple[Value, Value]:
        """Append further positions to keys and values, (N, S, heads, size), if fields request them."""
        return keys, values

    def attend_heads(
        self, builder: Builder, inputs: Inputs, heads: int, groups: int, sizes: tuple[int, int], outputs: int
    ) -> AttentionResult:
        """Output (N, T, outputs) of `heads` heads that share keys and values of `sizes` in `groups` groups."""
        query, value, key, mask = inputs
        size, value_size = sizes
        head_axes = (groups, heads // groups) if groups < heads else (heads,)
        q = self._heads(builder, "query", query, head_axes, size, factor=1 / sqrt(size))
        k = self._heads(builder, "key", key, (groups,), size)
        v = self._heads(builder, "value", value, (groups,), value_size)
        band, (k, v) = AttentionBand(self.use_causal_mask, self.sliding_window), self.extend_keys(builder, k, v)
        extra_keys = k.shape[1] - key.shape[1]
        if not extra_keys and not self.return_attention_scores:
            return self._project_output(builder, query, attend(builder, q, k, v, self.dropout, band, mask), outputs)
        means, scores = attend_with_scores(
            builder, q, k, v, rate=self.dropout, band=band, mask=mask, unmasked=extra_keys
        )
        y = self._project_output(builder, query, means, outputs)
        return (y, reshape_to(scores, (y.shape[0], heads, *scores.shape[-2:]))) if self.return_attention_scores else y

    def head_sizes(self) -> tuple[int, int, tuple[int, int]]:
        """Return the numbers of heads and of groups that share keys and values, and the sizes of keys and values."""
        raise NotImplementedError  # subclasses implement it

    def step_states(self, steps: int) -> StepStates | None:
        """Return the keys and values of all steps, if a step attends to previous ones only."""
        if not self.use_causal_mask or self.return_attention_scores:
            return None
        _, groups, (size, value_size) = self.head_sizes()
        rows = {"keys": (steps, groups, size), "values": (steps, groups, value_size)}
        return StepStates(appended=rows, needs_position=True)

    def build_step(self, builder: Builder, x: Value, states: Sequence[Value], at: StepPosition) -> tuple[Value, ...]:
        """x: (N, 1, features) → (N, 1, outputs), and the step's key and value (N, 1, groups, size)."""
        heads, groups, (size, value_size) = self.head_sizes()
        x = builder.floating(x)
        head_axes = (groups, heads // groups) if groups < heads else (heads,)
        query = self._heads(builder, "query", x, head_axes, size, factor=1 / sqrt(size))
        key = self._heads(builder, "key", x, (groups,), size)
        value = self._heads(builder, "value", x, (groups,), value_size)
        keys, values = (Concat(1)(states[0], key), Concat(1)(states[1], value))
        means = attend(builder, query, keys, values, 0.0, AttentionBand(), self._attended(x.shape[0], at))
        return self._project_output(builder, x, means, self.step_outputs(x)), key, value

    def step_outputs(self, x: Value) -> int:
        """Return the number of outputs for an input (N, T, features)."""
        return x.shape[-1]

    def _attended(self, batch: int, at: StepPosition) -> Value:
        """Return the mask of cached steps, and of the step itself, that are attended to: (N, 1, steps + 1) of bool."""
        import numpy as np

        cached = constant(np.arange(at.steps, dtype=np.int32)[None, None])
        index = reshape_to(at.index, (batch, 1, 1))
        attended = call_elementwise(Greater(), index, cached)
        if self.sliding_window is not None:
            near = call_elementwise(Greater(), cached + self.sliding_window, index)
            attended = And()(attended, near)
        return Concat(2)(attended, constant(np.ones((batch, 1, 1), np.bool_)))

    def _project_output(self, builder: Builder, query: Value, means: Value, outputs: int) -> Value:
        """Project the results of the heads, (N, T, heads…, size), to (N, T, outputs)."""
        heads, size = prod(means.shape[2:-1]), means.shape[-1]
        features = reshape_to(means, (*query.shape[:2], heads * size))
        if self.use_gate:
            features = features * Sigmoid()(self._project(builder, "gate", query, heads, size))
        y = MatMul()(features, self._kernel(builder, "attention_output", (heads, size, outputs), inputs=2))
        if not self.use_bias:
            return y
        return y + builder.parameter_of(self, "attention_output/bias", (outputs,))

    def _heads(
        self, builder: Builder, name: str, x: Value, heads: tuple[int, ...], size: int, factor: float = 1.0
    ) -> Value:
        """Apply the projection `name` to x and multiply by `factor`: (N, T, …) → (N, T, *heads, size)."""
        y = self._project(builder, name, x, prod(heads), size)
        return reshape_to(y if factor == 1 else y * factor, (*x.shape[:2], *heads, size))

    def _project(self, builder: Builder, name: str, x: Value, heads: int, size: int) -> Value:
        """Apply the projection `name` to x: (N, T, …) → (N, T, heads · size)."""
        y = MatMul()(x, self._kernel(builder, name, (x.shape[-1], heads, size), inputs=1))
        if not self.use_bias:
            return y
        bias = builder.parameter_of(self, f"{name}/bias", (heads, size))
        return y + reshape_to(bias, (heads * size,))

    def _kernel(self, builder: Builder, name: str, shape: tuple[int, int, int], inputs: int) -> Value:
        """The kernel of a projection as a matrix; its first `inputs` axes are the input's."""
        first, second, third = shape
        matrix = (first * second, third) if inputs == 2 else (first, second * third)
        initial = MatrixInitial(self.kernel_initializer, matrix)
        return reshape_to(
            builder.parameter(f"{name}/kernel", shape, initial, self.kernel_regularizer, self.kernel_constraint), matrix
        )


@LAYERS.register
class MultiHeadAttention(HeadsSpec):
    """Multi-head attention: attention in `num_heads` learned subspaces at once.

    Inputs query (N, T, …), value (N, S, …), key (N, S, …) and mask (N, T, S); an omitted input defaults to the
    preceding one, so with one input each step attends to all steps of its sequence. Output (N, T, output_shape). Each
    head computes softmax(q · kᵀ / √key_dim) · v, where q, k and v are learned projections; another projection combines
    the heads. Images and volumes (N, …, features) are attended over all positions, or over those of `attention_axes`.
    Masked steps of the inputs are not attended to, and attend to nothing.
    """

    foreign_fields: ClassVar[dict[str, str]] = LayerSpec.foreign_fields | {
        "embed_dim": "`embed_dim` is PyTorch's name: use `key_dim`, which is embed_dim / num_heads",
        "need_weights": "`need_weights` is PyTorch's name: use `return_attention_scores`",
        "batch_first": "not needed: a sequence is (batch, steps, features)",
    }

    type: Literal["MultiHeadAttention"] = "MultiHeadAttention"
    num_heads: PositiveInt
    """Number of heads."""
    key_dim: PositiveInt
    """Size of queries and keys in each head."""
    value_dim: PositiveInt | None = None
    """Size of values in each head; without it `key_dim`."""
    output_shape: PositiveInt | None = None
    """Number of outputs; default: as many as the query has features."""
    attention_axes: Axes | None = None
    """For inputs with more axes than a sequence: the axes whose positions attend to each other; the other axes are
    treated as samples. Default: all but the batch and the features."""
    add_bias_kv: bool = False
    """Append a learned key, `bias_k` (num_heads, key_dim), and a learned value, `bias_v` (num_heads, value_dim), to
    the sequence; every query may attend to them. (PyTorch's name; Keras has no such option.)"""
    add_zero_attn: bool = False
    """Append a key and a value of zeros; every query may attend to them. (PyTorch's name; Keras has no such option.)"""

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
        Sample.of((2, 3, 4), num_heads=2, key_dim=2, use_causal_mask=True, return_attention_scores=True),
        Sample.of((2, 2, 3, 4), num_heads=2, key_dim=2, attention_axes=[2], return_attention_scores=True),
        Sample.of((2, 3, 4), (2, 5, 4), num_heads=2, key_dim=2, add_bias_kv=True, return_attention_scores=True),
        Sample.of((2, 3, 4), num_heads=2, key_dim=2, add_bias_kv=True, add_zero_attn=True, use_causal_mask=True),
        Sample.of(
            (2, 3, 4), (2, 2, 4), (2, 2, 4), (2, 3, 2), dtypes=("float32", "float32", "float32", "int32"), high=2,
            num_heads=2, key_dim=2, add_zero_attn=True, return_attention_scores=True,
        ),
    )  # fmt: skip

    def extend_keys(self, builder: Builder, keys: Value, values: Value) -> tuple[Value, Value]:
        """Append a learned step, a step of zeros, or both."""
        if self.add_bias_kv:
            keys, values = (
                self._append_learned(builder, "bias_k", keys),
                self._append_learned(builder, "bias_v", values),
            )
        if self.add_zero_attn:
            keys, values = PadAxis(1, 0, 1)(keys), PadAxis(1, 0, 1)(values)
        return keys, values

    def _append_learned(self, builder: Builder, name: str, x: Value) -> Value:
        """Append the parameter `name` to x, (N, S, heads, size), as a further position."""
        _, steps, heads, size = x.shape
        initial = MatrixInitial(self.kernel_initializer, (1, 1, heads * size))
        learned = builder.parameter(name, (heads, size), initial, self.bias_regularizer, self.bias_constraint)
        return PadAxis(1, 0, 1)(x) + PadAxis(1, steps, 0)(reshape_to(learned, (1, 1, heads, size)))

    def head_sizes(self) -> tuple[int, int, tuple[int, int]]:
        """Each head has separate keys and values."""
        return self.num_heads, self.num_heads, (self.key_dim, self.value_dim or self.key_dim)

    def step_outputs(self, x: Value) -> int:
        """Return `output_shape`, or the number of features."""
        return self.output_shape or x.shape[-1]

    def step_states(self, steps: int) -> StepStates | None:
        """Return the keys and values of all steps, unless further keys follow them."""
        return None if self.add_bias_kv or self.add_zero_attn else super().step_states(steps)

    def build(
        self,
        builder: Builder,
        query: Value,
        value: Value | None = None,
        key: Value | None = None,
        attention_mask: Value | None = None,
    ) -> AttentionResult:
        """query: (N, T, …), value, key: (N, S, …), attention_mask: (N, T, S), nonzero to attend → (N, T, …)."""
        if len(query.shape) > 3:
            return self._attend_over_axes(builder, query, value, key, attention_mask)
        require(
            self.attention_axes in (None, (1,), (-2,)),
            "attention over a sequence must be along axis 1",
            expected="`attention_axes: 1`",
            got=list(self.attention_axes or ()),
        )
        return self._attend_sequences(builder, query, value, key, attention_mask)

    def _attend_sequences(self, builder: Builder, query: Value, *others: Value | None) -> AttentionResult:
        return self.attend_heads(
            builder, _inputs(builder, query, *others), *self.head_sizes(), self.step_outputs(query)
        )

    def _attend_over_axes(
        self, builder: Builder, query: Value, value: Value | None, key: Value | None, mask: Value | None
    ) -> AttentionResult:
        """Attention over folded axes: each position of the other axes holds one sequence."""
        folding = AxisFolding.of(query, self.attention_axes)
        for name in ("use_causal_mask", "sliding_window", "add_bias_kv", "add_zero_attn"):
            require(
                not getattr(self, name), f"`{name}` is available for sequences only",
                expected="(batch, steps, features)", got=query.type,
            )  # fmt: skip
        last = key if key is not None else value if value is not None else query
        result = self._attend_sequences(
            builder,
            folding.fold(query, query),
            *(None if x is None else folding.fold(query, x) for x in (value, key)),
            None if mask is None else folding.mask(query, last, mask),
        )
        if isinstance(result, Value):
            return folding.unfold(query, result)
        return folding.unfold(query, result[0]), folding.scores(query, last, result[1])


@LAYERS.register
class GroupQueryAttention(HeadsSpec):
    """MultiHeadAttention with keys and values shared by groups of heads, which saves computation and memory.

    Inputs query (N, T, …), value (N, S, …), key (N, S, …) and mask (N, T, S); an omitted input defaults to the
    preceding one. Output (N, T, …) with as many features as the query. Masks are applied as in MultiHeadAttention.
    Ainslie et al. 2023, arXiv:2305.13245.
    """

    type: Literal["GroupQueryAttention"] = "GroupQueryAttention"
    head_dim: PositiveInt
    """Size of queries, keys and values in each head."""
    num_query_heads: PositiveInt
    """Number of heads."""
    num_key_value_heads: PositiveInt
    """Number of different keys and values; num_query_heads / num_key_value_heads heads share each."""

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
        builder: Builder,
        query: Value,
        value: Value | None = None,
        key: Value | None = None,
        attention_mask: Value | None = None,
    ) -> AttentionResult:
        """query: (N, T, …), value, key: (N, S, …), attention_mask: (N, T, S), nonzero to attend → (N, T, …)."""
        heads, groups = self.num_query_heads, self.num_key_value_heads
        require(
            heads % groups == 0,
            "`num_query_heads` must be a multiple of `num_key_value_heads`",
            expected=f"a multiple of {groups}",
            got=f"{heads}",
        )
        inputs = _inputs(builder, query, value, key, attention_mask)
        return self.attend_heads(builder, inputs, *self.head_sizes(), query.shape[-1])

    def head_sizes(self) -> tuple[int, int, tuple[int, int]]:
        """Groups of heads share keys and values."""
        return self.num_query_heads, self.num_key_value_heads, (self.head_dim, self.head_dim)


def _inputs(builder: Builder, query: Value, value: Value | None, key: Value | None, mask: Value | None) -> Inputs:
    """Query, value and key as floats, with defaults for omitted inputs, and the mask as bool."""
    last_input = sum(x is not None for x in (value, key))  # index of the last input among these three
    query = builder.floating(query)
    value = query if value is None else builder.floating(value)
    key = value if key is None else builder.floating(key)
    require_sequences(query, value, key)
    mask_from_input = None if mask is None else _attention_mask(mask, (*query.shape[:2], key.shape[1]))
    masks = [queries_mask(builder, query)]
    masks += [
        values_mask(builder, min(index, last_input), x)
        for index, x in ((1, value), (2, key))
        if index <= max(1, last_input)
    ]
    return query, value, key, reduce(combine_masks, masks, mask_from_input)


def _attention_mask(mask: Value, shape: tuple[int, ...]) -> Value:
    """Check the shape of an attention mask and convert it to bool."""
    n, t, s = shape
    require(
        mask.shape in (shape, (n, 1, s)),
        "the mask must have one entry for each pair of query and key",
        expected=f"(batch, {t}, {s}), or (batch, 1, {s}) for all positions",
        got=mask.type,
        hint=f"put a Reshape with `target_shape: [1, {s}]` before it" if mask.shape == (n, s) else None,
    )
    return as_mask(mask)
