"""How an op is written in ONNX, as plain data: no ONNX library is needed to say it.

`OnnxMap` is for an op that is one ONNX node with the same operands; its attributes go through small typed codecs that
work both ways. `OnnxExpansion` writes several nodes through an `Emitter`; `Decomposed` leaves it to simpler ops.
`NoOnnx` says why there is no form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias


@dataclass(frozen=True)
class Codec:
    """One ONNX attribute ↔ one attribute of the op, at a dotted path."""

    path: str
    encode_value: Callable[[Any], Any]
    decode_value: Callable[[Any], Any]

    def encode(self, op: object) -> Any:
        """The ONNX attribute's value, read from the op."""
        value = op
        for part in self.path.split("."):
            value = getattr(value, part)
        return self.encode_value(value)

    def decode(self, value: Any) -> tuple[str, Any]:
        """The op attribute's path and value, from the ONNX attribute's value."""
        return self.path, self.decode_value(value)


def ints(path: str) -> Codec:
    """A list of integers."""
    return Codec(path, list, lambda value: tuple(int(item) for item in value))


def integer(path: str) -> Codec:
    """An integer; a truth value is 0 or 1."""
    return Codec(path, int, int)


def floating(path: str) -> Codec:
    """A number."""
    return Codec(path, float, float)


def pads(path: str) -> Codec:
    """Padding: ((begin, end), …) per axis here, [begins…, ends…] in ONNX."""

    def encode(value: Sequence[tuple[int, int]]) -> list[int]:
        return [begin for begin, _ in value] + [end for _, end in value]

    def decode(value: Sequence[int]) -> tuple[tuple[int, int], ...]:
        half = len(value) // 2
        return tuple((int(begin), int(end)) for begin, end in zip(value[:half], value[half:], strict=True))

    return Codec(path, encode, decode)


class OnnxMap:
    """One ONNX node with the op's operands in the same order; `fixed` attributes always have the same value."""

    def __init__(self, op_type: str, fixed: dict[str, Any] | None = None, **attributes: Codec) -> None:
        self.op_type = op_type
        self.fixed = fixed or {}
        self.attributes = attributes

    def encode(self, op: object) -> dict[str, Any]:
        """All attributes of the ONNX node for `op`."""
        return {**self.fixed, **{name: codec.encode(op) for name, codec in self.attributes.items()}}


class Emitter(Protocol):
    """What an expansion writes to. Values go by their names in the ONNX graph."""

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output; others are that name with `:1`, `:2` … appended."""
        ...

    def constant(self, values: Any, dtype: str) -> str:
        """Add a constant (number, nested list or array) and return its name."""
        ...


@dataclass(frozen=True)
class OnnxExpansion:
    """Several ONNX nodes: `write(emitter, value, *operand names) → names of the results`.

    An op that it does not take is written as what it decomposes into.
    """

    write: Callable[..., str | tuple[str, ...]]
    takes: Callable[[Any], bool] = lambda _: True


@dataclass(frozen=True)
class Decomposed:
    """Written as what the op decomposes into."""


@dataclass(frozen=True)
class NoOnnx:
    """There is no ONNX form, and this is why."""

    reason: str = field(default="")


OnnxForm: TypeAlias = OnnxMap | OnnxExpansion | Decomposed | NoOnnx
GRADIENT = NoOnnx("only training graphs have it, and ONNX has no operator for it")
