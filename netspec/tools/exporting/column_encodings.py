"""The encodings of a table's columns as a model without preprocessing takes them: plain data, and a line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.data.tabular.columns.base import ColumnSetting, ColumnSpec, texts_for_missing
from netspec.data.tabular.columns.numeric import Numeric
from netspec.data.tabular.declaration import NAMES
from netspec.data.tabular.encodings import CategoricalEncoding, DateEncoding, NumberEncoding
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER
from netspec.errors import and_more, format_digits
from netspec.training.inference.decoding import decoders_of

if TYPE_CHECKING:
    from netspec.data.pipeline import Learned
    from netspec.data.tabular.column import Column
    from netspec.schema.specs.net import NetSpec
    from netspec.schema.specs.train import TrainSpec
    from netspec.training.inference.model import Model
    from netspec.training.preprocessing import PreprocessingRecord

MAX_LINES = 10
"""Number of columns that are described."""
MAX_CATEGORIES = 5
"""Number of categories of a column that are listed."""
TYPES = {NumberEncoding: "number", CategoricalEncoding: "category", DateEncoding: "date"}


def columns_of(model: Model, split: object, learned: Learned | None) -> dict[str, list[Column]]:
    """Return the readers of the columns of each input, in the order of its elements; none without learned values."""
    if not isinstance(split, TableSource) or learned is None:
        return {}
    inputs = {split.inputs.get(name, name): name for name in model.compiler.graph(ProgramKind.PREDICT, 1).inputs()}
    specs: Mapping[str, ColumnSpec]
    if isinstance(split.columns, Mapping):
        specs = split.columns
    else:
        specs = dict.fromkeys(map(str, split.columns or learned.source.get(NAMES, ())), Numeric())
    columns: dict[str, list[Column]] = {}
    for name, spec in specs.items():
        is_label = name == str(split.label)
        field = spec.field_of(name, is_label=is_label)
        if field not in inputs:
            continue
        absent = texts_for_missing(split.missing_values, spec)
        values = learned.source.get(name, {})
        column = spec.reader(ColumnSetting(name, is_label, split.missing, absent, values, split.number_format))
        column.finish_learning(lambda: iter(()))
        columns.setdefault(inputs[field], []).append(column)
    return columns


def encodings_as_json(columns: Mapping[str, Sequence[Column]]) -> dict[str, list[dict[str, Any]]]:
    """Return the encodings of the columns of each input; a column of texts has its name alone."""
    return {name: [_as_json(column) for column in of_input] for name, of_input in columns.items()}


def _as_json(column: Column) -> dict[str, Any]:
    encoding = column.encoding()
    if encoding is None:
        return {"column": column.name, "width": column.width}
    return {"type": TYPES[type(encoding)], **asdict(encoding)}


def tokenizers_of(learned: Learned | None) -> dict[str, Any]:
    """Return the tokenizers of a training with their vocabularies: by column, or as `text` if files are texts."""
    if learned is None:
        return {}
    entries = {name: entry for name, entry in learned.source.items() if isinstance(entry, Mapping)}
    tokenizers = {name: entry[TOKENIZER] for name, entry in entries.items() if TOKENIZER in entry}
    return {"text": entries[TOKENIZER]} if TOKENIZER in entries else tokenizers


def describe_encodings(columns: Mapping[str, Sequence[Column]]) -> list[str]:
    """Return a line for each column, ten at most: "`features` 0: `age`, minus 38.5, divided by 13.6"."""
    lines = []
    for name, of_input in columns.items():
        start = 0
        for column in of_input:
            stop = start + column.width
            elements = f"{start}" if column.width == 1 else f"{start}–{stop - 1}"
            lines.append(f"`{name}` {elements}: `{column.name}`{_described(column)}")
            start = stop
    more = len(lines) - MAX_LINES
    return lines[:MAX_LINES] + [f"{more:,} more columns, in `netspec_columns` of an ONNX model"] * (more > 0)


def _described(column: Column) -> str:
    """Return how the cells of a column become numbers: ", 3 if missing, minus 2.5, divided by 1.2"."""
    encoding = column.encoding()
    match encoding:
        case None:
            return ", tokens; `netspec_tokenizers` of an ONNX model has the vocabulary"
        case NumberEncoding():
            filled = "" if encoding.fill is None else f", {_digits(encoding.fill)} if missing"
            indicator = ", then 1 if missing, else 0" if encoding.indicator else ""
            return f"{filled}{_normalization(encoding.offset, encoding.scale)}{indicator}"
        case DateEncoding():
            facts = zip(encoding.parts, encoding.offsets, encoding.scales, strict=True)
            parts = "; ".join(f"{part}{_normalization(offset, scale)}" for part, offset, scale in facts)
            filled = "; the mean if missing" if encoding.fills is not None else ""
            return f", {parts}{filled}{'; then 1 if missing, else 0' if encoding.indicator else ''}"
        case CategoricalEncoding():
            names: dict[int, str] = {}
            for written in encoding.names:
                names.setdefault(encoding.indices[written], written)
            known = [f"{index} {name}" for index, name in sorted(names.items())]
            shown = ", ".join(known[:MAX_CATEGORIES]) + and_more(len(known) - MAX_CATEGORIES)
            other = f", {encoding.default if encoding.default >= 0 else 'zeros for'} others" if encoding.is_open else ""
            return f", {'one-hot' if encoding.width else 'index'}: {shown}{other}"


def _normalization(offset: float, scale: float) -> str:
    minus = f", minus {_digits(offset)}" if offset else ""
    return minus + (f", divided by {_digits(scale)}" if scale != 1 else "")


def _digits(value: float) -> str:
    return format_digits(value, 6)


def restored_outputs(
    model: Model, spec: NetSpec | TrainSpec, preparation: PreprocessingRecord
) -> dict[str, dict[str, list[float]]]:
    """Return the factors and offsets that convert the elements of outputs to the units of the data, by output."""
    outputs = model.compiler.graph(ProgramKind.PREDICT, 1).outputs
    restored = {}
    for name, decoder in decoders_of(spec, preparation).items():
        step = decoder.postprocessing
        if step is not None and step.function == "restore" and name in outputs:
            zeros = np.zeros((1, *outputs[name].shape[1:]))
            offset = np.asarray(step.compute(zeros))
            scale = np.asarray(step.compute(zeros + 1)) - offset
            restored[name] = {"scale": scale.ravel().tolist(), "offset": offset.ravel().tolist()}
    return restored


def describe_restored(outputs: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """Return a sentence for each output that is normalized: "`price` is normalized: multiply it by 3.5 …"."""
    return [
        f"`{name}` is normalized: multiply it by {_listed(values['scale'])} and add {_listed(values['offset'])} "
        "for values in the unit of the target"
        for name, values in outputs.items()
    ]


def _listed(values: Sequence[float]) -> str:
    shown = list(dict.fromkeys(map(_digits, values)))
    return ", ".join(shown[:3]) + and_more(len(shown) - 3)
