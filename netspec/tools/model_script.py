"""The script next to an exported model: it runs the model in ONNX Runtime, and prints what `netspec predict` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from keyword import iskeyword
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from netspec.data.tabular.encodings import CategoricalEncoding, ColumnEncoding, DateEncoding, NumberEncoding
from netspec.data.transforms.resizing import Resizing
from netspec.tools.box_operators import SelectedBoxes
from netspec.tools.text_vocabulary import VOCABULARY, TextInput
from netspec.training.decoding import Decoder

if TYPE_CHECKING:
    from netspec.tools.deployed_model import DeployedInput
    from netspec.tools.raw_columns import RawColumns

SCRIPT = "run.py"
"""Name of the script in the folder of an exported model."""
WRITTEN_BY = "written by netspec export"
"""Text in files that a later export may replace."""
_MODES = {1: "L", 3: "RGB"}
_INDENT = "    "
USED = frozenset([
    "csv", "json", "re", "sys", "unicodedata", "np", "session", "metadata", "name", "image", "file", "reader", "rows",
    "columns", "column", "missing", "numbers", "number", "arrays", "row", "best", "second", "chosen", "mask", "shares",
    "largest", "size", "vocabulary", "text", "texts", "starts", "kept", "date", "datetime", "run", "absent", "edges",
    "error", "folder", "line", "lost", "shown", "reason", "labels", "tokens", "windows", "failed", "uncommented",
])  # fmt: skip
"""Names of variables in the script, which outputs must not have."""

Inputs: TypeAlias = "Mapping[str, DeployedInput | None]"
"""The inputs of an exported model: with preprocessing, or None for an input of the net alone."""


@dataclass(frozen=True)
class ScriptTable:
    """A table whose columns are the inputs of an exported model."""

    columns: RawColumns | None
    delimiter: str
    header: Sequence[str] | None
    """Names of the columns if the file has no header."""
    encoding: str = "utf-8"
    quotes: bool = True
    comment: str | None = None
    """Text at the beginning of lines to skip."""
    skip_lines: int = 0
    """Number of lines at the beginning of the file to skip."""
    group: str | None = None
    """Column that names the series of a row, for samples of several rows."""

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """The encodings of the columns that are inputs."""
        return {} if self.columns is None else self.columns.encodings


@dataclass(frozen=True)
class ScriptOutput:
    """Meaning of the values of an exported model's output."""

    name: str
    answer: Literal["class", "either", "classes", "mask", "boxes", "text", "value", "array"]
    """Kind of answer: one of several classes; one of two, by a single value (`either`); all classes that apply; the
    class of each pixel; boxes; a token for each step; numbers; or anything else (`array`)."""
    values: str
    """Kind of the values: `probability`, `score`, or `prediction`."""
    has_names: bool = False
    """Whether the metadata of the model contains the class names."""
    boxes: SelectedBoxes | None = None
    """The outputs that replace this one, for boxes."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the outputs of the model."""
        return (self.name,) if self.boxes is None else self.boxes.names

    @property
    def variables(self) -> list[str]:
        """Names of the values of the outputs in the script."""
        return [_identifier(name) for name in self.names]

    @property
    def named(self) -> str:
        """Name of the output that the class names in the metadata belong to."""
        return self.names[-1]

    @property
    def variable(self) -> str:
        """Name of the output's values in the script."""
        return _identifier(self.name)

    @property
    def classes(self) -> str:
        """Name of the output's class names in the script."""
        return f"{self.variable}_classes"

    @classmethod
    def of(cls, name: str, decoder: Decoder, shape: tuple[int, ...], *, postprocessed: bool) -> ScriptOutput:
        """Describe an output (N, *shape); `postprocessed`: the model applies the function that `predict` applies."""
        columns = decoder(np.zeros((1, *shape), np.float32))
        has_names = bool(decoder.classes)
        probability = decoder.postprocessing is None or postprocessed
        values = "probability" if probability and {"probability", "probabilities"} & columns.keys() else "score"
        if "classes" in columns:
            return cls(name, "classes" if values == "probability" else "array", values, has_names)
        if "class" in columns:
            single = int(np.prod(shape)) == 1
            answer: Literal["class", "either", "array"] = "class" if not single else "either"
            return cls(name, "array" if single and values == "score" else answer, values, has_names)
        if "mask" in columns and len(shape) == 3 and columns["mask"][0].shape == shape[1:] and shape[0] > 1:
            return cls(name, "mask", "probability" if postprocessed else "score", has_names)
        if "text" in columns and (decoder.postprocessing is None or decoder.postprocessing.axis in (-1, len(shape))):
            return cls(name, "text", values)
        if any(column.startswith("prediction") for column in columns) and len(shape) <= 1:
            return cls(name, "value", "prediction")
        return cls(name, "array", "value", has_names)


