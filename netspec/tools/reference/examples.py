"""A YAML example of every class, from its first sample, and shapes and ONNX operators of built samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from netspec.compile import NetGraph, build
from netspec.data.base import FieldType
from netspec.errors import InputError
from netspec.graph.graph import Graph
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import LayerSpec, Sample
from netspec.layers.losses_and_metrics import LossSpec, MetricSpec
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.yaml.flow_style import flow, item, plain

WIDTH = 110
LAYER = "example"
WEIGHT = "importance"
"""Name of the input with the weights of samples, if the sample of a loss or metric has weights."""
SPLIT = {"source": "mnist", "split": "train", "batch_size": 64}
"""The split in the examples of transforms …"""
MNIST_BATCHES = 938
"""Batches in an epoch of `SPLIT`."""
DIGIT = FieldType((1, 28, 28), "uint8")
PHOTOS = {"source": "image_folder", "path": "photos/train", "batch_size": SPLIT["batch_size"]}
"""… and the split of transforms that cannot take digits."""

_CARRIERS: Sequence[tuple[list[int], dict[str, Any]]] = (
    ([4], {"type": "Dense", "units": 4}),
    ([1, 8, 8], {"type": "Conv2D", "filters": 4, "kernel_size": 3}),
    ([1, 16], {"type": "Conv1D", "filters": 5, "kernel_size": 8}),
    ([5, 3], {"type": "RNN"}),
)
"""Input shapes and layers for the examples of initializers, constraints, regularizers and cells."""

Judged = type[LayerSpec] | type[LossSpec] | type[MetricSpec]


@dataclass(frozen=True)
class Case:
    """A sample of a layer, loss or metric as a complete net."""

    cls: Judged
    sample: Sample

    @cached_property
    def inputs(self) -> dict[str, dict[str, Any]]:
        """The inputs of the net, named after the parameters of the class's `build`."""
        inputs = {}
        for index, (shape, dtype) in enumerate(zip(self.sample.shapes, self.sample.dtypes, strict=True)):
            element = {} if dtype == "float32" else {"dtype": dtype}
            inputs[self._operand(index)] = {"shape": list(shape[1:]), **element}
        if self.sample.weight is not None:
            inputs[WEIGHT] = {"shape": list(self.sample.weight[1:])}
        return inputs

    def _operand(self, index: int) -> str:
        parameters = list(inspect.signature(self.cls.build).parameters.values())[2:]
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        return names[index] if index < len(names) else f"x{index}"

    @cached_property
    def net(self) -> dict[str, Any]:
        """The net as Python data."""
        first, *rest = (name for name in self.inputs if name != WEIGHT)
        fields = {"type": self.cls.model_fields["type"].default, **self.sample.fields}
        net: dict[str, Any] = {"netspec": 1, "inputs": self.inputs}
        if issubclass(self.cls, LayerSpec):
            return {**net, "layers": [{"name": LAYER, **fields, **({"from": [first, *rest]} if rest else {})}]}
        layer = {"name": "output", "type": "Activation", "activation": "linear"}
        sources = {"from": ["output", *rest], **({"sample_weight": WEIGHT} if WEIGHT in self.inputs else {})}
        return {**net, "layers": [layer], "losses" if self._is_loss else "metrics": [{**fields, **sources}]}

    @property
    def _is_loss(self) -> bool:
        return issubclass(self.cls, LossSpec)

    @cached_property
    def built(self) -> NetGraph:
        """The net as an inference graph with the batch size of the sample."""
        return build(load_net(self.net), self.sample.shapes[0][0], training=False)

    @property
    def results(self) -> dict[str, Value]:
        """The outputs of the layer, the loss, or the totals of the metric."""
        if issubclass(self.cls, LayerSpec):
            values = {name: value for name, value in self.built.values.items() if name not in self.inputs}
            return {name.removeprefix(f"{LAYER}."): value for name, value in values.items() if name != LAYER} or values
        if self._is_loss:
            return dict(self.built.losses)
        ((_, totals),) = self.built.metrics.values()
        return {f"total {index}": value for index, value in enumerate(totals)}

    @property
    def states(self) -> dict[str, TensorType]:
        """The types of the layer's parameters and statistics by their names."""
        states = self.built.builder.states.items()
        return {name.removeprefix(f"{LAYER}/"): info.value.type for name, info in states}


def cases_of(cls: Judged) -> list[Case]:
    """All samples of a layer, loss or metric."""
    return [Case(cls, sample) for sample in cls.samples]


