"""`netspec explain`: what a prediction depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Device, Json, Threads, TrainingOrRun, Weights, find_weights, writable
from netspec.cli.output import print_json, table
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.tools.explain import ColumnImportance, TextExplanation

app = command_app()
MOST_WORDS = 20
"""Number of words of a text that are printed; --json has all."""


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec explain runs/flowers --input rose.jpg --output why.png",
        "netspec explain runs/flowers --input rose.jpg --output why.png --class tulip",
        "netspec explain runs/reviews --input review.txt",
        "netspec explain runs/adult",
    ),
)
def explain(
    spec: TrainingOrRun,
    *,
    weights: Weights = None,
    input_file: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="Explain the class of this image or text file.")
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
    """Explain predictions for images, texts and tables.

    If --input is an image, covers one patch at a time (occlusion), and marks the patches without which the probability
    of the class falls (red) or rises (blue). If it is a text, prints how much the probability falls without each word.
    Without --input, prints the importance of each column of a table: how much the loss rises if the values of the
    column are shuffled.
    """
    target = None if output_file is None else writable(Path(output_file), "--output", ".png")
    if input_file is None and (target is not None or label is not None):
        raise InputError("--output and --class need --input", expected="--input with the path of an image or a text")
    spec, weights = find_weights(spec, weights)
    from netspec.tools.explain import explain_columns, explain_image, explain_text, explained_kind

    if input_file is None:
        _print_importances(explain_columns(spec, split=split, weights=weights, device=device), as_json)
        return
    kind = explained_kind(spec, weights)
    if kind == "table":
        raise InputError("--input names an image or a text, but the training reads a table", hint="leave --input out")
    if kind == "text":
        from netspec.data.files import read_bytes
        from netspec.data.text.files import decoded

        if target is not None:
            raise InputError("--output draws images; the words of a text are printed", hint="leave --output out")
        text = decoded(Path(input_file), read_bytes(Path(input_file)))
        _print_words(explain_text(spec, text, label=label, weights=weights, device=device), as_json)
        return
    if target is None:
        raise InputError("--output is missing", expected="the name of a PNG file, such as why.png")
    explanation = explain_image(spec, input_file, label=label, output=target, weights=weights, device=device)
    if as_json:
        facts = {"class": explanation.label, "probability": explanation.probability, "heat": explanation.heat.tolist()}
        print_json(facts)
        return
    print(f"{explanation.label}: {explanation.probability:.1%}; {target} shows what this depends on")


def _print_importances(importances: Sequence[ColumnImportance], as_json: bool) -> None:
    """Print the importance of each column of a table."""
    if as_json:
        print_json([asdict(importance) for importance in importances])
        return
    in_units = [f"increase of {name} in the target's unit" for name in importances[0].in_units]
    columns = ["column", "increase of the loss", "std", *in_units]
    rows = [
        [each.column, f"{each.increase:.6f}", f"{each.deviation:.6f}", *map(_six_digits, each.in_units.values())]
        for each in importances
    ]
    table(columns, rows, right=range(1, len(columns)))


def _print_words(explanation: TextExplanation, as_json: bool) -> None:
    """Print the words of a text, those with the largest contribution first."""
    if as_json:
        words = [{"word": word, "contribution": contribution} for word, contribution in explanation.words]
        print_json({"class": explanation.label, "probability": explanation.probability, "words": words})
        return
    print(f"{explanation.label}: {explanation.probability:.1%}")
    ranked = sorted(explanation.words, key=lambda each: -abs(each.contribution))[:MOST_WORDS]
    table(["word", "contribution"], [[word, f"{fall:+.1%}"] for word, fall in ranked], right=[1])


def _six_digits(value: float) -> str:
    return f"{value:.6g}"
