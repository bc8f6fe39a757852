"""Write a net as an ONNX model: emitted from the ops, checked by ONNX, compared in onnxruntime, and only then saved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

import netspec.exchange.formats.onnx.external_data as external
from netspec.errors import InputError, Problem
from netspec.exchange.files import check_writable, staging, write_atomically
from netspec.exchange.formats.onnx import messages
from netspec.exchange.formats.onnx.cleanup import tidy
from netspec.exchange.formats.onnx.messages import LOWEST_OPSET, Dims
from netspec.exchange.formats.onnx.opset_downgrade import older
from netspec.exchange.formats.onnx.verify import TOLERANCE, Predict, Verifier, random_inputs
from netspec.exchange.formats.onnx.wrapper import InnerNet, Wrapper
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost
from netspec.exchange.lower.emit import differences, emit
from netspec.exchange.numeric_diff import Arrays, Gap, OutputComparison
from netspec.exchange.operator_graph.graph import LoweredGraph
from netspec.graph.graph import Graph
from netspec.layers.states import Domain

if TYPE_CHECKING:
    import onnx


BATCH_AXIS = "N"
"""Name of the batch axis if its size is open."""
MAX_AT_ONCE = 64
"""Number of samples per run if the batch is open."""
PROBES = (3, 5)
"""Batch sizes at which a net is emitted to find what depends on the batch: only first axes may."""


@dataclass(frozen=True)
class ExportReport:
    """Result of an export."""

    path: Path
    opset: int
    ir_version: int
    nodes: int
    parameters: int
    """Number of weights."""
    nbytes: int
    inputs: dict[str, Dims]
    outputs: dict[str, Dims]
    comparison: OutputComparison | None = None
    """Differences between onnxruntime's results and the net's; None if they were not compared."""
    on_user_inputs: OutputComparison | None = None
    """The same for the user's inputs; None if there are none."""
    data: Path | None = None
    """The file with the weights, if they are too large for one ONNX file."""


@dataclass(frozen=True)
class Exported:
    """A model that is not saved yet, with the graph that it was written from."""

    model: onnx.ModelProto
    graph: LoweredGraph
    dims: dict[str, Dims]
    opset: int
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Weights for an external file, by the names of their tensors."""

    def runnable(self, folder: Path, name: str) -> bytes | Path:
        """The model's bytes for onnxruntime; or, with external weights, a file of this name in the folder."""
        if not self.weights:
            return bytes(self.model.SerializeToString())
        self.save(folder / name)
        return folder / name

    def save(
        self,
        path: str | Path,
        comparison: OutputComparison | None = None,
        on_user_inputs: OutputComparison | None = None,
        staged: Path | None = None,
    ) -> ExportReport:
        """Write the file completely or not at all, after the weights' file, which may be in the folder `staged`."""
        path, apart = Path(path), None
        if self.weights:
            location = external.data_name(path.name, self.weights)
            external.refer(self.model, location, self.weights)
            apart = path.absolute().with_name(location)
            if staged is not None:
                (staged / location).replace(apart)
            else:
                external.write_data(apart, self.weights)
        data = self.model.SerializeToString(deterministic=True)
        write_atomically(path, lambda temporary: temporary.write_bytes(data))
        external.remove_others(path, "" if apart is None else apart.name)
        return ExportReport(
            path=path,
            opset=self.opset,
            ir_version=self.model.ir_version,
            nodes=len(self.graph.nodes),
            parameters=sum(kind.size for _, kind in self.graph.states.values()),
            nbytes=len(data) + (apart.stat().st_size if apart is not None else 0),
            data=None if apart is None else path.with_name(apart.name),
            inputs={name: self.dims[name] for name in self.graph.inputs},
            outputs={name: self.dims[name] for name in self.graph.outputs},
            comparison=comparison,
            on_user_inputs=on_user_inputs,
        )


def to_onnx(
    graph_for: Callable[[int], Graph],
    states: Mapping[str, NDArray[Any]],
    *,
    batch: int | None = None,
    opset: int | None = None,
    name: str = "net",
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
    inside: int = messages.MAX_BYTES,
    around: Collection[str] = (),
) -> Exported:
    """Convert a graph, for inference or training, to an ONNX model that passes ONNX's checker.

    `graph_for(n)` is the graph for a batch of n, `states` are the values of its states. `batch` fixes the batch size;
    None leaves it open as the axis `N`. Weights of more than `inside` bytes in total go into a separate file. `around`
    are operators that will be added around the model. Raises `InputError` with every layer that has no ONNX form, that
    the opset cannot express, or that needs a fixed batch size.
    """
    graph, dims, opset, problems = _emitted(graph_for, batch, opset, around)
    problems += _unfit(graph, states)
    if problems:
        raise InputError(problems)
    weights = messages.weights_of(graph, states)
    apart = external.apart(weights) if sum(array.nbytes for array in weights.values()) > inside else {}
    model = messages.make_model(
        graph, states, opset=opset, dims=dims, name=name, doc=doc, metadata=metadata, apart=apart
    )
    messages.check_model(_bare(graph, dims, opset, name) if apart else model)
    return Exported(model, graph, dims, opset, apart)


