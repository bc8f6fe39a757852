"""Functions of the matrices in each sample: Trilu and Det."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops import linalg
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.schema.specs.kinds import LAYERS


def require_matrices(x: Value) -> None:
    """Raise unless the input has at least two axes besides the batch."""
    require(
        len(x.shape) >= 3,
        "the input does not have a matrix for each sample",
        expected="(batch, …, rows, columns)",
        got=x.type,
    )


@LAYERS.register
class Trilu(LayerSpec):
    """Keep a triangle of each matrix, and set the rest to 0.

    Input (N, …, rows, columns), output the same.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"diagonal": "`diagonal` is PyTorch's name: use `k`"}

    type: Literal["Trilu"] = "Trilu"
    upper: bool = True
    """The triangle on and above a diagonal; false: on and below it."""
    k: int = 0
    """The diagonal that bounds the triangle: 0 is the main one, 1 the one above it, -1 the one below."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 2, 3, 3), upper=False, k=-1),
        Sample.of((2, 3, 3), k=1, dtypes=("int32",)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, rows, columns) → the same."""
        require_matrices(x)
        return linalg.Trilu(self.upper, self.k)(x)


@LAYERS.register
class Det(LayerSpec):
    """The determinant of each matrix.

    Input (N, …, n, n), output (N, …). A matrix without an inverse gets no gradient (NaN).
    """

    type: Literal["Det"] = "Det"

    samples: ClassVar = (Sample.of((2, 3, 3)), Sample.of((2, 2, 2, 2)))

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …, n, n) → (N, …)."""
        require_matrices(x)
        require(
            x.shape[-1] == x.shape[-2], "the matrices are not square", expected="as many rows as columns", got=x.type
        )
        return linalg.Det()(builder.floating(x))
