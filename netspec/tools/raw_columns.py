"""Columns of a table as inputs of an exported model: missing values, normalization and categories as operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.tabular.encodings import CategoricalEncoding, ColumnEncoding, NumberEncoding
from netspec.exchange.formats.onnx.prologue import ML, Prologue, PrologueNode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class RawColumns:
    """The table columns from which the inputs of a model are computed."""

    columns: Mapping[str, Sequence[ColumnEncoding]]
    """Encodings of the columns of each input of the net, in the order of the input's elements."""
    vectors: Collection[str]
    """The inputs that are vectors; the others have one integer for each sample."""
    missing: frozenset[str]
    """Texts that stand for a missing value, in lower case."""

    @property
    def encodings(self) -> dict[str, ColumnEncoding]:
        """The encoding of each column, by its name."""
        return {encoding.column: encoding for columns in self.columns.values() for encoding in columns}

    @property
    def remarks(self) -> list[str]:
        """Checks of `netspec predict` that an exported model cannot do, a line each."""
        strict = [name for name, encoding in self.encodings.items() if _is_strict(encoding)]
        listed = ", ".join(strict[:10]) + ", …" * (len(strict) > 10)
        return [f"checks of the columns {listed}: missing values and unknown names are not errors"] * bool(strict)

    def arrays(self, cells: Mapping[str, Sequence[str]]) -> dict[str, Array]:
        """Return the cells (N) of each column as inputs of the exported model."""
        arrays: dict[str, Array] = {}
        for name, encoding in self.encodings.items():
            texts = [text.strip() for text in cells[name]]
            if isinstance(encoding, NumberEncoding):
                numbers = [np.nan if not text or text.lower() in self.missing else float(text) for text in texts]
                arrays[name] = np.array(numbers, np.float64)
            else:
                arrays[name] = np.array(texts, object)
        return arrays

    def prologue(self) -> Prologue:
        """Return the operators that compute the inputs of the net from the columns."""
        prologue = Prologue(computed=list(self.columns))
        prologue.constants["columns/shape"] = np.array([-1, 1], np.int64)
        for name, columns in self.columns.items():
            parts = [part for encoding in columns for part in _parts(prologue, encoding)]
            if name not in self.vectors:
                prologue.constants["columns/sample"] = np.array([-1], np.int64)
                prologue.nodes.append(PrologueNode("Reshape", [parts[0], "columns/sample"], name))
            else:
                prologue.nodes.append(PrologueNode("Concat", parts, name, {"axis": 1}))
        return prologue


def _is_strict(encoding: ColumnEncoding) -> bool:
    if isinstance(encoding, NumberEncoding):
        return encoding.fill is None
    return encoding.default < 0


def _parts(prologue: Prologue, encoding: ColumnEncoding) -> list[str]:
    """Add the operators of a column, and return the tensors (N, width) of its values."""
    builder = _Builder(prologue, encoding.column)
    if isinstance(encoding, NumberEncoding):
        return builder.number(encoding)
    return builder.category(encoding)


class _Builder:
    """Adds the operators of one column."""

    def __init__(self, prologue: Prologue, column: str) -> None:
        self._prologue, self._column = prologue, column

    def _constant(self, name: str, value: Array) -> str:
        tensor = f"columns/{self._column}/{name}"
        self._prologue.constants[tensor] = value
        return tensor

    def _node(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"columns/{self._column}/{op_type}{len(self._prologue.nodes)}"
        self._prologue.nodes.append(PrologueNode(op_type, inputs, output, attributes, domain))
        return output

    def _cast(self, tensor: str, element: str) -> str:
        from netspec.exchange.formats.onnx.messages import element_number

        return self._node("Cast", tensor, to=element_number(element))

    def number(self, encoding: NumberEncoding) -> list[str]:
        self._prologue.inputs[self._column] = "float64"
        x = self._node("Reshape", self._column, "columns/shape")
        missing = self._node("IsNaN", x) if encoding.fill is not None or encoding.indicator else ""
        if encoding.fill is not None:
            x = self._node("Where", missing, self._constant("fill", np.array(encoding.fill)), x)
        if encoding.offset:
            x = self._node("Sub", x, self._constant("offset", np.array(encoding.offset)))
        if encoding.scale != 1:
            x = self._node("Div", x, self._constant("scale", np.array(encoding.scale)))
        return [self._cast(x, "float32"), *([self._cast(missing, "float32")] if encoding.indicator else [])]

    def category(self, encoding: CategoricalEncoding) -> list[str]:
        self._prologue.inputs[self._column] = "string"
        index = self._node(
            "LabelEncoder", self._column, domain=ML, keys_strings=list(encoding.indices),
            values_int64s=list(encoding.indices.values()), default_int64=encoding.default,
        )  # fmt: skip
        index = self._node("Reshape", index, "columns/shape")
        if not encoding.width:
            return [self._cast(index, "int32")]
        indices = self._constant("indices", np.arange(encoding.width, dtype=np.int64)[None])
        return [self._cast(self._node("Equal", index, indices), "float32")]