@dataclass(frozen=True)
class ScriptData:
    """Data that a script reads and passes to the model: images, the rows of a table, texts, or arrays."""

    inputs: Inputs
    table: ScriptTable | None = None
    texts: Sequence[TextInput] = ()
    """The inputs that take the tokens of texts: of columns of the table, or of files."""
    lines: bool = False
    """Whether each line of a file is a text."""

    @property
    def images(self) -> bool:
        """Whether the script reads images."""
        return self.table is None and not self.texts and reads_images(self.inputs)

    @property
    def argument(self) -> str:
        """The arguments of the script."""
        if self.table is not None:
            return "TABLE.csv"
        if self.texts:
            return "TEXT.txt..."
        return "IMAGE..." if self.images else "ARRAYS.npz"

    @property
    def libraries(self) -> list[str]:
        """The packages that the script imports."""
        subwords = any(text.tokenizer_file for text in self.texts)
        return ["numpy", "onnxruntime", *["pillow"] * self.images, *["tokenizers"] * subwords]


def script_text(model: str, data: ScriptData, outputs: list[ScriptOutput]) -> str:
    """Return the script for a model file of this name.

    Rows are read from a table, texts from text files, and images if the only input takes their pixels; anything else
    is read as arrays from an .npz file.
    """
    named = [output for output in outputs if output.has_names]
    encodings = {} if data.table is None else data.table.encodings
    has_dates = any(isinstance(encoding, DateEncoding) for encoding in encodings.values())
    lists = [text for text in data.texts if not text.tokenizer_file]
    subwords = [text for text in data.texts if text.tokenizer_file]
    lines = [f'"""Run {model}: python {SCRIPT} {data.argument} ({WRITTEN_BY})."""', ""]
    lines += (
        ["import csv"] * (data.table is not None) + ["import json"] * bool(named or lists) + ["import re"] * bool(lists)
        + ["import sys"] + ["import unicodedata"] * any(text.tokenizer.get("normalize") for text in data.texts)
        + ["from datetime import datetime, timezone"] * has_dates
        + ["from pathlib import Path", "", "import numpy as np"]
    )  # fmt: skip
    lines += ["import onnxruntime", *["from PIL import Image, ImageOps"] * data.images]
    lines += [*["from tokenizers import Tokenizer"] * bool(subwords), "", "folder = Path(__file__).parent"]
    lines.append(f'session = onnxruntime.InferenceSession(str(folder / "{model}"))')
    if named:
        lines.append("metadata = session.get_modelmeta().custom_metadata_map")
    lines += [f'{output.classes} = json.loads(metadata["netspec_classes"])["{output.named}"]' for output in named]
    if lists:
        lines.append(f'vocabulary = json.loads((folder / "{VOCABULARY}").read_text(encoding="utf-8"))')
    for text in subwords:
        lines.append(f'{text.function}_tokenizer = Tokenizer.from_file(str(folder / "{text.tokenizer_file}"))')
        lines += [f"{text.function}_tokenizer.no_{step}()" for step in ("padding", "truncation")]
    for text in data.texts:
        lines += ["", "", *text.lines()]
        if text.is_windowed:
            lines += ["", "", *text.decoding_lines()]
    if has_dates:
        lines += ["", "", *_of_dates()]
    if any(not isinstance(encoding, CategoricalEncoding) for encoding in encodings.values()):
        lines += ["", "", *_of_numbers()]
    if data.table is not None and data.table.comment is not None:
        lines += ["", "", *_of_comments(data.table)]
    lines += ["", "", "def run(name):"]
    body = []
    if data.table is not None:
        body += _of_rows(data, data.table, outputs)
    elif data.texts:
        body += _of_texts(data, outputs)
    else:
        body += _of_images(data.inputs, outputs) if data.images else _of_arrays(data.inputs, outputs)
    several = len(outputs) > 1
    whole = data.images and _shows_whole_images(data.inputs)
    row, indent = ("0", "") if data.images else ("row", _INDENT)
    label = "{name}" if data.images else "{labels[row]}" if data.texts and data.table is None else "{row + 1}"
    if data.table is not None and data.table.columns is not None:
        label = "{kept[row] + 1}" if data.table.columns.dropping else label
        length = data.table.columns.length
        label = label if length is None else f"{{starts[row] + {length}}}"
    for output in outputs:
        shown = label + (f" {output.name}" if several else "")
        if output.answer == "text" and data.texts:
            line = f"text_of_{data.texts[0].identifier}({output.variable}[row].argmax(axis=-1).tolist())"
            body.append(f'{indent}print(f"{shown}: {{{line}!r}}")')
            continue
        body += [indent + line for line in _printed(output, row, shown, several=several, whole=whole)]
    lines += [_INDENT + line for line in body]
    several_files = data.images or (data.texts and data.table is None)
    lines += [
        "",
        "",
        f"if len(sys.argv) {'< 2' if several_files else '!= 2'}:",
        f'    print("error: usage: python {SCRIPT} {data.argument}", file=sys.stderr)',
        "    sys.exit(2)",
        "failed = False",
        "for name in sys.argv[1:]:",
        "    try:",
        "        run(name)",
        "    except Exception as error:  # one line, no traceback; the other files follow",
        "        print(f\"error: {name}: {getattr(error, 'strerror', None) or error}\", file=sys.stderr)",
        "        failed = True",
        "sys.exit(failed)",
    ]
    return "\n".join(lines) + "\n"


