"""A model with its preprocessing and postprocessing: it takes raw samples, and returns probabilities.

The transforms of a training become ops in front of the net, as far as they have an exact form, and the function that
`predict` applies to an output becomes ops behind it. Exporters write this graph like that of the net alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.data.base import FieldType, SampleKeys, Transform
from netspec.data.loader import Loader, open_loader
from netspec.data.readers.decode import ImageDecoder
from netspec.data.sources.image_folder import ImageFileSource
from netspec.data.tabular.encodings import NumberEncoding
from netspec.data.tabular.row_times import TIME_STEPS, UsualSteps
from netspec.data.tabular.source import TableSource
from netspec.data.text.tokenizers.base import TOKENIZER
from netspec.data.transforms.resizing import Resizing
from netspec.errors import InputError, and_more, counted
from netspec.exchange.formats.onnx.exporting import MAX_AT_ONCE
from netspec.exchange.formats.onnx.metadata import CLASSES, FUNCTIONS, INCLUDED, TRANSFORMS
from netspec.exchange.formats.onnx.wrapper import InnerNet, Wrapper
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
from netspec.tools.exporting import raw_images, raw_sounds
from netspec.tools.exporting.box_operators import SelectedBoxes
from netspec.tools.exporting.raw_columns import RawColumns
from netspec.tools.exporting.raw_images import RESIZE_OPSET, RawImages, sets_size
from netspec.tools.exporting.raw_images import TOLERANCE as RAW_TOLERANCE
from netspec.tools.exporting.raw_sounds import RawSounds
from netspec.tools.exporting.text_vocabulary import TextInput, text_inputs
from netspec.tools.exporting.transform_ops import has_ops, transform_ops
from netspec.training.evaluation import learned_of
from netspec.training.inference.decoding import Decoder, Postprocessing, decoders_of
from netspec.training.inference.model import Model
from netspec.training.inference.predict_files import rows_of
from netspec.training.preprocessing import record_of
from netspec.training.required_inputs import input_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.data.base import Samples
    from netspec.data.tabular.encodings import ColumnEncoding

    Array = NDArray[Any]

BYTES = Domain(0, 256, "pixels are bytes")


@dataclass(frozen=True)
class DeployedInput:
    """An input before the transforms that the exported model contains."""

    raw: FieldType
    """Type of a sample that the exported model takes."""
    before: tuple[Transform, ...]
    """Transforms that the model does not contain: samples must pass through them first."""
    wrapper_transforms: tuple[Transform, ...]
    """Transforms of images and sounds of any size that are operators in front of the graph, in their order."""
    type: FieldType
    """Type of a sample that the graph takes."""
    inside: tuple[Transform, ...]
    """Transforms that the graph contains, in their order."""

    @classmethod
    def of(cls, source: FieldType, transforms: list[Transform], opset: int | None) -> DeployedInput:
        """Return the input with as many of the last transforms in the model as possible."""
        types = [source]
        for transform in transforms:
            types.append(transform.infer(types[-1]))
        start = len(transforms)
        while start and has_ops(transforms[start - 1], types[start - 1]):
            start -= 1
        first = start
        if opset is None or opset >= RESIZE_OPSET:
            while first and _has_operator_form(transforms[first - 1], types[first - 1]):
                first -= 1
        before, wrapped, inside = transforms[:first], transforms[first:start], transforms[start:]
        raw = types[first]
        # The transforms accept any size, even if all images of the data have the same.
        if any(map(sets_size, wrapped)):
            raw = FieldType((raw.shape[0], None, None), raw.dtype)
        return cls(raw, tuple(before), tuple(wrapped), types[start], tuple(inside))

    def apply(self, samples: Samples) -> Samples:
        """Return samples (N, …) of `type`, transformed as in training by the transforms inside the graph."""
        return _applied(self.inside, samples)

    def ops(self, name: str, batch: int, dtype: DType) -> Value:
        """Return the input after the transforms inside the graph, as ops, converted to the element type of the net."""
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
    left_out: tuple[str, ...] = ()
    """Parts of the preprocessing and postprocessing that the model does not contain, a line each."""
    remarks: tuple[str, ...] = ()
    """Checks of `predict` that the model does not contain, a line each."""
    columns: RawColumns | None = None
    """The columns of a table that the exported model takes in place of inputs of the graph."""
    texts: tuple[TextInput, ...] = ()
    """The inputs that take the tokens of texts."""
    raw_samples: Sequence[Mapping[str, Array]] = ()
    """The samples as inputs of the exported model, in parts; none if it takes the inputs of the graph."""
    time_steps: UsualSteps | None = None
    """The usual steps between rows of a time series, if they are known."""

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

    @cached_property
    def boxes(self) -> dict[str, SelectedBoxes]:
        """The box selection of each output that has one; its three outputs replace that output."""
        outputs = self.model.compiler.graph(ProgramKind.PREDICT, 1).outputs
        selected = {}
        for name, value in outputs.items():
            selection = self.decoders[name].selection
            if selection is not None:
                before = "" if len(outputs) == 1 else f"{name}_"
                names = (f"{before}boxes", f"{before}scores", f"{before}classes")
                selected[name] = SelectedBoxes(name, (value.shape[1], value.shape[2]), selection, names)
        return selected

    @cached_property
    def wrapper(self) -> Wrapper | None:
        """The operators around the graph; None if there are none."""
        wrapper = Wrapper()
        raw = [
            (RawImages if deployed.raw.dtype == "uint8" else RawSounds)(name, deployed.raw, deployed.wrapper_transforms)
            for name, deployed in self.inputs.items()
            if deployed.wrapper_transforms
        ]
        columns = [] if self.columns is None else [self.columns]
        parts: list[RawColumns | RawImages | RawSounds | SelectedBoxes] = [*columns, *raw, *self.boxes.values()]
        for part in parts:
            part.add_to(wrapper)
        wrapper.prune()
        return wrapper if parts else None

    @property
    def raw_tolerance(self) -> float | None:
        """Tolerance for results on raw samples; None for the default."""
        steps = [step for deployed in self.inputs.values() for step in deployed.wrapper_transforms]
        return None if all(raw_images.is_exact(step) or raw_sounds.is_exact(step) for step in steps) else RAW_TOLERANCE

    def raw_results(self) -> Iterator[tuple[Mapping[str, Array], dict[str, Array]]]:
        """Yield the raw samples in parts, each with its results, computed as `netspec predict` does."""
        start = 0
        for raw in self.raw_samples or ([self.samples] if self.samples and self.boxes else []):
            count = len(next(iter(raw.values())))
            results = self.predict({name: array[start : start + count] for name, array in self.samples.items()})
            for name, boxes in self.boxes.items():
                results |= boxes.select(results.pop(name))
            yield raw, results
            start += count

    @property
    def domains(self) -> dict[str, Domain]:
        """Ranges of integer inputs."""
        bytes_ = {name: BYTES for name, spec in self.inputs.items() if spec.type.dtype == "uint8"}
        return {**self.model.compiler.domains, **bytes_}

    @property
    def steps(self) -> list[str]:
        """The transforms and functions in the graph: `Rescaling`, `softmax`."""
        inside = [
            type(step).__name__
            for deployed in self.inputs.values()
            for step in (*deployed.wrapper_transforms, *deployed.inside)
        ]
        columns = [] if self.columns is None else [counted(len(self.columns.encodings), "column")]
        restored = "predictions converted back to the unit of the target"
        functions = [restored if step.function == "restore" else step.function for step in self.postprocessing.values()]
        return columns + inside + functions + ["non-maximum suppression"] * bool(self.boxes)

    @property
    def sample_count(self) -> int:
        """Number of samples of the data to compare the results on."""
        return len(next(iter(self.samples.values()), ()))

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Class names of each output that has them."""
        return {
            self.boxes[name].names[2] if name in self.boxes else self.output_names[name]: names
            for name, names in self.classes_by_output.items()
        }

    def metadata(self) -> dict[str, str]:
        """Return the metadata that differ from those of the net alone: transforms before and inside the model."""

        def steps(part: Callable[[DeployedInput], Iterable[Transform]]) -> str:
            return json_text([record_of(name, step) for name, spec in self.inputs.items() for step in part(spec)])

        return {
            TRANSFORMS: steps(lambda deployed: deployed.before),
            INCLUDED: steps(lambda deployed: (*deployed.wrapper_transforms, *deployed.inside)),
            CLASSES: json_text(self.classes),
            FUNCTIONS: "{}",  # the graph contains them
        }

    def inner(self, metadata: Mapping[str, str]) -> InnerNet:
        """Return what an import needs to find the net again; `metadata` are those of the net alone."""
        graph = self.model.compiler.graph(ProgramKind.PREDICT, 1)
        inputs = {name: value.type for name, value in graph.inputs().items()}
        outputs = {name: value.type for name, value in graph.outputs.items()}
        return InnerNet(inputs, outputs, {key: metadata[key] for key in (CLASSES, FUNCTIONS)})

    def graph_for(self, batch: int) -> Graph:
        """Return the graph for a batch size."""
        graph = self.model.compiler.graph(ProgramKind.PREDICT, batch)

        def with_transforms(node: Node, _: tuple[Value, ...]) -> tuple[Value, ...] | None:
            if not isinstance(node.op, Input) or node.op.label not in self.inputs:
                return None
            return (self.inputs[node.op.label].ops(node.op.label, batch, node.types[0].dtype),)

        graph = graph.rewrite(with_transforms)
        outputs = {self.output_names[name]: self._finished(name, value) for name, value in graph.outputs.items()}
        return Graph(outputs, named={**graph.named, **graph.outputs})

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


