"""The state of one import, as rules see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from netspec.errors import Problem
from netspec.exchange.lift.inputs import LiftedInput
from netspec.exchange.lift.layers import LayerWriter
from netspec.exchange.lift.nodes import NodeLifter
from netspec.exchange.lift.reshaping import Reshaper
from netspec.exchange.lift.tensors import Tensors
from netspec.exchange.notes import Notes
from netspec.exchange.operator_graph.graph import ImportedGraph


@dataclass
class Report:
    """Problems that prevent the import, and notes for the user."""

    problems: list[Problem] = field(default_factory=list)
    mixed: list[Problem] = field(default_factory=list)
    """Problems with operators that mix samples, which do not exist if the whole model is one sample."""
    missing: list[Problem] = field(default_factory=list)
    """Sizes that the user has to give."""
    remarks: Notes = field(default_factory=Notes)
    assumed: list[str] = field(default_factory=list)
    """Sizes that the user may give."""

    @property
    def failed(self) -> bool:
        """Whether something prevents the import."""
        return bool(self.problems or self.mixed or self.missing)


@dataclass(frozen=True)
class LiftedOutput:
    """An output of the model: its tensor in the net, and its axis of samples (None: no batch)."""

    tensor: str
    batch: int | None


class LiftContext:
    """One import: the model, its tensors, the layers so far, and the report.

    Its parts do the work: `tensors` knows shapes, constants and axis views; `layers` adds layers; `reshaping`
    transposes and reshapes; `nodes` walks the graph, and lifts nodes that a rule puts in place of another.
    """

    def __init__(self, model: ImportedGraph, *, single_sample: bool = False) -> None:
        """Start an import. With `single_sample`, the whole model is one sample: its tensors have no batch axis."""
        self.model = model
        self.report = Report()
        self.tensors = Tensors(model.constants, single_sample, model.reads())
        self.layers = LayerWriter(model, self.tensors, self.report.remarks)
        self.reshaping = Reshaper(model, self.tensors, self.layers)
        self.nodes = NodeLifter(self)
        self.inputs: dict[str, LiftedInput] = {}
        """The net's inputs by their tensors in the net."""
        self.outputs: dict[str, LiftedOutput] = {}
        self.batch_size = 0
        """The size of the batch in the model."""
        self.counts_batch = False
        """Whether the size of the batch has become a constant that nodes compute with."""
