"""Lift a model: from its operator graph to a net with weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem
from netspec.exchange.formats.onnx.metadata import meanings
from netspec.exchange.interface import Imported, ImportOptions
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.inputs import OPEN_BATCH, OTHER_BATCH, add_inputs, pinned
from netspec.exchange.lift.layer_fusion import fuse_layers
from netspec.exchange.lift.outputs import add_outputs, draft_of, name_layers, notes, output_names, tensor_names
from netspec.exchange.lift.patterns import find_patterns
from netspec.exchange.lift.training_form import as_net, freeze
from netspec.exchange.net_yaml_writer import clean
from netspec.exchange.operator_graph.graph import ImportedGraph, needed
from netspec.exchange.truncation import lookup


class UnsupportedModel(InputError):
    """A model has nodes that netspec has no layer for."""

    def __init__(self, problems: Iterable[Problem], needed_constants: frozenset[str]) -> None:
        super().__init__(problems)
        self.needed_constants = needed_constants
        """Computed tensors that rules need as constants."""


@dataclass(frozen=True)
class BoundaryTensor:
    """An input or output of a model: its name in the net, and the model's axis of samples, which the net has in front.

    Without such an axis the whole model is one sample, and the net has a batch axis in front of the model's axes.
    """

    name: str
    batch: int | None

    def to_net(self, array: NDArray[Any]) -> NDArray[Any]:
        """Convert an array of the model to one of the net."""
        return array[np.newaxis] if self.batch is None else np.moveaxis(array, self.batch, 0)

    def from_net(self, array: NDArray[Any]) -> NDArray[Any]:
        """Convert an array of the net to one of the model; if the model is one sample, take the first."""
        return np.asarray(array[0]) if self.batch is None else np.moveaxis(array, 0, self.batch)


@dataclass(frozen=True)
class LiftedModel:
    """A model as a net, and the model's inputs and outputs in it."""

    imported: Imported
    inputs: Mapping[str, BoundaryTensor]
    """The inputs that the net reads."""
    outputs: Mapping[str, BoundaryTensor]


def lift_model(model: ImportedGraph, options: ImportOptions, origin: str) -> LiftedModel:
    """Lift a model to a net; messages call it `origin`. Raises `UnsupportedModel` with all reasons."""
    model = find_patterns(as_net(_specialized(model, options, origin)))
    ctx = _lift(model, options)
    problems = [*ctx.report.missing, *ctx.report.problems, *ctx.report.mixed]
    if problems:
        located = [replace(problem, message=f"{origin}: {problem.message}") for problem in problems]
        raise UnsupportedModel(located, frozenset(ctx.tensors.needed_constants))
    layers, outputs = name_layers(ctx), output_names(ctx)
    draft = draft_of(ctx, Path(origin).name)
    types = ctx.tensors.types()
    fuse_layers(draft, {name: types[tensor].shape for layer in layers for tensor, name in tensor_names(layer).items()})
    freeze(model, draft.layers)
    arrays = draft.arrays()
    inputs = {feed.name: BoundaryTensor(clean(feed.name), feed.batch) for feed in ctx.inputs.values()}
    meta = meanings(model.metadata, {name: tensor.name for name, tensor in inputs.items()}, outputs)
    return LiftedModel(
        Imported(draft.text(), arrays, notes(ctx, arrays, outputs.values()), meta, draft=draft),
        inputs,
        {name: BoundaryTensor(outputs[name], output.batch) for name, output in ctx.outputs.items()},
    )


def _specialized(model: ImportedGraph, options: ImportOptions, origin: str) -> ImportedGraph:
    """The model with the user's values of inputs as constants, cut at the tensors that the user names."""
    values, wrong = pinned(model.inputs, options.values)
    if wrong:
        raise InputError(replace(problem, message=f"{origin}: {problem.message}") for problem in wrong)
    if options.until:
        named = _cut_at(model, options.until, origin)
        model = replace(model, outputs=list(named), output_names=named)
    return replace(
        model,
        nodes=needed(model.nodes, model.outputs),
        inputs=[model_input for model_input in model.inputs if model_input.name not in values],
        constants={**model.constants, **values},
    )