def deployed_model(
    model: Model, spec: NetSpec | TrainSpec, batch: int | None = None, opset: int | None = None
) -> DeployedModel:
    """Return a model with the preprocessing and postprocessing of its training, for an opset (None: the newest).

    The data of the training must be there: it has the type of samples before all transforms, and samples to compare
    the results on; with a fixed `batch`, a whole one. Raises `InputError` if there is no training or no data.
    """
    if not isinstance(spec, TrainSpec):
        raise InputError(
            "a net without its training has no preprocessing", expected="a run directory, or a training file"
        )
    split = spec.data.deployed
    fields = input_fields(model.compiler, [ProgramKind.PREDICT])
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    declared = model.compiler.spec.inputs
    with open_loader(split, seed=spec.train.seed, inputs=fields, declared_inputs=declared, learned=learned) as loader:
        inputs = {name: _deployed_input(loader, name, split, opset) for name in fields}
        columns = _raw_columns(loader, inputs, split)
        indices = _spread(loader, batch)
        samples, raw = _samples_of(loader, inputs, indices, split, batch)
        if columns is not None and len(indices):
            raw = _raw_rows(columns, loader, spec, indices, samples, batch)
        texts = text_inputs(loader, inputs, split)
        encoded = _encoded_by_source(loader, spec, columns, texts)
    decoders = decoders_of(spec, model.preprocessing)
    steps = {name: decoder.postprocessing for name, decoder in decoders.items() if decoder.postprocessing is not None}
    classes = {name: decoder.classes for name, decoder in decoders.items() if decoder.classes}
    left_out = (*encoded, *_not_inside(inputs, decoders))
    remarks = () if columns is None else tuple(columns.remarks)
    time_steps = UsualSteps(*learned_steps) if (learned_steps := learned.source.get(TIME_STEPS)) else None
    return DeployedModel(
        model, inputs, steps, classes, samples, decoders, left_out, remarks, columns, texts, raw, time_steps
    )


