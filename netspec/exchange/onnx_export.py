"""Write a net as an ONNX model: emitted from the ops, checked by ONNX, compared in onnxruntime, and only then saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import netspec.exchange.onnx_model as messages
from netspec.errors import InputError, Problem
from netspec.exchange.files import write_atomically
from netspec.exchange.onnx_emit import OnnxGraph, differences, emit
from netspec.exchange.onnx_model import LOWEST_OPSET, Dims
from netspec.exchange.onnx_tidy import tidy
from netspec.exchange.onnx_verify import TOLERANCE, Comparison, Predict, random_inputs, verify_onnx
from netspec.graph.graph import Graph
from netspec.layers.states import Domain

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

BATCH_AXIS = "N"
"""Name of the batch axis where its size is left open."""
PROBES = (3, 5)
"""Batch sizes at which a net is emitted to find what depends on the batch: it must be the first axis alone."""


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    path: Path
    opset: int
    ir_version: int
    nodes: int
    parameters: int
    """Numbers in the weights."""
    nbytes: int
    inputs: dict[str, Dims]
    outputs: dict[str, Dims]
    comparison: Comparison | None = None
    """How far onnxruntime's results are from the net's own; None where they were not compared."""


@dataclass(frozen=True)
class Exported:
    """A model that is not saved yet, with the graph it was made of."""

    model: onnx.ModelProto
    graph: OnnxGraph
    dims: dict[str, Dims]
    opset: int

    def save(self, path: str | Path, comparison: Comparison | None = None) -> ExportReport:
        """Write the file, whole or not at all."""
        data = self.model.SerializeToString(deterministic=True)
        write_atomically(path, lambda temporary: _write(temporary, data))
        return ExportReport(
            path=Path(path),
            opset=self.opset,
            ir_version=self.model.ir_version,
            nodes=len(self.graph.nodes),
            parameters=sum(kind.size for _, kind in self.graph.states.values()),
            nbytes=len(data),
            inputs={name: self.dims[name] for name in self.graph.inputs},
            outputs={name: self.dims[name] for name in self.graph.outputs},
            comparison=comparison,
        )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def to_onnx(
    graph_for: Callable[[int], Graph],
    states: Mapping[str, NDArray[Any]],
    *,
    batch: int | None = None,
    opset: int | None = None,
    name: str = "net",
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
) -> Exported:
    """The inference graph as a checked ONNX model.

    `graph_for(n)` gives the inference graph for a batch of n, `states` the values of its states. `batch` fixes the
    batch size; None leaves it open as the axis `N`. Raises `InputError` with every layer that has no ONNX form, that
    the opset can't say, or that needs a fixed batch size.
    """
    if opset is not None and not LOWEST_OPSET <= opset <= messages.newest_opset():
        raise InputError(
            f"cannot write ONNX opset {opset}", expected=f"{LOWEST_OPSET} … {messages.newest_opset()}", got=str(opset)
        )
    opset = opset or messages.newest_opset()
    if batch is not None:
        graph = _emit(graph_for(batch))
        dims: dict[str, Dims] = {key: kind.shape for key, kind in {**graph.inputs, **graph.outputs}.items()}
    else:
        graph, dims = _open_batch(graph_for)
    problems = [*messages.check_opset(graph, opset), *_unfit(graph, states)]
    if problems:
        raise InputError(problems)
    model = messages.make_model(graph, states, opset=opset, dims=dims, name=name, doc=doc, metadata=metadata)
    messages.check_model(model)
    return Exported(model, graph, dims, opset)


def export_onnx(
    graph_for: Callable[[int], Graph], states: Mapping[str, NDArray[Any]], path: str | Path, **options: Any
) -> ExportReport:
    """`to_onnx`, saved without a comparison; `export_verified` is what users should get."""
    return to_onnx(graph_for, states, **options).save(path)


def export_verified(
    graph_for: Callable[[int], Graph],
    states: Mapping[str, NDArray[Any]],
    path: str | Path,
    predict: Predict,
    *,
    domains: Mapping[str, Domain] | None = None,
    all_values: Predict | None = None,
    tolerance: float = TOLERANCE,
    batch: int | None = None,
    opset: int | None = None,
    name: str = "net",
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
) -> ExportReport:
    """Export, compare with `predict` on random inputs (two batch sizes where the batch is open), and only then save.

    `predict` maps the net's inputs to its outputs, for any batch size that the model takes; `all_values` likewise to
    every layer's output, to name the first layer that differs. `domains` says what whole numbers the inputs take. The
    largest difference found goes into the model's metadata. Raises as `to_onnx`; `RunError` where results differ.
    """
    made = to_onnx(graph_for, states, batch=batch, opset=opset, name=name, doc=doc, metadata=metadata)
    data = made.model.SerializeToString()
    found: list[Comparison] = []
    for seed, size in enumerate((1, 3) if batch is None else (batch,)):
        types = {key: value.type for key, value in graph_for(size).inputs().items()}
        inputs = random_inputs(types, domains or {}, seed)
        found.append(verify_onnx(data, predict, inputs, tolerance, graph=made.graph, all_values=all_values))
    worst = Comparison(*(_largest([getattr(one, what) for one in found]) for what in ("max_abs", "scaled")))
    made.model.metadata_props.add(key="verified_max_abs_difference", value=f"{worst.worst:.3g}")
    return made.save(path, worst)


def _largest(figures: list[dict[str, float]]) -> dict[str, float]:
    return {name: max(one[name] for one in figures) for name in figures[0]}


def _emit(graph: Graph) -> OnnxGraph:
    made, problems = emit(graph)
    if problems:
        raise InputError(problems)
    return tidy(made)


def _open_batch(graph_for: Callable[[int], Graph]) -> tuple[OnnxGraph, dict[str, Dims]]:
    """The emission that holds for every batch size, with its batch axes open."""
    small, large = (_emit(graph_for(size)) for size in PROBES)
    fixed = {node.scope.layer: (node, what) for node, what in differences(small, large)}
    if fixed:
        raise InputError(
            Problem(
                f"layer `{layer}` ({node.scope.kind}) is tied to the batch size",
                node.scope.location,
                f"layers.{layer}",
                got=f"{what} depends on it",
                hint="export for a fixed batch size",
            )
            for layer, (node, what) in fixed.items()
        )
    dims: dict[str, Dims] = {}
    other = {**large.inputs, **large.outputs}
    for name, kind in {**small.inputs, **small.outputs}.items():
        sizes = enumerate(zip(kind.shape, other[name].shape, strict=True))
        dims[name] = tuple(one if one == two else BATCH_AXIS if axis == 0 else None for axis, (one, two) in sizes)
    return small, dims


def _unfit(graph: OnnxGraph, states: Mapping[str, NDArray[Any]]) -> list[Problem]:
    problems = []
    for name, (_, kind) in graph.states.items():
        if name not in states:
            problems.append(Problem(f"the weights lack `{name}`", expected=str(list(kind.shape))))
        elif tuple(states[name].shape) != kind.shape:
            got = str(list(states[name].shape))
            problems.append(Problem(f"`{name}` has another shape", expected=str(list(kind.shape)), got=got))
    return problems
