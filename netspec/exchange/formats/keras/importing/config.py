"""The configuration of a model → the calls of its layers, in an order in which they can be made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeAlias

from netspec.errors import InputError
from netspec.exchange.formats.keras.names import class_name as class_in_paths
from netspec.exchange.formats.keras.names import keras_snake, unique_names
from netspec.exchange.net_yaml_writer import clean
from netspec.exchange.truncation import lookup


def damaged(why: str) -> InputError:
    """The error for an inconsistent configuration."""
    return InputError(f"the configuration of the model is damaged: {why}", expected="a model as Keras writes it")


class Reference(tuple[str, int, int]):
    """A tensor by the name of its layer, the index of the call, and the index of the output."""

    __slots__ = ()


class ArrayLiteral(list[Any]):
    """The elements of an array, in nested lists, and their type."""

    def __init__(self, value: list[Any], dtype: str) -> None:
        super().__init__(value)
        self.dtype = dtype


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise damaged("a tensor is not identified by integers")
    return value


def references(value: Any) -> Iterator[Reference]:
    """The tensors in `input_layers` or `output_layers`."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        yield Reference((value[0], _whole(value[1]), _whole(value[2])))
    elif isinstance(value, list):
        for one in value:
            yield from references(one)
    else:
        raise damaged("it does not state its inputs or outputs")


def references_in(value: Any) -> Iterator[Reference]:
    """The references in nested lists and mappings."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from references_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from references_in(one)


def _revived(value: Any) -> Any:
    """The arguments of a call of Keras 3, with references instead of tensors, and slices, arrays and strings."""
    if isinstance(value, list):
        return [_revived(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if kind == "__keras_tensor__" and isinstance(config, dict):
        history = config.get("keras_history")
        if not isinstance(history, list) or len(history) != 3 or not isinstance(history[0], str):
            raise damaged("a tensor does not name its layer")
        return Reference((history[0], _whole(history[1]), _whole(history[2])))
    if kind == "__tuple__":
        return _revived(value.get("items", []))
    if kind in ("__tensor__", "__numpy__") and isinstance(config, dict):
        found = config.get("value")
        return ArrayLiteral(found, str(config.get("dtype"))) if isinstance(found, list) else found
    if kind == "__slice__" and isinstance(config, dict):
        return slice(*(config.get(end) for end in ("start", "stop", "step")))
    if kind == "__ellipsis__":
        return Ellipsis
    return {key: _revived(one) for key, one in value.items()}


def told(node: Any, names: Collection[str]) -> Any:
    """The arguments of a call: `{"args", "kwargs"}` of Keras 3, or from the list of Keras 1 and 2."""
    if isinstance(node, dict) and "args" in node:
        return _revived({"args": node["args"], "kwargs": node.get("kwargs") or {}, "new": True})
    if isinstance(node, dict):  # inputs by name
        return {"args": [{key: _old(one, names)[0] for key, one in node.items()}], "kwargs": {}}
    if not isinstance(node, list):
        raise damaged("a call of a layer is not a list")
    listed = [node] if node and isinstance(node[0], str) else node
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one in listed:
        tensor, more = _old(one, names)
        args.append(tensor)
        kwargs |= more
    return {"args": [args[0] if len(args) == 1 else args], "kwargs": kwargs}


def _old(one: Any, names: Collection[str]) -> tuple[Any, dict[str, Any]]:
    if isinstance(one, list) and len(one) >= 3 and isinstance(one[0], str):
        more = one[3] if len(one) > 3 and isinstance(one[3], dict) else {}
        kwargs = {key: _old_argument(value, names) for key, value in more.items()}
        if one[0] == "_CONSTANT_VALUE":
            return one[2], kwargs
        return Reference((one[0], _whole(one[1]), _whole(one[2]))), kwargs
    raise damaged("a call of a layer has no inputs")


def _old_argument(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, list):
        if len(value) == 3 and isinstance(value[0], str) and value[0] in names and type(value[1]) is int:
            return Reference((value[0], value[1], _whole(value[2])))
        return [_old_argument(one, names) for one in value]
    if isinstance(value, dict) and value.keys() == {"start", "stop", "step"}:
        return slice(*(_old_argument(value[end], names) for end in ("start", "stop", "step")))
    return Ellipsis if isinstance(value, dict) and value.get("class_name") == "__ellipsis__" else value


MODELS = ("Sequential", "Functional", "Model")
DEEPEST = 32
"""Largest depth of nested models."""
MOST_CALLS = 20_000
"""Largest number of layers, nested models included."""


@dataclass(eq=False)
class ConfiguredLayer:
    """A layer of the model, which may be called several times."""

    path: tuple[str, ...]
    """Its name, after those of the models that contain it."""
    class_name: str
    config: dict[str, Any]
    module: str | None
    """Empty if the file does not state it; None for a class that the user's script defines."""
    registered: str
    group: str
    """The path of its variables in a `.weights.h5`."""
    frozen: bool
    wrapped: int = 0
    """The number of TimeDistributed wrappers of its model."""
    calls: int = 0

    @property
    def name(self) -> str:
        """Its name, with the models that contain it: `encoder/dense`."""
        return "/".join(self.path)