def reads_images(inputs: Inputs) -> bool:
    """Return whether the script for these inputs reads images: the only input takes pixels, at most resized."""
    image, *others = inputs.values()
    if others or image is None or image.raw.dtype != "uint8" or len(image.raw.shape) != 3:
        return False
    if image.raw.ragged and not image.resizing:
        return False
    return image.raw.shape[0] in _MODES and all(map(_is_plain_resizing, image.before))


def _is_plain_resizing(step: object) -> bool:
    return isinstance(step, Resizing) and step.antialias and step.stretches


def _shows_whole_images(inputs: Inputs) -> bool:
    """Return whether the net sees the whole of each image."""
    (image,) = inputs.values()
    assert image is not None
    steps = (*image.before, *image.resizing, *image.inside)
    return all(step.positions == "kept" or (isinstance(step, Resizing) and step.stretches) for step in steps)


def image_preparation(image: DeployedInput) -> str:
    """Return what must be done to an image before it is an input of the model, as a sentence."""
    channels, height, width = image.raw.shape
    assert channels is not None
    resized = _resized(image)
    size = (
        f", and resize it to {height} × {width} pixels (height × width) by Pillow's {resized} filter" if resized else ""
    )
    return f"Rotate the image as its EXIF data says, convert it to Pillow's mode `{_MODES[channels]}`{size}."


def _resized(image: DeployedInput) -> str:
    """Return the interpolation by which images are resized before the model; empty if they are not."""
    return next((step.interpolation for step in image.before if isinstance(step, Resizing)), "")


