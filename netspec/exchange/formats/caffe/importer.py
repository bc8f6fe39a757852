"""Import the layers of a net in order, by one rule for each type (`rules/`), into a draft of a net file.

Every layer that a rule adds is built at once, so that later rules know its shapes, and an error is reported at its
position in the prototxt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray
from pydantic import ValidationError

from netspec.errors import Problem, SpecError, command, did_you_mean
from netspec.exchange.formats.caffe.blobs import Weights, fitted, trimmed
from netspec.exchange.formats.caffe.inputs import KnownInput, as_field, likely_net_file
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.wiring import (
    DATA_LAYERS,
    SINKS,
    TRAIN,
    CaffeGraph,
    CaffeNode,
    CaffeSequences,
    Key,
    ValueRef,
)
from netspec.exchange.names import UniqueNames
from netspec.exchange.net_yaml_writer import Draft, DraftLayer, clean, non_defaults
from netspec.exchange.notes import Notes
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, Value, in_scope
from netspec.layers.base import Builder
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import Registry

Convert: TypeAlias = "Callable[[NDArray[Any]], NDArray[Any]]"


@dataclass
class NetValue:
    """A value of the net: its name in `from`, its type, and the layer that computes it (None: it is an input)."""

    name: str
    value: Value
    layer: DraftLayer | None = None
    node: CaffeNode | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes; the first one, the batch size, is arbitrary."""
        return self.value.shape


@dataclass(frozen=True)
class ParameterBlob:
    """A parameter of Caffe, the `index`-th of its layer, and the function that converts it to netspec's layout."""

    node: CaffeNode
    index: int
    convert: Convert | None = None

    @property
    def spec(self) -> Message | None:
        """The `param` of the parameter in the prototxt: its multipliers, and the name by which layers share it."""
        specs = self.node.layer["param"]
        return specs[self.index] if self.index < len(specs) else None


@dataclass(frozen=True)
class ImportedParameter:
    """The state that a parameter of Caffe became; the history of a Caffe solver belongs to these states."""

    layer: str
    index: int
    state: str
    """The state's name; empty if it is not a parameter here, such as the statistics of a BatchNorm."""
    convert: Convert | None = None


CaffeImportRule: TypeAlias = "Callable[[CaffeImporter, CaffeNode], None]"
_RULES: RuleTable[CaffeImportRule] = RuleTable("netspec.exchange.formats.caffe.rules")
rule = _RULES.register
"""`@rule(*types)` registers a function that adds layers for these types, or raises `UnsupportedFeature`."""
rules = cache(_RULES.all)


class SkippedLayer(Exception):
    """An input of the layer could not be translated; that problem is already reported."""


BATCH = 2
"""An arbitrary batch size, for which layers are built."""


