"""The script next to an exported model: it runs the model in ONNX Runtime, and prints what `netspec predict` prints."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from netspec.data.file_kinds import IMAGES, SOUNDS, TEXTS, FileKind
from netspec.data.tabular.encodings import CategoricalEncoding, DateEncoding, NumberEncoding
from netspec.data.transforms.resizing import Resizing
from netspec.tools.exporting.box_operators import SelectedBoxes
from netspec.tools.exporting.script_generation import ScriptGeneration
from netspec.tools.exporting.script_sounds import SELECTIONS, ScriptSound
from netspec.tools.exporting.script_table import ScriptTable
from netspec.tools.exporting.text_vocabulary import VOCABULARY, TextInput
from netspec.training.inference.decoding import Decoder

if TYPE_CHECKING:
    from netspec.tools.exporting.deployed_model import DeployedInput

SCRIPT = "run.py"
"""Name of the script in the folder of an exported model."""
WRITTEN_BY = "written by netspec export"
"""Text in files that a later export may replace."""
FILES_LINE = "for file in "
"""Start of the line of a script that lists the files that it needs."""
_MODES = {1: "L", 3: "RGB"}
_INDENT = "    "
USED = frozenset([
    "csv", "json", "re", "sys", "unicodedata", "np", "session", "metadata", "name", "image", "file", "rows",
    "columns", "column", "missing", "arrays", "number", "row", "best", "second", "chosen", "mask", "shares",
    "largest", "size", "vocabulary", "text", "texts", "starts", "kept", "present", "datetime", "run", "absent", "edges",
    "error", "folder", "line", "lost", "shown", "reason", "labels", "tokens", "windows", "failed", "categories",
    "is_missing", "missing_in", "read_rows", "read_number", "read_boolean", "note_unknown_categories",
    "note_unknown_texts", "answer", "as_json", "arguments", "box", "found",
    "Counter", "signal", "names", "files", "suffixes", "below", "struct", "sound", "samples", "rate", "read_sound",
    "resampled", "filter_phases", "steps", "lru_cache", "gcd", "ZEROS", "BETA", "wave",
    "read_numbers", "read_date", "read_parquet", "StoredDate", "read_categories", "classes", "inputs",
    "check_times", "times", "step", "unusual", "score", "Image", "Path", "os", "onnxruntime", *dir(builtins),
])  # fmt: skip
"""Names of variables in the script, which outputs must not have."""

Inputs: TypeAlias = "Mapping[str, DeployedInput | None]"
"""The inputs of an exported model: with preprocessing, or None for an input of the net alone."""


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
        probability = not decoder.not_in_graph and (decoder.postprocessing is None or postprocessed)
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
            return cls(name, "text", "probability" if probability else "score")
        if any(column.startswith("prediction") for column in columns) and len(shape) <= 1:
            return cls(name, "value", "prediction")
        return cls(name, "array", "value", has_names)


@dataclass(frozen=True)
class ScriptData:
    """Data that a script reads and passes to the model: images, sounds, the rows of a table, texts, or arrays."""

    inputs: Inputs
    table: ScriptTable | None = None
    texts: Sequence[TextInput] = ()
    """The inputs that take the tokens of texts: of columns of the table, or of files."""
    lines: bool = False
    """Whether each line of a file is a text."""
    sound: ScriptSound | None = None
    """Preprocessing of a WAV file for the only input; None if the model does not read sounds."""
    generation: ScriptGeneration | None = None
    """The parts that generate a text; None if the model does not write texts."""

    @property
    def images(self) -> bool:
        """Whether the script reads images."""
        return self.table is None and not self.texts and reads_images(self.inputs)

    @property
    def vocabularies(self) -> Sequence[TextInput]:
        """The inputs whose vocabularies the script needs."""
        return self.texts if self.generation is None else self.generation.texts

    @property
    def file_kind(self) -> FileKind | None:
        """Kind of the files of which each is a sample; None for a table or arrays."""
        if self.texts and self.table is None:
            return TEXTS
        return SOUNDS if self.sound is not None else IMAGES if self.images else None

    @property
    def argument(self) -> str:
        """The arguments of the script."""
        if self.generation is not None:
            return "--prompt TEXT"
        if self.table is not None:
            return "TABLE.csv"
        if self.texts:
            return "TEXT.txt..."
        return "SOUND.wav..." if self.sound is not None else "IMAGE..." if self.images else "ARRAYS.npz"

    @property
    def libraries(self) -> list[str]:
        """The packages that the script imports."""
        subwords = any(text.tokenizer_file for text in self.vocabularies)
        return ["numpy", "onnxruntime", *["pillow"] * self.images, *["tokenizers"] * subwords]


def script_text(files: Sequence[str], data: ScriptData, outputs: Sequence[ScriptOutput]) -> str:
    """Return the script for a model, whose file is the first of `files` next to the script that it needs.

    Rows are read from a table, texts from text files, sounds from WAV files, and images if the only input takes their
    pixels; anything else is read as arrays from an .npz file. A model that generates text has a prompt.
    """
    lines = [
        f'"""Run {files[0]}: python {SCRIPT} {data.argument} ({WRITTEN_BY})."""',
        "",
        *_imports(data),
        *_open_model(files, data, outputs),
    ]
    if data.generation is not None:
        lines += ["", "", *data.generation.functions(), "", "", *data.generation.main()]
    else:
        lines += [*_functions(data), "", "", "def run(name):"]
        lines += (_INDENT + line for line in (*_compute(data, outputs), *_print_answers(data, outputs)))
        lines += ["", "", *_main(data)]
    return "\n".join(lines) + "\n"


def example_text(
    model: str, data: ScriptData, dims: Mapping[str, Sequence[object]], types: Mapping[str, str],
    outputs: Sequence[ScriptOutput],
) -> str:  # fmt: skip
    """Return a short program that runs a model on one sample: an image, or placeholders in place of values.

    `dims` and `types` are the sizes, with the batch first, and the element types of the inputs.
    """
    named = [output for output in outputs if output.has_names]
    standard = [*["import json"] * bool(named), *["import wave"] * (data.sound is not None)]
    lines = [*standard, *[""] * bool(standard), "import numpy as np", "import onnxruntime"]
    lines += ["from PIL import Image"] * data.images
    lines += ["", f'session = onnxruntime.InferenceSession("{model}")']
    if data.images:
        ((name, image),) = data.inputs.items()
        assert image is not None
        channels = image.raw.shape[0]
        assert channels is not None
        opened = f'Image.open("photo.png").convert("{_MODES[channels]}")'
        lines += [f"image = {opened}{_resizing(image)}", f'inputs = {{"{name}": {_pixels(image)}}}']
    elif data.sound is not None:
        selected = f'samples{SELECTIONS[data.sound.channels]}[None].astype("float32")'
        lines += [*data.sound.example(), f'inputs = {{"{next(iter(data.inputs))}": {selected}}}']
    else:
        lines += ["inputs = {"]
        lines += [f'    "{name}": {_example(data, name, sizes, types[name])},' for name, sizes in dims.items()]
        lines += ["}"]
    lines.append(f"{_run(outputs)}inputs)")
    if named:
        lines.append('classes = json.loads(session.get_modelmeta().custom_metadata_map["netspec_classes"])')
    for output in outputs:
        is_choice = output.has_names and output.answer == "class"
        best = f'classes["{output.named}"][{output.variable}[0].argmax()], {output.variable}[0].max()'
        lines.append(f"print({best if is_choice else ', '.join(output.variables)})")
    return "\n".join(lines)


def _example(data: ScriptData, name: str, sizes: Sequence[object], dtype: str) -> str:
    """Return an expression for an input of one sample, or of a whole batch if its size is fixed."""
    shape = tuple(size if isinstance(size, int) else 1 for size in sizes)
    encoding = None if data.table is None else data.table.encodings.get(name)
    if isinstance(encoding, CategoricalEncoding):
        return f"np.full({shape}, {next(iter(encoding.names), '')!r}, object)"
    value = 0.0 if encoding is None else _typical(encoding)
    return f'np.full({shape}, {value!r}, "{dtype}")' if value else f'np.zeros({shape}, "{dtype}")'


def _typical(encoding: NumberEncoding | DateEncoding) -> float:
    """Return a number, or a date in seconds since 1970, as the training data has it; 0 if nothing is known of it."""
    if isinstance(encoding, NumberEncoding):
        return float(f"{encoding.offset if encoding.fill is None else encoding.fill:.4g}")
    offsets = dict(zip(encoding.parts, encoding.offsets, strict=True))
    return float(offsets.get("timestamp", 0) // 86400 * 86400)


def _imports(data: ScriptData) -> Iterator[str]:
    """Yield the lines that import modules."""
    has_lists = any(not text.tokenizer_file for text in data.vocabularies)
    modules = {
        "argparse": data.generation is not None,
        "csv": data.table is not None,
        "json": True,
        "os": True,
        "re": has_lists or (data.table is not None and data.table.uses_patterns),
        "signal": data.generation is None,
        "struct": data.sound is not None,
        "sys": True,
        "unicodedata": any(text.tokenizer.get("normalize") for text in data.vocabularies),
    }
    resamples = data.sound is not None and data.sound.resample
    if resamples:  # functions of netspec have annotations
        yield from ("from __future__ import annotations", "")
    yield from (f"import {module}" for module, is_used in modules.items() if is_used)
    if data.table is not None and data.table.open_categories:
        yield "from collections import Counter"
    if data.table is not None and data.table.has_dates:
        yield "from datetime import datetime, timezone"
    if resamples:
        yield from ("from functools import lru_cache", "from math import gcd")
    yield from ("from pathlib import Path", "", "import numpy as np")
    if data.images:
        yield "from PIL import Image, ImageOps"
    if any(text.tokenizer_file for text in data.vocabularies):
        yield "from tokenizers import Tokenizer"
    yield from ("", 'os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read on import')
    yield from ("", "import onnxruntime")


def _open_model(files: Sequence[str], data: ScriptData, outputs: Sequence[ScriptOutput]) -> Iterator[str]:
    """Yield the lines that open the model, its class names and its vocabularies."""
    yield from ("", "folder = Path(__file__).parent", f"{FILES_LINE}{list(files)!r}:")
    yield "    if not (folder / file).is_file():"
    reason = f"no such file; {SCRIPT} needs all files that were exported with it"
    yield f'        print(f"error: {{folder / file}}: {reason}", file=sys.stderr)'
    yield "        sys.exit(2)"
    yield "try:"
    yield f'    session = onnxruntime.InferenceSession(str(folder / "{files[0]}"))'
    yield "except Exception as error:"
    yield f"    print(f\"error: {{folder / '{files[0]}'}}: {{error}}\", file=sys.stderr)"
    yield "    sys.exit(2)"
    named = [output for output in outputs if output.has_names]
    if named:
        yield "metadata = session.get_modelmeta().custom_metadata_map"
    yield from (f'{output.classes} = json.loads(metadata["netspec_classes"])["{output.named}"]' for output in named)
    if any(not text.tokenizer_file for text in data.vocabularies):
        yield f'vocabulary = json.loads((folder / "{VOCABULARY}").read_text(encoding="utf-8"))'
    for text in data.vocabularies:
        if text.tokenizer_file:
            yield f'{text.function}_tokenizer = Tokenizer.from_file(str(folder / "{text.tokenizer_file}"))'
            yield from (f"{text.function}_tokenizer.no_{step}()" for step in ("padding", "truncation"))


def _functions(data: ScriptData) -> Iterator[str]:
    """Yield the lines of the functions that read sounds, and convert texts and cells."""
    if data.sound is not None:
        yield from data.sound.functions()
    for text in data.texts:
        yield from ("", "", *text.lines())
    if any(text.reserved_tokens for text in data.texts):
        yield from ("", "", *_define_note_unknown_texts())
    if data.table is not None:
        yield from data.table.functions()


def _define_note_unknown_texts() -> Iterator[str]:
    """Yield the lines of a function that reports texts without a token that the training learned."""
    yield "def note_unknown_texts(texts, reserved, labels):"
    yield "    unknown = [label for label, tokens in zip(labels, texts) if np.isin(tokens, reserved).all()]"
    yield "    if unknown:"
    yield '        have = "text has" if len(unknown) == 1 else "texts have"'
    yield '        shown = ", ".join(unknown[:3]) + f" and {len(unknown) - 3:,} more" * (len(unknown) > 3)'
    yield '        reason = f"no token of the vocabulary: {shown}"'
    yield '        print(f"note: {len(unknown):,} {have} {reason}", file=sys.stderr)'


def _compute(data: ScriptData, outputs: Sequence[ScriptOutput]) -> list[str]:
    """Return the lines that read the samples of a file, and run the model."""
    if data.sound is not None:
        return [*data.sound.read(), f'{_run(outputs)}{{"{next(iter(data.inputs))}": sound[None]}})']
    if data.table is not None:
        return [*data.table.read_table(), f"{_run(outputs)}columns)"]
    if data.texts:
        return _read_texts(data, outputs)
    return _read_image(data.inputs, outputs) if data.images else _read_arrays(data.inputs, outputs)


def _print_answers(data: ScriptData, outputs: Sequence[ScriptOutput]) -> Iterator[str]:
    """Yield the lines that print the answers."""
    row, indent, label, key = "row", _INDENT, "{row + 1}", "row"
    if data.images or data.sound is not None:
        row, indent, label, key = "0", "", "{name}", "file"
    elif data.table is not None:
        label = data.table.row_label
    elif data.texts:
        label, key = "{labels[row]}", "row" if data.lines else "file"
    if indent:
        yield f"for row in range(len({outputs[0].variables[0]})):"
    several = len(outputs) > 1
    whole = data.images and _shows_whole_images(data.inputs)
    yield f'{indent}answer = {{"{key}": {label[1:-1]}}}'
    for output in outputs:
        title = label + (f" {output.name}" if several else "")
        yield from (indent + line for line in _printed(output, row, title, several=several, whole=whole))
    yield f"{indent}if as_json:"
    yield f"{indent}    print(json.dumps(answer, ensure_ascii=False))"


def _main(data: ScriptData) -> Iterator[str]:
    """Yield the lines that run the model on each file of the command line."""
    kind = data.file_kind
    yield 'if hasattr(signal, "SIGPIPE"):'
    yield "    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end with the reader of the output, such as `head`"
    yield 'if {"-h", "--help"} & {*sys.argv[1:]}:'
    yield f'    print("usage: python {SCRIPT} [--json] {data.argument}")'
    yield "    sys.exit()"
    yield 'as_json = "--json" in sys.argv  # print a JSON object for each sample'
    yield 'arguments = [word for word in sys.argv[1:] if word != "--json"]'
    yield "if len(arguments) != 1:" if kind is None else "if not arguments:"
    yield f'    print("error: usage: python {SCRIPT} [--json] {data.argument}", file=sys.stderr)'
    yield "    sys.exit(2)"
    if kind is not None:
        yield f"suffixes = {sorted(kind.suffixes)!r}"
        yield "names = []"
        yield "for name in arguments:"
        yield "    files = [name]"
        yield "    if Path(name).is_dir():"
        yield "        below = sorted(Path(name).rglob('*'), key=Path.as_posix)"
        yield "        files = [str(file) for file in below if file.suffix.lower() in suffixes]"
        yield "    if not files:"
        reason = f"no {kind.name}s ({', '.join(sorted(kind.suffixes))})"
        yield f'        print(f"error: {{name}}: {reason}", file=sys.stderr)'
        yield "        sys.exit(2)"
        yield "    names += files"
    else:
        yield "names = arguments"
    yield "failed = False"
    yield "for name in names:"
    yield "    try:"
    yield "        run(name)"
    yield "    except Exception as error:  # one line, no traceback; the other files follow"
    yield "        print(f\"error: {name}: {getattr(error, 'strerror', None) or error}\", file=sys.stderr)"
    yield "        failed = True"
    yield "sys.exit(failed)"


def reads_images(inputs: Inputs) -> bool:
    """Return whether the script for these inputs reads images: the only input takes pixels, at most resized."""
    image, *others = inputs.values()
    if others or image is None or image.raw.dtype != "uint8" or len(image.raw.shape) != 3:
        return False
    if image.raw.ragged and not image.wrapper_transforms:
        return False
    return image.raw.shape[0] in _MODES and all(map(_is_plain_resizing, image.before))


def _is_plain_resizing(step: object) -> bool:
    return isinstance(step, Resizing) and step.antialias and step.stretches


def _shows_whole_images(inputs: Inputs) -> bool:
    """Return whether the net sees the whole of each image."""
    (image,) = inputs.values()
    assert image is not None
    steps = (*image.before, *image.wrapper_transforms, *image.inside)
    return all(step.positions == "kept" or (isinstance(step, Resizing) and step.stretches) for step in steps)


def image_preparation(image: DeployedInput) -> str:
    """Return what must be done to an image before it is an input of the model, as a sentence."""
    channels, height, width = image.raw.shape
    assert channels is not None
    resized = _resized(image)
    size = (
        f", and resize it to {height} × {width} pixels (height × width) by Pillow's {resized} filter" if resized else ""
    )
    converted = f"convert it to Pillow's mode `{_MODES[channels]}` (of 16 bits, keep the upper 8)"
    return f"Rotate the image as its EXIF data says, {converted}{size}."


def _resized(image: DeployedInput) -> str:
    """Return the interpolation by which images are resized before the model; empty if they are not."""
    return next((step.interpolation for step in image.before if isinstance(step, Resizing)), "")


def _read_image(inputs: Inputs, outputs: Sequence[ScriptOutput]) -> list[str]:
    """Return the lines that read an image as `netspec predict` does, and run the model."""
    ((name, image),) = inputs.items()
    assert image is not None
    channels = image.raw.shape[0]
    assert channels is not None
    return [
        "image = ImageOps.exif_transpose(Image.open(name))",
        'if image.mode.startswith("I;16"):  # Pillow would clip, and not keep the upper 8 bits',
        "    image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))",
        'elif image.mode == "P":',
        '    image = image.convert("RGBA")  # before transparency is dropped',
        f'image = image.convert("{_MODES[channels]}")',
        *_check_size(image),
        *["size = image.size"] * any(output.answer in ("mask", "boxes") for output in outputs),
        *[f"image = image{_resizing(image)}"] * bool(_resized(image)),
        f'{_run(outputs)}{{"{name}": {_pixels(image)}}})',
    ]


def _check_size(image: DeployedInput) -> Iterator[str]:
    """Yield the lines that refuse an image of another size than that of the model's input, if it has a size."""
    _, height, width = image.raw.shape
    if not image.raw.ragged and not _resized(image):
        yield f"if image.size != ({width}, {height}):"
        reason = f"the image has {{image.width}} × {{image.height}} pixels, but the model takes {width} × {height}"
        yield f'    raise ValueError(f"{reason}")'