def _deployed_input(loader: Loader, name: str, split: object, opset: int | None) -> DeployedInput:
    transforms: list[Transform] = []
    source = kind = loader.source_fields[name]
    if isinstance(split, ImageFileSource) and split.size is not None and len(source.shape) == 3:
        height, width = split.size
        transforms.append(Resizing(height=height, width=width, interpolation=split.interpolation))
        source = FieldType((source.shape[0], None, None), source.dtype)
    for bound, transform in loader.transforms:
        if bound != name or transform.mixes:
            continue
        fixed = transform.for_evaluation({name: kind})  # the training data is augmented, new samples are not
        if fixed is not None:
            transforms.append(fixed)
            kind = fixed.infer(kind)
    return DeployedInput.of(source, transforms, opset)


def _has_operator_form(transform: Transform, field: FieldType) -> bool:
    return raw_images.has_operator_form(transform, field) or raw_sounds.has_operator_form(transform, field)


def _spread(loader: Loader, batch: int | None) -> Array:
    """Return indices of samples that are spread over the data; none if there are too few for a batch."""
    count = batch or min(MAX_AT_ONCE, loader.samples)
    if count > loader.samples:
        return np.zeros(0, np.int64)
    return np.linspace(0, loader.samples - 1, count).astype(np.int64)