def onnx_operators(cls: Judged) -> tuple[list[str], list[str]]:
    """The ONNX operators that a layer's samples are exported to, and why some samples cannot be exported."""
    from netspec.exchange.formats.onnx.cleanup import tidy
    from netspec.exchange.lower.emit import emit

    operators: set[str] = set()
    reasons: dict[str, None] = {}
    for case in cases_of(cls):
        graph, problems = emit(Graph(case.results))
        operators |= {node.op_type for node in tidy(graph).nodes}
        reasons |= dict.fromkeys(problem.message for problem in problems)
    return sorted(operators), list(reasons)


def _net_text(net: Mapping[str, Any]) -> str:
    """Text of a net file."""
    lines = ["netspec: 1", "inputs:"]
    lines += [f"  {plain(name)}: {flow(declared)}" for name, declared in net["inputs"].items()]
    for section in ("layers", "losses", "metrics"):
        if section in net:
            lines += [f"{section}:", *(line for entry in net[section] for line in item(entry, 2, WIDTH))]
    return "\n".join(lines) + "\n"


def _first_fields(cls: type[Any]) -> dict[str, Any]:
    """The first sample with a field; empty if all fields have defaults."""
    return dict(next((sample for sample in cls.samples if sample), {}))


def _judged(cls: type[Any]) -> str:
    return _net_text(cases_of(cls)[0].net)


def _solver(cls: type[Any]) -> str:
    text = f"solver: {flow({'type': cls.model_fields['type'].default, **_first_fields(cls)})}\n"
    return f"{text}train: {flow({'max_epochs': 10, 'accumulate': MNIST_BATCHES})}\n" if cls.full_batch else text


def _schedule(cls: type[Any]) -> str:
    rate = {"type": cls.model_fields["type"].default, **_first_fields(cls)}
    return f"solver: {flow({'type': 'SGD', 'learning_rate': rate})}\n"


def _strategy(cls: type[Any]) -> str:
    return f"parallel: {flow({'strategy': cls.model_fields['strategy'].default, **_first_fields(cls)})}\n"


def _callback(cls: type[Any]) -> str:
    return f"callbacks: [{flow({'type': cls.model_fields['type'].default, **_first_fields(cls)})}]\n"


def _source(cls: type[Any]) -> str:
    split = {"source": cls.model_fields["source"].default, **_first_fields(cls), "batch_size": SPLIT["batch_size"]}
    return f"data:\n  train: {flow(split)}\n"


def _transform(cls: type[Any]) -> str:
    transform = {"type": cls.model_fields["type"].default, **_first_fields(cls)}
    instance = cls.model_validate(transform) if "${" not in str(transform) else None
    split = cls.example_split or SPLIT
    if cls.example_split is None and instance is not None and not instance.needs_data:
        try:
            instance.infer(DIGIT)
        except InputError:
            split = PHOTOS
    return f"data:\n  train: {flow({**split, 'transforms': [transform]})}\n"


def _tokenizer(cls: type[Any]) -> str:
    tokenizer = {"type": cls.model_fields["type"].default, **_first_fields(cls)}
    split = {"source": "text", "path": "input.txt", "length": 64, "tokenizer": tokenizer}
    return f"data:\n  train: {flow({**split, 'batch_size': SPLIT['batch_size']})}\n"


def _column(cls: type[Any]) -> str:
    column = {"type": cls.model_fields["type"].default, **_first_fields(cls)}
    split = {"source": "csv", "path": "table.csv", "header": True, "columns": {"example": column}, "batch_size": 64}
    return f"data:\n  train: {flow(split)}\n"


_EXAMPLES: Mapping[str, Callable[[type[Any]], str]] = {
    "layer": _judged,
    "loss": _judged,
    "metric": _judged,
    "solver": _solver,
    "schedule": _schedule,
    "strategy": _strategy,
    "callback": _callback,
    "data source": _source,
    "transform": _transform,
    "tokenizer": _tokenizer,
    "column": _column,
}


def example(kind: str, cls: type[Any]) -> str:
    """A net file or a section of a training file that uses the class; "" if no sample shows how."""
    if kind in _EXAMPLES:
        return _EXAMPLES[kind](cls)
    name, fields = cls.model_fields["type"].default, _first_fields(cls)
    value = {"type": name, **fields} if fields else name
    for shape, layer in _CARRIERS:
        model_fields = LAYERS[layer["type"]].model_fields
        field = next((candidate for candidate in (kind, f"kernel_{kind}") if candidate in model_fields), None)
        if field is None:
            continue
        net = {"netspec": 1, "inputs": {"x": {"shape": shape}}, "layers": [{**layer, field: value}]}
        try:
            build(load_net(net), 1, training=False)
        except InputError:  # the class does not fit kernels of this layer
            continue
        return _net_text(net)
    return ""