def _of_images(inputs: Inputs, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read an image as `netspec predict` does, and run the model."""
    ((name, image),) = inputs.items()
    assert image is not None
    channels, height, width = image.raw.shape
    assert channels is not None
    steps = [f'ImageOps.exif_transpose(Image.open(name)).convert("{_MODES[channels]}")']
    if resized := _resized(image):
        steps.append(f"image.resize(({width}, {height}), Image.Resampling.{resized.upper()})")
    pixels = "np.asarray(image)[None, None]" if channels == 1 else "np.asarray(image).transpose(2, 0, 1)[None]"
    return [
        f"image = {steps[0]}",
        *["size = image.size"] * any(output.answer in ("mask", "boxes") for output in outputs),
        *(f"image = {step}" for step in steps[1:]),
        f'{_run(outputs)}{{"{name}": {pixels}}})',
    ]


def _of_texts(data: ScriptData, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read the texts of a file, and run the model."""
    (text,) = data.texts
    lines = ['text = Path(name).read_bytes().decode("utf-8-sig")']
    if data.lines:
        lines += [
            "labels, texts = [], []",
            'for number, line in enumerate(text.split("\\n"), 1):',
            "    if line.strip():",
            '        labels.append(f"{name}:{number}" if len(sys.argv) > 2 else number)',
            '        texts.append(line.rstrip("\\r"))',
        ]
    elif text.is_windowed:
        lines += [
            f"texts = {text.function}(text)",
            'labels = [f"{name}:{number}" for number in range(1, len(texts) + 1)]',
        ]
    else:
        lines.append("labels, texts = [name], [text]")
    return [
        *lines,
        f"tokens = np.array({'texts' if text.is_windowed else f'[{text.function}(text) for text in texts]'}, np.int32)",
        f'{_run(outputs)}{{"{text.name}": tokens}})',
        f"for row in range(len({outputs[0].variables[0]})):",
    ]


def _of_arrays(inputs: Inputs, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read the inputs of all samples as arrays, and run the model."""
    arrays = ", ".join(f'"{name}": arrays["{name}"]' for name in inputs)
    reason = f"the model takes arrays ({', '.join(inputs)}) in an .npz file; README.md lists what it does not contain"
    return [
        'if not name.endswith(".npz"):',
        f'    raise ValueError("{reason}")',
        "arrays = np.load(name)",
        f"{_run(outputs)}{{{arrays}}})",
        f"for row in range(len({outputs[0].variables[0]})):",
    ]


def _of_dates() -> Iterator[str]:
    """Yield the lines of a function that reads dates as the model takes them."""
    yield "def date(text, form):"
    yield "    try:"
    yield "        moment = datetime.strptime(text, form) if form else datetime.fromisoformat(text)"
    yield "    except ValueError:"
    yield '        moment = datetime.strptime(text, form or "%Y-%m")'
    yield "    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()"


def _of_numbers() -> Iterator[str]:
    """Yield the lines of a function that reads a column of numbers or dates."""
    yield "def numbers(rows, column, read, missing):"
    yield "    values = []"
    yield "    for number, row in enumerate(rows, 1):"
    yield "        cell = row[column].strip()"
    yield "        try:"
    yield "            values.append(np.nan if cell.lower() in missing else read(cell))"
    yield "        except ValueError:"
    yield '            raise ValueError(f"row {number}: cannot read {column} {cell!r}") from None'
    yield "    return np.array(values, np.float64)"


def _of_comments(table: ScriptTable) -> Iterator[str]:
    """Yield the lines of a function that leaves out comments, which are not within quotes."""
    yield "def uncommented(lines):"
    yield "    quotes = 0"
    yield "    for line in lines:"
    yield f"        if quotes % 2 or not line.startswith({table.comment!r}):"
    yield "            quotes += line.count('\"')" if table.quotes else "            quotes = 0"
    yield "            yield line"


def _of_rows(data: ScriptData, table: ScriptTable, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read the columns of a table, and run the model."""
    encodings = table.encodings.values()
    numbers: dict[tuple[str, bool], list[str]] = {}
    names = []
    for encoding in encodings:
        if isinstance(encoding, CategoricalEncoding):
            names.append(encoding.column)
        else:
            numbers.setdefault((_reader(encoding), encoding.missing == "error"), []).append(encoding.column)
    texts = {text.name: text for text in data.texts}
    needed = [*chain.from_iterable(numbers.values()), *names, *(text.column for text in texts.values())]
    needed += [table.group] if table.group is not None else []
    options = [f"delimiter={table.delimiter!r}"] * (table.delimiter != ",")
    options += [f"fieldnames={list(table.header)!r}"] if table.header is not None else []
    options += ["quoting=csv.QUOTE_NONE"] * (not table.quotes)
    content = f"list(file)[{table.skip_lines}:]" if table.skip_lines else "file"
    if table.comment is not None:
        content = f"uncommented({content})"
    reader = ", ".join([content, *options, "skipinitialspace=True"])
    file_encoding = "utf-8-sig" if table.encoding == "utf-8" else table.encoding
    dropping = [] if table.columns is None else table.columns.dropping
    lines = [
        f'with open(name, newline="", encoding="{file_encoding}") as file:',
        f"    reader = csv.DictReader({reader})",
        "    rows = list(reader)",
        *["if rows and [*rows[0]] == [*rows[0].values()]:  # a line with the names", "    del rows[0]"]
        * (table.header is not None),
        "if not rows:",
        '    raise ValueError("no rows")',
        f"absent = [column for column in {needed!r} if column not in reader.fieldnames]",
        "if absent:",
        """    raise ValueError(f"no column {', '.join(absent)}")""",
        "for number, row in enumerate(rows, 1):",
        "    if None in row.values():",
        '        raise ValueError(f"row {number}: fewer than {len(row)} cells")',
        "columns = {}",
    ]
    if dropping or any(not strict for _, strict in numbers):
        missing = set() if table.columns is None else table.columns.missing
        lines.append(f"missing = {sorted({'', *missing})!r}")
    for (read, strict), columns in numbers.items():
        lines += [
            f"for column in {columns!r}:",
            f"    columns[column] = numbers(rows, column, {read}, {'[]' if strict else 'missing'})",
        ]
    if names:
        lines += [
            f"for column in {names!r}:",
            "    columns[column] = np.array([row[column].strip() for row in rows], object)",
        ]
    for text in texts.values():
        tokens = f"{text.function}(row[{text.column!r}].strip())"
        lines.append(f'columns["{text.name}"] = np.array([{tokens} for row in rows], np.int32)')
    length = None if table.columns is None else table.columns.length
    if dropping:
        lines += _kept(dropping)
        lines += ["columns = {name: values[kept] for name, values in columns.items()}"] * (length is None)
    if length is not None:
        lines += _windows(length, table.group, gaps=bool(dropping))
    return [*lines, f"{_run(outputs)}columns)", f"for row in range(len({outputs[0].variables[0]})):"]


def _kept(dropping: Sequence[str]) -> list[str]:
    """Return the lines that find the rows with values in these columns, and report the number of others."""
    return [
        "kept = range(len(rows))",
        f"for column in {list(dropping)!r}:",
        "    lost = [number for number in kept if rows[number][column].strip().lower() in missing]",
        "    kept = sorted({*kept} - {*lost})",
        "    if lost:",
        '        shown = ", ".join(str(number + 1) for number in lost[:10]) + ", …" * (len(lost) > 10)',
        '        reason = f"{len(lost)} of {len(rows)} rows left out: `{column}` is missing in row {shown}"',
        '        print(f"note: {name}: {reason}", file=sys.stderr)',
        "if not kept:",
        '    raise ValueError("no row is left")',
    ]


def _windows(length: int, group: str | None, *, gaps: bool) -> list[str]:
    """Return the lines that turn columns into windows of consecutive rows, each within one group, without `gaps`."""
    lines = [f"starts = list(range(len(rows) - {length - 1}))"]
    if group is not None:
        same = f"rows[start][{group!r}] == rows[start + {length - 1}][{group!r}]"
        lines.append(f"starts = [start for start in starts if {same}]")
    if gaps:
        lines.append(f"starts = [start for start in starts if {{*kept}}.issuperset(range(start, start + {length}))]")
    return [
        *lines,
        "if not starts:",
        f'    raise ValueError("fewer than {length} consecutive rows")',
        f"windows = np.array(starts)[:, None] + np.arange({length})",
        "columns = {name: values[windows] for name, values in columns.items()}",
    ]


def _reader(encoding: NumberEncoding | DateEncoding) -> str:
    """Return an expression for a function that converts a cell to a number."""
    if isinstance(encoding, DateEncoding):
        return f"lambda cell: date(cell, {encoding.format!r})"
    format_ = encoding.format
    removed = [text for text in (format_.unit, format_.thousands) if text is not None]
    changed = "".join(f'.replace({text!r}, "")' for text in removed)
    changed += f'.replace({format_.decimal!r}, ".")' * (format_.decimal != ".")
    return f"lambda cell: float(cell{changed})" if changed else "float"


def _run(outputs: list[ScriptOutput]) -> str:
    """Return the beginning of a call of the model."""
    variables = [variable for output in outputs for variable in output.variables]
    names = ", ".join(f'"{name}"' for output in outputs for name in output.names)
    return f"{', '.join(variables)}{',' * (len(variables) == 1)} = session.run([{names}], "


def _printed(output: ScriptOutput, row: str, label: str, *, several: bool, whole: bool) -> Iterator[str]:
    """Yield the lines that print the answer of an output for a sample; `whole`: the net sees all of its image."""
    values, names = f"{output.variable}[{row}]", output.classes if output.has_names else ""
    match output.answer:
        case "class":
            yield f"best = {values}.argmax()"
            format_ = ".1%" if output.values == "probability" else ".6g"
            score = f"{output.variable}[{row}, best]:{format_}"
            yield f'print(f"{label}: {{{f"{names}[best]" if names else "best"}}} {{{score}}}")'
        case "either":
            yield f"second = {values}.item()"
            named = f"{names}[second > 0.5]" if names else "int(second > 0.5)"
            yield f'print(f"{label}: {{{named}}} {{max(second, 1 - second):.1%}}")'
        case "classes":
            chosen = f"{names}[index]" if names else "str(index)"
            yield f"chosen = [{chosen} for index in np.flatnonzero({values} > 0.5)]"
            yield f'print(f"{label}:", *chosen)'
        case "mask":
            yield f"mask = {values}.argmax(axis=0).astype(np.uint8)"
            yield f"shares = np.bincount(mask.ravel(), minlength=len({values})) / mask.size"
            titles = names or "map(str, range(len(shares)))"
            yield f"largest = sorted(zip(shares, {titles}), reverse=True)"
            yield f'print(f"{label}:", ", ".join(f"{{title}} {{share:.1%}}" for share, title in largest if share))'
            if row == "0":  # of an image
                ending = f"_{output.variable}.png" if several else "_mask.png"
                resized = ".resize(size, Image.Resampling.NEAREST)" if whole else ""
                yield f"mask = Image.fromarray(mask){resized}"
                yield f'mask.save(Path(name).stem + "{ending}")'
        case "boxes":
            boxes, scores, labels = (f"{variable}[{row}]" for variable in output.variables)
            scaled = " * [*size, *size]" if whole else ""  # else the edges are fractions of the part the net sees
            yield f"for edges, score, best in zip({boxes}{scaled}, {scores}, {labels}):"
            yield "    if best >= 0:"
            corners = "[round(float(edge), 2) for edge in edges]"
            yield f'        print(f"{label}: {{{f"{names}[best]" if names else "best"}}} {{score:.1%}}", {corners})'
        case "value":
            yield f'print(f"{label}:", *{values}.ravel())'
        case "text" | "array":
            yield f'print(f"{label}: array of shape {{{values}.shape}}")'


def _identifier(name: str) -> str:
    """Return a name as one of Python's that the script does not use otherwise."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"output_{cleaned}" if cleaned in USED or iskeyword(cleaned) or not cleaned.isidentifier() else cleaned