def _resizing(image: DeployedInput) -> str:
    """Return the call that resizes an image of Pillow before the model; empty if there is none."""
    _, height, width = image.raw.shape
    resized = _resized(image)
    return f".resize(({width}, {height}), Image.Resampling.{resized.upper()})" if resized else ""


def _pixels(image: DeployedInput) -> str:
    """Return an expression for the pixels of an image of Pillow, as a batch."""
    return "np.asarray(image)" + ("[None, None]" if image.raw.shape[0] == 1 else ".transpose(2, 0, 1)[None]")


def _read_texts(data: ScriptData, outputs: Sequence[ScriptOutput]) -> list[str]:
    """Return the lines that read the texts of a file, and run the model."""
    (text,) = data.texts
    lines = [
        'content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()',
        "try:",
        '    text = content.decode("utf-8-sig")',
        "except UnicodeDecodeError as error:",
        '    line = content.count(b"\\n", 0, error.start) + 1',
        '    reason = f"line {line} is not text in UTF-8; `iconv -f latin1 -t utf8` converts older files"',
        "    raise ValueError(reason) from None",
    ]
    if data.lines:
        lines += [
            "labels, texts = [], []",
            'for number, line in enumerate(text.split("\\n"), 1):',
            "    if line.strip():",
            '        labels.append(f"{name}:{number}" if len(names) > 1 else number)',
            '        texts.append(line.rstrip("\\r"))',
        ]
    else:
        lines.append("labels, texts = [name], [text]")
    reserved = text.reserved_tokens
    names = "[label if isinstance(label, str) else f'row {label}' for label in labels]"
    return [
        *lines,
        f"tokens = np.array([{text.function}(text) for text in texts], np.int32)",
        *[f"note_unknown_texts(tokens, {reserved}, {names})"] * bool(reserved),
        f'{_run(outputs)}{{"{text.name}": tokens}})',
    ]


