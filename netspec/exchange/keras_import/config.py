"""The configuration of a model → the calls of its layers, in an order in which they can be made.

Sequential and functional models of Keras 1 to 3; models within models are taken apart, what they are called stands
before the names of their layers. Nothing of what the configuration names is looked up or run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeAlias

from netspec.errors import InputError
from netspec.exchange.keras_import.nodes import Reference, damaged, references, references_in, told
from netspec.exchange.keras_names import class_name as class_in_paths
from netspec.exchange.keras_names import keras_snake, numbered

MODELS = ("Sequential", "Functional", "Model")
DEEPEST = 32
"""Models within models."""
MOST_CALLS = 20_000
"""Of layers, and of models within models."""


@dataclass(eq=False)
class KerasLayer:
    """A layer of the model, which may be called several times."""

    path: tuple[str, ...]
    """Its name, behind those of the models that it is in."""
    class_name: str
    config: dict[str, Any]
    module: str
    registered: str
    group: str
    """Where its variables are in a `.weights.h5`."""
    frozen: bool
    wrapped: int = 0
    """How many TimeDistributed there are around the model that it is in."""
    calls: int = 0

    @property
    def name(self) -> str:
        """Its name, with the models that it is in: `encoder/dense`."""
        return "/".join(self.path)


MASKED = ("Softmax",)
"""Layers that may be given a mask that no layer made: it is an input of theirs."""


@dataclass(frozen=True)
class Tensor:
    """What a call made: number `index` of its outputs."""

    call: Call
    index: int = 0


@dataclass(eq=False)
class Call:
    """A call of a layer: arguments as they were given, with tensors in the place of tensors."""

    layer: KerasLayer
    args: list[Any]
    kwargs: dict[str, Any]
    number: int = 0
    """Which call of the layer it is, from 0."""
    tells_mask: bool = False
    """Whether its arguments say if a mask is used, as those of functional models of Keras 3 do."""

    def tensors(self) -> list[Tensor]:
        """The tensors in its arguments, but not masks that follow from the layers before."""
        masked = self.layer.class_name in MASKED
        return list(
            tensors_in([self.args, {name: one for name, one in self.kwargs.items() if masked or name != "mask"}])
        )


Made: TypeAlias = "list[Tensor] | Call"
"""What a call made: the outputs of a model, or a call whose outputs are known when its layer is built."""


@dataclass
class Graph:
    """A model, taken apart."""

    name: str
    inputs: list[Call] = field(default_factory=list)
    """Calls of its InputLayers."""
    calls: list[Call] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    """What its losses call the outputs."""
    layers: list[KerasLayer] = field(default_factory=list)
    """All of them, in the order of their variables."""
    entered: int = 0
    """How many models have been called."""


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)


def graph_of(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """The model of a configuration. `shapes` are of inputs that it leaves open. Raises `InputError`."""
    class_name, inner = config.get("class_name"), config.get("config")
    if class_name not in MODELS or not isinstance(inner, (dict, list)):
        raise InputError(
            f"the model is of the class {str(class_name)[:60]!r}, whose code is not in the file",
            expected=f"one of {', '.join(MODELS)}",
            hint="classes of one's own are not read: write the net as YAML and lay its weights onto it with `--net`",
        )
    name = str(inner.get("name", "model")) if isinstance(inner, dict) else "model"
    found = Graph(name)
    model = _Model(found, str(class_name), inner, (), "", shapes, _is_new(config))
    found.outputs, found.output_names = model.called(None)
    return found


def _is_new(config: Mapping[str, Any]) -> bool:
    return "module" in config or "registered_name" in config


class _Model:
    """A model in the making: its layers are made once, its calls each time that it is called."""

    def __init__(
        self, graph: Graph, class_name: str, config: Any, path: tuple[str, ...], group: str,
        shapes: Mapping[str, tuple[int, ...]], new: bool, frozen: bool = False, wrapped: int = 0,
    ) -> None:  # fmt: skip
        if len(path) > DEEPEST:
            raise damaged(f"{DEEPEST} models lie one in another")
        self.graph, self.path, self.shapes, self.new = graph, path, shapes, new
        self.wrapped = wrapped
        self.name = path[-1] if path else graph.name
        self.config = config if isinstance(config, dict) else {"layers": config}
        self.frozen = frozen or self.config.get("trainable") is False
        self.sequential = class_name == "Sequential" or "output_layers" not in self.config
        listed = self.config.get("layers")
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise damaged(f"the model {self.name!r} has no list of layers")
        self.entries: list[dict[str, Any]] = listed
        self.made: dict[str, KerasLayer | _Model] = {}
        self._make(f"{group}/layers".lstrip("/"))

    def _make(self, group: str) -> None:
        classes = [str(entry.get("class_name")) for entry in self.entries]
        layers = [not _is_operation(entry) for entry in self.entries]
        snakes = numbered(
            keras_snake(class_in_paths(one)) for one, is_layer in zip(classes, layers, strict=True) if is_layer
        )
        for index, (entry, class_name, is_layer) in enumerate(zip(self.entries, classes, layers, strict=True)):
            config = entry.get("config")
            name = entry.get("name")
            if name is None and isinstance(config, dict):
                name = config.get("name")
            name = str(name) if name is not None else f"{keras_snake(class_name)}_{index + 1}"
            if name in self.made or not isinstance(config, (dict, list)):
                raise damaged(f"the layer {name!r} is there twice, or has no configuration")
            where = f"{group}/{next(snakes) if is_layer else ''}"
            self.made[name] = self._one(entry, class_name, config, name, where)

    def _one(self, entry: dict[str, Any], class_name: str, config: Any, name: str, group: str) -> KerasLayer | _Model:
        path, wrapped, inner = (*self.path, name), self.wrapped, entry
        frozen = self.frozen or (isinstance(config, dict) and config.get("trainable") is False)
        while class_name == "TimeDistributed" and isinstance(config, dict) and _holds_model(config.get("layer")):
            inner, group, wrapped = config["layer"], f"{group}/layer", wrapped + 1
            class_name, config = str(inner.get("class_name")), inner.get("config")
        if class_name in MODELS:
            return _Model(self.graph, class_name, config, path, group, {}, _is_new(inner), frozen, wrapped)
        if not isinstance(config, dict):
            raise damaged(f"the layer {name!r} has no configuration")
        module = "keras.ops" if _is_operation(entry) else str(entry.get("module") or "")
        layer = KerasLayer(
            path, class_name, config, module, str(entry.get("registered_name") or ""), group,
            frozen, wrapped,
        )  # fmt: skip
        self.graph.layers.append(layer)
        return layer

    def called(self, args: list[Any] | None) -> tuple[list[Tensor], list[str]]:
        """The outputs of a call, and their names. Without arguments the model's inputs are the net's."""
        self.graph.entered += 1
        if self.graph.entered > MOST_CALLS:
            raise damaged(f"its models are called more than {MOST_CALLS} times")
        return self._chain(args) if self.sequential else self._functional(args)

    def _input(self, layer: KerasLayer) -> Tensor:
        call = self._call(layer, [], {})
        self.graph.inputs.append(call)
        return Tensor(call)

    def _call(self, layer: KerasLayer, args: list[Any], kwargs: dict[str, Any]) -> Call:
        call = Call(layer, args, kwargs, layer.calls)
        layer.calls += 1
        if layer.class_name != "InputLayer":
            self.graph.calls.append(call)
        if len(self.graph.calls) > MOST_CALLS:
            raise damaged(f"it has more than {MOST_CALLS} calls of layers")
        return call

    def _chain(self, args: list[Any] | None) -> tuple[list[Tensor], list[str]]:
        if args is None:
            current: Any = [self._input(self._first())]
        else:
            current = list(tensors_in(args))
        last = self.name
        for name, layer in self.made.items():
            if isinstance(layer, KerasLayer) and layer.class_name == "InputLayer":
                continue
            given = current[0] if len(current) == 1 else current
            if isinstance(layer, _Model):
                current, _ = layer.called([given])
            else:
                current = [Tensor(self._call(layer, [given], {}))]
            last = name
        return current, [last]

    def _first(self) -> KerasLayer:
        """The input of a chain: its InputLayer, or what the first layer says of it."""
        for layer in self.made.values():
            if isinstance(layer, KerasLayer) and layer.class_name == "InputLayer":
                return layer
            break
        first = next(iter(self.made.values()), None)
        if isinstance(first, _Model):
            inner = first
            while isinstance(inner, _Model):
                found = next(iter(inner.made.values()), None)
                if not isinstance(found, _Model):
                    break
                inner = found
            config = found.config if isinstance(found, KerasLayer) else {}
        else:
            config = first.config if first is not None else {}
        shape = next((config[key] for key in ("batch_shape", "batch_input_shape") if config.get(key)), None)
        shape = shape or self.config.get("build_input_shape") or _input_shape(config)
        dtype = config.get("dtype") if config.get("class_name") == "InputLayer" else config.get("input_dtype")
        if dtype is None and isinstance(first, KerasLayer) and first.class_name == "Embedding":
            dtype = "int32"
        made = {"batch_shape": shape, "dtype": dtype, "name": "input"}
        return KerasLayer((*self.path, "input"), "InputLayer", made, "", "", "", False)

    def _functional(self, args: list[Any] | None) -> tuple[list[Tensor], list[str]]:
        inputs = list(references(self.config.get("input_layers")))
        outputs = self.config.get("output_layers")
        found: dict[tuple[str, int], Made] = {}
        given = None if args is None else _by_input(args, [name for name, _, _ in inputs], self.config)
        for index, (name, node, _) in enumerate(inputs):
            layer = self.made.get(name)
            if not isinstance(layer, KerasLayer):
                raise damaged(f"its input {name!r} is no layer")
            if given is not None and index >= len(given):
                raise damaged(f"the model {self.name!r} is called with too few inputs")
            found[name, node] = [self._input(layer) if given is None else given[index]]
        self._process(found)
        wanted = list(references(outputs))
        named = list(outputs) if isinstance(outputs, dict) else [name for name, _, _ in wanted]
        return [self._tensor(found, one) for one in wanted], named

    def _process(self, found: dict[tuple[str, int], Made]) -> None:
        """Call every layer as often as the configuration says, once what it reads is there."""
        offsets = self._offsets()
        waiting: dict[tuple[str, int], Any] = {}
        for entry, name in zip(self.entries, self.made, strict=True):
            nodes = entry.get("inbound_nodes") or []
            if not isinstance(nodes, list):
                raise damaged(f"the calls of the layer {name!r} are no list")
            for number, node in enumerate(nodes):
                waiting[name, number + offsets[name]] = told(node, self.made)
        readers: dict[tuple[str, int], list[tuple[str, int]]] = {}
        missing: dict[tuple[str, int], int] = {}
        for key, read in waiting.items():
            needs = {(name, node) for name, node, _ in references_in(read)} - found.keys()
            missing[key] = len(needs)
            for need in needs:
                readers.setdefault(need, []).append(key)
        turn = {key: place for place, key in enumerate(waiting)}
        ready = [place for key, place in turn.items() if not missing[key]]
        keys = list(waiting)
        while ready:  # in the order of the configuration, as far as what is read is there
            key = keys[heappop(ready)]
            if key not in found:
                found[key] = self._outputs(key[0], self._filled(found, waiting[key]), "new" in waiting[key])
                for reader in readers.get(key, ()):
                    missing[reader] -= 1
                    if not missing[reader]:
                        heappush(ready, turn[reader])
        stuck = sorted({name for name, node in waiting if (name, node) not in found})
        if stuck:
            raise damaged(f"layers read each other in a circle, or what is not there: {', '.join(stuck[:6])}")

    def _outputs(self, name: str, filled: tuple[list[Any], dict[str, Any]], tells_mask: bool) -> Made:
        args, kwargs = filled
        layer = self.made[name]
        if isinstance(layer, _Model):
            return layer.called(args)[0]
        call = self._call(layer, args, kwargs)
        call.tells_mask = tells_mask
        return call

    def _tensor(self, found: Mapping[tuple[str, int], Made], reference: Reference) -> Tensor:
        name, node, index = reference
        made = found.get((name, node))
        if made is None or index < 0 or (isinstance(made, list) and index >= len(made)):
            raise damaged(f"there is no output {index} of call {node} of {name[:60]!r}")
        return made[index] if isinstance(made, list) else Tensor(made, index)

    def _offsets(self) -> dict[str, int]:
        """By how much the numbers of a layer's calls are above those of the calls that the configuration lists.

        To functional models (in Keras 2 to sequential ones too) their own making is the first call.
        """
        used: dict[str, set[int]] = {}
        calls = [told(node, self.made) for entry in self.entries for node in entry.get("inbound_nodes") or []]
        ends = references(self.config.get("output_layers"))
        for name, node, _ in (*references_in(calls), *ends):
            used.setdefault(name, set()).add(node)
        found = {}
        for entry, (name, layer) in zip(self.entries, self.made.items(), strict=True):
            numbers, count = used.get(name, set()), len(entry.get("inbound_nodes") or [])
            is_model = isinstance(layer, _Model)
            first = is_model and (not layer.sequential or not self.new) if isinstance(layer, _Model) else False
            found[name] = int(is_model and (max(numbers, default=0) >= count or (first and 0 not in numbers)))
        return found

    def _filled(self, found: Mapping[tuple[str, int], Made], read: Any) -> tuple[list[Any], dict[str, Any]]:
        def fill(value: Any) -> Any:
            if isinstance(value, Reference):
                return self._tensor(found, value)
            if isinstance(value, list):
                return [fill(one) for one in value]
            if isinstance(value, dict):
                return {key: fill(one) for key, one in value.items()}
            return value

        args = fill(read["args"])
        return args if isinstance(args, list) else [args], fill(read["kwargs"])


def is_operation(module: str) -> bool:
    """Whether a module of Keras 3 holds operations, which are no layers."""
    return module.startswith(("keras.src.ops", "keras.ops"))


def _is_operation(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is one; old layouts do not say the module, but layers say whether they are trained."""
    if entry.get("module"):
        return is_operation(str(entry["module"]))
    config, nodes = entry.get("config"), entry.get("inbound_nodes")
    if not isinstance(config, dict) or not isinstance(nodes, list):
        return False
    new = any(isinstance(node, dict) and "args" in node for node in nodes)
    of_layers = {"trainable", "dtype", "layers"}
    return new and (of_layers.isdisjoint(config) or entry.get("class_name") in _OF_A_TYPE)


