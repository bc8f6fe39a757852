"""`netspec predict`: answers of a net for samples in files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import (
    AnyModel,
    Autotune,
    Device,
    Overrides,
    Threads,
    Weights,
    files_and_overrides,
    find_weights,
    writable,
)
from netspec.cli.output import count, note_transforms, table
from netspec.errors import InputError, and_more, counted, format_digits
from netspec.tools.bounds import require_at_least

if TYPE_CHECKING:
    from netspec.tools.inference.predict import PredictionStream
    from netspec.tools.inference.prediction_files import AnsweredBatch

app = CommandApp()
REDRAW_EVERY = 0.5
"""Seconds between two updates of the progress."""
BOX_DIGITS = {"score": 3, "x1": 1, "y1": 1, "x2": 1, "y2": 1}
"""Number of decimals of the columns of a table of boxes."""
MAX_ITEMS = 8
"""Number of items of a list that a table shows."""
MAX_NAMES = 10
"""Number of columns or outputs that the summary of a written file names."""
MAX_LENGTH = 80
"""Number of characters of a text that a table shows; --json and --output have all."""


@app.add_command(
    "netspec predict runs/lenet_mnist --input digit.png",
    "netspec predict runs/flowers --input 'photos/*.jpg' --top 3 --output answers.csv",
    "cat rows.csv | netspec predict runs/adult --input - --output answers.jsonl",
    "netspec predict model.onnx --input images.npz --output logits.npz",
)
def predict(
    spec: AnyModel,
    overrides: Overrides = None,
    *,
    weights: Weights = None,
    inputs: Annotated[
        list[str], typer.Option("--input", metavar="PATH", help="Read files, folders, 'patterns*' or - (stdin).")
    ],
    output_file: Annotated[
        str | None,
        typer.Option("--output", metavar="PATH", help="Write .csv, .jsonl, .json, .parquet, .npz, or images."),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="Name the N most probable classes.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Add the input table's columns to the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sample.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Compute N samples at a time [default: 256].")
    ] = None,
    device: Device = "auto",
    autotune: Autotune = None,
    threads: Threads = None,
) -> int:
    """Predict classes, values, texts, masks or boxes for files.

    Without --output, prints a table. Images, audio, texts and tables are preprocessed as in training. An .npz file as
    input contains an array of samples for each input of the net, which is not preprocessed. An .npz file as output
    contains the raw outputs of the net, and a .json file contains boxes as COCO results. An --output without suffix is
    a folder for masks and images with boxes. If some of the images, audio files or texts cannot be read, the others are
    predicted, and the exit status is 1.
    """
    require_at_least(1, {"--batch-size": batch_size, "--top": top})
    from netspec.exchange.files import is_folder_path
    from netspec.tools.inference.predict import predict_stream, refuse_overwriting
    from netspec.tools.inference.prediction_files import check_output
    from netspec.tools.model_inputs import is_model_file

    target = None if output_file is None else Path(output_file)
    if target is not None:
        check_output(target)
        if not is_folder_path(target):
            writable(target, "--output")
    more_inputs, changes = files_and_overrides(overrides or ())
    files = [*inputs, *more_inputs]
    if target is not None and "-" not in files:
        refuse_overwriting(target, files)
    if not is_model_file(Path(spec)):
        spec, weights = find_weights(spec, weights)
    stream = predict_stream(
        spec, _source_of(files), weights=weights, top=top, keep=keep, overrides=changes,
        batch_size=batch_size, device=device, autotune=autotune, on_error="skip",
    )  # fmt: skip
    note_transforms(stream.unapplied_transforms)
    if target is not None:
        _write(stream, target)
    else:
        _print(stream, as_json=as_json)
    _print_problems(stream)
    return FAILED if stream.unreadable else DONE


def _print_problems(stream: PredictionStream) -> None:
    for name, (number, first) in stream.non_finite.items():
        samples = f"{count(number)} of {count(stream.samples)} samples, the first at index {first}"
        print(f"warning: `{name}` is not finite (nan or inf) in {samples}", file=sys.stderr)
    unnamed = filter(None, [stream.unnamed_classes])
    on_data = (*stream.missing, *stream.missing_key_notes, *stream.unknown, *stream.unread, *stream.time_notes)
    for sentence in (*unnamed, *on_data):
        print(f"note: {sentence}", file=sys.stderr)
    if stream.unreadable:
        files = f"{count(stream.unreadable)} of {counted(stream.samples + stream.unreadable, 'file')}"
        print(f"error: {files} could not be read, and are not among the predictions", file=sys.stderr)


def _reported(stream: PredictionStream) -> Iterator[AnsweredBatch]:
    """Yield the batches, and print the problems of files that were left out."""
    for batch in stream:
        for problem in batch.unreadable:
            print(problem.render(), file=sys.stderr, flush=True)
        yield batch


def _source_of(inputs: list[str]) -> Any:
    """Return paths, or standard input for `-`."""
    if "-" not in inputs:
        return inputs
    if len(inputs) > 1:
        raise InputError("--input - reads standard input, and no other input", got=" ".join(inputs))
    return sys.stdin.buffer


def _write(stream: PredictionStream, target: Path) -> None:
    from netspec.tools.inference.prediction_files import write_answers

    with _progress(stream) as batches:
        write_answers(target, batches)
    arrays = target.suffix.lower() == ".npz"
    shapes = {name: [stream.samples, *shape] for name, shape in stream.output_shapes.items()}
    content = [f"{name} {shape}" for name, shape in shapes.items()] if arrays else stream.columns
    names = ", ".join(content[:MAX_NAMES]) + and_more(len(content) - MAX_NAMES)
    print(f"{counted(stream.samples, 'sample')} written to {target}: {names}")


@contextmanager
def _progress(stream: PredictionStream) -> Iterator[Iterator[AnsweredBatch]]:
    """Show the number of samples and their rate on a terminal while batches are read."""
    began = time.perf_counter()

    def shown() -> Iterator[AnsweredBatch]:
        drawn = began
        for batch in _reported(stream):
            yield batch
            now = time.perf_counter()
            if sys.stderr.isatty() and now - drawn > REDRAW_EVERY:
                drawn = now
                rate = stream.samples / (now - began)
                print(f"\r{count(stream.samples)} samples, {rate:,.0f}/s ", end="", file=sys.stderr, flush=True)

    yield shown()
    if sys.stderr.isatty() and time.perf_counter() - began > REDRAW_EVERY:
        print("\r\033[K", end="", file=sys.stderr)


def _print(stream: PredictionStream, *, as_json: bool) -> None:
    from netspec.tools.inference.prediction_files import answer_json

    for number, batch in enumerate(_reported(stream)):
        if as_json:
            print("\n".join(map(answer_json, batch.rows())), flush=True)
            continue
        columns = batch.table()
        names = list(columns)
        right = [index for index, name in enumerate(names) if isinstance(next(iter(columns[name]), 0), (int, float))]
        rows = [[*map(_text, names, values)] for values in zip(*batch.text_table().values(), strict=True)]
        if rows or not number:
            table(names if not number else [""] * len(names), rows, right=right)


def _text(name: str, value: Any) -> str:
    """Return an answer as a table shows it: probabilities in percent, long lists shortened."""
    if isinstance(value, float):
        if name in BOX_DIGITS:
            return f"{value:.{BOX_DIGITS[name]}f}"
        return f"{value:.1%}" if name.rpartition(".")[2].startswith("probability") else format_digits(value, 6)
    if isinstance(value, list):
        items = [_text(name, item) for item in value[:MAX_ITEMS]]
        return ", ".join([*items, f"… ({len(value)} in total)"] if len(value) > MAX_ITEMS else items)
    if isinstance(value, dict):  # shares of classes
        largest = sorted(value.items(), key=lambda item: -item[1])
        return _text(name, [f"{key} {share:.1%}" for key, share in largest if share])
    shape = getattr(value, "shape", None)
    if shape:
        return f"array {list(shape)}"
    words = " ".join(str(value).split())
    return words if name == "file" or len(words) <= MAX_LENGTH else f"{words[: MAX_LENGTH - 1]}…"