def _cut_at(model: ImportedGraph, names: Sequence[str], origin: str) -> dict[str, str]:
    """Map tensors to the names by which they were requested: those of tensors, nodes, or layers made from nodes."""
    makers = {name: node for node in model.nodes for name in node.outputs if name}
    tensors_by_name = {clean(node.layer_name): name for name, node in reversed(makers.items()) if node.layer_name}
    tensors_by_name |= {node.name: name for name, node in reversed(makers.items()) if node.name}
    tensors_by_name |= {clean(name): name for name in makers} | {name: name for name in makers}
    return dict(zip(lookup(names, tensors_by_name, origin, _computed(model)), dict.fromkeys(names), strict=True))


def _computed(model: ImportedGraph) -> list[str]:
    """The tensors that depend on the model's inputs."""
    fed = {model_input.name for model_input in model.inputs}
    computed = []
    for node in model.nodes:
        if not fed.isdisjoint(node.inputs):
            fed.update(filter(None, node.outputs))
            computed += [name for name in node.outputs if name]
    return computed


def _lift(model: ImportedGraph, options: ImportOptions) -> LiftContext:
    """Lift a model in batches, or as a single sample if it mixes samples; with problems if neither is possible.

    A single sample is tried whenever one of the problems in batches is a mix of samples. If it succeeds, the problems
    in batches don't matter; else the problems of both are reported, except mixed samples.
    """
    in_batches = _attempt(model, options)
    if in_batches.counts_batch and not in_batches.report.failed and in_batches.batch_size != 1:
        other_size = _attempt(model, options, batch_size=OTHER_BATCH)
        size = in_batches.batch_size
        if size == OPEN_BATCH or not other_size.report.failed:
            in_batches.report.mixed += _depending_on_batch(in_batches, other_size)
        else:
            remark = f"the model may compute with its batch size, {size}, as a constant"
            in_batches.report.remarks.add(remark)
    if not in_batches.report.mixed:
        return in_batches
    single = _attempt(model, options, single_sample=True)
    single.tensors.needed_constants |= in_batches.tensors.needed_constants
    report = single.report
    if report.failed:
        messages = {problem.message for problem in report.problems}
        report.problems += [problem for problem in in_batches.report.problems if problem.message not in messages]
        hint = "; ".join(report.assumed) or None
        report.problems = [replace(problem, hint=problem.hint or hint) for problem in report.problems]
    else:
        report.remarks.insert(0, _why_single_sample(in_batches))
    return single


def _attempt(
    model: ImportedGraph, options: ImportOptions, *, batch_size: int = 0, single_sample: bool = False
) -> LiftContext:
    """Lift a model in batches or as a single sample; the report has the problems."""
    ctx = LiftContext(model, single_sample=single_sample)
    add_inputs(ctx, options.shapes, batch_size)
    ctx.nodes.lift_graph()
    if not ctx.report.failed:
        add_outputs(ctx)
    return ctx


def _depending_on_batch(first: LiftContext, second: LiftContext) -> list[Problem]:
    """A problem for each layer that differs between two batch sizes: it computes with the batch size."""
    layer_pairs = zip_longest(first.layers.written, second.layers.written)
    return [
        Problem(f"{(layer or other_layer).node.describe()}: its result depends on the batch size")
        for layer, other_layer in layer_pairs
        if layer is None or other_layer is None or not layer.same_as(other_layer)
    ]


def _why_single_sample(in_batches: LiftContext) -> str:
    first, *others = (problem.message.replace(" can't be imported", "") for problem in in_batches.report.mixed)
    more = f", and {len(others)} more" if others else ""
    read = "the whole model is imported as one sample; all inputs and outputs get a batch axis in front"
    return f"{read}: {first}{more}"
