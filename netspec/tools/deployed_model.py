"""A model with its preprocessing and postprocessing: it takes raw samples, and returns probabilities.

The transforms of a training become ops in front of the net, as far as they have an exact form, and the function that
`predict` applies to an output becomes ops behind it. Exporters write this graph like that of the net alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.data.loader import Loader, open_loader
from netspec.data.sources.image_folder import ImageFileSource
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER
from netspec.errors import InputError, counted
from netspec.exchange.formats.onnx.exporting import MOST_AT_ONCE
from netspec.exchange.formats.onnx.metadata import CLASSES, FUNCTIONS, TRANSFORMS
from netspec.graph.graph import Graph
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import Input, constant
from netspec.graph.ops.unary import Sigmoid
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.layers.states import Domain
from netspec.schema.plain_json import json_text
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.paths import resolve_path
from netspec.schema.specs.train import TrainSpec
from netspec.tools.raw_columns import RawColumns
from netspec.tools.transform_ops import has_ops, transform_ops
from netspec.training.decoding import Decoder, Postprocessing, decoders_of
from netspec.training.evaluation import input_fields, learned_of
from netspec.training.model import Model
from netspec.training.predict_files import rows_of
from netspec.training.preprocessing import record_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.data.base import Samples

    Array = NDArray[Any]

BYTES = Domain(0, 256, "pixels are bytes")


@dataclass(frozen=True)
class DeployedInput:
    """An input before the transforms that the graph contains."""

    type: FieldType
    """Type of a sample that the graph takes."""
    before: tuple[Transform, ...]
    """Transforms that the graph does not contain: samples must pass through them first."""
    inside: tuple[Transform, ...]
    """Transforms that the graph contains, in their order."""
    resized: str = ""
    """Interpolation with which the source itself resizes images to one size; empty if it does not."""

    @classmethod
    def of(cls, source: FieldType, transforms: list[Transform], resized: str = "") -> DeployedInput:
        """Return the input with as many of the last transforms in the graph as possible."""
        types = [source]
        for transform in transforms:
            types.append(transform.infer(types[-1]))
        start = len(transforms)
        while start and has_ops(transforms[start - 1], types[start - 1]):
            start -= 1
        return cls(types[start], tuple(transforms[:start]), tuple(transforms[start:]), resized)

    def apply(self, samples: Samples) -> Samples:
        """Return samples (N, …) of `type` after the transforms of the graph, computed as for a training."""
        return _applied(self.inside, samples)

    def ops(self, name: str, batch: int, dtype: DType) -> Value:
        """Return the input with the transforms of the graph as ops, converted to the element type of the net."""
        sizes = tuple(size for size in self.type.shape if size is not None)
        with in_scope(Scope(name, "input")):
            x: Value = Input(name, TensorType((batch, *sizes), DType(self.type.dtype)))()
        for transform in self.inside:
            kind = type(transform).__name__
            with in_scope(Scope(f"{name}/{kind}", kind, transform.where("type"), noun="transform")):
                changed = transform_ops(transform, x)
                assert changed is not None
                x = changed
        with in_scope(Scope(f"{name}/Cast", "Cast", noun="transform")):
            return cast(x, dtype)


@dataclass(frozen=True)
class DeployedModel:
    """A model whose graph begins with transforms of the data, and ends with the postprocessing of `predict`."""

    model: Model
    inputs: Mapping[str, DeployedInput]
    postprocessing: Mapping[str, Postprocessing]
    """Functions by output; other outputs are unchanged."""
    classes_by_output: Mapping[str, tuple[str, ...]]
    """Class names of each output that has them, by its name in the net."""
    samples: dict[str, Array]
    """Samples of the data, as the graph takes them, by input."""
    decoders: Mapping[str, Decoder]
    """Decoders that `predict` applies to outputs, by name in the net."""
    left_out: tuple[str, ...] = field(default=())
    """Parts of the preprocessing and postprocessing that the graph does not contain, a line each."""
    raw: RawColumns | None = None
    """The columns of a table that the exported model takes in place of inputs of the graph."""
    raw_samples: dict[str, Array] = field(default_factory=dict)
    """The same samples as such columns."""

    @cached_property
    def output_names(self) -> dict[str, str]:
        """New name of each output: `probabilities` or `prediction`, after the output's own name if there are others."""
        outputs = list(self.model.compiler.graph(ProgramKind.PREDICT, 1).outputs)
        names = {}
        for name in outputs:
            function = self.postprocessing[name].function if name in self.postprocessing else None
            meaning = "prediction" if function == "restore" else "probabilities"
            names[name] = name if function is None else meaning if len(outputs) == 1 else f"{name}_{meaning}"
        return names

    @property
    def domains(self) -> dict[str, Domain]:
        """Ranges of integer inputs."""
        bytes_ = {name: BYTES for name, spec in self.inputs.items() if spec.type.dtype == "uint8"}
        return {**self.model.compiler.domains, **bytes_}

    @property
    def steps(self) -> list[str]:
        """Names of the transforms and functions in the graph: `Rescaling`, `softmax`."""
        inside = [type(step).__name__ for spec in self.inputs.values() for step in spec.inside]
        columns = [] if self.raw is None else [counted(len(self.raw.encodings), "column")]
        return columns + inside + [step.function for step in self.postprocessing.values()]

    @property
    def sample_count(self) -> int:
        """Number of samples of the data to compare the results on."""
        return len(next(iter(self.samples.values()), ()))

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Class names of each output that has them."""
        return {self.output_names[name]: names for name, names in self.classes_by_output.items()}

    def metadata(self) -> dict[str, str]:
        """Return the metadata that differ from those of the net alone: transforms before and inside the model."""

        def steps(part: Callable[[DeployedInput], Iterable[Transform]]) -> str:
            return json_text([record_of(name, step) for name, spec in self.inputs.items() for step in part(spec)])

        return {
            TRANSFORMS: steps(lambda spec: spec.before),
            "netspec_included_transforms": steps(lambda spec: spec.inside),
            CLASSES: json_text(self.classes),
            FUNCTIONS: "{}",  # the graph contains them
        }

    def graph_for(self, batch: int) -> Graph:
        """Return the graph for a batch size."""
        graph = self.model.compiler.graph(ProgramKind.PREDICT, batch)

        def with_transforms(node: Node, _: tuple[Value, ...]) -> tuple[Value, ...] | None:
            if not isinstance(node.op, Input) or node.op.label not in self.inputs:
                return None
            return (self.inputs[node.op.label].ops(node.op.label, batch, node.types[0].dtype),)

        graph = graph.rewrite(with_transforms)
        outputs = {self.output_names[name]: self._finished(name, value) for name, value in graph.outputs.items()}
        named = {name: value for name, value in graph.named.items() if name not in self.inputs}
        return Graph(outputs, named=named)

    def _finished(self, name: str, value: Value) -> Value:
        step = self.postprocessing.get(name)
        if step is None:
            return value
        with in_scope(Scope(self.output_names[name], step.function, noun="output")):
            match step.function:
                case "softmax":
                    return Softmax(1 if len(value.shape) == 2 else step.axis % len(value.shape))(value)
                case "sigmoid":
                    return Sigmoid()(value)
        zeros = np.zeros((1, *value.shape[1:]))
        offset = step.compute(zeros)
        factor = step.compute(zeros + 1) - offset
        with in_scope(Scope(self.output_names[name], step.function, noun="output")):
            dtype = str(value.dtype)
            return value * constant(factor.astype(dtype)) + constant(offset.astype(dtype))

    def net_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return the inputs of the net for inputs of the graph, transformed as for a training."""
        types = self.model.compiler.graph(ProgramKind.PREDICT, 1).inputs()
        return {
            name: np.asarray(self.inputs[name].apply(array) if name in self.inputs else array).astype(
                str(types[name].dtype)
            )
            for name, array in inputs.items()
        }

    def predict(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Compute the outputs as `netspec predict` does: transforms of the data, the net, postprocessing in NumPy."""
        outputs = self.model.predict(self.net_inputs(inputs))
        return {
            self.output_names[name]: self.postprocessing[name].compute(output)
            if name in self.postprocessing
            else output
            for name, output in outputs.items()
        }


def deployed_model(model: Model, spec: NetSpec | TrainSpec, batch: int | None = None) -> DeployedModel:
    """Return a model with the preprocessing and postprocessing of its training.

    The data of the training must be there: it has the type of samples before all transforms, and samples to compare
    the results on; with a fixed `batch`, a whole one. Raises `InputError` if there is no training or no data.
    """
    if not isinstance(spec, TrainSpec):
        raise InputError(
            "a net without its training has no preprocessing", expected="a run directory, or a training file"
        )
    fields = input_fields(model.compiler, [ProgramKind.PREDICT])
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    declared = model.compiler.spec.inputs
    with open_loader(
        spec.data.deployed,
        seed=spec.train.seed,
        inputs=fields,
        declared_inputs=declared,
        learned=learned,
    ) as loader:
        inputs = {name: _deployed_input(loader, name, spec.data.deployed) for name in fields}
        indices = _spread(loader, batch)
        samples = _samples_of(loader, inputs, indices)
        raw = _raw_columns(loader, inputs, spec.data.deployed)
        cells = {} if raw is None or not len(indices) else _cells_of(loader, spec, indices)
        encoded = _encoded_by_source(loader, spec) if raw is None else raw.remarks
    decoders = decoders_of(spec, model.preprocessing)
    steps = {name: decoder.postprocessing for name, decoder in decoders.items() if decoder.postprocessing is not None}
    classes = {name: decoder.classes for name, decoder in decoders.items() if decoder.classes}
    left_out = (*encoded, *_not_inside(inputs, decoders))
    raw_samples = raw.arrays(cells) if raw is not None and cells else {}
    return DeployedModel(model, inputs, steps, classes, samples, decoders, left_out, raw, raw_samples)


def _deployed_input(loader: Loader, name: str, split: object) -> DeployedInput:
    transforms: list[Transform] = []
    source = kind = loader.source_fields[name]
    for bound, transform in loader.transforms:
        if bound != name or transform.mixes:
            continue
        fixed = transform.for_evaluation({name: kind})  # the training data is augmented, new samples are not
        if fixed is not None:
            transforms.append(fixed)
            kind = fixed.infer(kind)
    resized = split.interpolation if isinstance(split, ImageFileSource) and split.size is not None else ""
    return DeployedInput.of(source, transforms, resized)


def _spread(loader: Loader, batch: int | None) -> Array:
    """Return indices of samples that are spread over the data; none if there are too few for a batch."""
    count = batch or min(MOST_AT_ONCE, loader.samples)
    if count > loader.samples:
        return np.zeros(0, np.int64)
    return np.linspace(0, loader.samples - 1, count).astype(np.int64)


def _samples_of(loader: Loader, inputs: Mapping[str, DeployedInput], indices: Array) -> dict[str, Array]:
    """Return samples as the graph takes them."""
    if not len(indices):
        return {}
    read = loader.source_samples(indices)
    return {name: np.asarray(_applied(spec.before, read[name])) for name, spec in inputs.items()}


def _raw_columns(loader: Loader, inputs: Mapping[str, DeployedInput], split: object) -> RawColumns | None:
    """Return the columns that all inputs consist of; None if one of them has no form in operators."""
    if not isinstance(split, TableSource):
        return None
    encodings = loader.column_encodings
    columns = {
        name: [encoding for encoding in encodings.get(name, ()) if encoding is not None]
        for name, spec in inputs.items()
        if not spec.before
    }
    complete = len(columns) == len(inputs) and all(
        listed and len(listed) == len(encodings[name]) for name, listed in columns.items()
    )
    names = [encoding.column for listed in columns.values() for encoding in listed]
    if not complete or len(set(names)) < len(names) or "" in names:
        return None
    missing = frozenset(map(str.lower, split.missing_values))
    return RawColumns(columns, {name for name, spec in inputs.items() if spec.type.shape}, missing)


def _cells_of(loader: Loader, spec: TrainSpec, indices: Array) -> dict[str, list[str]]:
    """Return the cells of the rows of samples, by column."""
    split = spec.data.deployed
    assert isinstance(split, TableSource)
    rows = rows_of(spec, [resolve_path(split, "path")])
    assert rows is not None
    return rows.matching({"row": [loader.identify(index)[1] for index in indices.tolist()]})


def _applied(transforms: tuple[Transform, ...], samples: Samples) -> Samples:
    keys = SampleKeys(0, 0, np.arange(len(samples)), 0)  # no transform is random here
    for transform in transforms:
        samples = transform.apply(samples, keys)
    return samples


def _encoded_by_source(loader: Loader, spec: TrainSpec) -> list[str]:
    """Return a line if the source itself prepares samples with values that it learned, such as columns of a table."""
    split = spec.data.deployed
    names = [name for name in loader.learned.source if name == TOKENIZER or name in loader.column_ranges]
    if not names:
        return []
    listed = ", ".join(map(str, names[:10])) + ", …" * (len(names) > 10)
    return [f"`source: {getattr(split, SOURCES.tag)}` prepares its values: {listed}"]


def _not_inside(inputs: Mapping[str, DeployedInput], decoders: Mapping[str, Decoder]) -> list[str]:
    lines = [
        f"`{name}`: {type(transform).__name__}, which ONNX cannot compute exactly"
        for name, spec in inputs.items()
        for transform in spec.before
    ]
    return lines + [f"`{name}`: {decoder.not_in_graph}" for name, decoder in decoders.items() if decoder.not_in_graph]
