"""`netspec init`: write net.yaml and train.yaml for data."""

from __future__ import annotations

from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Json
from netspec.cli.output import print_json
from netspec.errors import command

app = CommandApp()


@app.add_command(
    "netspec init photos/",
    "netspec init table.csv --target price --output houses",
    "netspec init reviews/ --task text",
    "netspec init novel.txt",
    "netspec init demand.csv --target demand --task forecast",
    "netspec init photos/ --trunk lenet_mnist",
)
def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Read this folder, list of files, text or table.")],
    *,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="Predict this column of a table.")] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Use this task [default: chosen from the data]."),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write to this folder [default: the data's folder].")
    ] = None,
    trunk: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Build on this model file, run or zoo model.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help="Add a block `search` to train.yaml.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite net.yaml and train.yaml.")] = False,
    as_json: Json = False,
) -> None:
    """Write a net file and a training file for your data.

    Looks at a sample of the data: classes, image sizes, column types, missing values, duplicates and unreadable files.
    Chooses a task, a small net for it, held-out validation and test data, a metric and early stopping. Comments in the
    files state the reason for each choice.

    --task is `classification` or `regression` (of a column of a table), `text` (texts in a table or a folder),
    `forecast` (the next rows of a table) or `language_model` (running text: a .txt file, or a folder of them without
    class folders).

    With --trunk, the net consists of a trained model without its last layer, followed by a new last layer for the
    classes of your images. The weights of the trained model stay frozen. To drop more layers, give --trunk the folder
    that `netspec import MODEL --output DIR --drop-head 2` writes; it is used whole.
    """
    from netspec.tools.init import init as write_files

    result = write_files(data, target=target, task=task, output=output, force=force, trunk=trunk, search=search)
    if as_json:
        print_json(result.as_json())
        return
    print(result.task)
    for finding in result.findings:
        print(f"  {finding}")
    for warning in result.warnings:
        print(f"warning: {warning}")
    print(f"\nwritten: {result.net}, {result.train}\n\nnext:")
    last = "search" if search else "train"
    for words in (("check", result.train), ("data", "show", result.train), (last, result.train)):
        print("  " + command(*words))
