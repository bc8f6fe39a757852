"""InfoGain: a cross-entropy in which some mistakes are worse than others."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.errors import InputError, SpecError
from netspec.files.damage import refuse_damage
from netspec.graph.ops.linear import Gather
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import constant
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses.crossentropy import ProbabilityFields, log_probabilities
from netspec.layers.losses_and_metrics import ElementLosses, PairLoss, PredictionKind
from netspec.layers.targets import class_scores
from netspec.schema.specs.kinds import LOSSES
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import problem


@LOSSES.register
class InfoGain(ProbabilityFields, PairLoss):
    """Mean of -Σ H[label, k] · ln p[k] over the classes k: Caffe's InfogainLoss. Cross-entropy if H is the identity.

    Prediction (N, …, C, …): probabilities, which are first divided by their sum, or with `from_logits` scores before
    the softmax. Target (N, …): class indices. H, (C, C), is given in `matrix` or in a file.
    """

    type: Literal["InfoGain"] = "InfoGain"
    prediction_kind: ClassVar[PredictionKind] = "classes"
    matrix: list[Annotated[list[float], Field(min_length=1)]] | None = None
    """H, row by row: the value of each predicted class k if the right class is that of the row."""
    file: FilePath | None = None
    """Path of a file with H, relative to this file: `.npy`, or text with one row per line and commas between values."""

    samples: ClassVar = (
        Sample.of(
            (4, 3), (4,), dtypes=("float32", "int32"), high=3, from_logits=True,
            matrix=[[1.0, 0.2, 0.0], [0.1, 2.0, 0.0], [0.0, 0.3, 0.5]], weight=(4,),
        ),
        Sample.of(
            (2, 2, 3), (2, 3), dtypes=("float32", "int32"), high=2, axis=1, ranges=((0.1, 0.9), None),
            matrix=[[1.0, 0.5], [0.0, 2.0]],
        ),
    )  # fmt: skip

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.matrix is None) == (self.file is None):
            got = "neither" if self.matrix is None else "both"
            raise problem("InfoGain needs one matrix", expected="either `matrix` or `file`", got=got)
        return self

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        scores, label, axis = class_scores(builder, prediction, label, self.axis)
        weights = Gather()(constant(self.class_matrix(scores.shape[axis], str(builder.dtype))), label)
        rank = len(weights.shape)
        order = (*range(axis), rank - 1, *range(axis, rank - 1))
        if order != tuple(range(rank)):
            weights = Transpose(order)(weights)
        return ElementLosses(-ReduceSum((axis,))(weights * log_probabilities(scores, axis, self.from_logits)))

    def class_matrix(self, count: int, dtype: str) -> Any:
        """H as an array (count, count). Raises a located error if it has another size."""
        import numpy as np

        rows: Any = self.matrix if self.matrix is not None else self._read()
        sizes = {len(row) for row in rows}
        fits = len(rows) == count and sizes == {count}
        require(
            fits,
            "the matrix must have one row and one column per class",
            expected=f"{count} rows of {count} numbers",
            got=f"{len(rows)} rows of {' or '.join(map(str, sorted(sizes)))}",
        )
        return np.array(rows, dtype)

    def _read(self) -> Any:
        import numpy as np

        from netspec.files.arrays import read_array

        path = resolve_path(self, "file")
        try:
            with refuse_damage(path, "a matrix of numbers"):
                if path.suffix == ".npy":
                    with path.open("rb") as file:
                        return np.atleast_2d(read_array(file, path.stat().st_size))
                return np.loadtxt(path, delimiter=",", ndmin=2)
        except InputError as error:
            raise SpecError([problem.at(self.where("file"), "file") for problem in error.problems]) from None