_OF_A_TYPE = (
    "Arange", "Array", "Cast", "ConvertToTensor", "Cumprod", "Cumsum", "EmptyLike", "Full", "FullLike", "Geomspace",
    "Linspace", "Logspace", "MultiHot", "Nancumprod", "Nancumsum", "OneHot", "OnesLike", "Prod", "SaturateCast", "View",
    "ZerosLike",
)  # fmt: skip
"""Classes of operations that have a `dtype` as layers do."""


def _holds_model(entry: Any) -> bool:
    return isinstance(entry, dict) and (
        entry.get("class_name") in MODELS or (entry.get("class_name") == "TimeDistributed" and _holds_model(
            entry["config"].get("layer") if isinstance(entry.get("config"), dict) else None
        ))
    )  # fmt: skip


def _input_shape(config: Mapping[str, Any]) -> Any:
    """What the first layer of a chain of Keras 1 says of its input beside `batch_input_shape`."""
    if config.get("input_shape"):
        return [None, *config["input_shape"]]
    if "input_dim" in config and "output_dim" not in config and config.get("input_dim"):
        return [None, config["input_dim"]]
    return None


def _by_input(args: list[Any], names: Iterable[str], config: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a model is called with, in the order of its inputs."""
    first = args[0] if args else None
    if isinstance(first, dict):
        inputs = config.get("input_layers")
        keys = list(inputs) if isinstance(inputs, dict) else list(names)
        return [one for key in keys for one in tensors_in(first.get(key))]
    return list(tensors_in(args))