MASKED = ("Softmax",)
"""Layers whose mask may be an input, which no layer made."""


@dataclass(frozen=True)
class CallOutput:
    """The output `index` of a call."""

    call: LayerCall
    index: int = 0


@dataclass(eq=False)
class LayerCall:
    """A call of a layer with its arguments, in which references are resolved."""

    layer: ConfiguredLayer
    args: list[Any]
    kwargs: dict[str, Any]
    number: int = 0
    """Index of the call among those of the layer."""
    tells_mask: bool = False
    """Whether its arguments state the mask, as in functional models of Keras 3."""

    def tensors(self) -> list[CallOutput]:
        """The tensors in its arguments, without masks that follow from earlier layers."""
        masked = self.layer.class_name in MASKED
        return list(
            tensors_in([self.args, {name: one for name, one in self.kwargs.items() if masked or name != "mask"}])
        )


Made: TypeAlias = "list[CallOutput] | LayerCall"
"""The result of a call: the outputs of a model, or the call itself, whose outputs are known once its layer is built."""


@dataclass
class ModelGraph:
    """A parsed model."""

    name: str
    inputs: list[LayerCall] = field(default_factory=list)
    """Calls of its InputLayers."""
    calls: list[LayerCall] = field(default_factory=list)
    outputs: list[CallOutput] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    """Names that the model's losses use for its outputs."""
    judged: dict[int, int] = field(default_factory=dict)
    """Index of an output of the full model → its index in `outputs`; dropped outputs are missing."""
    results: dict[str, list[CallOutput]] = field(default_factory=dict)
    """Outputs of nested models, by their names."""
    layers: list[ConfiguredLayer] = field(default_factory=list)
    """All layers, in the order of their variables."""
    entered: int = 0
    """Number of calls of models."""


def tensors_in(value: Any) -> Iterator[CallOutput]:
    """The tensors in nested lists and mappings."""
    if isinstance(value, CallOutput):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)


