"""The ONNX form of an op as plain data, without the ONNX library.

`OnnxMap` is for an op that is one ONNX node with the same operands; typed codecs convert its attributes in both
directions. `OnnxExpansion` writes several nodes through an `Emitter`; `Decomposed` exports the ops that an op
decomposes into. `NoOnnxForm` holds the reason why an op cannot be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, get_type_hints

if TYPE_CHECKING:
    from netspec.graph.value import Value

T = TypeVar("T")


@dataclass(frozen=True)
class Codec:
    """Converts between an ONNX attribute and an attribute of the op at a dotted path."""

    path: str
    encode_value: Callable[[Any], Any]
    decode_value: Callable[[Any], Any]

    def encode(self, op: object) -> Any:
        """The value of the ONNX attribute, read from the op."""
        value = op
        for part in self.path.split("."):
            value = getattr(value, part)
        return self.encode_value(value)

    def decode(self, value: Any) -> tuple[str, Any]:
        """The path and value of the op's attribute for a value of the ONNX attribute."""
        return self.path, self.decode_value(value)


def ints(path: str) -> Codec:
    """Codec of a list of integers."""
    return Codec(path, list, lambda value: tuple(int(item) for item in value))


def integer(path: str) -> Codec:
    """Codec of an integer; a bool becomes 0 or 1."""
    return Codec(path, int, int)


def floating(path: str) -> Codec:
    """Codec of a float."""
    return Codec(path, float, float)


def pads(path: str) -> Codec:
    """Codec of padding: ((begin, end), …) by axis in the op, [begins…, ends…] in ONNX."""

    def encode(value: Sequence[tuple[int, int]]) -> list[int]:
        return [begin for begin, _ in value] + [end for _, end in value]

    def decode(value: Sequence[int]) -> tuple[tuple[int, int], ...]:
        half = len(value) // 2
        return tuple((int(begin), int(end)) for begin, end in zip(value[:half], value[half:], strict=True))

    return Codec(path, encode, decode)


class OnnxMap:
    """One ONNX node with the op's operands in the same order; attributes in `fixed` are constant."""

    def __init__(self, op_type: str, fixed: dict[str, Any] | None = None, **attributes: Codec) -> None:
        self.op_type = op_type
        self.fixed = fixed or {}
        self.attributes = attributes

    def encode(self, op: object) -> dict[str, Any]:
        """The attributes of the ONNX node for `op`."""
        return {**self.fixed, **{name: codec.encode(op) for name, codec in self.attributes.items()}}

    def decode(self, op_class: type[T], attributes: Mapping[str, Any]) -> T | None:
        """The op of `op_class` for an ONNX node with these attributes; None if a fixed attribute differs.

        All attributes of the class must be in the map.
        """
        if any(attributes.get(name) != value for name, value in self.fixed.items()):
            return None
        values = dict(codec.decode(attributes[name]) for name, codec in self.attributes.items())
        return _with_attributes(op_class, values)


def _with_attributes(cls: type[T], values: Mapping[str, Any]) -> T:
    """Create an instance of a dataclass; a dotted path such as `window.size` sets an attribute of a nested one."""
    direct = {path: value for path, value in values.items() if "." not in path}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, dot, inner_path = path.partition(".")
        if dot:
            inner.setdefault(name, {})[inner_path] = value
    kinds = get_type_hints(cls) if inner else {}
    return cls(**direct, **{name: _with_attributes(kinds[name], part) for name, part in inner.items()})


class Emitter(Protocol):
    """The interface that an expansion writes nodes to. Values are given by their names in the ONNX graph."""

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output; further outputs are named NAME`:1`, NAME`:2`, …."""
        ...

    def constant(self, values: Any, dtype: str) -> str:
        """Add a constant (number, nested list or array) and return its name."""
        ...

    def is_read(self, value: Value) -> bool:
        """Whether a node or a graph output reads `value`, a result of the op that is being exported."""
        ...


@dataclass(frozen=True)
class OnnxExpansion:
    """Several ONNX nodes: `write(emitter, value, *operand_names)` returns the names of the results.

    An op for which `accepts` returns False is exported as its decomposition.
    """

    write: Callable[..., str | tuple[str, ...]]
    accepts: Callable[[Any], bool] = lambda _: True


@dataclass(frozen=True)
class Decomposed:
    """The op is exported as the ops that it decomposes into."""


@dataclass(frozen=True)
class NoOnnxForm:
    """The op cannot be exported, for this reason."""

    reason: str = field(default="")


OnnxForm: TypeAlias = OnnxMap | OnnxExpansion | Decomposed | NoOnnxForm
GRADIENT = NoOnnxForm("it only occurs in training graphs, and ONNX has no operator for it")
