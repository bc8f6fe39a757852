"""`split` as a mapping: which samples of a source are held out from training, for validation and test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, GetCoreSchemaHandler, NonNegativeInt, ValidationError, model_validator
from pydantic_core import PydanticCustomError, core_schema

from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.specs.spec import Spec, describe, problem

Share = Annotated[float, Field(gt=0, lt=1)]
CRITERIA = ("stratify", "group", "time")
"""Options that name a field or column to divide by."""


class HoldOut(Spec):
    """Samples of the source that are held out from training: the source is divided into parts.

    Which sample belongs to which part depends only on the data and the fields here. The parts inherit everything else
    from the training split, except that they are not shuffled and not augmented at random.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "val": "use `validation`",
        "valid": "use `validation`",
        "eval": "use `validation`",
        "validation_split": "use `validation`",
        "test_size": "use `test`",
        "train": "not needed: the other samples are trained on",
        "train_size": "not needed: the other samples are trained on",
        "random_state": "use `seed`",
        "n_splits": "use `folds`",
        "k": "use `folds`",
        "groups": "use `group`",
    }

    validation: Share | None = None
    """Share of the samples to evaluate on during training."""
    test: Share | None = None
    """Share of the samples to evaluate on at the end."""
    folds: Annotated[int, Field(ge=2)] | None = None
    """Number of equal parts for k-fold cross-validation: one of them, `fold`, is the validation data."""
    fold: NonNegativeInt | None = None
    """Index of the fold with the validation data, from 0."""
    stratify: str | None = None
    """A field of the source, or a column of a table or of a list of files, whose values occur in the same proportions
    in all parts; mostly `label`. With `group`, as closely as whole groups allow."""
    group: str | None = None
    """A field or column: samples with the same value stay in the same part, such as all rows of one customer, or all
    images of one patient."""
    time: str | None = None
    """A field or column with numbers or dates: the last samples in time are the test data, those before them the
    validation data."""
    time_format: str | None = Field(default=None, min_length=1)
    """The format of dates in `time`, in the notation of Python's `strptime`: `%d.%m.%Y`. By default that of the
    column's declaration in a table; else dates in ISO 8601, or numbers."""
    seed: NonNegativeInt = 1
    """Seed of the random choice. It is not `train.seed`, so that runs with other seeds have the same parts."""
    of: str | None = None
    """The stored part to divide, for sources that have several; without a division, `split: NAME` selects it. By
    default `train`, or the folder itself for `image_folder`."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are held out."""
        validation = self.validation is not None or self.folds is not None
        return ("validation",) * validation + ("test",) * (self.test is not None)

    @property
    def columns(self) -> dict[str, str]:
        """The fields or columns to divide by, by the options that name them; none if samples are chosen at random."""
        return {option: name for option in CRITERIA if (name := getattr(self, option)) is not None}

    def unknown_columns(self, names: Iterable[str]) -> list[Problem]:
        """Return a problem for each field or column to divide by that is not in `names`, the fields of the source."""
        known = list(dict.fromkeys(names))
        return [
            Problem(
                f"the source has no field or column `{column}` to divide it by", path=f"split.{option}",
                expected=f"one of {listing(known)}" if known
                else "only `validation` and `test`: this source has no fields or columns to divide it by",
                hint=did_you_mean(column, known),
            )
            for option, column in self.columns.items()
            if column not in known
        ]  # fmt: skip

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise `InputError` if a field or column to divide by is not in `names`, the fields of the source."""
        if problems := self.unknown_columns(names):
            raise InputError(problems)

    @property
    def training_share(self) -> float:
        """Share of the samples that is left to train on."""
        rest = 1 - (self.test or 0.0)
        return rest * (1 - 1 / self.folds) if self.folds is not None else rest - (self.validation or 0.0)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.parts:
            raise problem("nothing is held out", expected="`validation`, `test` or `folds`")
        if self.validation is not None and self.folds is not None:
            raise problem("`validation` and `folds` cannot be combined", field="folds", expected="one of them")
        if (self.folds is None) != (self.fold is None):
            raise problem("`folds` and `fold` belong together", field="fold", expected="both: `folds: 5, fold: 0`")
        if self.folds is not None and self.fold is not None and self.fold >= self.folds:
            raise problem("there is no such fold", field="fold", expected=f"0 to {self.folds - 1}", got=str(self.fold))
        if (self.validation or 0) + (self.test or 0) >= 1:
            raise problem(
                "nothing is left to train on", field="test", expected="`validation` and `test` below 1 in total",
                got=f"{(self.validation or 0) + (self.test or 0):g}",
            )  # fmt: skip
        others = [option for option in self.columns if option != "time"]
        if self.time is not None and others:
            raise problem(f"`{others[0]}` and `time` cannot be combined", field="time", expected="one of them")
        if self.time_format is not None and self.time is None:
            raise problem("`time_format` has no effect without `time`", field="time_format", expected="`time`")
        if self.time is not None and self.folds is not None:
            raise problem(
                "`time` and `folds` cannot be combined", field="time", expected="`validation` with a share",
                hint="training on samples that are later than the validation data would look into the future",
            )  # fmt: skip
        return self


def _as_hold_out(value: Any) -> HoldOut:
    if isinstance(value, HoldOut):
        return value
    try:
        return HoldOut.model_validate(value)
    except ValidationError as error:
        raise PydanticCustomError("nested", "{error}", {"error": error, "data": value, "cls": HoldOut}) from None


class StoredPart:
    """Annotation of `split` in a source with stored parts: the name of one as `stored` types it, or a `HoldOut`."""

    def __init__(self, stored: Any) -> None:
        self._stored = stored

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def validate(value: Any, stored: core_schema.ValidatorFunctionWrapHandler) -> Any:
            return _as_hold_out(value) if isinstance(value, (dict, HoldOut)) else stored(value)

        return core_schema.no_info_wrap_validator_function(
            validate, handler.generate_schema(self._stored), json_schema_input_schema=handler(source)
        )


def no_stored_part(value: Any) -> Any:
    """Validate `split` in a source without stored parts."""
    if value is None or isinstance(value, (dict, HoldOut)):
        return None if value is None else _as_hold_out(value)
    raise problem(
        "this source has no stored parts to choose from", expected="a mapping such as `{validation: 0.2}`",
        got=describe(value), hint="it says which samples are held out from training",
    )  # fmt: skip