def graph_of(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> ModelGraph:
    """Parse the configuration of a model. `shapes` are those of inputs that it leaves open. Raises `InputError`."""
    class_name, inner = config.get("class_name"), config.get("config")
    if class_name not in MODELS or not isinstance(inner, (dict, list)):
        raise InputError(
            f"the model is of the class {str(class_name)[:60]!r}, whose code is not in the file",
            expected=f"one of {', '.join(MODELS)}",
            hint="classes of one's own are not read: write the net as YAML and lay its weights onto it with `--net`",
        )
    name = str(inner.get("name", "model")) if isinstance(inner, dict) else "model"
    found = ModelGraph(name)
    model = _Model(found, str(class_name), inner, (), "", shapes, _is_new(config))
    found.outputs, found.output_names = model.called(None)
    found.judged = {index: index for index in range(len(found.outputs))}
    return found


def cut(graph: ModelGraph, names: Sequence[str], what: str) -> None:
    """Make the results of the named layers and nested models (`encoder/conv1`) the only outputs of a model."""
    named = dict(graph.results)
    for call in graph.calls:
        named.setdefault(call.layer.name, []).append(CallOutput(call))
    known = {clean(name): tensors for name, tensors in named.items()} | named
    before = graph.outputs
    graph.outputs = list(dict.fromkeys(one for tensors in lookup(names, known, what, named) for one in tensors))
    indices = {tensor: index for index, tensor in enumerate(graph.outputs)}
    graph.judged = {index: indices[tensor] for index, tensor in enumerate(before) if tensor in indices}


def _is_new(config: Mapping[str, Any]) -> bool:
    return "module" in config or "registered_name" in config


class _Model:
    """A model that is parsed: its layers are created once, its calls each time that the model is called."""

    def __init__(
        self, graph: ModelGraph, class_name: str, config: Any, path: tuple[str, ...], group: str,
        shapes: Mapping[str, tuple[int, ...]], new: bool, frozen: bool = False, wrapped: int = 0,
    ) -> None:  # fmt: skip
        if len(path) > DEEPEST:
            raise damaged(f"models are nested more than {DEEPEST} deep")
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
        self.made: dict[str, ConfiguredLayer | _Model] = {}
        self._make(f"{group}/layers".lstrip("/"))

    def _make(self, group: str) -> None:
        classes = [str(entry.get("class_name")) for entry in self.entries]
        layers = [not _is_operation(entry) for entry in self.entries]
        snakes = unique_names(
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

    def _one(
        self, entry: dict[str, Any], class_name: str, config: Any, name: str, group: str
    ) -> ConfiguredLayer | _Model:
        path, wrapped, inner = (*self.path, name), self.wrapped, entry
        frozen = self.frozen or (isinstance(config, dict) and config.get("trainable") is False)
        while class_name == "TimeDistributed" and isinstance(config, dict) and _holds_model(config.get("layer")):
            inner, group, wrapped = config["layer"], f"{group}/layer", wrapped + 1
            class_name, config = str(inner.get("class_name")), inner.get("config")
        if class_name in MODELS:
            return _Model(self.graph, class_name, config, path, group, {}, _is_new(inner), frozen, wrapped)
        if not isinstance(config, dict):
            raise damaged(f"the layer {name!r} has no configuration")
        module = "keras.ops" if _is_operation(entry) else _module(entry)
        layer = ConfiguredLayer(
            path, class_name, config, module, str(entry.get("registered_name") or ""), group,
            frozen, wrapped,
        )  # fmt: skip
        self.graph.layers.append(layer)
        return layer

    def called(self, args: list[Any] | None) -> tuple[list[CallOutput], list[str]]:
        """The outputs of a call, and their names. Without arguments, the model's inputs are those of the net."""
        self.graph.entered += 1
        if self.graph.entered > MOST_CALLS:
            raise damaged(f"its models are called more than {MOST_CALLS} times")
        made, names = self._chain(args) if self.sequential else self._functional(args)
        if self.path:
            self.graph.results.setdefault("/".join(self.path), []).extend(made)
        return made, names

    def _input(self, layer: ConfiguredLayer) -> CallOutput:
        call = self._call(layer, [], {})
        self.graph.inputs.append(call)
        return CallOutput(call)

    def _call(self, layer: ConfiguredLayer, args: list[Any], kwargs: dict[str, Any]) -> LayerCall:
        call = LayerCall(layer, args, kwargs, layer.calls)
        layer.calls += 1
        if layer.class_name != "InputLayer":
            self.graph.calls.append(call)
        if len(self.graph.calls) > MOST_CALLS:
            raise damaged(f"it has more than {MOST_CALLS} calls of layers")
        return call

    def _chain(self, args: list[Any] | None) -> tuple[list[CallOutput], list[str]]:
        if args is None:
            current: Any = [self._input(self._first())]
        else:
            current = list(tensors_in(args))
        last = self.name
        for name, layer in self.made.items():
            if isinstance(layer, ConfiguredLayer) and layer.class_name == "InputLayer":
                continue
            given = current[0] if len(current) == 1 else current
            if isinstance(layer, _Model):
                current, _ = layer.called([given])
            else:
                current = [CallOutput(self._call(layer, [given], {}))]
            last = name
        return current, [last]

    def _first(self) -> ConfiguredLayer:
        """The input of a Sequential: its InputLayer, or the input shape of the first layer."""
        for layer in self.made.values():
            if isinstance(layer, ConfiguredLayer) and layer.class_name == "InputLayer":
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
            config = found.config if isinstance(found, ConfiguredLayer) else {}
        else:
            config = first.config if first is not None else {}
        shape = next((config[key] for key in ("batch_shape", "batch_input_shape") if config.get(key)), None)
        shape = shape or self.config.get("build_input_shape") or _input_shape(config)
        dtype = config.get("dtype") if config.get("class_name") == "InputLayer" else config.get("input_dtype")
        if dtype is None and isinstance(first, ConfiguredLayer) and first.class_name == "Embedding":
            dtype = "int32"
        made = {"batch_shape": shape, "dtype": dtype, "name": "input"}
        return ConfiguredLayer((*self.path, "input"), "InputLayer", made, "", "", "", False)

    def _functional(self, args: list[Any] | None) -> tuple[list[CallOutput], list[str]]:
        inputs = list(references(self.config.get("input_layers")))
        outputs = self.config.get("output_layers")
        found: dict[tuple[str, int], Made] = {}
        given = None if args is None else _by_input(args, [name for name, _, _ in inputs], self.config)
        for index, (name, node, _) in enumerate(inputs):
            layer = self.made.get(name)
            if not isinstance(layer, ConfiguredLayer):
                raise damaged(f"its input {name!r} is not a layer")
            if given is not None and index >= len(given):
                raise damaged(f"the model {self.name!r} is called with too few inputs")
            found[name, node] = [self._input(layer) if given is None else given[index]]
        self._process(found)
        wanted = list(references(outputs))
        named = list(outputs) if isinstance(outputs, dict) else [name for name, _, _ in wanted]
        return [self._tensor(found, one) for one in wanted], named

    def _process(self, found: dict[tuple[str, int], Made]) -> None:
        """Make all calls of the configuration, each once its inputs exist."""
        offsets = self._offsets()
        waiting: dict[tuple[str, int], Any] = {}
        for entry, name in zip(self.entries, self.made, strict=True):
            nodes = entry.get("inbound_nodes") or []
            if not isinstance(nodes, list):
                raise damaged(f"the calls of the layer {name!r} are not a list")
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
        while ready:  # in the order of the configuration, as far as inputs exist
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

    def _tensor(self, found: Mapping[tuple[str, int], Made], reference: Reference) -> CallOutput:
        name, node, index = reference
        made = found.get((name, node))
        if made is None or index < 0 or (isinstance(made, list) and index >= len(made)):
            raise damaged(f"there is no output {index} of call {node} of {name[:60]!r}")
        return made[index] if isinstance(made, list) else CallOutput(made, index)

    def _offsets(self) -> dict[str, int]:
        """Offset of the indices of a layer's calls from those in the configuration.

        The construction of a functional model (in Keras 2 also of a Sequential) is its first call.
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


def _module(entry: Mapping[str, Any]) -> str | None:
    module = entry.get("module", "")
    return None if module is None else str(module)


def is_operation(module: str | None) -> bool:
    """Whether a module of Keras 3 contains operations, not layers."""
    return module is not None and module.startswith(("keras.src.ops", "keras.ops"))


def _is_operation(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is an operation; old layouts have no module, but layers have `trainable`."""
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
"""Classes of operations that have a `dtype` like layers."""


def _holds_model(entry: Any) -> bool:
    return isinstance(entry, dict) and (
        entry.get("class_name") in MODELS or (entry.get("class_name") == "TimeDistributed" and _holds_model(
            entry["config"].get("layer") if isinstance(entry.get("config"), dict) else None
        ))
    )  # fmt: skip


def _input_shape(config: Mapping[str, Any]) -> Any:
    """The input shape of the first layer of a Sequential of Keras 1, in fields other than `batch_input_shape`."""
    if config.get("input_shape"):
        return [None, *config["input_shape"]]
    if "input_dim" in config and "output_dim" not in config and config.get("input_dim"):
        return [None, config["input_dim"]]
    return None


def _by_input(args: list[Any], names: Iterable[str], config: Mapping[str, Any]) -> list[CallOutput]:
    """The arguments of a model's call, in the order of its inputs."""
    first = args[0] if args else None
    if isinstance(first, dict):
        inputs = config.get("input_layers")
        keys = list(inputs) if isinstance(inputs, dict) else list(names)
        return [one for key in keys for one in tensors_in(first.get(key))]
    return list(tensors_in(args))
