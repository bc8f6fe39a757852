"""`{source: synthetic}`: samples generated on demand, to try and time a spec without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from netspec.data.base import Dataset, FieldType, Source
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.field_types import Shape
from netspec.schema.specs.spec import Spec, problem


class MadeField(Spec):
    """Values of a field of synthetic samples.

    `{classes: 10}`: labels 0 to 9; `low` and `high`: values uniformly distributed from low to below high; `mean` and
    `stddev`: a normal distribution. Without any of these: 0 to 255 for uint8, the standard normal distribution for
    floats.
    """

    shape: Shape = ()
    """Shape of the field in a sample; `[]` is a scalar."""
    dtype: Literal["float32", "float64", "uint8", "int32", "int64"] | None = None
    """Element type; by default int32 with `classes`, else float32."""
    classes: PositiveInt | None = None
    """Number of classes: labels are integers from 0."""
    low: float | None = None
    """Lower bound of the values."""
    high: float | None = None
    """Upper bound of the values, exclusive."""
    mean: float | None = None
    """Mean of the values; by default 0."""
    stddev: Annotated[float, Field(ge=0)] | None = None
    """Standard deviation of the values; by default 1."""

    @model_validator(mode="after")
    def _one_distribution(self) -> Self:
        kinds = {"classes": ("classes",), "low and high": ("low", "high"), "mean and stddev": ("mean", "stddev")}
        kinds_set = [kind for kind, names in kinds.items() if any(getattr(self, name) is not None for name in names)]
        if len(kinds_set) > 1:
            raise problem("has two distributions", expected=f"one of {', '.join(kinds)}", got=" and ".join(kinds_set))
        if (self.low is None) != (self.high is None) or (self.high is not None and self.low >= self.high):  # type: ignore[operator]  # both are there
            missing = "high" if self.high is None else "low" if self.low is None else None
            raise problem(
                f"`{missing}` is missing" if missing else "`high` must be greater than `low`",
                field="low" if self.high is None else "high",
                expected="both `low` and a larger `high`",
                got=", ".join(
                    f"{name} {value}" for name, value in (("low", self.low), ("high", self.high)) if value is not None
                ),
            )
        if self.classes is not None and self.type_name.startswith("float"):
            raise problem(
                "`dtype` of class labels must be an integer type", field="dtype", expected="int32", got=self.type_name
            )
        if self.type_name in {"int32", "int64"} and not kinds_set:
            raise problem("the distribution is missing", expected="`classes`, or `low` and `high`")
        return self

    @property
    def type_name(self) -> str:
        """The element type, including the default."""
        return self.dtype or ("float32" if self.classes is None else "int32")

    @property
    def is_label(self) -> bool:
        """Whether the field is one class label for each sample."""
        return self.classes is not None and not self.shape

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Lower bound and exclusive upper bound; None for a normal distribution."""
        if self.classes is not None:
            return 0.0, float(self.classes)
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return (0.0, 256.0) if self.type_name == "uint8" and self.mean is None and self.stddev is None else None


@SOURCES.register
class Synthetic(Source):
    """Synthetic samples with any fields, to try or time a spec, or to see whether a net learns at all.

    Each sample depends only on `train.seed` and its index. Without a `task` the fields are independent.
    `classification`: each class of the label (the field with `classes` and no `shape`) has its own pattern in every
    other field, to which noise is added. `regression`: the last field is a linear map of all others, the same for all
    samples, plus noise. `spirals`: a field of shape [2] and a label; each class is an arm of a spiral.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "count": "use `samples`",
        "size": "use `samples`",
        "n_samples": "use `samples`",
    }

    source: Literal["synthetic"] = "synthetic"
    number: PositiveInt = Field(alias="samples")
    """Number of samples."""
    fields: Annotated[dict[str, MadeField], Field(min_length=1)]
    """The contents of each field of a sample."""
    task: Literal["classification", "regression", "spirals"] | None = None
    """The relation between the fields to learn; by default none."""
    noise: Annotated[float, Field(ge=0)] = 0.5
    """Standard deviation of the noise; that of the signal is 1 (`spirals`: a radius of 1)."""
    first: Annotated[int, Field(ge=0)] = 0
    """Index of the first sample. If the training split has `samples: 1000`, `first: 1000` gives other samples of the
    same task."""

    samples: ClassVar = (
        {"samples": 10000, "fields": {"image": {"shape": [1, 28, 28]}, "label": {"classes": 10}},
         "task": "classification"},
    )  # fmt: skip

    @model_validator(mode="after")
    def _fields_of_the_task(self) -> Self:
        labels = [name for name, field in self.fields.items() if field.is_label]
        others = [name for name in self.fields if name not in labels]
        expected = None
        if self.task == "classification" and (len(labels) != 1 or not others):
            expected = "one field with `classes` and no `shape`, and at least one other"
        elif self.task == "spirals" and (
            len(labels) != 1
            or [self.fields[name].shape for name in others] != [(2,)]
            or not self.fields[others[0]].type_name.startswith("float")
        ):
            expected = "a label with `classes`, and a field of floats of shape [2]"
        elif self.task == "regression" and (
            len(self.fields) < 2 or labels or not list(self.fields.values())[-1].type_name.startswith("float")
        ):
            expected = "two fields or more without `classes`, the last one of floats"
        if expected is not None:
            described = (
                (name, "a label" if field.is_label else list(field.shape)) for name, field in self.fields.items()
            )
            got = ", ".join(f"`{name}` {description}" for name, description in described)
            raise problem(f"the fields do not fit the task `{self.task}`", field="fields", expected=expected, got=got)
        return self

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the source. Samples are generated on demand."""
        from netspec.data.readers.synthetic import MadeUp

        return MadeUp(self, seed)

    def known_samples(self) -> int:
        """Return the number of samples."""
        return min(self.number, self.limit or self.number)

    def known_fields(self) -> Mapping[str, FieldType]:
        """Return all fields."""
        return {
            name: FieldType(declared_field.shape, declared_field.type_name)
            for name, declared_field in self.fields.items()
        }
