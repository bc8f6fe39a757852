"""`netspec import`: a net and its weights from a file of another program, or from one of netspec's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.output import command_line, count, program
from netspec.errors import InputError, Problem

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec import model.onnx --output my_net",
        "netspec import model.onnx --output my_net --shape data=3,224,224",
        "netspec import runs/lenet_mnist/best.h5 --output my_net",
        "netspec import runs/lenet_mnist/checkpoints/step-00001000.h5 --output my_net",
    ),
)
def import_file(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An ONNX model, a weights file, or a checkpoint.", show_default=False)
    ],
    output: Annotated[
        str,
        typer.Option("--output", metavar="FOLDER", help="A new folder for the two files.", show_default=False),
    ],
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", metavar="INPUT=1,28,28", help="The shape of a sample, for an input whose file leaves it open."
        ),
    ] = None,
) -> None:
    """Read a net and its weights from an ONNX or HDF5 file.

    They are written as net.yaml and weights.h5 in a new folder. Where something has no counterpart here, all of it is
    listed, and nothing is written.
    """
    given = _shapes(shapes or [])
    from netspec.cli.folders import new_folder
    from netspec.exchange.hdf5 import write_weights
    from netspec.exchange.importing import import_model
    from netspec.train.model import load

    source, target = Path(file), Path(output)
    with new_folder(target) as staged:
        found = import_model(source, given)
        net, weights = staged / "net.yaml", staged / "weights.h5"
        net.write_text(found.net, encoding="utf-8")
        write_weights(weights, found.arrays, net=found.net, name=source.stem, **found.meta)
        model = load(net, weights)  # it must be what netspec itself reads
    for note in found.notes:
        print(f"note: {note}")
    parameters = sum(model.parameters[name].size for name in model.compiler.names("parameter"))
    print(f"{target}: {count(len(model.spec.layers))} layers, {count(parameters)} parameters")
    again = [target / "net.yaml", "--weights", target / "weights.h5"]
    print(f"\nnext:\n  {command_line(*program(), 'plan', target / 'net.yaml')}")
    print(f"  {command_line(*program(), 'export', *again, '--output', target / 'model.onnx')}")


def _shapes(given: list[str]) -> dict[str, tuple[int, ...]]:
    """The shapes given as `name=1,28,28`. Raises `InputError` with all that are none."""
    found: dict[str, tuple[int, ...]] = {}
    problems: list[Problem] = []
    for text in given:
        name, sign, sizes = text.rpartition("=")
        numbers = sizes.split(",")
        if not name or not sign or not all(one.isascii() and one.isdigit() and int(one) for one in numbers):
            problems.append(Problem(f"`{text}` is no shape of an input", expected="--shape INPUT=1,28,28"))
        else:
            found[name] = tuple(map(int, numbers))
    if problems:
        raise InputError(problems)
    return found
