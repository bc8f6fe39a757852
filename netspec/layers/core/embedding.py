"""Embedding: a learned vector for each integer. ReversibleEmbedding: also the projection back to scores."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Greater, call_elementwise
from netspec.graph.ops.linear import Gather, MatMul
from netspec.graph.ops.unary import Tanh
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.constraints import Constraint
from netspec.layers.initializers.base import Initializer
from netspec.layers.initializers.random import RandomUniform
from netspec.layers.regularizers import Regularizer
from netspec.schema.specs.kinds import LAYERS


class EmbeddingBase(LayerSpec):
    """Base of embeddings: a table of vectors."""

    input_dim: PositiveInt
    """Number of different integers: the size of the vocabulary."""
    output_dim: PositiveInt
    """Length of the vectors."""
    embeddings_initializer: Initializer = RandomUniform()
    """First values of `embeddings` (input_dim, output_dim)."""
    embeddings_regularizer: Regularizer | None = None
    """Penalty on `embeddings`, added to the loss."""
    embeddings_constraint: Constraint | None = None
    """Constraint on `embeddings`, applied after each step."""
    mask_zero: bool = False
    """`true`: treat 0 as padding, which is masked in the layers that follow."""

    def table(self, builder: Builder) -> Value:
        """The vectors, one per row."""
        shape = (self.input_dim, self.output_dim)
        return builder.parameter_of(self, "embeddings", shape)

    def look_up(self, builder: Builder, table: Value, index: Value) -> Value:
        """index: (N, …) → (N, …, output_dim)."""
        require(
            not index.dtype.is_float,
            "the input of an embedding must be integers",
            expected="an input with `dtype: int32`",
            got=index.type,
        )
        builder.require_range(index, 0, self.input_dim, f"`input_dim` is {self.input_dim}")
        return Gather()(table, index)

    def mask(self, builder: Builder, *inputs: Value) -> Value | None:
        """True for elements other than 0, if 0 is padding."""
        return call_elementwise(Greater(), inputs[0], 0) if self.mask_zero else None


@LAYERS.register
class Embedding(EmbeddingBase):
    """Look up a learned vector for each integer, such as a word or a category.

    Input (N, …) integers from 0 to input_dim - 1, output (N, …, output_dim).
    """

    type: Literal["Embedding"] = "Embedding"

    samples: ClassVar = (
        Sample.of((2, 5), dtypes=("int32",), high=4, input_dim=4, output_dim=3),
        Sample.of((3,), dtypes=("int64",), high=5, input_dim=7, output_dim=2),
        Sample.of((2, 3), dtypes=("int32",), high=3, input_dim=3, output_dim=2, mask_zero=True),
    )

    def build(self, builder: Builder, index: Value) -> Value:
        """index: (N, …) → (N, …, output_dim)."""
        return self.look_up(builder, self.table(builder), index)


@LAYERS.register
class ReversibleEmbedding(EmbeddingBase):
    """Embedding and its reverse: with `reverse`, a score of each integer for each vector.

    Input (N, …) integers, output (N, …, output_dim); with `reverse` input (N, …, output_dim), output (N, …, input_dim)
    by the same table, transposed. A language model has it twice: `{name: words, …}` at its start, and `{type:
    ReversibleEmbedding, share: words, reverse: true, …}` at its end. Press and Wolf 2016, arXiv:1608.05859.
    """

    type: Literal["ReversibleEmbedding"] = "ReversibleEmbedding"
    reverse: bool = False
    """`true`: from vectors to scores. An argument of the call in Keras."""
    tie_weights: bool = True
    """`false`: scores use a separate matrix, `reverse_embeddings` (output_dim, input_dim)."""
    logit_soft_cap: float | None = Field(default=None, gt=0)
    """Limit scores to ± this number: cap · tanh(score / cap)."""

    onnx_equivalents: ClassVar = ("Embedding", "Dense")
    samples: ClassVar = (
        Sample.of((2, 5), dtypes=("int32",), high=4, input_dim=4, output_dim=3),
        Sample.of((2, 3, 4), input_dim=5, output_dim=4, reverse=True),
        Sample.of(
            (2, 4),
            input_dim=3,
            output_dim=4,
            reverse=True,
            tie_weights=False,
            logit_soft_cap=2.0,
            no_onnx_roundtrip=True,
        ),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …, output_dim), or with `reverse` (N, …, output_dim) → (N, …, input_dim)."""
        if not self.reverse:
            return self.look_up(builder, self.table(builder), x)
        require(
            len(x.shape) >= 2 and x.shape[-1] == self.output_dim,
            "the vectors must be as long as the embeddings",
            expected=f"(batch, …, {self.output_dim})",
            got=x.type,
        )
        x = builder.floating(x)
        if self.tie_weights:
            y = MatMul(transpose_b=True)(x, self.table(builder))
        else:
            matrix = self.output_dim, self.input_dim
            y = MatMul()(x, builder.parameter("reverse_embeddings", matrix, self.embeddings_initializer))
        cap = self.logit_soft_cap
        return y if cap is None else Tanh()(y * (1 / cap)) * cap

    def mask(self, builder: Builder, *inputs: Value) -> Value | None:
        """Return the mask of Embedding; the reverse drops masks."""
        return None if self.reverse else super().mask(builder, *inputs)