def write_onnx(path: Path, exported: Exportable) -> tuple[str, ...]:
    """Write a net as an ONNX model that ONNX's checker accepts; results are not compared."""
    export_onnx(exported.graph_for, exported.arrays, path, name=exported.net.name, doc=exported.net.description)
    return ()


def preflight_onnx(exported: Exportable, options: ExportOptions) -> Lost:
    """Everything that prevents `to_onnx` from writing the net, independent of its weights.

    Raises `InputError` for an unknown opset, `RunError` if ONNX's checker or onnxruntime rejects the model.
    """
    graph, dims, opset, problems = _emitted(exported.graph_for, options.batch, options.opset)
    if not problems:
        model = _bare(graph, dims, opset, exported.net.name)
        messages.check_model(model)
        messages.open_session(model.SerializeToString())
    return Lost(problems)


def _bare(graph: LoweredGraph, dims: Mapping[str, Dims], opset: int, name: str) -> onnx.ModelProto:
    """The model with weights as inputs instead of data: the checker and onnxruntime only need their types."""
    weights = dict(graph.states.values())
    bare = replace(graph, inputs={**graph.inputs, **weights}, states={})
    shapes = {**dims, **{tensor: kind.shape for tensor, kind in weights.items()}}
    return messages.make_model(bare, {}, opset=opset, dims=shapes, name=name)


def _opset(requested: int | None, graph: LoweredGraph, around: Collection[str]) -> int:
    """The requested opset, or the newest that onnxruntime runs. Raises `InputError` if it cannot be written."""
    newest = messages.newest_opset()
    if requested is not None and not LOWEST_OPSET <= requested <= newest:
        expected = f"{LOWEST_OPSET} … {newest}"
        raise InputError(f"cannot write ONNX opset {requested}", expected=expected, got=str(requested))
    return requested or messages.runnable_opset([*(node.op_type for node in graph.nodes), *around])


def export_onnx(
    graph_for: Callable[[int], Graph], states: Mapping[str, NDArray[Any]], path: str | Path, **options: Any
) -> ExportReport:
    """Save the result of `to_onnx` without a comparison. For users, call `export_verified`."""
    return to_onnx(graph_for, states, **options).save(path)


def export_verified(
    graph_for: Callable[[int], Graph],
    states: Mapping[str, NDArray[Any]],
    path: str | Path,
    predict: Predict,
    *,
    domains: Mapping[str, Domain] | None = None,
    user_inputs: Arrays | None = None,
    all_values: Predict | None = None,
    undrawn_for: Callable[[int], Graph] | None = None,
    tolerance: float = TOLERANCE,
    batch: int | None = None,
    opset: int | None = None,
    name: str = "net",
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
    inside: int = messages.MAX_BYTES,
    wrapper: Wrapper | None = None,
    inner: InnerNet | None = None,
    raw_samples: Iterable[tuple[Arrays, Arrays]] = (),
    raw_tolerance: float = TOLERANCE,
) -> ExportReport:
    """Export, compare with `predict` on random inputs (two batch sizes if the batch is open), and only then save.

    `predict` maps the net's inputs to its outputs, for any batch size that the model takes; `all_values` likewise to
    every layer's output, to name the first layer that differs. `domains` are the ranges of integer inputs.
    `user_inputs` are further samples to compare on; with a fixed batch, a multiple of it. `undrawn_for` gives the graph
    without random numbers, which is compared in place of a graph that draws them. `wrapper` are operators around the
    model; the whole is compared on `raw_samples`, pairs of inputs and outputs, with `raw_tolerance`. `inner` is the net
    without its preprocessing, which an import finds again. The largest difference is written to the metadata of the
    model. Raises as `to_onnx`; `RunError` if results differ.
    """
    parts = list(_parts(user_inputs, batch)) if user_inputs else []
    exported = to_onnx(
        graph_for, states, batch=batch, opset=opset, name=name, doc=doc, metadata=metadata, inside=inside,
        around=wrapper.op_types if wrapper is not None else (),
    )  # fmt: skip
    target = Path(path)
    check_writable(target)
    with staging(target) if exported.weights else nullcontext(target) as folder:
        model = exported.runnable(folder, target.name)
        compared = exported
        if undrawn_for is not None:
            compared = to_onnx(undrawn_for, states, batch=batch, opset=opset, inside=inside)
            model = compared.runnable(folder, f"{target.name}.compared")
        compare = Verifier(model, predict, tolerance, graph=compared.graph, all_values=all_values)
        on_random_inputs = list(_on_random_inputs(compare, undrawn_for or graph_for, domains or {}, batch))
        on_samples = [compare(part, f"the samples given, from sample {start} on") for start, part in parts]
        if wrapper is not None:
            wrapper.attach(exported.model, batch or BATCH_AXIS)
            complete = Verifier(exported.runnable(folder, target.name), predict, raw_tolerance)
            on_raw = [complete.check(raw, results, "raw samples of the data") for raw, results in raw_samples]
            on_samples = on_raw or on_samples
        if inner is not None:
            _record_net(exported, inner, wrapper, batch)
        worst = Gap.largest(comparison.whole for comparison in on_random_inputs + on_samples)
        if worst.finite:  # otherwise nothing was verified
            exported.model.metadata_props.add(key="verified_max_abs_difference", value=f"{worst.max_abs:.3g}")
        random_gap = OutputComparison.largest(on_random_inputs)
        own_gap = OutputComparison.largest(on_samples) if on_samples else None
        report = exported.save(path, random_gap, own_gap, folder if exported.weights else None)
        return report if wrapper is None else _with_operators(report, wrapper, batch)