@dataclass
class CaffeImporter:
    """The import of one net, whose methods rules use: `read` for values, `add` for layers."""

    wired: CaffeGraph
    inputs: Mapping[str, KnownInput]
    weights: Weights | None
    """None without a file of weights."""
    trained: bool
    """Whether the net has losses, so that fields for training are imported."""
    weights_file: str = ""
    folder: Path = Path()
    """The folder of the net, and of files that it names."""
    sequences: CaffeSequences = field(default_factory=CaffeSequences)
    draft: Draft = field(default_factory=lambda: Draft("net"))
    problems: list[Problem] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    learned: list[ImportedParameter] = field(default_factory=list)
    values: dict[ValueRef, NetValue] = field(default_factory=dict)
    parameters: dict[ValueRef, CaffeNode] = field(default_factory=dict)
    """Layers of type Parameter."""
    outputs: frozenset[ValueRef] = frozenset()
    """Values at which the net is cut: they must be its outputs."""
    done: set[Key] = field(default_factory=set)
    """Layers that were merged into earlier ones, or that have no meaning here."""
    builder: Builder = field(default_factory=lambda: Builder(training=False, dtype=DType.FLOAT32))
    _layer_names: UniqueNames = field(default_factory=partial(UniqueNames, first=2))
    _readers: dict[ValueRef, list[CaffeNode]] | None = None
    _shared: dict[str, tuple[DraftLayer, str]] = field(default_factory=dict)
    _entry_names: UniqueNames = field(default_factory=partial(UniqueNames, ["regularization"], first=2))
    _used: dict[str, CaffeNode] = field(default_factory=dict)
    """Caffe's layers whose weights are used, by name."""

    def run(self) -> None:
        """Translate all layers, and record all problems in `problems`."""
        self._layer_names.take(clean(name) for name in self.inputs)
        for node in self.wired.nodes:
            if node.key in self.done:
                continue
            function = rules().get(node.type)
            if function is None:
                hint = did_you_mean(node.type, [*rules(), *DATA_LAYERS])
                where = node.layer.location("type")
                self.problems.append(Problem(f"{_label(node)} has a type that Caffe does not have", where, hint=hint))
                continue
            if self._unknown_fields(node.layer):
                continue
            with self._reporting(node):
                if not node.layer["top"] and node.type not in SINKS:
                    raise UnsupportedFeature("it must have one top, got none", field="top")
                function(self, node)

    def _unknown_fields(self, message: Message) -> bool:
        """Report unknown fields of a text file; Caffe itself ignores those of binary files."""
        is_problem = False
        for unknown in message.unknown:
            where = message.source.location(unknown.offset)
            if where is not None:
                is_problem = True
                hint = did_you_mean(unknown.name, message.kind.fields)
                self.problems.append(Problem(f"{message.kind.name} of Caffe has no `{unknown.name}`", where, hint=hint))
            else:
                self.notes.add(
                    f"`{unknown.name}` of {message.kind.name} is ignored: Caffe has no such field",
                    "{count} fields that Caffe does not have are ignored", f"`{unknown.name}` of {message.kind.name}",
                )  # fmt: skip
        for name in message:
            value = message[name]
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, Message):
                    is_problem |= self._unknown_fields(inner)
        return is_problem

    @contextmanager
    def _reporting(self, node: CaffeNode) -> Iterator[None]:
        """Record the errors of a layer as problems."""
        try:
            yield
        except SkippedLayer:
            pass
        except UnsupportedFeature as error:
            holder, _, name = error.field.rpartition(".")
            where = (node.layer[holder] if holder else node.layer).location(name or "type")
            self.problems.append(Problem(f"{_label(node)}: {error}", where, hint=error.hint))
        except ShapeMismatch as error:
            problem = Problem(f"{_label(node)}: {error.message}", node.layer.location(), expected=error.expected)
            self.problems.append(replace(problem, got=error.got, hint=error.hint))
        except SpecError as error:
            self.problems += [
                Problem(f"{_label(node)}: {problem.message}", node.layer.location()) for problem in error.problems
            ]
        except ValidationError as error:
            self.problems += [
                Problem(f"{_label(node)}: {error['msg']}", node.layer.location(), got=str(error.get("input"))[:80])
                for error in error.errors()
            ]

    def read(self, node: CaffeNode, index: int = 0, like: tuple[int, ...] | None = None) -> NetValue:
        """An input of a layer. `like` is the shape of a sample if the file does not specify it."""
        if index >= len(node.bottoms):
            raise UnsupportedFeature(f"it needs {index + 1} bottoms or more, got {len(node.bottoms)}", field="bottom")
        ref = node.bottoms[index]
        if ref in self.parameters:
            raise UnsupportedFeature(
                "its bottom is a Parameter layer, which only Scale and Bias can read (it has no batch axis)",
                field="bottom",
            )
        if ref not in self.values and ref.layer is None and ref.blob in self.inputs:
            self._declare(ref, like)
        if ref not in self.values:
            raise SkippedLayer
        return self.values[ref]

    def _declare(self, ref: ValueRef, like: tuple[int, ...] | None) -> None:
        """Add an input of the net for a blob that is read for the first time."""
        input_of_net = self.inputs[ref.blob]
        shape = input_of_net.shape if input_of_net.shape is not None else like
        if shape is None or min(shape, default=1) < 1:
            got = "nothing" if shape is None else f"{list(shape)}"
            hint = f"give the sizes of a sample: `--shape {ref.blob}=CHANNELS,HEIGHT,WIDTH`, say"
            # The net in a file of weights is that of the training, which may have no input shapes.
            if self.weights_file and input_of_net.layer.location() is None:
                net_command = command("import", likely_net_file(self.weights_file), "--weights", self.weights_file)
                hint = f"import the net that has it, `{net_command}`; or {hint}"
            problem = Problem(
                f"the shape of the input `{ref.blob}` is not in the file",
                input_of_net.layer.location(),
                got=got,
                hint=hint,
            )
            if problem not in self.problems:
                self.problems.append(problem)
            raise SkippedLayer
        if input_of_net.note:
            self.notes.add(f"`{ref.blob}` {input_of_net.note}")
        name = clean(ref.blob)
        kind = TensorType((BATCH, *shape), DType.INT32 if input_of_net.is_integer else DType.FLOAT32)
        self.values[ref] = NetValue(name, self.builder.input(name, kind))
        self.draft.inputs[name] = as_field(input_of_net, shape)

    def set_top(self, node: CaffeNode, value: NetValue, index: int = 0) -> None:
        """Set the value of a layer's `index`-th top."""
        if index >= len(node.layer["top"]):
            raise UnsupportedFeature(f"it needs {index + 1} tops or more, got {len(node.layer['top'])}", field="top")
        self.values[ValueRef(node.key, index, node.layer["top"][index])] = value

    def readers(self, ref: ValueRef) -> list[CaffeNode]:
        """The layers that read a value."""
        if self._readers is None:
            self._readers = {}
            for node in self.wired.nodes:
                for bottom in dict.fromkeys(node.bottoms):
                    self._readers.setdefault(bottom, []).append(node)
        return self._readers.get(ref, [])

    def is_read(self, ref: ValueRef) -> bool:
        """Whether a layer uses the value, or it is an output."""
        return ref in self.outputs or any(node.type != "Silence" for node in self.readers(ref))

    def reader(self, node: CaffeNode, type_: str) -> CaffeNode | None:
        """The only reader of a layer's first top, if it is of this type and in the same phases."""
        ref = ValueRef(node.key, 0, node.layer["top"][0])
        readers = self.readers(ref)
        alone = (
            ref not in self.outputs
            and len(readers) == 1
            and len(readers[0].bottoms) == 1
            and readers[0].phases == node.phases
        )
        return readers[0] if alone and readers[0].type == type_ else None

    def axis(self, node: CaffeNode, path: str, rank: int, value: int) -> int:
        """An axis counted from the front, which must not be that of the batch. `path` is the field with the axis.

        Sequences are (T, N, …) in Caffe: their axis 0 is axis 1 here, and their axis 1 is the batch.
        """
        axis = value + rank if value < 0 else value
        if not 0 <= axis < rank:
            raise UnsupportedFeature(f"axis {value} is out of range for a blob with {rank} axes", field=path)
        if node.key in self.sequences.layers and axis < 2:
            axis = 1 - axis
        if axis == 0:
            raise UnsupportedFeature(f"it operates along axis {value}, the batch", field=path)
        return axis

    def add_outputs(
        self,
        node: CaffeNode,
        type_: str,
        sources: Sequence[NetValue],
        fields: Mapping[str, Any] | None = None,
        parameters: Mapping[str, ParameterBlob] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        part: str = "",
    ) -> list[NetValue]:
        """Add a layer and return its outputs. `parameters` are read from the weights, `arrays` are used as they are.

        If a layer of Caffe becomes several, all but the first are named `name_part`.
        """
        name = self.unique(f"{node.name}_{part}" if part else node.name or node.type)
        layer = DraftLayer(name, type_, dict(fields or {}), tuple(source.name for source in sources))
        blobs = dict(parameters or {})
        if self.weights is not None and not self.trained:  # they would have no effect
            layer.fields = {key: value for key, value in layer.fields.items() if not key.endswith("_initializer")}
        self._multipliers(layer, blobs)
        owner = self._share(layer, blobs)
        fields_set = {key: value for key, value in layer.fields.items() if value is not None}
        spec: Any = LAYERS[type_].model_validate({"type": type_, "name": name, **fields_set})
        with in_scope(self.builder.enter(spec, name)):
            results = spec.call(self.builder, *(source.value for source in sources))
        self.draft.layers.append(layer)
        if owner is None:
            self._load(layer, blobs)
            for key, array in (arrays or {}).items():
                layer.arrays[key] = self._fitted(f"{name}/{key}", array)
        several = spec.output_names() if isinstance(results, tuple) else ()
        if several:
            values = zip(several, results, strict=True)
            return [NetValue(f"{name}.{output}", value, layer, node) for output, value in values]
        return [NetValue(name, results[0] if isinstance(results, tuple) else results, layer, node)]

    def add(
        self,
        node: CaffeNode,
        type_: str,
        sources: Sequence[NetValue],
        fields: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> NetValue:
        """Add a layer and return its only output, or its first; see `add_outputs`."""
        return self.add_outputs(node, type_, sources, fields, **more)[0]

    def unique(self, name: str) -> str:
        """A layer name that is not used yet."""
        return self._layer_names(clean(name))

    def checked_entry(
        self, registry: Registry[Any], name: str, type_: str, sources: Sequence[NetValue], fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A loss or a metric as the entry of a net file. Raises `ShapeMismatch` if it does not fit its inputs."""
        name = self._entry_name(name)
        spec: Any = registry[type_].model_validate({"type": type_, "name": name, **fields})
        with in_scope(self.builder.enter(spec, name)):
            spec.build(self.builder, *(source.value for source in sources))
        kept = non_defaults(spec, fields)
        in_order = {field: kept[field] for field in fields if field in kept}
        return {"name": name, "type": type_, "from": [source.name for source in sources], **in_order}

    def _entry_name(self, name: str) -> str:
        """A unique name for a loss or a metric; names that begin with `loss/` are reserved for losses."""
        base = clean(name)
        return self._entry_names(base.replace("/", "_") if base.partition("/")[0] == "loss" else base)

    def _multipliers(self, layer: DraftLayer, blobs: Mapping[str, ParameterBlob]) -> None:
        """Set the multipliers from `lr_mult` and `decay_mult`, if they are not 1."""
        if not self.trained:
            return
        specs = {key: blob.spec for key, blob in blobs.items()}
        rates, decays = (
            {key: _without_fraction(spec[name]) if spec is not None else 1 for key, spec in specs.items()}
            for name in ("lr_mult", "decay_mult")
        )
        if rates and not any(rates.values()):
            layer.fields["trainable"] = False
            return
        for name, multipliers in (("learning_rate_multiplier", rates), ("weight_decay_multiplier", decays)):
            other = {key: value for key, value in multipliers.items() if value != 1}
            if other:
                same = len(other) == len(multipliers) and len(set(multipliers.values())) == 1
                layer.fields[name] = next(iter(multipliers.values())) if same else other

    def _share(self, layer: DraftLayer, blobs: Mapping[str, ParameterBlob]) -> DraftLayer | None:
        """The earlier layer whose parameters this one uses, if any; parameters are shared by name."""
        names = {key: blob.spec["name"] for key, blob in blobs.items() if blob.spec is not None and blob.spec["name"]}
        owners = {key: self._shared[name] for key, name in names.items() if name in self._shared}
        if not owners:
            self._shared |= {name: (layer, key) for key, name in names.items()}
            return None
        owning_layers = {id(owner): owner for owner, _ in owners.values()}
        shares_all = len(owners) == len(blobs) and all(key == owner_key for key, (_, owner_key) in owners.items())
        if len(owning_layers) > 1 or not shares_all:
            raise UnsupportedFeature(
                "it shares only some of its parameters, or parameters of several layers", field="param"
            )
        (owner,) = owning_layers.values()
        if owner.type != layer.type:
            raise UnsupportedFeature(
                f"it shares the parameters of `{owner.name}`, a layer of another type", field="param"
            )
        layer.fields["share"] = owner.name
        for name in ("learning_rate_multiplier", "weight_decay_multiplier"):
            layer.fields.pop(name, None)
        return owner

    def _load(self, layer: DraftLayer, blobs: Mapping[str, ParameterBlob]) -> None:
        """Load the weights of a layer, and record the state that each of Caffe's parameters becomes."""
        for key, blob in blobs.items():
            state = f"{layer.name}/{key}"
            self.learned.append(ImportedParameter(blob.node.name, blob.index, state, blob.convert))
            if self.weights is not None:
                array = self.blob(blob.node, blob.index)
                layer.arrays[key] = self._fitted(state, array if blob.convert is None else blob.convert(array), blob)

    def blob(self, node: CaffeNode, index: int) -> NDArray[Any]:
        """An array of a layer's weights. Raises `UnsupportedFeature` if the file has none."""
        assert self.weights is not None
        before = self._used.setdefault(node.name, node)
        if before.key != node.key and before.phases & node.phases:
            raise UnsupportedFeature(
                f"another layer is also called `{node.name}`, but weights are assigned by layer name", field="name"
            )
        arrays = self.weights.get(node.name)
        if arrays is None:
            hint = did_you_mean(node.name, [name for name in self.weights if name not in self._used])
            raise UnsupportedFeature(f"{self.weights_file} has no weights for this layer", field="name", hint=hint)
        if index >= len(arrays):
            raise UnsupportedFeature(
                f"{self.weights_file} has {len(arrays)} blobs for this layer, which needs {index + 1} or more",
                field="name",
            )
        array: NDArray[Any] = arrays[index]
        return array

    def _fitted(self, state: str, array: NDArray[Any], blob: ParameterBlob | None = None) -> NDArray[Any]:
        """An array in the shape of a state. Leading axes of size 1 are ignored: old files always have four axes."""
        shape = self.builder.states[state].value.shape
        if trimmed(array.shape) != trimmed(shape):
            where = f" (blob {blob.index} of `{blob.node.name}`)" if blob is not None else ""
            raise UnsupportedFeature(
                f"its weights must have the shape {list(shape)}, got {list(array.shape)}{where}", field="name"
            )
        return fitted(array, shape)

    def is_trained(self, node: CaffeNode) -> bool:
        """Whether a layer is part of a training."""
        return self.trained and TRAIN in node.phases

    def unused_weights(self) -> list[str]:
        """Names of layers that have weights in the file but are not in the net."""
        return [name for name in self.weights or {} if name not in self._used]


def _without_fraction(number: float) -> float:
    """An integer if the number is one: 2 instead of 2.0."""
    return int(number) if float(number).is_integer() else number


def _label(node: CaffeNode) -> str:
    return f"layer `{node.name}` ({node.type})"
