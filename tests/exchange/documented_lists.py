"""`python -m tests.exchange.documented_lists` writes the lists of imported and exported types into `docs/formats.md`.

A list is a paragraph of names after the line that introduces it, in its section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

from netspec.exchange.formats.caffe.importer import rules as caffe_rules
from netspec.exchange.formats.caffe.rules.refused import REFUSED
from netspec.exchange.formats.caffe.wiring import DATA_LAYERS
from netspec.exchange.formats.caffe.writing.writer import rules as written_for_caffe
from netspec.exchange.formats.keras import names as keras_names
from netspec.exchange.formats.keras import optimizers
from netspec.exchange.formats.keras.importing.layers import AUGMENTING, imported_layers
from netspec.exchange.formats.keras.importing.operations import operations
from tests.exchange import onnx_operators

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"
Lists = Mapping[str, Sequence[str]]
"""Names by the line that introduces them."""


def of_keras() -> Lists:
    """The imported classes and functions of Keras."""

    def of(kind: str) -> list[str]:
        return sorted(keras_names.types(kind), key=str.lower)

    return {
        "Layers:": sorted(imported_layers()),
        "Layers that only augment samples in training, left out with a note:": sorted(AUGMENTING),
        "Cells of RNN:": of("cell"),
        "Operations, by the names of Keras 3, or TensorFlow's where Keras has none:": sorted(operations()),
        "Activations, also as operations:": of("activation"),
        "Initializers:": of("initializer"),
        "Regularizers:": of("regularizer"),
        "Constraints:": of("constraint"),
        "Losses:": sorted(keras_names.LOSSES),
        "Metrics:": sorted(keras_names.METRICS),
        "Optimizers:": sorted(optimizers.FIELDS),
        "Schedules:": sorted(optimizers.SCHEDULES),
    }


def from_caffe() -> Lists:
    """The imported layers of Caffe."""
    return {"Layers:": sorted({*caffe_rules(), *DATA_LAYERS} - REFUSED.keys())}


def to_caffe() -> Lists:
    """The layers of netspec that can be exported to Caffe."""
    return {"Layers:": sorted(written_for_caffe())}


SECTIONS = {
    "Import from Keras": of_keras, "Import from Caffe": from_caffe, "Export to Caffe": to_caffe,
    "Import from ONNX": onnx_operators.operators,
}  # fmt: skip


def listed(section: str) -> Lists:
    """Return the lists in a section of the document."""
    text = _section(DOCUMENT.read_text(encoding="utf-8"), section)
    return {line: _after(line, text).replace("\n", " ").split(", ") for line in SECTIONS[section]()}


def _section(document: str, section: str) -> str:
    return re.split(r"(?m)^## ", document.partition(f"\n## {section}\n")[2], maxsplit=1)[0]


def _after(line: str, text: str) -> str:
    return text.partition(f"\n{line}\n\n")[2].partition("\n\n")[0]


def main() -> None:
    """Write all lists."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for section, lists in SECTIONS.items():
        text = before = _section(document, section)
        for line, names in lists().items():
            old = f"\n{line}\n\n{_after(line, text)}\n\n"
            if old not in text:
                raise SystemExit(f"{DOCUMENT}, {section}: there is no line {line!r} followed by a list")
            text = text.replace(old, f"\n{line}\n\n{fill(', '.join(names), 140)}\n\n")
        document = document.replace(before, text)
    DOCUMENT.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
