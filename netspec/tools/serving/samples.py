"""Samples in the body of a request: an image, rows of a table, texts or a sound, as inputs of a net."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from netspec.data.base import Source
from netspec.data.sources.csv import Csv
from netspec.data.tabular.columns.base import LABEL, ColumnSpec
from netspec.data.tabular.columns.categorical import Categorical
from netspec.data.tabular.columns.date import Date
from netspec.data.tabular.columns.numeric import Numeric
from netspec.data.tabular.declaration import NAMES
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.data.transforms.latent_noise import LatentNoise
from netspec.errors import InputError, format_digits, kind_of_file
from netspec.schema.plain_json import json_text
from netspec.schema.specs.train import TrainSpec
from netspec.tools.serving.batching import Arrays
from netspec.tools.serving.errors import RequestError, as_request_error
from netspec.tools.serving.open_inference import parse_json
from netspec.training.inference.image_windows import Window
from netspec.training.inference.model import Model
from netspec.training.inference.predict_files import FilePreparation, describe_unknown_texts, describe_unread_keys
from netspec.training.inference.raw_samples import TEXT, Row, is_text_file, sample_kind, write_rows, write_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIXES = {
    b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp", b"BM": ".bmp", b"GIF8": ".gif", b"II*\0": ".tif",
    b"MM\0*": ".tif",
}  # fmt: skip
"""Suffixes of images by the first bytes of the file."""
MAX_SHOWN = 100
"""Number of characters of JSON in messages."""
EXAMPLE_DATE = date(2026, 11, 20)


class PreparedBody(NamedTuple):
    """The samples in the body of a request."""

    ids: dict[str, list[Any]]
    """Identifiers of the samples, such as `{"row": [1, 2]}`."""
    inputs: Arrays
    """Inputs of the net, (N, …) by name."""
    windows: list[Window | None]
    """The part of each image that the net sees, in pixels; empty for other samples."""
    notes: list[str]
    """Sentences about values and texts that the training data does not have."""


class _Files(NamedTuple):
    """Files with the samples of a request."""

    paths: list[Path]
    split: Source
    """Source that describes their format."""
    unread_keys: Sequence[str] = ()
    """Keys other than the one of a text."""


class BodyReader:
    """Turns bodies of requests into inputs of a net, prepared like the data of its training."""

    def __init__(self, model: Model, spec: TrainSpec) -> None:
        self._preparation = FilePreparation(model, spec)
        self._split = self._preparation.split
        added = {step.field for step in self._split.transforms if isinstance(step, LatentNoise)}
        self.kind = "arrays" if self._preparation.fields <= added else sample_kind(self._split)
        """`image`, `table`, `text`, `sound`; or `arrays` if the net reads no files of samples."""

    def describe_time_series(self) -> dict[str, Any]:
        """Return how many rows of a time series a forecast needs, how many it is for, and what orders them."""
        split = self._split
        if not isinstance(split, TableSource) or split.windows is None:
            return {}
        time = None if split.division is None else split.division.time
        rows = {"min_rows": split.windows.length, "horizon": split.windows.horizon}
        return rows if time is None else {**rows, "time": time}

    def columns(self) -> list[dict[str, Any]]:
        """Return the columns of rows in a request, in order: name, type, and how their values are written."""
        split, learned = self._split, self._preparation.learned.source
        if not isinstance(split, TableSource):
            return [{"name": TEXT, "type": "text"}] if self.kind == "text" else []
        described = []
        for name, spec in self._column_specs(split).items():
            values = None
            if isinstance(spec, Categorical):
                values = spec.vocabulary or learned.get(name, {}).get("vocabulary")
            facts = {"values": values, "optional": split.fills_empty_cells(name)}
            if isinstance(spec, Date):
                facts["format"] = spec.format or "ISO 8601"
            if isinstance(spec, Numeric):
                notation = split.number_format
                facts |= {"decimal": notation.decimal.strip("."), "thousands": notation.thousands, "unit": spec.unit}
            known = {key: value for key, value in facts.items() if value}
            described.append({"name": name, "type": getattr(spec, "type", "")} | known)
        return described

    def _column_specs(self, split: TableSource) -> dict[str, ColumnSpec]:
        """Return the columns that the net reads, by name."""
        learned = self._preparation.learned.source
        fields = split.fields_read(self._preparation.fields)
        label = None if split.label is None else str(split.label)
        columns: dict[str, ColumnSpec]
        if isinstance(split.columns, dict):
            used = split.columns.items()
            columns = {name: spec for name, spec in used if spec.fields_of(name, is_label=name == label) & fields}
        else:
            columns = dict.fromkeys(map(str, split.columns or learned.get(NAMES) or ()), Numeric())
        if label is not None and LABEL in fields:
            names = split.classes or "vocabulary" in learned.get(label, {})
            columns.setdefault(label, Categorical(vocabulary=split.classes) if names else Numeric())
        if split.windows is not None and split.windows.group is not None:
            columns.setdefault(split.windows.group, Categorical())
        return columns

    def read(self, body: bytes, content_type: str) -> PreparedBody:
        """Return the samples in a body as inputs of the net.

        Raises `RequestError` 400 or 422 with what is wrong in the body.
        """
        with TemporaryDirectory(prefix="netspec-") as name:
            folder = Path(name)
            if self.kind == "text" and not body.strip():
                raise RequestError(422, "the body is blank; expected a text")
            try:
                return self._prepare(self._write(body, content_type, folder))
            except InputError as error:
                raise as_request_error(error, 422, folder) from None

    def _prepare(self, files: _Files) -> PreparedBody:
        ids: dict[str, list[Any]] = {}
        windows: list[Window | None] = []
        parts: list[Mapping[str, NDArray[Any]]] = []
        unknown_texts: list[str] = []
        count = 0
        preparation = copy(self._preparation)  # it holds the notes of its files, and requests are read concurrently
        for identities, batch in preparation.batches(files.paths, split=files.split):
            for key, values in identities.items():
                ids.setdefault(key, []).extend(values)
            if preparation.notes.missing:
                raise RequestError(422, preparation.notes.missing)
            parts.append(batch.inputs)
            windows += preparation.image_windows(identities) or []
            unknown_texts += [f"text {count + index + 1}" for index in preparation.unknown_texts(batch)]
            count += len(batch)
        if not parts:
            raise RequestError(422, "there is no sample in the body")
        ids.pop("file", None)
        inputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        notes = preparation.notes
        unknown = describe_unknown_texts(unknown_texts) if unknown_texts else ""
        unread = notes.unread_key_notes or describe_unread_keys(files.unread_keys)
        sentences = [notes.missing_key_notes, unread, notes.unknown, *notes.time_notes, unknown]
        return PreparedBody(ids, inputs, windows, list(filter(None, sentences)))

    def _write(self, body: bytes, content_type: str, folder: Path) -> _Files:
        """Write the samples of a body to files."""
        split = self._split
        if isinstance(split, TableSource):
            return self._write_table(body, content_type, split, folder)
        if self.kind == "text":
            if content_type == "text/csv":
                raise RequestError(415, 'the model takes texts, not a table: send a text, or {"text": ["…", "…"]}')
            data = parse_json(body) if is_json_text(body, content_type) else decoded(body)
            return _Files(*write_texts(_texts(data), split, folder), _other_keys(data))
        suffix = _image_suffix(body) if self.kind == "image" else split.file_suffix()
        path = folder / f"{self.kind}{suffix}"
        path.write_bytes(body)
        return _Files([path], split)

    def _write_table(self, body: bytes, content_type: str, split: TableSource, folder: Path) -> _Files:
        """Write rows, or texts if a row consists of one, to a table."""
        takes_texts = self.kind == "text"
        if (is_json_text if takes_texts else _is_json)(body, content_type):
            data = parse_json(body)
            if takes_texts and _has_texts(data):
                return _Files(*write_texts(_texts(data), split, folder), _other_keys(data))
            return _Files(*write_rows(self._rows(data), split, folder))
        if b"\0" in body[:64] and not body.startswith(b"PAR1"):
            raise RequestError(422, f"the body is not a table; expected rows as JSON or CSV; got {_kind(body)}")
        path = folder / f"rows{split.file_suffix()}"
        path.write_bytes(body)
        if takes_texts and content_type != "text/csv" and (content_type == "text/plain" or is_text_file(path, split)):
            return _Files(*write_texts([decoded(body)], split, folder))
        return _Files([path], split.of_rows_in_memory())

    def _rows(self, data: Any) -> list[Row]:
        """Return the rows of a JSON body: one row, or a list of rows. Raises `RequestError` 400."""
        if isinstance(data, dict) and isinstance(data.get("rows"), list) and len(data) == 1:
            data = data["rows"]
        are_rows = isinstance(data, list) and any(isinstance(item, (dict, list)) for item in data)
        rows = data if are_rows else [data]
        takes_lists = isinstance(self._split, Csv) and self._split.header is not True
        kinds = (dict, list) if takes_lists else (dict,)
        wrong = next((index for index, row in enumerate(rows) if not (row and isinstance(row, kinds))), None)
        wrong = wrong if wrong is not None or not rows else _odd_one(rows)
        if rows and wrong is None:
            return rows
        expected = f"expected a row such as {json_text(self.example_row(), ascii=False)}, or a list of rows"
        if not are_rows or wrong is None:
            raise RequestError(400, f"{expected}; got {_shown_json(data)}")
        raise RequestError(400, f"row {wrong + 1} is {_shown_json(rows[wrong])}; {expected}")

    def example_row(self) -> dict[str, Any]:
        """Return a row that the model accepts, with usual values of its columns."""
        split, learned = self._split, self._preparation.learned.source
        if not isinstance(split, TableSource):
            return {TEXT: _example_text(learned)}
        return {name: _example(spec, learned.get(name, {})) for name, spec in self._column_specs(split).items()}


def _example(spec: ColumnSpec, learned: Mapping[str, Any]) -> Any:
    """Return a usual value of a column: in the middle of the numbers, or the first category."""
    if isinstance(spec, Numeric):
        middle = learned.get("fill", learned.get("offset", 1))
        number = float(format_digits(middle[0] if isinstance(middle, list) else middle, 3))
        return int(number) if number.is_integer() else number
    if isinstance(spec, Categorical):
        return next(iter(spec.vocabulary or learned.get("vocabulary") or ["a"]))
    if isinstance(spec, Date):
        return EXAMPLE_DATE.strftime(spec.format or "%Y-%m-%d")
    return _example_text(learned)


def _example_text(learned: Mapping[str, Any]) -> str:
    """Return a text of tokens that the training learned."""
    return saved_tokenizer(learned[TOKENIZER]).known_text("a text") if TOKENIZER in learned else "a text"


def _odd_one(rows: Sequence[Any]) -> int | None:
    """Return the index of the first row that is an object if the first is a list, or vice versa."""
    return next((index for index, row in enumerate(rows) if type(row) is not type(rows[0])), None)


def _shown_json(data: Any) -> str:
    text = json_text(data, ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} …"


def _is_json(body: bytes, content_type: str) -> bool:
    """Return whether rows are sent as JSON. A single JSON value is an error, but not a table."""
    if content_type in ("application/json", "text/csv"):
        return content_type == "application/json"
    start = body.removeprefix(codecs.BOM_UTF8).lstrip()
    return start[:1] in (b"{", b"[") or (len(start) <= MAX_SHOWN and b"\n" not in start.strip() and _is_value(start))


def _is_value(body: bytes) -> bool:
    """Return whether a text is a JSON value."""
    try:
        parse_json(body)
    except RequestError:
        return False
    return True


def is_json_text(body: bytes, content_type: str) -> bool:
    """Return whether a text or prompt is sent as JSON. curl sends all as a form, so an object or list is JSON too."""
    if content_type in ("application/json", "text/plain"):
        return content_type == "application/json"
    try:
        return isinstance(parse_json(body), (dict, list))
    except RequestError:
        return re.match(rb'\s*\{\s*"', body) is not None  # an object with a mistake rather than a text


def _has_texts(data: Any) -> bool:
    """Return whether a JSON body holds texts: not rows by column."""
    if isinstance(data, dict):
        return data.get(TEXT) is not None
    return not isinstance(data, list) or any(isinstance(item, str) for item in data)


def _texts(data: Any) -> list[str]:
    """Return the texts of a JSON body: a text, a list of texts, or either as `text`."""
    if isinstance(data, dict) and "text" in data:
        data = data["text"]
    texts = data if isinstance(data, list) else [data]
    wrong = next((index for index, text in enumerate(texts) if not isinstance(text, str)), None)
    expected = 'expected {"text": "…"}, or a list of texts'
    if wrong is not None and isinstance(data, list):
        raise RequestError(400, f"text {wrong + 1} is {_shown_json(texts[wrong])}; {expected}")
    if not texts or wrong is not None:
        raise RequestError(400, expected)
    return texts


def _other_keys(data: Any) -> list[str]:
    """Return the keys of a JSON body that are not the one of its texts."""
    return [key for key in data if key != TEXT] if isinstance(data, dict) else []


def decoded(body: bytes) -> str:
    """Return the text of a body. Raises `RequestError` 400 if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise RequestError(400, "the text is not UTF-8") from None


def _image_suffix(body: bytes) -> str:
    suffix = _suffix(body)
    if suffix is None:
        expected = "expected a PNG, JPEG, WebP, BMP, GIF or TIFF file"
        raise RequestError(422, f"the body is not an image; {expected}; got {_kind(body)}")
    return suffix


def _suffix(body: bytes) -> str | None:
    """Return the suffix of an image; None for another file."""
    return next((suffix for start, suffix in SUFFIXES.items() if body.startswith(start)), None)


def _kind(body: bytes) -> str:
    """Describe the content of a body for messages: `a PNG image`, `a text file`."""
    suffix = _suffix(body)
    return kind_of_file(body[:64]) if suffix in (None, ".webp") else f"a {suffix[1:].upper()} image"
