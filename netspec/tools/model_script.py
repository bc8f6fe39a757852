"""The script next to an exported model: it runs the model in ONNX Runtime and prints what `netspec predict` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from netspec.data.tabular.encodings import NumberEncoding
from netspec.data.transforms.resizing import Resizing
from netspec.training.decoding import Decoder

if TYPE_CHECKING:
    from netspec.tools.deployed_model import DeployedInput
    from netspec.tools.raw_columns import RawColumns

SCRIPT = "run.py"
"""Name of the script in the folder of an exported model."""
WRITTEN_BY = "written by netspec export"
"""Mark of files that a later export may replace."""
_MODES = {1: "L", 3: "RGB"}
USED = frozenset([
    "csv", "json", "sys", "np", "session", "metadata", "name", "image", "file", "rows", "columns", "missing", "cells",
    "numbers", "arrays", "row", "best", "second", "chosen",
    "mask", "shares", "largest", "size",
])  # fmt: skip
"""Names of variables in the script, which outputs must not have."""

Inputs: TypeAlias = "Mapping[str, DeployedInput | None]"
"""The inputs of an exported model: with preprocessing, or None for an input of the net alone."""


@dataclass(frozen=True)
class ScriptTable:
    """A table whose columns are the inputs of an exported model."""

    columns: RawColumns
    delimiter: str
    header: Sequence[str] | None
    """Names of the columns if the file has no header."""


@dataclass(frozen=True)
class ScriptOutput:
    """Meaning of the values of an exported model's output."""

    name: str
    answer: Literal["class", "either", "classes", "mask", "value", "array"]
    """Kind of answer: one of several classes; one of two, by a single value (`either`); all classes that apply; the
    class of each pixel; numbers; or anything else (`array`)."""
    values: str
    """Kind of the values: `probability`, `score`, or `prediction`."""
    has_names: bool = False
    """Whether the metadata of the model contains the class names."""

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
        if any(column.startswith("prediction") for column in columns) and len(shape) <= 1:
            return cls(name, "value", "prediction")
        return cls(name, "array", "value", has_names)


def script_text(model: str, inputs: Inputs, outputs: list[ScriptOutput], table: ScriptTable | None = None) -> str:
    """Return the script for a model file of this name.

    Rows are read from a table, and images if the only input takes their pixels; anything else is read as arrays from
    an .npz file.
    """
    images = table is None and reads_images(inputs)
    named = [output for output in outputs if output.has_names]
    lines = [f'"""Run {model}: python {SCRIPT} {arguments(inputs, table)} ({WRITTEN_BY})."""', ""]
    lines += (
        ["import csv"] * (table is not None)
        + ["import json"] * bool(named)
        + ["import sys", "from pathlib import Path", "", "import numpy as np"]
    )
    lines += ["import onnxruntime", *["from PIL import Image, ImageOps"] * images, ""]
    lines.append(f'session = onnxruntime.InferenceSession(str(Path(__file__).with_name("{model}")))')
    if named:
        lines.append("metadata = session.get_modelmeta().custom_metadata_map")
    lines += [f'{output.classes} = json.loads(metadata["netspec_classes"])["{output.name}"]' for output in named]
    if table is not None:
        lines += _of_rows(table, outputs)
    else:
        lines += _of_images(inputs, outputs) if images else _of_arrays(inputs, outputs)
    several = len(outputs) > 1
    for output in outputs:
        lines += [f"    {line}" for line in _printed(output, "0" if images else "row", several=several)]
    return "\n".join(lines) + "\n"


def arguments(inputs: Inputs, table: ScriptTable | None = None) -> str:
    """Return the arguments of the script for these inputs."""
    if table is not None:
        return "TABLE.csv"
    return "IMAGE..." if reads_images(inputs) else "ARRAYS.npz"


def reads_images(inputs: Inputs) -> bool:
    """Return whether the script for these inputs reads images: the only input takes pixels, at most resized."""
    image, *others = inputs.values()
    if others or image is None or image.type.dtype != "uint8" or len(image.type.shape) != 3 or image.type.ragged:
        return False
    return image.type.shape[0] in _MODES and all(map(_is_plain_resizing, image.before))


def _is_plain_resizing(step: object) -> bool:
    return isinstance(step, Resizing) and step.antialias and not (step.crop_to_aspect_ratio or step.pad_to_aspect_ratio)


