"""`netspec explain`: what a prediction depends on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Json, Threads, TrainingOrRun, Weights, find_weights, writable
from netspec.cli.output import print_json, table
from netspec.errors import InputError

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec explain runs/flowers --input rose.jpg --output why.png",
        "netspec explain runs/flowers --input rose.jpg --output why.png --class tulip",
        "netspec explain runs/adult",
    ),
)
def explain(
    spec: TrainingOrRun,
    *,
    weights: Weights = None,
    input_file: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="Explain the class of this image.")
    ] = None,
    output_file: Annotated[
        str | None, typer.Option("--output", metavar="FILE.png", help="Draw what the class depends on.")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Explain this class [default: most probable].")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="Use rows of this split [default: test].")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Explain predictions for images and tables.

    With --input, covers one patch of an image at a time (occlusion), and marks the patches without which the
    probability of its class falls (red) or rises (blue). Without --input, prints the importance of each column of a
    table: how much the loss rises if the column's values are shuffled.
    """
    target = None if output_file is None else writable(Path(output_file), "--output", ".png")
    if input_file is not None and target is None:
        raise InputError("--output is missing", expected="the name of a PNG file, such as why.png")
    if input_file is None and (target is not None or label is not None):
        raise InputError("--output and --class explain an image", expected="--input with its path")
    spec, weights = find_weights(spec, weights)
    from netspec.tools.explain import explain_columns, explain_image

    if input_file is None:
        importances = explain_columns(spec, split=split, weights=weights, device=device)
        if as_json:
            print_json([asdict(importance) for importance in importances])
            return
        metrics = list(importances[0].in_units)
        columns = ["column", "increase of the loss", "std", *(f"of {name} in the target's unit" for name in metrics)]
        rows = [
            [each.column, f"{each.increase:.6f}", f"{each.deviation:.6f}", *map(_six_digits, each.in_units.values())]
            for each in importances
        ]
        table(columns, rows, right=range(1, len(columns)))
        return
    explanation = explain_image(spec, input_file, label=label, output=target, weights=weights, device=device)
    if as_json:
        facts = {"class": explanation.label, "probability": explanation.probability, "heat": explanation.heat.tolist()}
        print_json(facts)
        return
    print(f"{explanation.label}: {explanation.probability:.1%}; {target} shows what this depends on")


def _six_digits(value: float) -> str:
    return f"{value:.6g}"
