"""`{type: MeanImage}`: subtracts the mean of all images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from pydantic import PrivateAttr, model_validator

from netspec.data.base import Array, FieldType, SampleKeys, Samples, Transform, located_at
from netspec.errors import InputError
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.paths import FilePath, resolve_path
from netspec.schema.specs.spec import problem


@TRANSFORMS.register
class MeanImage(Transform):
    """Subtract the mean: y = x − mean, with a mean for each position and channel, as in Caffe. The result is float32.

    `adapt: true` computes the mean over the training split; `file` names an .npy file, an .npz file with one array, or
    Caffe's .binaryproto, with the shape of a sample. In both cases the mean is stored with the weights, and all splits
    use that of the training split.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "mean_file": "use `file`",
        "mean_value": "the transform Normalization subtracts one value for each channel",
    }

    positions: ClassVar = "kept"

    type: Literal["MeanImage"] = "MeanImage"
    adapt: bool = False
    """Whether to compute the mean of the training split."""
    file: FilePath | None = None
    """An .npy, .npz or .binaryproto file with the mean, relative to this file."""
    mean: list[Any] | None = None
    """The mean itself, as nested lists with the shape of a sample. Set by `adapt` or `file`."""

    samples: ClassVar = ({"adapt": True}, {"file": "mean.npy"}, {"file": "mean.binaryproto"})

    _values: Any = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        sources = [name for name in ("adapt", "file", "mean") if getattr(self, name) not in (None, False)]
        if len(sources) != 1 and sources not in (["adapt", "mean"], ["file", "mean"]):
            raise problem(
                "the source of the mean is missing" if not sources else "the mean has two sources",
                field=sources[-1] if sources else None,
                expected="either `adapt: true` or `file`",
                got=" and ".join(f"`{name}`" for name in sources) or "neither",
            )
        return self

    @property
    def needs_data(self) -> bool:
        """True until the mean is known."""
        return self.mean is None

    def learn(self, field: FieldType, chunks: Iterable[Samples]) -> dict[str, Any]:
        """Return the mean over all samples, as float32 values; or the content of the file."""
        import numpy as np

        if self.file is not None:
            return {"mean": self._array().tolist()}
        total: Any = 0.0
        count = 0
        for chunk in chunks:
            assert not isinstance(chunk, list)  # all samples have the same size
            total = total + chunk.sum(axis=0, dtype="float64")
            count += len(chunk)
        return {"mean": np.asarray(total / count, np.float32).tolist()}

    def infer(self, field: FieldType) -> FieldType:
        """Any shape and type → the same shape of float32. Raises `InputError` if the mean has the wrong shape."""
        self._check_size(field)
        if self.mean is None and self.file is None:  # not learned yet
            return FieldType(field.shape, "float32")
        shape = self._array().shape
        if shape != field.shape:
            name = "file" if self.file is not None else "type"
            raise InputError(
                "the mean has a different shape from the samples",
                location=self.where(name) or self.where("type"),
                path=name,
                expected=str(field),
                got=str(list(shape)),
            )
        return FieldType(field.shape, "float32")

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """x: (N, …) → (N, …) of float32."""
        import numpy as np

        assert not isinstance(batch, list)  # `infer` takes samples of one size only
        return np.subtract(batch, self._array(), dtype=np.float32, casting="same_kind")

    def _array(self) -> Array:
        """Return the mean as an array, which is created or read once."""
        import numpy as np

        if self._values is None and self.mean is None:
            self._values = self._read()
        if self._values is None:
            try:
                self._values = np.asarray(self.mean, np.float32)
            except (ValueError, TypeError):
                raise InputError(
                    "`mean` is not an image",
                    location=self.where("mean"),
                    path="mean",
                    expected="nested lists of numbers, of the shape of a sample",
                    got="lists of different lengths, or other values",
                ) from None
        mean: Array = self._values
        return mean

    def _check_size(self, field: FieldType) -> None:
        if field.ragged:
            raise InputError(
                "samples that differ in size have no mean",
                location=self.where("type"),
                path="type",
                expected="samples of one size",
                got=str(field),
                hint="put the transform Resizing before this one",
            )

    def _read(self) -> Array:
        """Read the array in the file."""
        from netspec.data.imaging.mean_file import read_mean

        with located_at(self, "file"):
            return read_mean(resolve_path(self, "file"))
