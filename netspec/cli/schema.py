"""`netspec schema`: the spec language as JSON Schema, for completion and hover in editors."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.output import print_json
from netspec.errors import InputError, did_you_mean

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples("netspec schema > netspec.schema.json", "netspec schema train > train.schema.json"),
)
def schema(
    kind: Annotated[
        str | None, typer.Argument(metavar="[net|train]", help="Of which files. Default: both.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON Schema of net and training files.

    An editor with a YAML language server completes and explains fields in files that begin with the line
    `# yaml-language-server: $schema=netspec.schema.json`.
    """
    from netspec.cli import specs  # noqa: F401  # makes all layers, solvers and data sources known
    from netspec.schema.jsonschema import json_schema

    print_json(json_schema(_kind(kind)))


def _kind(given: str | None) -> Literal["net", "train"] | None:
    match given:
        case None | "net" | "train":
            return given
    hint = did_you_mean(given, ["net", "train"])
    raise InputError(f"there is no kind of file `{given}`", expected="net or train", hint=hint)
