"""`netspec diff`: what differs between two nets, trainings or models, in meaning and in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json
from netspec.cli.output import print_json
from netspec.cli.shapes import Shapes, Values, shapes_of, values_of

if TYPE_CHECKING:
    from netspec.cli.differing import Difference

app = command_app()
SHOWN = 30
"""Lines of a part, where there are more."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec diff net.yaml new_net.yaml",
        "netspec diff runs/lenet-1 runs/lenet-2",
        "netspec diff runs/lenet-1/best.h5 model.onnx",
        "netspec diff net.yaml weights.safetensors",
        "netspec diff train.yaml other/train.yaml --exit-code",
    ),
)
def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A spec, the folder of a run, or a model or weights of any format.", show_default=False
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="The same, to compare with A.", show_default=False)],
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with status 1 where anything differs, as `diff` does.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the random inputs that outputs are compared on.")] = 0,
    shapes: Shapes = None,
    values: Values = None,
    as_json: Json = False,
) -> int:
    """Compare two nets: layers, settings, weights and results.

    Layers are compared in meaning: defaults are filled in, blocks written out, and a layer that is only called
    otherwise is the same. Of weights it is said which could be loaded from one into the other and how far they are
    apart; where both sides have weights and inputs alike, both compute the same random samples. Weights whose file does
    not say their net are taken for those of the net on the other side.
    """
    given, constants = shapes_of(shapes), values_of(values)
    from netspec.cli.differing import find_differences
    from netspec.exchange.imported import ImportOptions

    found = find_differences(Path(before), Path(after), seed, ImportOptions(shapes=given, values=constants))
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)
    return FAILED if exit_code and not found.same else DONE


def _print(found: Difference) -> None:
    for title, lines in found.sections():
        print(f"{title}:")
        for line in lines[:SHOWN]:
            print(f"  {line}")
        if len(lines) > SHOWN:
            print(f"  … ({len(lines) - SHOWN} more; --json has them all)")
    for line in found.summary():
        print(line)
