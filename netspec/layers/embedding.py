"""Embedding: a learned vector for each whole number."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.linear import Gather
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, PositiveInt, Sample, need
from netspec.layers.initializers import Initializer, RandomUniform
from netspec.layers.regularizers import Regularizer
from netspec.schema.kinds import LAYERS


@LAYERS.register
class Embedding(LayerSpec):
    """Look up a learned vector for each whole number: words, categories.

    Input (N, …) whole numbers from 0 to input_dim - 1, output (N, …, output_dim).
    """

    type: Literal["Embedding"] = "Embedding"
    input_dim: PositiveInt
    """how many different numbers there are: the size of the vocabulary"""
    output_dim: PositiveInt
    """length of the vectors"""
    embeddings_initializer: Initializer = RandomUniform()
    """first values of `embeddings` (input_dim, output_dim)"""
    embeddings_regularizer: Regularizer | None = None
    """penalty on `embeddings`, added to the loss"""

    samples: ClassVar = (
        Sample.of((2, 5), dtypes=("int32",), high=4, input_dim=4, output_dim=3),
        Sample.of((3,), dtypes=("int64",), high=5, input_dim=7, output_dim=2),
    )

    def build(self, net: Builder, index: Value) -> Value:
        """index: (N, …) → (N, …, output_dim)."""
        need(
            not index.dtype.is_float,
            "vectors are looked up by whole numbers",
            expected="an input with `dtype: int32`",
            got=index.type,
        )
        net.require_range(index, 0, self.input_dim, f"`input_dim` is {self.input_dim}")
        shape = (self.input_dim, self.output_dim)
        table = net.parameter("embeddings", shape, self.embeddings_initializer, self.embeddings_regularizer)
        return Gather()(table, index)