def _on_random_inputs(
    compare: Verifier, graph_for: Callable[[int], Graph], domains: Mapping[str, Domain], batch: int | None
) -> Iterator[OutputComparison]:
    """Compare on random inputs, of two batch sizes if the batch is open."""
    for seed, size in enumerate((1, 3) if batch is None else (batch,)):
        types = {name: value.type for name, value in graph_for(size).inputs().items()}
        yield compare(random_inputs(types, domains, seed), "random inputs")


def _record_net(exported: Exported, inner: InnerNet, wrapper: Wrapper | None, batch: int | None) -> None:
    """Write the tensors of the net to the metadata of a model that also contains its preprocessing."""
    graph, unique_name = exported.graph, wrapper.unique_name if wrapper is not None else str
    tensors = {name: unique_name(graph.tensors.get(name, name)) for name in (*inner.inputs, *inner.outputs)}
    inner.record(exported.model, tensors, batch or BATCH_AXIS)


def _with_operators(report: ExportReport, wrapper: Wrapper, batch: int | None) -> ExportReport:
    """Return a report with the inputs and outputs that a model has with the operators around it."""
    inputs = wrapper.input_dims(report.inputs, batch or BATCH_AXIS)
    return replace(report, inputs=inputs, outputs=wrapper.output_dims(report.outputs, batch or BATCH_AXIS))


def _parts(arrays: Arrays, batch: int | None) -> Iterator[tuple[int, Arrays]]:
    """Split the samples into batches of a size that the model takes; yield each with the index of its first sample."""
    samples = len(next(iter(arrays.values())))
    if batch is not None and samples % batch:
        raise InputError(
            "the samples given do not fill whole batches", expected=f"a multiple of {batch}", got=f"{samples} samples"
        )
    step = batch or MAX_AT_ONCE
    for start in range(0, samples, step):
        yield start, {name: array[start : start + step] for name, array in arrays.items()}


def _emitted(
    graph_for: Callable[[int], Graph], batch: int | None, opset: int | None, around: Collection[str] = ()
) -> tuple[LoweredGraph, dict[str, Dims], int, list[Problem]]:
    """The net as nodes, the sizes of its inputs and outputs, the opset, and everything that prevents the export.

    If the batch is open, the net is emitted for two batch sizes; a layer that differs depends on the batch size.
    """
    emitted = [emit(graph_for(size)) for size in (PROBES if batch is None else (batch,))]
    problems = dict.fromkeys(problem for _, node_problems in emitted for problem in node_problems)
    tidied = [tidy(graph) for graph, _ in emitted]
    opset = _opset(opset, tidied[0], around)
    graphs = [older(graph, opset) for graph in tidied]
    first, last = graphs[0], graphs[-1]
    for layer, (node, difference) in differences(first, last).items():
        problem = Problem(
            f"layer `{layer}` ({node.scope.kind}) depends on the batch size",
            node.scope.location,
            f"layers.{layer}",
            got=f"{difference} depends on it",
            hint="export for a fixed batch size",
        )
        problems[problem] = None
    problems.update(dict.fromkeys(messages.check_opset(first, opset, tidied[0])))
    other = {**last.inputs, **last.outputs}
    dims: dict[str, Dims] = {}
    for name, kind in {**first.inputs, **first.outputs}.items():
        sizes = enumerate(zip(kind.shape, other[name].shape, strict=True))
        dims[name] = tuple(
            size if size == other_size else BATCH_AXIS if axis == 0 else None for axis, (size, other_size) in sizes
        )
    return first, dims, opset, list(problems)


def _unfit(graph: LoweredGraph, states: Mapping[str, NDArray[Any]]) -> list[Problem]:
    problems = []
    for name, (_, kind) in graph.states.items():
        if name not in states:
            problems.append(Problem(f"the weights lack `{name}`", expected=str(list(kind.shape))))
        elif tuple(states[name].shape) != kind.shape:
            got = str(list(states[name].shape))
            problems.append(Problem(f"`{name}` has the wrong shape", expected=str(list(kind.shape)), got=got))
    return problems
