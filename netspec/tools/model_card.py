"""A folder with an exported model: the model, a card that describes it (README.md), and a script that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec import __version__
from netspec.compile import ProgramKind
from netspec.data.tabular.encodings import ColumnEncoding, NumberEncoding
from netspec.errors import InputError, and_more, counted
from netspec.exchange.files import write_atomically
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.model_script import (
    SCRIPT,
    WRITTEN_BY,
    Inputs,
    ScriptOutput,
    ScriptTable,
    arguments,
    image_preparation,
    reads_images,
    script_text,
)
from netspec.training.decoding import Decoder
from netspec.training.events import SPLITS, done_event

if TYPE_CHECKING:
    from netspec.exchange.formats.onnx.exporting import ExportReport
    from netspec.tools.deployed_model import DeployedModel
    from netspec.training.model import Model

MODEL, CARD = "model.onnx", "README.md"
"""Names of the files of the folder, next to the script."""
MOST_CLASSES = 50
"""Number of class names that a card lists; the others are in the metadata of the model."""
MOST_NAMES = 10
"""Number of names of a column that a card lists."""
MEANINGS = {
    "class": "{values} of each class",
    "either": "probability of the second class",
    "classes": "independent probability of each class",
    "mask": "{values} of each class for each pixel",
    "value": "predicted value",
    "array": "{values}",
}


def is_folder(path: Path) -> bool:
    """Return whether an output path means a folder: it is one, or its name has no suffix."""
    return path.is_dir() or not path.suffix


def check_folder(folder: Path) -> None:
    """Raise `InputError` if writing to a folder would replace a file that is not from an earlier export."""
    for name in (CARD, SCRIPT):
        file = folder / name
        if file.exists() and WRITTEN_BY not in file.read_text(encoding="utf-8", errors="replace")[:500]:
            raise InputError(
                f"{file} was not written by netspec export", expected="a folder without other files of this name",
                hint="write to another folder, or only the model: `--output MODEL.onnx`",
            )  # fmt: skip


def write_card(
    folder: Path,
    model: Model,
    spec: NetSpec | TrainSpec,
    report: ExportReport,
    decoders: Mapping[str, Decoder],
    deployed: DeployedModel | None,
    left_out: Sequence[str],
    run: Path | None,
) -> tuple[Path, ...]:
    """Write the card and the script of the model in a folder, and return their paths.

    `left_out` are the parts of the preprocessing that the model does not contain, a line each; `run` is the run
    directory that the weights come from, whose results the card states.
    """
    graph = model.compiler.graph(ProgramKind.PREDICT, 1)
    names = deployed.output_names if deployed is not None else {name: name for name in graph.outputs}
    outputs = [
        ScriptOutput.of(names[name], decoders[name], value.shape[1:], postprocessed=deployed is not None)
        for name, value in graph.outputs.items()
    ]
    inputs: Inputs = {name: None if deployed is None else deployed.inputs.get(name) for name in report.inputs}
    types = {name: str(value.dtype) for name, value in graph.inputs().items()}
    types |= {name: kind.type.dtype for name, kind in inputs.items() if kind is not None}
    table = None if deployed is None else _table_of(deployed, spec)
    types |= deployed.raw.prologue().inputs if deployed is not None and deployed.raw is not None else {}
    classes = {names[name]: decoder.classes for name, decoder in decoders.items() if decoder.classes}
    lines = [
        *_introduction(spec, outputs, classes),
        *_inputs_and_outputs(report, types, inputs, outputs, classes, table),
        *_preprocessing(deployed, inputs, left_out),
        *_how_to_run(report, inputs, table),
        *_training(spec, run),
    ]
    mark = f"<!-- {WRITTEN_BY}, version {__version__} -->"
    texts = {
        CARD: "\n".join([mark, *lines]).rstrip() + "\n",
        SCRIPT: script_text(report.path.name, inputs, outputs, table),
    }
    for name, text in texts.items():
        write_atomically(folder / name, partial(Path.write_text, data=text, encoding="utf-8"))
    return folder / CARD, folder / SCRIPT


def _table_of(deployed: DeployedModel, spec: NetSpec | TrainSpec) -> ScriptTable | None:
    """Return the table whose columns a model takes; None if it takes something else."""
    if deployed.raw is None or not isinstance(spec, TrainSpec):
        return None
    split = spec.data.deployed
    header = getattr(split, "header", None)
    return ScriptTable(
        deployed.raw, getattr(split, "delimiter", ","), header if isinstance(header, (list, tuple)) else None
    )


def _introduction(
    spec: NetSpec | TrainSpec, outputs: Sequence[ScriptOutput], classes: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    name = (spec.name or spec.net.name) if isinstance(spec, TrainSpec) else spec.name
    yield from (f"# {name or 'Model'}", "")
    for output in outputs:
        number = len(classes.get(output.name, ()))
        task = {
            "class": f"chooses one of {number} classes" if number else "chooses one class",
            "either": "decides between two classes",
            "classes": f"finds which of {number} classes apply" if number else "finds which classes apply",
            "mask": f"finds the class of each pixel, one of {number}" if number else "finds the class of each pixel",
            "value": "predicts a value",
            "array": "computes an array",
        }[output.answer]
        yield f"The output `{output.name}` {task}."
    yield ""
    descriptions = [spec.description, spec.net.description if isinstance(spec, TrainSpec) else ""]
    for text in filter(None, dict.fromkeys(descriptions)):
        yield from (text, "")


def _inputs_and_outputs(
    report: ExportReport,
    types: Mapping[str, str],
    inputs: Inputs,
    outputs: Sequence[ScriptOutput],
    classes: Mapping[str, Sequence[str]],
    table: ScriptTable | None,
) -> Iterator[str]:
    def row(name: str, dims: Sequence[object], dtype: str, meaning: str) -> str:
        shape = ", ".join("?" if dim is None else str(dim) for dim in dims)
        return f"| `{name}` | [{shape}] | {dtype} | {meaning} |"

    images = table is None and reads_images(inputs)
    encodings = {} if table is None else table.columns.encodings
    head = ("| name | shape | type | meaning |", "| --- | --- | --- | --- |")
    yield from ("## Inputs", "", *head)
    for name, dims in report.inputs.items():
        colors = "red, green, blue" if dims[1:2] == (3,) else "gray"
        if name in encodings:
            yield row(name, dims, types[name], _column_meaning(encodings[name]))
            continue
        meaning = f"pixels, 0 to 255: sample, channel ({colors}), row, column" if images else "one row per sample"
        yield row(name, dims, types[name], meaning)
    yield from ("", "## Outputs", "", *head)
    for output in outputs:
        meaning = MEANINGS[output.answer].format(values=output.values)
        yield row(output.name, report.outputs[output.name], "float32", meaning)
    for name, names in classes.items():
        more = and_more(len(names) - MOST_CLASSES)
        listed = ", ".join(f"{label} ({index})" for index, label in enumerate(names[:MOST_CLASSES]))
        yield from ("", f"Classes of `{name}`: {listed}{more}.")
    if classes:
        yield from ("", "The metadata `netspec_classes` of the model is JSON with these names.")
    yield ""


def _column_meaning(encoding: ColumnEncoding) -> str:
    if isinstance(encoding, NumberEncoding):
        return "number" if encoding.fill is None else "number; NaN if it is missing"
    names = [name for name, index in encoding.indices.items() if index > encoding.default or encoding.default < 0]
    listed = ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
    return f"name: {listed}".replace("|", "\\|")


def _preprocessing(deployed: DeployedModel | None, inputs: Inputs, left_out: Sequence[str]) -> Iterator[str]:
    yield from ("## Preprocessing", "")
    if deployed is not None:
        yield from (f"In the model: {', '.join(deployed.steps) or 'nothing'}.", "")
    if left_out:
        yield from ("Not in the model; the program that runs it must do this:", "")
        yield from (f"- {line}" for line in left_out)
    elif not reads_images(inputs):
        yield "Nothing else is needed: the model takes raw samples."
    if reads_images(inputs):
        images = [image_preparation(image) for image in inputs.values() if image is not None]
        yield from (f"{line} `{SCRIPT}` does this." for line in images)
    yield ""


def _how_to_run(report: ExportReport, inputs: Inputs, table: ScriptTable | None) -> Iterator[str]:
    libraries = "numpy onnxruntime" + " pillow" * (table is None and reads_images(inputs))
    yield from (
        "## Run",
        "",
        "```",
        f"pip install {libraries}",
        f"python {SCRIPT} {arguments(inputs, table)}",
        "```",
        "",
    )
    yield f"`{SCRIPT}` prints an answer for each sample. `{report.path.name}` has ONNX opset {report.opset}."
    if report.comparison is not None and report.comparison.whole.finite:
        yield f"ONNX Runtime and netspec give the same results: {report.comparison.whole}."
    yield ""


def _training(spec: NetSpec | TrainSpec, run: Path | None) -> Iterator[str]:
    done = None if run is None else done_event(run)
    if isinstance(spec, TrainSpec):
        yield from ("## Data", "", f"Source of the training data: `{getattr(spec.data.train, SOURCES.tag)}`.", "")
    if done is None:
        return
    results = {split: done[split] for split in SPLITS if isinstance(done.get(split), Mapping)}
    for result in list(results.values()):
        results |= result.get("others", {})
    if results:
        names = list(dict.fromkeys(name for result in results.values() for name in result.get("metrics", {})))
        yield from ("## Results", "", f"| data | samples | loss |{''.join(f' {name} |' for name in names)}")
        yield "| --- | --- | --- |" + " --- |" * len(names)
        for split, result in results.items():
            values = [_number(result.get("metrics", {}).get(name)) for name in names]
            cells = [f"{result.get('samples', 0):,}", _number(result.get("loss")), *values]
            yield f"| {SPLITS.get(split, split)} | {' | '.join(cells)} |"
        yield ""
    yield f"The weights were saved after {counted(int(done.get('weights_step') or done['steps']), 'step')}."
    yield ""


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else ""