def _read_arrays(inputs: Inputs, outputs: Sequence[ScriptOutput]) -> list[str]:
    """Return the lines that read the inputs of all samples as arrays, and run the model."""
    arrays = ", ".join(f'"{name}": arrays["{name}"]' for name in inputs)
    reason = f"the model takes arrays ({', '.join(inputs)}) in an .npz file; README.md lists what it does not contain"
    return [
        'if not name.endswith(".npz"):',
        f'    raise ValueError("{reason}")',
        "arrays = np.load(name)",
        f"{_run(outputs)}{{{arrays}}})",
    ]


def _run(outputs: Sequence[ScriptOutput]) -> str:
    """Return the beginning of a call of the model."""
    variables = [variable for output in outputs for variable in output.variables]
    names = ", ".join(f'"{name}"' for output in outputs for name in output.names)
    return f"{', '.join(variables)}{',' * (len(variables) == 1)} = session.run([{names}], "


def _printed(output: ScriptOutput, row: str, label: str, *, several: bool, whole: bool) -> Iterator[str]:
    """Yield the lines that add the answer of an output to that of its sample, and print it unless JSON is requested.

    `whole`: the net sees the whole image.
    """
    values, names = f"{output.variable}[{row}]", output.classes if output.has_names else ""
    by_class = f"dict(zip({names}, {values}.tolist()))" if names else f"{values}.tolist()"
    added = f'answer["{output.name}"] = ' if several else "answer |= "
    shown = [f'print(f"{label}: array of shape {{{values}.shape}}")']
    fields = f'"array": {values}.tolist()'
    match output.answer:
        case "class":
            yield f"best = {values}.argmax()"
            format_ = ".1%" if output.values == "probability" else ".6g"
            score, best = f"{output.variable}[{row}, best]", f"{names}[best]" if names else "best"
            shown = [f'print(f"{label}: {{{best}}} {{{score}:{format_}}}")']
            fields = f'"class": {best if names else "int(best)"}, "{output.values}": float({score})'
            fields += f', "probabilities": {by_class}' if output.values == "probability" else ""
        case "either":
            yield f"second = {values}.item()"
            named = f"{names}[second > 0.5]" if names else "str(int(second > 0.5))"
            shown = [f'print(f"{label}: {{{named}}} {{max(second, 1 - second):.1%}}")']
            fields = f'"class": {named}, "probability": max(second, 1 - second)'
        case "classes":
            chosen = f"{names}[index]" if names else "str(index)"
            yield f"chosen = [{chosen} for index in np.flatnonzero({values} > 0.5)]"
            shown = [f'print(f"{label}:", *chosen)']
            fields = f'"classes": chosen, "probabilities": {by_class}'
        case "mask":
            yield f"mask = {values}.argmax(axis=0).astype(np.uint8)"
            yield f"shares = np.bincount(mask.ravel(), minlength=len({values})) / mask.size"
            titles = names or "map(str, range(len(shares)))"
            yield f"largest = sorted(zip(shares.tolist(), {titles}), reverse=True)"
            shown = [f'print(f"{label}:", ", ".join(f"{{title}} {{share:.1%}}" for share, title in largest if share))']
            fields = '"shares": {title: share for share, title in largest}'
            if row == "0":  # the script reads one image at a time
                ending = f"_{output.variable}.png" if several else "_mask.png"
                resized = ".resize(size, Image.Resampling.NEAREST)" if whole else ""
                yield f"mask = Image.fromarray(mask){resized}"
                yield f'mask.save(Path(name).stem + "{ending}")'
        case "boxes":
            boxes, scores, labels = (f"{variable}[{row}]" for variable in output.variables)
            scaled = " * [*size, *size]" if whole else ""  # else the edges are fractions of the part the net sees
            yield "found = ["
            corners = "[round(float(edge), 2) for edge in edges]"
            best = f"{names}[best]" if names else "int(best)"
            yield f'    {{"class": {best}, "score": float(score), **dict(zip(("x1", "y1", "x2", "y2"), {corners}))}}'
            yield f"    for edges, score, best in zip({boxes}{scaled}, {scores}, {labels}) if best >= 0"
            yield "]"
            shown = ["for box in found:"]
            shown += [f"""    print(f"{label}: {{box['class']}} {{box['score']:.1%}}", list(box.values())[2:])"""]
            fields = '"boxes": found'
        case "value":
            shown = [f'print(f"{label}:", *{values}.ravel())']
            fields = f'"prediction": {values}.squeeze().astype(str).astype(float).tolist()'
    yield "if as_json:"
    yield f"    {added}{{{fields}}}"
    yield "else:"
    yield from (f"    {line}" for line in shown)


def _identifier(name: str) -> str:
    """Return a name as a Python identifier that the script does not use otherwise."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"output_{cleaned}" if cleaned in USED or iskeyword(cleaned) or not cleaned.isidentifier() else cleaned
