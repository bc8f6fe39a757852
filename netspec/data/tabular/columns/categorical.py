"""`{type: categorical}`: a column of names, each of which stands for a category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from netspec.data.base import ClassNames
from netspec.data.tabular.columns.base import FEATURES, LABEL, ColumnSetting, ColumnSpec, as_texts
from netspec.schema.specs.data import COLUMNS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column


@COLUMNS.register
class Categorical(ColumnSpec):
    """One of several names in each row, as a one-hot vector or as an integer.

    `one_hot` gives a value for each category, 1 for that of the row and 0 for the others, float32 in `features`. `int`
    gives the index in the vocabulary, int32 in a field with the name of the column, for an Embedding. With `unknown:
    index`, index 0 stands for names outside of the vocabulary, which begins at 1, as in Keras's StringLookup; otherwise
    it begins at 0. A learned vocabulary contains the names of the training split in alphabetical order; it is saved
    with the weights. Names are compared as text, without surrounding blanks. For the label, the default is `int`.

    A net learns nothing about an index that no row of the training split has, often that of unknown names. In inputs,
    `one_hot` gives zeros for it, and `int` with `unknown: index` the index of the most frequent category.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **ColumnSpec.foreign_fields,
        "encoding": "use `output_mode`",
        "num_oov_indices": "use `unknown: index`, with one such index",
        "oov_token": "use `unknown: index`",
        "handle_unknown": "use `unknown`",
        "categories": "use `vocabulary`",
        "classes": "use `vocabulary`",
        "min_frequency": "use `min_count`",
        "max_categories": "use `max_tokens`",
        "role": "the field `label` of the source names the label",
    }

    type: Literal["categorical"] = "categorical"
    output_mode: Literal["one_hot", "int"] | None = None
    """The form of the result; by default `int` for the label, else `one_hot`."""
    vocabulary: Annotated[ClassNames, BeforeValidator(as_texts, json_schema_input_type=list[str | int])] | None = None
    """The categories in the order of their indices; by default learned from the training split."""
    unknown: Literal["error", "index"] = "error"
    """Handling of names outside of the vocabulary: an error, or the index 0."""
    missing: Literal["error", "unknown", "most_frequent", "drop"] = "error"
    """Handling of missing names: an error, an `unknown` name, the most frequent name of the training split; or the row
    is left out (`drop`)."""
    min_count: PositiveInt | None = None
    """Minimum number of occurrences in the training split for a name to be learned; rarer names are unknown."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Maximum number of indices, including that of unknown names, given to the most frequent names, as in Keras."""
    replace: dict[str, str] | None = None
    """Replacements for names in the file: `{"<=50K.": "<=50K"}`."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"vocabulary": ["blue", "green"], "replace": {"teal": "green"}},
        {"output_mode": "int", "unknown": "index", "missing": "unknown", "min_count": 5},
    )

    @model_validator(mode="after")
    def _unknown_where_needed(self) -> Self:
        for name in ("min_count", "max_tokens"):
            if getattr(self, name) is not None and self.vocabulary is not None:
                raise problem(
                    f"`{name}` applies only to a vocabulary that is learned",
                    field=name,
                    expected=f"either `vocabulary` or `{name}`",
                )
        asks = next((name for name in ("min_count", "max_tokens") if getattr(self, name) is not None), None)
        asks = "missing" if self.missing == "unknown" else asks
        if asks and self.unknown == "error":
            raise problem(
                f"`{asks}` makes categories unknown, but `unknown: error` refuses them",
                field=asks,
                expected="`unknown: index`",
            )
        return self

    def field_of(self, name: str, *, is_label: bool) -> str:
        field = LABEL if is_label else name if self.output_mode == "int" else FEATURES
        return self.field or field

    @property
    def whole(self) -> bool:
        return self.output_mode == "int"

    def reader(self, setting: ColumnSetting) -> Column:
        from netspec.data.tabular.categorical_reader import CategoricalColumn

        return CategoricalColumn(self, setting)
