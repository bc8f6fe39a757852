"""`init_from`: which weights a training starts from, as a plan that says what must fit."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from netspec.schema.specs.field_types import Names, as_names
from netspec.schema.specs.paths import FilePath
from netspec.schema.specs.spec import Spec, problem


def _map(value: dict[str, str | None]) -> dict[str, str | None]:
    for pattern, target in value.items():
        if target is not None and target.count("*") > pattern.count("*"):
            raise problem(
                "there are more `*` in the new name than in the old one", field=pattern,
                expected="each `*` stands for what one of the old name stands for", got=f"{pattern}: {target}",
            )  # fmt: skip
    return value


def _require(value: object) -> object:
    return value if value in ("all", "some") else as_names(value)


class InitFromSpec(Spec):
    """Weights that a training starts from."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "path": "here it is `file`",
        "weights": "here it is `file`",
        "rename": "here it is `map`",
        "strict": "here it is `require`: `all`, `some`, or patterns of names",
        "frozen": "here it is `freeze`",
    }

    file: FilePath
    """path of a weights file or checkpoint, or of another program's file that holds weights, relative to this file"""
    map: Annotated[dict[str, str | None], AfterValidator(_map)] = Field(default_factory=dict)
    """new names of arrays of the file: `{"encoder/*": "backbone/*"}`, where `*` stands for any characters; the first
    pattern that fits a name counts, and `null` leaves an array out"""
    freeze: Names | None = None
    """layers that are not trained: names of layers, of calls and of groups, or patterns such as `conv*`"""
    require: Annotated[
        Literal["all", "some"] | tuple[str, ...],
        BeforeValidator(_require, json_schema_input_type=str | list[str]),
    ] = "all"
    """what must fit: `all` parameters and statistics of the net and all arrays of the file; `some`; or those of the net
    that are named by patterns (`[backbone/*]`). The rest of the net starts fresh"""
