"""`netspec schema`: the spec language as JSON Schema for editors, or as pages to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.output import print_json
from netspec.errors import InputError

app = CommandApp()


@app.add_command(
    "netspec schema > netspec.schema.json",
    "netspec schema train > train.schema.json",
    "netspec schema --docs reference",
)
def schema(
    kind: Annotated[
        str | None, typer.Argument(metavar="[net|train]", help="Print the schema of these files [default: both].")
    ] = None,
    docs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a Markdown reference to this folder instead.")
    ] = None,
) -> None:
    """Print the JSON Schema of net and training files.

    Editors with a YAML language server use it to complete and explain fields. Begin a YAML file with this line:

    # yaml-language-server: $schema=netspec.schema.json
    """
    if docs is None:
        from netspec.tools.json_schema import json_schema

        print_json(json_schema(kind))
        return
    if kind is not None:
        raise InputError(
            f"the reference covers both kinds of files, not {kind} files alone", hint=f"leave out `{kind}`"
        )
    from netspec.tools.reference import write_pages

    print(f"{write_pages(docs)} pages below {docs}")
