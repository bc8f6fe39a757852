"""The layers of a net, one after the other, by one rule for each type (`rules/`) → a draft of a net file.

Every layer of netspec that a rule makes is built at once, so that shapes are known to the rules behind it and an error
is told at the place in the prototxt that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from netspec.errors import Problem, SpecError, command, did_you_mean
from netspec.exchange.caffe.blobs import Weights, fitted, trimmed
from netspec.exchange.caffe.inputs import Known, as_field, net_beside
from netspec.exchange.caffe.phases import TRAIN
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.registry import Skipped, Unsupported, rules
from netspec.exchange.caffe.sequences import Sequences
from netspec.exchange.caffe.values import Blob, Learned, Made
from netspec.exchange.caffe.wiring import DATA_LAYERS, WATCHERS, Key, Node, Ref, Wired
from netspec.exchange.drafting import Draft, DraftLayer, clean
from netspec.exchange.names import Names
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, in_scope
from netspec.layers.base import Builder
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import Registry

if TYPE_CHECKING:
    from numpy.typing import NDArray


BATCH = 2
"""The batch that layers are built for; any would do."""


@dataclass
class Translator:
    """A net being translated. Rules read what they need by its methods and write layers with `add`."""

    wired: Wired
    inputs: Mapping[str, Known]
    weights: Weights | None
    """None where there are none at all."""
    trained: bool
    """Whether the net has losses, so that it matters how its layers are trained."""
    weights_file: str = ""
    folder: Path = Path()
    """Where the net lies, and files that it names may lie."""
    sequences: Sequences = field(default_factory=Sequences)
    draft: Draft = field(default_factory=lambda: Draft("net"))
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    learned: list[Learned] = field(default_factory=list)
    values: dict[Ref, Made] = field(default_factory=dict)
    parameters: dict[Ref, Node] = field(default_factory=dict)
    """Layers that hold numbers for others to compute with."""
    done: set[Key] = field(default_factory=set)
    """Layers that went into others before their turn, or that say nothing here."""
    builder: Builder = field(default_factory=lambda: Builder(training=False, dtype=DType.FLOAT32))
    _layer_names: Names = field(default_factory=partial(Names, first=2))
    _readers: dict[Ref, list[Node]] | None = None
    _shared: dict[str, tuple[DraftLayer, str]] = field(default_factory=dict)
    _judged_names: Names = field(default_factory=partial(Names, ["regularization"], first=2))
    _used: dict[str, Node] = field(default_factory=dict)
    """Caffe's layers whose weights were taken, by their names."""

    def run(self) -> None:
        """Translate all layers; what cannot be is in `problems`, all of it."""
        self._layer_names.take(clean(name) for name in self.inputs)
        for node in self.wired.nodes:
            if node.key in self.done:
                continue
            function = rules().get(node.type)
            if function is None:
                hint = did_you_mean(node.type, [*rules(), *DATA_LAYERS])
                where = node.layer.location("type")
                self.problems.append(Problem(f"{_called(node)} is of no type that Caffe has", where, hint=hint))
                continue
            if self._unknown_fields(node.layer):
                continue
            with self._told(node):
                if not node.layer["top"] and node.type not in WATCHERS:
                    raise Unsupported("it writes 0 blobs, and makes 1", "top")
                function(self, node)

    def _unknown_fields(self, message: Message) -> bool:
        """Tell of fields that Caffe does not have, in a text; those of binary files Caffe passes over too."""
        found = False
        for one in message.unknown:
            where = message.source.location(one.place)
            if where is not None:
                found = True
                hint = did_you_mean(one.name, message.kind.fields)
                self.problems.append(Problem(f"{message.kind.name} of Caffe has no `{one.name}`", where, hint=hint))
            else:
                self.note(f"a field that Caffe does not have was passed over: {one.name} of {message.kind.name}")
        for name in message:
            value = message[name]
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, Message):
                    found |= self._unknown_fields(inner)
        return found

    @contextmanager
    def _told(self, node: Node) -> Iterator[None]:
        """Make problems of what goes wrong with a layer."""
        try:
            yield
        except Skipped:
            pass
        except Unsupported as error:
            holder, _, name = error.field.rpartition(".")
            where = (node.layer[holder] if holder else node.layer).location(name or "type")
            self.problems.append(Problem(f"{_called(node)}: {error}", where, hint=error.hint))
        except ShapeMismatch as error:
            told = Problem(f"{_called(node)}: {error.message}", node.layer.location(), expected=error.expected)
            self.problems.append(replace(told, got=error.got, hint=error.hint))
        except SpecError as error:
            self.problems += [
                Problem(f"{_called(node)}: {one.message}", node.layer.location()) for one in error.problems
            ]
        except ValidationError as error:
            self.problems += [
                Problem(f"{_called(node)}: {one['msg']}", node.layer.location(), got=str(one.get("input"))[:80])
                for one in error.errors()
            ]

    def note(self, text: str) -> None:
        """Tell the user something, once."""
        if text not in self.notes:
            self.notes.append(text)

    def read(self, node: Node, index: int = 0, like: tuple[int, ...] | None = None) -> Made:
        """What a layer reads. `like` is the shape of an input of which the file does not say it, without the batch."""
        if index >= len(node.bottoms):
            raise Unsupported(f"it reads {len(node.bottoms)} blobs, and needs {index + 1}", "bottom")
        ref = node.bottoms[index]
        if ref in self.parameters:
            raise Unsupported("it reads a Parameter, which has no batch: only Scale and Bias can", "bottom")
        if ref not in self.values and ref.layer is None and ref.blob in self.inputs:
            self._declare(ref, node, index, like)
        if ref not in self.values:
            raise Skipped
        return self.values[ref]

    def _declare(self, ref: Ref, node: Node, index: int, like: tuple[int, ...] | None) -> None:
        """Make an input of a blob that is read for the first time."""
        known = self.inputs[ref.blob]
        shape = known.shape if known.shape is not None else like
        if shape is None or min(shape, default=1) < 1:
            got = "nothing" if shape is None else f"{list(shape)}"
            hint = f"give the sizes of a sample: `--shape {ref.blob}=CHANNELS,HEIGHT,WIDTH`, say"
            if self.weights_file and known.layer.location() is None:  # weights, with the net that was trained
                whole = command("import", net_beside(self.weights_file), "--weights", self.weights_file)
                hint = f"import the net that says it, `{whole}`; or {hint}"
            problem = Problem(
                f"the shape of the input `{ref.blob}` is not in the file", known.layer.location(), got=got, hint=hint
            )
            if problem not in self.problems:
                self.problems.append(problem)
            raise Skipped
        if known.note:
            self.note(f"`{ref.blob}` {known.note}")
        name = clean(ref.blob)
        kind = TensorType((BATCH, *shape), DType.INT32 if known.whole else DType.FLOAT32)
        self.values[ref] = Made(name, self.builder.input(name, kind))
        self.draft.inputs[name] = as_field(known, shape)

    def is_parameter(self, node: Node, index: int) -> bool:
        """Whether an input is what a layer Parameter holds."""
        return node.bottoms[index] in self.parameters

    def give(self, node: Node, made: Made, index: int = 0) -> None:
        """What a layer writes into its `index`-th top."""
        if index >= len(node.layer["top"]):
            raise Unsupported(f"it writes {len(node.layer['top'])} blobs, and makes {index + 1}", "top")
        self.values[Ref(node.key, index, node.layer["top"][index])] = made

    def readers(self, ref: Ref) -> list[Node]:
        """The layers that read a value."""
        if self._readers is None:
            self._readers = {}
            for node in self.wired.nodes:
                for bottom in dict.fromkeys(node.bottoms):
                    self._readers.setdefault(bottom, []).append(node)
        return self._readers.get(ref, [])

    def is_read(self, ref: Ref) -> bool:
        """Whether any layer makes something of a value."""
        return any(node.type != "Silence" for node in self.readers(ref))

    def first_of(self, node: Node) -> str:
        """What the layer is called that a layer's first output comes from."""
        return self.values[Ref(node.key, 0, node.layer["top"][0])].name

    def reader(self, node: Node, type_: str) -> Node | None:
        """The layer that reads what this one writes, if it is the only one, of this type, and always there as well."""
        those = self.readers(Ref(node.key, 0, node.layer["top"][0]))
        alone = len(those) == 1 and len(those[0].bottoms) == 1 and those[0].phases == node.phases
        return those[0] if alone and those[0].type == type_ else None

    def axis(self, node: Node, path: str, rank: int, value: int) -> int:
        """An axis counted from the front, which must not be that of the batch. `path` is the field that says it.

        Sequences are (T, N, …) in Caffe: their axis 0 is 1 here, and their axis 1 that of the batch.
        """
        axis = value + rank if value < 0 else value
        if not 0 <= axis < rank:
            raise Unsupported(f"there is no axis {value} among {rank}", path)
        if node.key in self.sequences.layers and axis < 2:
            axis = 1 - axis
        if axis == 0:
            raise Unsupported(f"it works along axis {value}, where the samples of a batch are", path)
        return axis

    def add(
        self,
        node: Node,
        type_: str,
        sources: Sequence[Made],
        fields: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Blob] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        part: str = "",
    ) -> list[Made]:
        """Write a layer, and give its outputs. `parameters` come out of the weights, `arrays` are given.

        A layer of Caffe's that becomes several calls the others `name_part`.
        """
        name = self.unique(f"{node.name}_{part}" if part else node.name or node.type)
        layer = DraftLayer(name, type_, dict(fields or {}), tuple(one.name for one in sources))
        blobs = dict(parameters or {})
        if self.weights is not None and not self.trained:  # nothing will ever start from them
            layer.fields = {key: value for key, value in layer.fields.items() if not key.endswith("_initializer")}
        self._multipliers(layer, blobs)
        owner = self._share(layer, blobs)
        given = {key: value for key, value in layer.fields.items() if value is not None}
        spec: Any = LAYERS[type_].model_validate({"type": type_, "name": name, **given})
        with in_scope(self.builder.enter(spec, name)):
            found = spec.call(self.builder, *(one.value for one in sources))
        self.draft.layers.append(layer)
        if owner is None:
            self._load(layer, blobs)
            for key, array in (arrays or {}).items():
                layer.arrays[key] = self._fitted(f"{name}/{key}", array)
        several = spec.output_names() if isinstance(found, tuple) else ()
        if several:
            return [Made(f"{name}.{one}", value, layer, node) for one, value in zip(several, found, strict=True)]
        return [Made(name, found[0] if isinstance(found, tuple) else found, layer, node)]

    def one(
        self, node: Node, type_: str, sources: Sequence[Made], fields: Mapping[str, Any] | None = None, **more: Any
    ) -> Made:
        """As `add`, of a layer with one output."""
        return self.add(node, type_, sources, fields, **more)[0]

    def unique(self, name: str) -> str:
        """A name for a layer that no other has."""
        return self._layer_names(clean(name))

    def judge(
        self, registry: Registry[Any], name: str, type_: str, sources: Sequence[Made], fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A loss or a metric as a net file has it, which fits what it compares. Raises `ShapeMismatch`."""
        name = self._judge_name(name)
        spec: Any = registry[type_].model_validate({"type": type_, "name": name, **fields})
        with in_scope(self.builder.enter(spec, name)):
            spec.build(self.builder, *(one.value for one in sources))
        return {"name": name, "type": type_, "from": [one.name for one in sources], **fields}

    def _judge_name(self, name: str) -> str:
        """A name for a loss or a metric that no other has. What begins with `loss/` belongs to losses already."""
        base = clean(name)
        return self._judged_names(base.replace("/", "_") if base.partition("/")[0] == "loss" else base)

    def _multipliers(self, layer: DraftLayer, blobs: Mapping[str, Blob]) -> None:
        """`lr_mult` and `decay_mult`, where they say something."""
        if not self.trained:
            return
        specs = {key: blob.spec for key, blob in blobs.items()}
        rates, decays = (
            {key: whole(one[name]) if one is not None else 1 for key, one in specs.items()}
            for name in ("lr_mult", "decay_mult")
        )
        if rates and not any(rates.values()):
            layer.fields["trainable"] = False
            return
        for name, given in (("learning_rate_multiplier", rates), ("weight_decay_multiplier", decays)):
            other = {key: value for key, value in given.items() if value != 1}
            if other:
                same = len(other) == len(given) and len(set(given.values())) == 1
                layer.fields[name] = next(iter(given.values())) if same else other

    def _share(self, layer: DraftLayer, blobs: Mapping[str, Blob]) -> DraftLayer | None:
        """The earlier layer whose parameters this one uses, if it does; parameters are shared by their names."""
        names = {key: blob.spec["name"] for key, blob in blobs.items() if blob.spec is not None and blob.spec["name"]}
        owners = {key: self._shared[name] for key, name in names.items() if name in self._shared}
        if not owners:
            self._shared |= {name: (layer, key) for key, name in names.items()}
            return None
        those = {id(owner): owner for owner, _ in owners.values()}
        whole = len(owners) == len(blobs) and all(key == there for key, (_, there) in owners.items())
        if len(those) > 1 or not whole:
            raise Unsupported("it shares some of its parameters, or those of several layers", "param")
        (owner,) = those.values()
        if owner.type != layer.type:
            raise Unsupported(f"it shares the parameters of `{owner.name}`, a layer of another type", "param")
        layer.fields["share"] = owner.name
        for name in ("learning_rate_multiplier", "weight_decay_multiplier"):
            layer.fields.pop(name, None)
        return owner

    def _load(self, layer: DraftLayer, blobs: Mapping[str, Blob]) -> None:
        """Take the weights of a layer, and say where each of Caffe's parameters went."""
        for key, blob in blobs.items():
            state = f"{layer.name}/{key}"
            self.learned.append(Learned(blob.node.name, blob.index, state, blob.convert))
            if self.weights is not None:
                array = self.blob(blob.node, blob.index)
                layer.arrays[key] = self._fitted(state, array if blob.convert is None else blob.convert(array), blob)

    def blob(self, node: Node, index: int) -> NDArray[Any]:
        """An array of a layer's weights. Raises `Unsupported` where the file has none."""
        assert self.weights is not None
        before = self._used.setdefault(node.name, node)
        if before.key != node.key and before.phases & node.phases:
            raise Unsupported(f"another layer is called `{node.name}` too, and weights go by names", "name")
        those = self.weights.get(node.name)
        if those is None:
            hint = did_you_mean(node.name, [name for name in self.weights if name not in self._used])
            raise Unsupported(f"{self.weights_file} has no weights for it", "name", hint)
        if index >= len(those):
            raise Unsupported(f"{self.weights_file} has {len(those)} arrays for it, and not {index + 1}", "name")
        found: NDArray[Any] = those[index]
        return found

    def _fitted(self, state: str, array: NDArray[Any], blob: Blob | None = None) -> NDArray[Any]:
        """An array in the shape of a state. Axes of size 1 in front are no matter: old files have four for all."""
        wanted = self.builder.states[state].value.shape
        if trimmed(array.shape) != trimmed(wanted):
            where = f" (blob {blob.index} of `{blob.node.name}`)" if blob is not None else ""
            raise Unsupported(f"its weights have another shape: {list(array.shape)}, not {list(wanted)}{where}", "name")
        return fitted(array, wanted)

    def is_trained(self, node: Node) -> bool:
        """Whether a layer is there in training, and the net is trained."""
        return self.trained and TRAIN in node.phases

    def unused_weights(self) -> list[str]:
        """Names of layers that have weights in the file and are not in the net."""
        return [name for name in self.weights or {} if name not in self._used]


def whole(number: float) -> float:
    """The number as a person writes it: 2, not 2.0."""
    return int(number) if float(number).is_integer() else number


def _called(node: Node) -> str:
    return f"layer `{node.name}` ({node.type})"
