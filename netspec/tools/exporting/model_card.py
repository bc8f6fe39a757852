"""A folder with an exported model: the model, a card that describes it (README.md), and a script that runs it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from netspec import __version__
from netspec.compile import ProgramKind
from netspec.data.sources.audio import Audio
from netspec.data.sources.csv import Csv
from netspec.data.tabular.encodings import ColumnEncoding, DateEncoding, NumberEncoding
from netspec.data.tabular.rows import with_time_format
from netspec.data.tabular.source import TableSource
from netspec.errors import InputError, and_more, counted, listing
from netspec.exchange.files import write_text_atomically
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.exporting.model_script import (
    FILES_LINE,
    SCRIPT,
    WRITTEN_BY,
    Inputs,
    ScriptData,
    ScriptOutput,
    example_text,
    image_preparation,
    script_text,
)
from netspec.tools.exporting.script_generation import ScriptGeneration, script_generation
from netspec.tools.exporting.script_sounds import ScriptSound
from netspec.tools.exporting.script_table import ScriptTable
from netspec.tools.exporting.step_model import STEP_MODEL, write_step_model
from netspec.tools.exporting.text_vocabulary import VOCABULARY, vocabulary_files
from netspec.training.events import SPLITS, done_event
from netspec.training.inference.decoding import Decoder

if TYPE_CHECKING:
    from netspec.exchange.formats.onnx.exporting import ExportReport
    from netspec.graph.graph import Graph
    from netspec.tools.exporting.deployed_model import DeployedModel
    from netspec.training.generation.language_model import StepNet
    from netspec.training.inference.model import Model

MODEL, CARD = "model.onnx", "README.md"
"""Names of the files of the folder, next to the script."""
MAX_CLASSES = 50
"""Number of class names that a card lists; the others are in the metadata of the model."""
MAX_NAMES = 10
"""Number of names of a column that a card lists."""
MEANINGS = {
    "class": "{values} of each class",
    "either": "probability of the second class",
    "classes": "independent probability of each class",
    "mask": "{values} of each class for each pixel",
    "text": "{values} of each token at each position",
    "value": "predicted value, in the unit of the data",
    "array": "{values}",
}
BOX_MEANINGS = [
    ("float32", "left, top, right and bottom edge in fractions of the image that the net sees"),
    ("float32", "probability of the class of each box, in descending order"),
    ("int64", "class of each box; -1 if there are no more boxes"),
]
"""Element types and meanings of the outputs of a detector."""


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
    *,
    decoders: Mapping[str, Decoder],
    deployed: DeployedModel | None,
    left_out: Sequence[str],
    run: Path | None,
    tolerance: float | None = None,
) -> tuple[Path, ...]:
    """Write the card, the script and the vocabularies of the model in a folder, and return their paths.

    `left_out` are the parts of the preprocessing that the model does not contain, a line each; `run` is the run
    directory that the weights come from, whose results the card states. If the script runs a single-step net, its model
    is written too, and compared with `tolerance`.
    """
    graph = model.compiler.graph(ProgramKind.PREDICT, 1)
    outputs = _outputs_of(graph, decoders, deployed)
    types = _input_types(graph, deployed)
    generation = script_generation(
        model, spec, outputs[0].name, report.inputs, types, {} if deployed is None else deployed.samples,
        is_probability=outputs[0].values == "probability",
    )  # fmt: skip
    data = _data_of(spec, report, deployed, generation)
    classes = {output.named: decoders[name].classes for name, output in zip(graph.outputs, outputs, strict=True)}
    classes = {name: class_names for name, class_names in classes.items() if class_names}
    lines = [
        f"<!-- {WRITTEN_BY}, version {__version__} -->",
        *_introduction(spec, outputs, classes),
        *_inputs_and_outputs(report, types, data, outputs, classes),
        *_preprocessing(deployed, data, left_out if generation is None else generation.left_out),
        *(
            _how_to_run(report, data, example_text(report.path.name, data, report.inputs, types, outputs))
            if generation is None
            else _how_to_generate(report, data.libraries, generation)
        ),
        *_training(spec, run),
    ]
    vocabularies = vocabulary_files(data.vocabularies)
    models = _models_of_script(folder, report, generation, tolerance)
    written = {
        CARD: "\n".join(lines).rstrip() + "\n",
        SCRIPT: script_text([*(path.name for path in models), *vocabularies], data, outputs),
        **vocabularies,
    }
    earlier_script = (folder / SCRIPT).read_text(encoding="utf-8") if (folder / SCRIPT).exists() else ""
    for name, text in written.items():
        write_text_atomically(folder / name, text)
    kept = [path.name for path in (report.path, report.data, *models) if path is not None]
    _remove_earlier(folder, earlier_script, {*kept, *written})
    return (*(path for path in models if path not in (report.path, report.data)), *(folder / name for name in written))


def _remove_earlier(folder: Path, script: str, names: Collection[str]) -> None:
    """Remove the files of an earlier export, which wrote this script, that the new export does not write.

    These are a step model or vocabularies. Otherwise, somebody may run a model with outdated weights.
    """
    listed = next((line for line in script.splitlines() if line.startswith(FILES_LINE)), "")
    for file in folder.iterdir():
        if file.name not in names and repr(file.name) in listed:
            file.unlink()


def _models_of_script(
    folder: Path, report: ExportReport, generation: ScriptGeneration | None, tolerance: float | None
) -> list[Path]:
    """Return the files of the model that the script runs: the exported model, or the single-step net, written here."""
    if generation is not None and generation.step_net is not None:
        batch = next(iter(report.inputs.values()))[0]
        size = batch if isinstance(batch, int) else None
        path = folder / STEP_MODEL
        step_report = write_step_model(generation.step_net, path, batch=size, opset=report.opset, tolerance=tolerance)
        return list(filter(None, [step_report.path, step_report.data]))
    return list(filter(None, [report.path, report.data]))


def _outputs_of(
    graph: Graph, decoders: Mapping[str, Decoder], deployed: DeployedModel | None
) -> list[ScriptOutput]:  # fmt: skip
    """Describe the outputs of the exported model, one for each output of the net."""
    names = deployed.output_names if deployed is not None else {name: name for name in graph.outputs}
    boxes = {} if deployed is None else deployed.boxes
    return [
        ScriptOutput(names[name], "boxes", "probability", bool(decoders[name].classes), boxes[name])
        if name in boxes
        else ScriptOutput.of(names[name], decoders[name], value.shape[1:], postprocessed=deployed is not None)
        for name, value in graph.outputs.items()
    ]


def _input_types(graph: Graph, deployed: DeployedModel | None) -> dict[str, str]:
    """Return the element types of the inputs of the net and of the exported model, by name."""
    types = {name: str(value.dtype) for name, value in graph.inputs().items()}
    if deployed is not None:
        types |= {name: prepared.raw.dtype for name, prepared in deployed.inputs.items()}
        if deployed.wrapper is not None:
            types |= {name: raw.dtype for name, raw in deployed.wrapper.inputs.items()}
    return types


def _data_of(
    spec: NetSpec | TrainSpec, report: ExportReport, deployed: DeployedModel | None, generation: ScriptGeneration | None
) -> ScriptData:
    """Describe the data that the script reads."""
    inputs: Inputs = {name: None if deployed is None else deployed.inputs.get(name) for name in report.inputs}
    table, texts = _table_of(deployed, spec), () if deployed is None else deployed.texts
    if table is None and {text.name for text in texts} != inputs.keys():
        texts = ()  # the script reads arrays, since it cannot prepare all inputs
    lines_of_files = isinstance(spec, TrainSpec) and getattr(spec.data.deployed, "documents", "") == "lines"
    return ScriptData(inputs, table, texts, lines_of_files, _sound_of(inputs, spec), generation)


def _table_of(deployed: DeployedModel | None, spec: NetSpec | TrainSpec) -> ScriptTable | None:
    """Return the table whose columns a model takes; None if it takes something else."""
    if deployed is None or not isinstance(spec, TrainSpec) or not isinstance(spec.data.deployed, TableSource):
        return None
    columns, split = deployed.columns, spec.data.deployed
    read = {*(() if columns is None else columns.columns), *(text.name for text in deployed.texts)}
    header = getattr(split, "header", None)
    if header is False or read != deployed.inputs.keys():
        return None
    table = ScriptTable(
        columns=columns,
        texts=deployed.texts,
        header=header if isinstance(header, (list, tuple)) else None,
    )
    if split.windows is not None:
        division = None if split.division is None else with_time_format(split.division, split)
        table = replace(
            table,
            group=split.windows.group,
            time=None if division is None else division.time,
            time_format=None if division is None else division.time_format,
            time_steps=deployed.time_steps,
        )
    if not isinstance(split, Csv):
        return table
    return replace(
        table,
        delimiter=split.delimiter,
        encoding=split.encoding,
        quotes=split.quotes,
        comment=split.comment,
        skip_lines=split.skip_lines,
    )


def _sound_of(inputs: Inputs, spec: NetSpec | TrainSpec) -> ScriptSound | None:
    """Return how the only input is read from WAV files; None if it is something else."""
    split = spec.data.deployed if isinstance(spec, TrainSpec) else None
    (only, *others) = inputs.values()
    if others or only is None or only.before or not isinstance(split, Audio):
        return None
    return ScriptSound(split.sampling_rate, split.resample, split.channels)


def _introduction(
    spec: NetSpec | TrainSpec, outputs: Sequence[ScriptOutput], classes: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    name = (spec.name or spec.net.name) if isinstance(spec, TrainSpec) else spec.name
    yield from (f"# {name or 'Model'}", "")
    for output in outputs:
        number = len(classes.get(output.named, ()))
        task = {
            "class": f"chooses one of {number} classes" if number else "chooses one class",
            "either": "decides between two classes",
            "classes": f"finds which of {number} classes apply" if number else "finds which classes apply",
            "boxes": f"finds objects of {number} classes" if number else "finds objects",
            "mask": f"finds the class of each pixel, one of {number}" if number else "finds the class of each pixel",
            "text": "predicts a token for each step",
            "value": "predicts a value",
            "array": "computes an array",
        }[output.answer]
        yield f"The output `{output.names[0]}` {task}."
    yield ""
    descriptions = [spec.description, spec.net.description if isinstance(spec, TrainSpec) else ""]
    for text in filter(None, dict.fromkeys(descriptions)):
        yield from (text, "")


def _inputs_and_outputs(
    report: ExportReport,
    types: Mapping[str, str],
    data: ScriptData,
    outputs: Sequence[ScriptOutput],
    classes: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    def row(name: str, dims: Sequence[object], dtype: str, meaning: str) -> str:
        shape = ", ".join("?" if dim is None else str(dim) for dim in dims)
        return f"| `{name}` | [{shape}] | {dtype} | {meaning} |"

    encodings = {} if data.table is None else data.table.encodings
    texts = {text.name for text in data.texts}
    head = ("| name | shape | type | meaning |", "| --- | --- | --- | --- |")
    yield from ("## Inputs", "", *head)
    for name, dims in report.inputs.items():
        colors = "red, green, blue" if dims[1:2] == (3,) else "gray"
        if data.generation is not None:
            yield row(name, dims, types[name], data.generation.meaning(name))
            continue
        if name in encodings:
            yield row(name, dims, types[name], _column_meaning(encodings[name]))
            continue
        meaning = f"tokens of a text, from `{VOCABULARY}`" if name in texts else "one row per sample"
        if data.images:
            meaning = f"pixels, 0 to 255: sample, channel ({colors}), row, column"
        if data.sound is not None:
            meaning = data.sound.meaning
        yield row(name, dims, types[name], meaning)
    yield from ("", "## Outputs", "", *head)
    for output in outputs:
        if output.boxes is not None:
            meanings = BOX_MEANINGS
        else:
            meanings = [("float32", MEANINGS[output.answer].format(values=output.values))]
        for name, (dtype, meaning) in zip(output.names, meanings, strict=True):
            yield row(name, report.outputs[name], dtype, meaning)
    for name, names in classes.items():
        more = and_more(len(names) - MAX_CLASSES)
        listed = ", ".join(f"{label} ({index})" for index, label in enumerate(names[:MAX_CLASSES]))
        yield from ("", f"Classes of `{name}`: {listed}{more}.")
    if classes:
        yield from ("", "The metadata `netspec_classes` of the model is JSON with these names.")
    yield ""


def _column_meaning(encoding: ColumnEncoding) -> str:
    if isinstance(encoding, DateEncoding):
        time = "time in seconds since 1970-01-01 00:00 UTC"
        return time if encoding.fills is None else f"{time}; NaN if it is missing"
    if isinstance(encoding, NumberEncoding):
        number = "number: 1 for true, 0 for false" if encoding.boolean else "number"
        return number if encoding.fill is None else f"{number}; NaN if it is missing"
    listed = ", ".join(encoding.names[:MAX_NAMES]) + ", …" * (len(encoding.names) > MAX_NAMES)
    return f"name: {listed}".replace("|", "\\|")


def _preprocessing(deployed: DeployedModel | None, data: ScriptData, left_out: Sequence[str]) -> Iterator[str]:
    yield from ("## Preprocessing", "")
    if deployed is not None:
        yield from (f"In the model: {', '.join(deployed.steps) or 'nothing'}.", "")
    if left_out:
        yield from ("Not in the model; the program that runs it must do this:", "")
        yield from (f"- {line}" for line in left_out)
        if data.vocabularies:
            yield from ("", f"`{SCRIPT}` does this. It computes the tokens of texts with `{VOCABULARY}`.")
        elif data.table is not None:
            yield from ("", f"`{SCRIPT}` does this.")
    elif deployed is None:
        yield "The model contains the net alone."
    elif not data.images and data.sound is None:
        yield "Nothing else is needed: the model takes raw samples."
    if data.images:
        images = [image_preparation(image) for image in data.inputs.values() if image is not None]
        yield from (f"{line} `{SCRIPT}` does this." for line in images)
    if data.sound is not None:
        yield f"{data.sound.preparation} `{SCRIPT}` does this."
    yield ""


def _how_to_run(report: ExportReport, data: ScriptData, example: str) -> Iterator[str]:
    yield from (
        "## Run",
        "",
        "```",
        f"pip install {' '.join(data.libraries)}",
        f"python {SCRIPT} {data.argument}",
        "```",
        "",
    )
    yield f"`{SCRIPT}` prints an answer for each sample. `{report.path.name}` has ONNX opset {report.opset}."
    placeholders = ""
    if not data.images and data.sound is None:
        placeholders = f", with your values in place of {'zeros' if data.table is None else 'these'}"
    if data.texts and placeholders:
        functions = listing([f"`{text.function}`" for text in data.texts])
        placeholders += f" ({functions} in `{SCRIPT}` returns the tokens of a text)"
    yield from ("", f"In a program{placeholders}:", "", "```python", example, "```", "")
    yield from _comparison(report)


def _how_to_generate(report: ExportReport, libraries: Sequence[str], generation: ScriptGeneration) -> Iterator[str]:
    """Yield how to generate a text, with a prompt of the data if it is available."""
    prompt, text = generation.example or ("TEXT", "")
    values = [f"{name}={value}" for name, value in generation.example_options.items()]
    options = "".join(f" --{name} {value}" for name, value in generation.example_options.items())
    yield from ("## Run", "", "```", f"pip install {' '.join(libraries)}", "```", "")
    yield f"`{SCRIPT}` writes the same text as `netspec generate`."
    if generation.step_net is not None:
        yield from _about_steps(report, generation.step_net)
    yield f"`{report.path.name}` has ONNX opset {report.opset}."
    yield from ("", "```", f"$ python {SCRIPT} --prompt {_quoted(prompt)}{options}", *text.splitlines(), "```", "")
    yield from ("In a program next to it:", "", "```python", f"from {Path(SCRIPT).stem} import generate", "")
    yield from (f"print(generate({', '.join([repr(prompt), *values])}))", "```", "")
    yield from _comparison(report)


def _about_steps(report: ExportReport, net: StepNet) -> Iterator[str]:
    """Yield what the single-step net takes and returns."""
    yield f"It runs `{STEP_MODEL}`, which reads one token at a time, with the weights of `{report.path.name}`:"
    token = ", ".join(f"`{name}` [{dims[0]}, 1]" for name, dims in report.inputs.items())
    if not net.replaced_states:
        yield f"it takes the token {token}, and returns the logits `{net.output}` of the next token."
        return
    yield f"it takes the token {token} and the states before it, which begin with zeros, and returns the logits"
    yield f"`{net.output}` of the next token and the new states."
    pairs = [f"`{before}` → `{after}`" for before, after in net.replaced_states.items()]
    yield f"States: {', '.join(pairs)}."


def _quoted(text: str) -> str:
    """Return a text as an argument of a shell, in double quotes if it has an apostrophe."""
    return f'"{text}"' if "'" in text and not set('"$`\\!') & set(text) else quote(text)


def _comparison(report: ExportReport) -> Iterator[str]:
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
        units = {name for result in results.values() for name in result.get("in_units", {})}
        titles = [f"{name} (target's unit)" if name in units else name for name in names]
        loss = "loss (normalized values)" if units else "loss"
        yield from ("## Results", "", f"| data | samples | {' | '.join([loss, *titles])} |")
        yield "| --- | --- | --- |" + " --- |" * len(names)
        for split, result in results.items():
            metrics = {**result.get("metrics", {}), **result.get("in_units", {})}
            values = [_number(metrics.get(name)) for name in names]
            cells = [f"{result.get('samples', 0):,}", _number(result.get("loss")), *values]
            yield f"| {SPLITS.get(split, split)} | {' | '.join(cells)} |"
        yield ""
    yield f"The weights were saved after {counted(int(done.get('weights_step') or done['steps']), 'step')}."
    yield ""


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, (int, float)) else ""