def image_preparation(image: DeployedInput) -> str:
    """Return what must be done to an image before it is an input of the model, as a sentence."""
    channels, height, width = image.type.shape
    assert channels is not None
    resized = _resized(image)
    size = (
        f", and resize it to {height} × {width} pixels (height × width) by Pillow's {resized} filter" if resized else ""
    )
    return f"Rotate the image as its EXIF data says, convert it to Pillow's mode `{_MODES[channels]}`{size}."


def _resized(image: DeployedInput) -> str:
    """Return the interpolation by which images are resized to the size of the input; empty if they are not."""
    return next((step.interpolation for step in image.before if isinstance(step, Resizing)), image.resized)


def _of_images(inputs: Inputs, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read images one by one, as `netspec predict` does, and run the model."""
    ((name, image),) = inputs.items()
    assert image is not None
    channels, height, width = image.type.shape
    assert channels is not None
    steps = [f'ImageOps.exif_transpose(Image.open(name)).convert("{_MODES[channels]}")']
    if resized := _resized(image):
        steps.append(f"image.resize(({width}, {height}), Image.Resampling.{resized.upper()})")
    pixels = "np.asarray(image)[None, None]" if channels == 1 else "np.asarray(image).transpose(2, 0, 1)[None]"
    return [
        "for name in sys.argv[1:]:",
        f"    image = {steps[0]}",
        *["    size = image.size"] * any(output.answer == "mask" for output in outputs),
        *(f"    image = {step}" for step in steps[1:]),
        f'    {_run(outputs)}{{"{name}": {pixels}}})',
    ]


def _of_arrays(inputs: Inputs, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read the inputs of all samples as arrays, and run the model."""
    arrays = ", ".join(f'"{name}": arrays["{name}"]' for name in inputs)
    return [
        "arrays = np.load(sys.argv[1])",
        f"{_run(outputs)}{{{arrays}}})",
        f"for row in range(len({outputs[0].variable})):",
    ]


def _of_rows(table: ScriptTable, outputs: list[ScriptOutput]) -> list[str]:
    """Return the lines that read the columns of a table, and run the model."""
    encodings = table.columns.encodings.values()
    numbers = [encoding.column for encoding in encodings if isinstance(encoding, NumberEncoding)]
    names = [encoding.column for encoding in encodings if not isinstance(encoding, NumberEncoding)]
    options = [f"delimiter={table.delimiter!r}"] * (table.delimiter != ",")
    options += [f"fieldnames={list(table.header)!r}"] if table.header is not None else []
    reader = ", ".join(["file", *options, "skipinitialspace=True"])
    lines = [
        'with open(sys.argv[1], newline="", encoding="utf-8") as file:',
        f"    rows = list(csv.DictReader({reader}))",
        "columns = {}",
    ]
    if numbers:
        lines += [
            f"missing = {sorted({'', *table.columns.missing})!r}",
            f"for name in {numbers!r}:",
            "    cells = [row[name].strip() for row in rows]",
            '    numbers = [float("nan" if cell.lower() in missing else cell) for cell in cells]',
            "    columns[name] = np.array(numbers, np.float64)",
        ]
    if names:
        lines += [
            f"for name in {names!r}:",
            "    columns[name] = np.array([row[name].strip() for row in rows], object)",
        ]
    return [*lines, f"{_run(outputs)}columns)", f"for row in range(len({outputs[0].variable})):"]


def _run(outputs: list[ScriptOutput]) -> str:
    """Return the beginning of a call of the model."""
    variables = ", ".join(output.variable for output in outputs)
    names = ", ".join(f'"{output.name}"' for output in outputs)
    return f"{f'({variables},)' if len(outputs) == 1 else variables} = session.run([{names}], "


def _printed(output: ScriptOutput, row: str, *, several: bool) -> Iterator[str]:
    """Yield the lines that print the answer of an output for a sample."""
    label = ("{name}" if row == "0" else "{row + 1}") + (f" {output.name}" if several else "")
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
                yield "mask = Image.fromarray(mask).resize(size, Image.Resampling.NEAREST)"
                yield f'mask.save(Path(name).stem + "{ending}")'
        case "value":
            yield f'print(f"{label}:", *{values}.ravel())'
        case "array":
            yield f'print(f"{label}: array of shape {{{values}.shape}}")'


def _identifier(name: str) -> str:
    """Return a name as one of Python's that the script does not use otherwise."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"output_{cleaned}" if cleaned in USED or iskeyword(cleaned) or not cleaned.isidentifier() else cleaned
