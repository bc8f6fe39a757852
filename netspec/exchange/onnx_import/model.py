"""An ONNX model as plain data: what the rules see of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Unsupported(Exception):
    """A node says something that netspec has no layer for; the text is the reason."""


class Mixed(Unsupported):
    """A node does something with axis 0 that cannot be done to a batch. Where the whole model is a sample, it can."""


@dataclass(frozen=True)
class Node:
    """One node. Its attributes include the operator's defaults; an operand left out has an empty name."""

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int
    domain: str = ""

    def operand(self, index: int) -> str:
        """The name of an operand, empty where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def label(self) -> str:
        """The node's name, or that of its result where it has none."""
        return self.name or (self.outputs[0] if self.outputs else "")

    def describe(self) -> str:
        """The node as a message names it."""
        domain = f"{self.domain}." if self.domain else ""
        return f"node `{self.label}` ({domain}{self.op_type}, opset {self.opset})"


@dataclass(frozen=True)
class ModelInput:
    """An input of the model: its element type by NumPy's name, and its sizes (None where it is open)."""

    name: str
    dtype: str
    dims: tuple[int | None, ...] | None
    names: tuple[str, ...] = ()
    """What the model calls its axes, empty where it does not; as many as `dims`."""


@dataclass
class Model:
    """A model; nodes come after those they read."""

    name: str
    producer: str
    opset: int
    inputs: list[ModelInput] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