def _samples_of(
    loader: Loader, inputs: Mapping[str, DeployedInput], indices: Array, split: object, batch: int | None
) -> tuple[dict[str, Array], list[dict[str, Array]]]:
    """Return samples as the graph takes them, and one by one as an exported model takes images or sounds of any size.

    With a fixed batch, samples with such inputs are copies of one.
    """
    if not len(indices):
        return {}, []
    resized = [name for name, deployed in inputs.items() if deployed.wrapper_transforms]
    if resized and batch is not None:
        indices = np.repeat(indices[:1], batch)
    read = loader.source_samples(indices)
    if resized and isinstance(split, ImageFileSource) and split.size is not None:
        decoder = ImageDecoder(split.channels, None, split.interpolation)
        files = [str(loader.identify(index)[1]) for index in indices.tolist()]
        read |= {name: [decoder.read(Path(file), file).transpose(2, 0, 1) for file in files] for name in resized}
    raw = {name: _applied(deployed.before, read[name]) for name, deployed in inputs.items()}
    samples = {name: np.asarray(_applied(deployed.wrapper_transforms, raw[name])) for name, deployed in inputs.items()}
    size = batch or 1
    parts = [
        {name: np.stack([raw[name][row] for row in range(start, start + size)]) for name in inputs}
        for start in range(0, len(indices) if resized else 0, size)
    ]
    return samples, parts


def _raw_columns(loader: Loader, inputs: Mapping[str, DeployedInput], split: object) -> RawColumns | None:
    """Return the columns of the inputs that have a form in operators; None if no input has."""
    if not isinstance(split, TableSource):
        return None
    encodings = loader.column_encodings
    columns: dict[str, list[ColumnEncoding]] = {}
    for name, deployed in inputs.items():
        present = [encoding for encoding in encodings.get(name, ()) if encoding is not None]
        if present and len(present) == len(encodings[name]) and not deployed.before:
            columns[name] = present
    names = [encoding.column for present in columns.values() for encoding in present]
    if not names or len(set(names)) < len(names) or "" in names:
        return None
    length = None if split.windows is None else split.windows.length
    axes = 0 if length is None else 1
    vectors = {name for name, deployed in inputs.items() if len(deployed.type.shape) > axes}
    return RawColumns(columns, vectors, length)


def _raw_rows(
    columns: RawColumns, loader: Loader, spec: TrainSpec, indices: Array, samples: Mapping[str, Array],
    batch: int | None,
) -> list[dict[str, Array]]:  # fmt: skip
    """Return samples as an exported model takes them: columns of the table, and inputs that are not columns."""
    split = spec.data.deployed
    assert isinstance(split, TableSource)
    rows = rows_of(spec, [resolve_path(split, "path")])
    assert rows is not None
    last = [int(loader.identify(index)[1]) for index in indices.tolist()]
    length = columns.length or 1
    needed = sorted({row - back for row in last for back in range(length)})
    arrays = columns.arrays(rows.matching({"row": list(needed)}).texts)
    at = np.searchsorted(needed, last)[:, None] - np.arange(length)[::-1]
    shape = (len(last), *columns.shape)
    raw = {name: array[at].reshape(shape) for name, array in arrays.items()}
    raw |= {name: array for name, array in samples.items() if name not in columns.columns}
    size = batch or len(last)
    return [{name: array[start : start + size] for name, array in raw.items()} for start in range(0, len(last), size)]


def _applied(transforms: tuple[Transform, ...], samples: Samples) -> Samples:
    keys = SampleKeys(0, 0, np.arange(len(samples)), 0)  # no transform is random here
    for transform in transforms:
        samples = transform.apply(samples, keys)
    return samples


def _encoded_by_source(
    loader: Loader, spec: TrainSpec, columns: RawColumns | None, texts: Sequence[TextInput]
) -> list[str]:
    """Return lines on tokens and columns of a table that the source itself encodes, and the model does not."""
    source = f"`source: {getattr(spec.data.deployed, SOURCES.tag)}`"
    lines = [f"`{text.name}`: tokens of texts, by Unicode rules that ONNX has no operators for" for text in texts]
    if TOKENIZER in loader.learned.source and not texts:
        lines.append(f"tokens of texts, as {source} computes them")
    inside = {text.column for text in texts} | (set() if columns is None else columns.encodings.keys())
    encodings = [encoding for present in loader.column_encodings.values() for encoding in present if encoding]
    inside |= {
        encoding.column for encoding in encodings if isinstance(encoding, NumberEncoding) and encoding.is_identity
    }
    names = [name for name in loader.column_ranges if name not in inside]
    if names:
        shown = ", ".join(f"`{name}`" for name in names[:10]) + and_more(len(names) - 10)
        lines.append(f"encoding of the columns {shown}, as {source} does it")
    return lines


def _not_inside(inputs: Mapping[str, DeployedInput], decoders: Mapping[str, Decoder]) -> list[str]:
    lines = [
        f"`{name}`: {type(transform).__name__}, which ONNX cannot compute exactly"
        for name, deployed in inputs.items()
        for transform in deployed.before
    ]
    return lines + [f"`{name}`: {decoder.not_in_graph}" for name, decoder in decoders.items() if decoder.not_in_graph]
