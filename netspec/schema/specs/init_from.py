"""`init_from`: the weights that a training starts from, and which of them must match."""

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
                "the new name has more `*` than the old one", field=pattern,
                expected="at most one `*` for each `*` of the old name", got=f"{pattern}: {target}",
            )  # fmt: skip
    return value


def _require(value: object) -> object:
    return value if value in ("all", "some") else as_names(value)


class InitFromSpec(Spec):
    """Weights that a training starts from."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "path": "use `file`",
        "weights": "use `file`",
        "rename": "use `map`",
        "strict": "use `require`: `all`, `some`, or patterns of names",
        "frozen": "use `freeze`",
    }

    file: FilePath
    """Path of a weights file or checkpoint, or of another program's file with weights. Relative to this file."""
    map: Annotated[dict[str, str | None], AfterValidator(_map)] = Field(default_factory=dict)
    """New names for arrays of the file: `{"encoder/*": "backbone/*"}`, in which `*` stands for any characters. The
    first pattern that matches a name applies, and `null` leaves an array out."""
    freeze: Names | None = None
    """Layers that are not trained: names of layers, calls of blocks, and groups, or patterns such as `conv*`."""
    require: Annotated[
        Literal["all", "some"] | tuple[str, ...],
        BeforeValidator(_require, json_schema_input_type=str | list[str]),
    ] = "all"
    """Arrays that must match: `all` parameters and statistics of the net and all arrays of the file; `some` of them; or
    those of the net that match patterns (`[backbone/*]`). The rest of the net is initialized as usual."""
