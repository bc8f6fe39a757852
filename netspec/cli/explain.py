"""`netspec explain`: what a prediction depends on."""

from __future__ import annotations

import sys
from dataclasses import asdict
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json, Threads, TrainingModel, Weights, find_weights, writable
from netspec.cli.output import count, print_json, table
from netspec.errors import InputError, format_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspec.tools.inference.explain import ColumnImportances, Explanation, ImageExplanation

app = CommandApp()
MAX_PARTS = 50
"""Number of parts of a sample that are printed; --json has all."""


@app.add_command(
    "netspec explain runs/flowers --input rose.jpg --output why.png",
    "netspec explain runs/flowers --input rose.jpg --output why.png --class tulip",
    "netspec explain runs/reviews --input review.txt",
    "netspec explain runs/adult --input new.csv --row 3",
    "netspec explain runs/adult",
)
def explain(
    spec: TrainingModel,
    *,
    weights: Weights = None,
    input_file: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE", help="Explain the prediction for this file."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="N", help="Explain row N of a table, from 1 [default: last]."),
    ] = None,
    output_file: Annotated[
        str | None, typer.Option("--output", metavar="FILE.png", help="Write the heat map here; required for an image.")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Explain this class [default: most probable].")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="NAME", help="Use rows of this split [default: test, if any]."),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Explain what the predictions of a net depend on.

    If --input is an image, covers one patch at a time (occlusion), and draws where this reduces (red) or increases
    (blue) the probability of the class. If the net predicts masks, the probability is the mean over the pixels of the
    class; if it predicts boxes, it is the score of the best box.

    If --input is a text, leaves out words; if it is audio, silences parts; if it is a table, replaces one column of a
    row at a time with values from other rows (for a forecast, also one group of earlier rows at a time). Prints how
    much each change reduces the probability or the predicted number.

    Without --input, prints the importance of each column of a table: how much the loss rises if the values of the
    column are shuffled.
    """
    target = None if output_file is None else writable(Path(output_file), "--output", ".png")
    if input_file is None and (target is not None or label is not None or row is not None):
        raise InputError("--output, --class and --row need --input", expected="--input with the path of a sample")
    spec, weights = find_weights(spec, weights)
    from netspec.tools.inference import explain as tool

    if input_file is None:
        importances = tool.explain_columns(spec, split=split, weights=weights, device=device)
        _warn_of_change(importances.data_change)
        _print_importances(importances, as_json)
        return
    explanation = _explanation(
        spec, weights, input_file, row=row, target=target, label=label, split=split, device=device
    )
    if isinstance(explanation, tool.Explanation):
        _warn_of_change(explanation.data_change)
        for note in explanation.notes:
            print(f"note: {note}", file=sys.stderr)
        _print_parts(explanation, as_json)
    elif as_json:
        print_json({**_facts(explanation), "heat_map": explanation.heat_map.tolist()})
    else:
        print(f"{_summary(explanation)}; see {target}")


def _warn_of_change(data_change: str | None) -> None:
    if data_change is not None:
        print(f"warning: {data_change}", file=sys.stderr)


def _explanation(
    spec: str, weights: str | None, input_file: str,
    *, row: int | None, target: Path | None, label: str | None, split: str | None, device: str,
) -> Explanation | ImageExplanation:  # fmt: skip
    """Explain a sample by its kind. Raises `InputError` for options that this kind does not have."""
    from netspec.data.files import read_bytes
    from netspec.data.text.files import decoded
    from netspec.tools.inference import explain as tool

    kind = tool.explained_kind(spec, input_file, weights)
    for option, value in (("row", row), ("split", split)):
        if value is not None and kind != "table":
            hint = f"leave --{option} out"
            raise InputError(f"--{option} chooses rows of a table, which {input_file} is not", hint=hint)
    if target is not None and kind in ("text", "audio", "table"):
        raise InputError(
            f"--output draws images, and the parts of {input_file} ({kind}) are printed", hint="leave --output out"
        )
    match kind:
        case "table":
            return tool.explain_row(spec, input_file, row=row, label=label, split=split, weights=weights, device=device)
        case "audio":
            return tool.explain_audio(spec, input_file, label=label, weights=weights, device=device)
        case "text":
            text = decoded(Path(input_file), read_bytes(Path(input_file)))
            return tool.explain_text(spec, text, label=label, weights=weights, device=device)
    if target is None:
        raise InputError("--output is missing", expected="the name of a PNG file, such as why.png")
    return tool.explain_image(spec, input_file, label=label, output=target, weights=weights, device=device)


def _facts(explanation: Explanation | ImageExplanation) -> dict[str, Any]:
    """Return the class and the value of an explanation under the names of `netspec predict`."""
    label = {} if explanation.label is None else {"class": explanation.label}
    return {**label, explanation.quantity: explanation.value}


def _summary(explanation: Explanation | ImageExplanation) -> str:
    value = f"{explanation.value:.1%}" if explanation.quantity == "probability" else _six_digits(explanation.value)
    name = explanation.quantity if explanation.label is None else f"class {explanation.label}"
    return f"{name}: {'score ' if explanation.quantity == 'score' else ''}{value}"


def _print_importances(importances: ColumnImportances, as_json: bool) -> None:
    """Print the importance of each column of a table."""
    if as_json:
        print_json([asdict(importance) for importance in importances])
        return
    in_units = [f"increase of {name} in the target's unit" for name in importances[0].in_units]
    columns = ["column", "increase of the loss", "std", *in_units]
    of_units = [_aligned([each.in_units[name] for each in importances]) for name in importances[0].in_units]
    rows = [
        [each.column, f"{each.increase:.6f}", f"{each.deviation:.6f}", *cells]
        for each, *cells in zip(importances, *of_units, strict=True)
    ]
    table(columns, rows, right=range(1, len(columns)))
    used = f"on {count(importances.samples)} samples of the {importances.split} data"
    print(f"\n{used}; near 0 or below: the predictions hardly depend on the column")


def _print_parts(explanation: Explanation, as_json: bool) -> None:
    """Print the parts of a sample, those with the largest contribution first."""
    if as_json:
        parts = [{"part": part, "contribution": contribution} for part, contribution in explanation.parts]
        row = {} if explanation.row is None else {"row": explanation.row}
        print_json({**row, **_facts(explanation), "parts": parts})
        return
    print(("" if explanation.row is None else f"row {explanation.row}, ") + _summary(explanation))
    ranked = sorted(explanation.parts, key=lambda each: -abs(each.contribution))[:MAX_PARTS]
    falls = [each.contribution for each in ranked]
    cells = [f"{fall:+.1%}" for fall in falls] if explanation.quantity == "probability" else _aligned(falls, "+")
    table(["part", "contribution"], list(zip((each.part for each in ranked), cells, strict=True)), right=[1])


def _aligned(values: Sequence[float], sign: str = "") -> list[str]:
    """Format numbers with the same number of decimals, so that the largest one has six digits."""
    largest = max(map(abs, values), default=0.0)
    if not 1e-9 < largest < 1e15:  # also not finite
        return [f"{value:{sign}.6g}" for value in values]
    decimals = max(0, 5 - floor(log10(largest)))
    return [f"{value:{sign}.{decimals}f}" for value in values]


def _six_digits(value: float) -> str:
    return format_digits(value, 6)
