"""`netspec convert`: a model of one format into one of another, in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import SUFFIXES, BatchOrOpen, Json, Opset, batch_or_open, writable
from netspec.cli.shapes import Shapes, Values, shapes_of, values_of

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec convert model.onnx model.safetensors",
        "netspec convert runs/lenet-1 lenet.onnx",
        "netspec convert net.yaml lenet.onnx --weights lenet.safetensors",
        "netspec convert model.onnx weights.h5 --shape data=3,224,224",
    ),
)
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A model of any format, the folder of a run, or a spec with --weights.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="B", help=f"The file to write; its suffix says the format: {SUFFIXES}.", show_default=False
        ),
    ],
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FILE", help="The weights, where they are not in A.", show_default=False),
    ] = None,
    shapes: Shapes = None,
    values: Values = None,
    batch_size: BatchOrOpen = "symbolic",
    opset: Opset = None,
    as_json: Json = False,
) -> None:
    """Convert a model into another format, and compare them.

    A is imported and B exported as `netspec import` and `netspec export` do it: what either can't say is listed in
    full, and B is only written where it computes what A does.
    """
    batch, given = batch_or_open(batch_size), shapes_of(shapes)
    path = writable(Path(target), "B")
    from netspec.cli.opened import open_any
    from netspec.cli.prepared import note_preparation
    from netspec.cli.writing import checkpoint_in, write_model
    from netspec.cli.written import tell_written
    from netspec.errors import InputError
    from netspec.exchange.formats import format_to_write
    from netspec.exchange.imported import ImportOptions

    format_to_write(path)
    opened = open_any(source, weights, ImportOptions(shapes=given, values=values_of(values)))
    if not opened.has_weights:
        raise InputError(f"{source} comes without weights", hint="say where they are: `--weights FILE`")
    preparation = opened.model.preparation.in_training(opened.spec)
    held = checkpoint_in(opened.weights)
    written = write_model(
        opened.model, opened.spec, path, preparation, checkpoint=held, batch=batch, opset=opset, notes=opened.notes
    )
    tell_written(written, opened.model, as_json=as_json)
    note_preparation(opened.model, preparation)
