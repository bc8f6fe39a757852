"""Parse the configuration of a model into the calls of its layers, in an order in which they can be evaluated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar

from netspec.errors import InputError
from netspec.exchange.formats.keras.names import class_name as class_in_paths
from netspec.exchange.formats.keras.names import keras_snake, unique_names
from netspec.exchange.net_yaml_writer import clean
from netspec.exchange.truncation import lookup


def damaged(reason: str) -> InputError:
    """The error for an inconsistent configuration."""
    return InputError(f"the configuration of the model is damaged: {reason}", expected="a model as Keras writes it")


Item = TypeVar("Item")


class Reference(tuple[str, int, int]):
    """A tensor by the name of its layer, the index of the call, and the index of the output."""

    __slots__ = ()


class ArrayLiteral(list[Any]):
    """The elements of an array, in nested lists, and their type."""

    def __init__(self, value: list[Any], dtype: str) -> None:
        super().__init__(value)
        self.dtype = dtype


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise damaged("a tensor is not identified by integers")
    return value


def references(value: Any) -> Iterator[Reference]:
    """The tensors in `input_layers` or `output_layers`."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        yield Reference((value[0], _integer(value[1]), _integer(value[2])))
    elif isinstance(value, list):
        for item in value:
            yield from references(item)
    else:
        raise damaged("it does not state its inputs or outputs")


def instances_in(value: Any, kind: type[Item]) -> Iterator[Item]:
    """The objects of a class in nested lists and mappings."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from instances_in(item, kind)


def _decoded(value: Any) -> Any:
    """Decode the arguments of a call of Keras 3: tensors become references, slices and arrays Python objects."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if kind == "__keras_tensor__" and isinstance(config, dict):
        history = config.get("keras_history")
        if not isinstance(history, list) or len(history) != 3 or not isinstance(history[0], str):
            raise damaged("a tensor does not name its layer")
        return Reference((history[0], _integer(history[1]), _integer(history[2])))
    if kind == "__tuple__":
        return _decoded(value.get("items", []))
    if kind in ("__tensor__", "__numpy__") and isinstance(config, dict):
        elements = config.get("value")
        return ArrayLiteral(elements, str(config.get("dtype"))) if isinstance(elements, list) else elements
    if kind == "__slice__" and isinstance(config, dict):
        return slice(*(config.get(end) for end in ("start", "stop", "step")))
    if kind == "__ellipsis__":
        return Ellipsis
    return {key: _decoded(item) for key, item in value.items()}


def call_arguments(node: Any, names: Collection[str]) -> Any:
    """The arguments of a call: `{"args", "kwargs"}` of Keras 3, or from the list of Keras 1 and 2."""
    if isinstance(node, dict) and "args" in node:
        return _decoded({"args": node["args"], "kwargs": node.get("kwargs") or {}, "new": True})
    if isinstance(node, dict):  # inputs by name
        return {"args": [{key: _old_input(item, names)[0] for key, item in node.items()}], "kwargs": {}}
    if not isinstance(node, list):
        raise damaged("a call of a layer is not a list")
    inputs = [node] if node and isinstance(node[0], str) else node
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for item in inputs:
        tensor, input_kwargs = _old_input(item, names)
        args.append(tensor)
        kwargs |= input_kwargs
    return {"args": [args[0] if len(args) == 1 else args], "kwargs": kwargs}


def _old_input(entry: Any, names: Collection[str]) -> tuple[Any, dict[str, Any]]:
    if isinstance(entry, list) and len(entry) >= 3 and isinstance(entry[0], str):
        listed_kwargs = entry[3] if len(entry) > 3 and isinstance(entry[3], dict) else {}
        kwargs = {key: _old_argument(value, names) for key, value in listed_kwargs.items()}
        if entry[0] == "_CONSTANT_VALUE":
            return entry[2], kwargs
        return Reference((entry[0], _integer(entry[1]), _integer(entry[2]))), kwargs
    raise damaged("a call of a layer has no inputs")


def _old_argument(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, list):
        if len(value) == 3 and isinstance(value[0], str) and value[0] in names and type(value[1]) is int:
            return Reference((value[0], value[1], _integer(value[2])))
        return [_old_argument(item, names) for item in value]
    if isinstance(value, dict) and value.keys() == {"start", "stop", "step"}:
        return slice(*(_old_argument(value[end], names) for end in ("start", "stop", "step")))
    return Ellipsis if isinstance(value, dict) and value.get("class_name") == "__ellipsis__" else value


MODELS = ("Sequential", "Functional", "Model")
MAX_DEPTH = 32
"""Largest depth of nested models."""
MAX_CALLS = 20_000
"""Largest number of calls of layers, and of models; those of nested models count."""


@dataclass(eq=False)
class ConfiguredLayer:
    """A layer of the model, which may be called several times."""

    path: tuple[str, ...]
    """Names of the models that contain the layer, and its own name."""
    class_name: str
    config: dict[str, Any]
    module: str | None
    """Empty if the file does not state it; None for a class that the user's script defines."""
    registered: str
    group: str
    """The path of its variables in a `.weights.h5`."""
    frozen: bool
    wrapped: int = 0
    """The number of TimeDistributed wrappers around its model."""
    calls: int = 0

    @property
    def name(self) -> str:
        """Its name, with the models that contain it: `encoder/dense`."""
        return "/".join(self.path)


TAKES_MASK_INPUT = ("Softmax",)
"""Layers whose mask may be an input of the model."""


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
    states_mask: bool = False
    """Whether its arguments state the mask, as in functional models of Keras 3."""

    def tensors(self) -> list[CallOutput]:
        """The tensors in its arguments, without masks that follow from earlier layers."""
        masked = self.layer.class_name in TAKES_MASK_INPUT
        return list(
            tensors_in([self.args, {name: value for name, value in self.kwargs.items() if masked or name != "mask"}])
        )


CallResult: TypeAlias = "list[CallOutput] | LayerCall"
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
    loss_indices: dict[int, int] = field(default_factory=dict)
    """Index of an output of the full model → its index in `outputs`; dropped outputs are missing."""
    results: dict[str, list[CallOutput]] = field(default_factory=dict)
    """Outputs of nested models, by their names."""
    layers: list[ConfiguredLayer] = field(default_factory=list)
    """All layers, in the order of their variables."""
    model_calls: int = 0
    """Number of calls of models."""


def tensors_in(value: Any) -> Iterator[CallOutput]:
    """The tensors in nested lists and mappings."""
    return instances_in(value, CallOutput)


def parse_model(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> ModelGraph:
    """Parse the configuration of a model; `shapes` are those of inputs that it leaves open. Raises `InputError`."""
    class_name, inner = config.get("class_name"), config.get("config")
    if class_name not in MODELS or not isinstance(inner, (dict, list)):
        raise InputError(
            f"the model is of the class {str(class_name)[:60]!r}, whose code is not in the file",
            expected=f"one of {', '.join(MODELS)}",
            hint="classes of one's own are not read: write the net as YAML and lay its weights onto it with `--net`",
        )
    name = str(inner.get("name", "model")) if isinstance(inner, dict) else "model"
    graph = ModelGraph(name)
    model = _ModelBuilder(graph, str(class_name), inner, (), "", shapes, _is_new(config))
    graph.outputs, graph.output_names = model.call(None)
    graph.loss_indices = {index: index for index in range(len(graph.outputs))}
    return graph


def keep_outputs(graph: ModelGraph, names: Sequence[str], subject: str) -> None:
    """Make the results of the named layers and nested models (`encoder/conv1`) the only outputs of a model."""
    named = dict(graph.results)
    for call in graph.calls:
        named.setdefault(call.layer.name, []).append(CallOutput(call))
    selectable = {clean(name): tensors for name, tensors in named.items()} | named
    old_outputs = graph.outputs
    graph.outputs = list(
        dict.fromkeys(tensor for tensors in lookup(names, selectable, subject, named) for tensor in tensors)
    )
    indices = {tensor: index for index, tensor in enumerate(graph.outputs)}
    graph.loss_indices = {index: indices[tensor] for index, tensor in enumerate(old_outputs) if tensor in indices}


def _is_new(config: Mapping[str, Any]) -> bool:
    return "module" in config or "registered_name" in config


class _ModelBuilder:
    """A model that is parsed: its layers are created once, its calls each time that the model is called."""

    def __init__(
        self, graph: ModelGraph, class_name: str, config: Any, path: tuple[str, ...], group: str,
        shapes: Mapping[str, tuple[int, ...]], new: bool, frozen: bool = False, wrapped: int = 0,
    ) -> None:  # fmt: skip
        if len(path) > MAX_DEPTH:
            raise damaged(f"models are nested more than {MAX_DEPTH} deep")
        self.graph, self.path, self.shapes, self.new = graph, path, shapes, new
        self.wrapped = wrapped
        self.name = path[-1] if path else graph.name
        self.config = config if isinstance(config, dict) else {"layers": config}
        self.frozen = frozen or self.config.get("trainable") is False
        self.sequential = class_name == "Sequential" or "output_layers" not in self.config
        layers = self.config.get("layers")
        if not isinstance(layers, list) or not all(isinstance(entry, dict) for entry in layers):
            raise damaged(f"the model {self.name!r} has no list of layers")
        self.entries: list[dict[str, Any]] = layers
        self.layers: dict[str, ConfiguredLayer | _ModelBuilder] = {}
        self._make_layers(f"{group}/layers".lstrip("/"))

    def _make_layers(self, group: str) -> None:
        classes = [str(entry.get("class_name")) for entry in self.entries]
        layers = [not _is_operation(entry) for entry in self.entries]
        group_names = unique_names(
            keras_snake(class_in_paths(class_name_))
            for class_name_, is_layer in zip(classes, layers, strict=True)
            if is_layer
        )
        for index, (entry, class_name, is_layer) in enumerate(zip(self.entries, classes, layers, strict=True)):
            config = entry.get("config")
            name = entry.get("name")
            if name is None and isinstance(config, dict):
                name = config.get("name")
            name = str(name) if name is not None else f"{keras_snake(class_name)}_{index + 1}"
            if name in self.layers or not isinstance(config, (dict, list)):
                raise damaged(f"the layer {name!r} is there twice, or has no configuration")
            layer_group = f"{group}/{next(group_names) if is_layer else ''}"
            self.layers[name] = self._make_layer(entry, class_name, config, name, layer_group)

    def _make_layer(
        self, entry: dict[str, Any], class_name: str, config: Any, name: str, group: str
    ) -> ConfiguredLayer | _ModelBuilder:
        path, wrapped, inner = (*self.path, name), self.wrapped, entry
        frozen = self.frozen or (isinstance(config, dict) and config.get("trainable") is False)
        while class_name == "TimeDistributed" and isinstance(config, dict) and _holds_model(config.get("layer")):
            inner, group, wrapped = config["layer"], f"{group}/layer", wrapped + 1
            class_name, config = str(inner.get("class_name")), inner.get("config")
        if class_name in MODELS:
            return _ModelBuilder(self.graph, class_name, config, path, group, {}, _is_new(inner), frozen, wrapped)
        if not isinstance(config, dict):
            raise damaged(f"the layer {name!r} has no configuration")
        module = "keras.ops" if _is_operation(entry) else entry.get("module", "")
        layer = ConfiguredLayer(
            path, class_name, config, None if module is None else str(module),
            str(entry.get("registered_name") or ""), group, frozen, wrapped,
        )  # fmt: skip
        self.graph.layers.append(layer)
        return layer

    def call(self, args: list[Any] | None) -> tuple[list[CallOutput], list[str]]:
        """The outputs of a call, and their names. Without arguments, the model's inputs are those of the net."""
        self.graph.model_calls += 1
        if self.graph.model_calls > MAX_CALLS:
            raise damaged(f"its models are called more than {MAX_CALLS} times")
        outputs, names = self._call_sequential(args) if self.sequential else self._call_functional(args)
        if self.path:
            self.graph.results.setdefault("/".join(self.path), []).extend(outputs)
        return outputs, names

    def _input(self, layer: ConfiguredLayer) -> CallOutput:
        call = self._call(layer, [], {})
        self.graph.inputs.append(call)
        return CallOutput(call)

    def _call(self, layer: ConfiguredLayer, args: list[Any], kwargs: dict[str, Any]) -> LayerCall:
        call = LayerCall(layer, args, kwargs, layer.calls)
        layer.calls += 1
        if layer.class_name != "InputLayer":
            self.graph.calls.append(call)
        if len(self.graph.calls) > MAX_CALLS:
            raise damaged(f"it has more than {MAX_CALLS} calls of layers")
        return call

    def _call_sequential(self, args: list[Any] | None) -> tuple[list[CallOutput], list[str]]:
        if args is None:
            current: Any = [self._input(self._implicit_input())]
        else:
            current = list(tensors_in(args))
        last = self.name
        for name, layer in self.layers.items():
            if isinstance(layer, ConfiguredLayer) and layer.class_name == "InputLayer":
                continue
            argument = current[0] if len(current) == 1 else current
            if isinstance(layer, _ModelBuilder):
                current, _ = layer.call([argument])
            else:
                current = [CallOutput(self._call(layer, [argument], {}))]
            last = name
        return current, [last]

    def _implicit_input(self) -> ConfiguredLayer:
        """The input of a Sequential: its InputLayer, or the input shape of the first layer."""
        for layer in self.layers.values():
            if isinstance(layer, ConfiguredLayer) and layer.class_name == "InputLayer":
                return layer
            break
        first = next(iter(self.layers.values()), None)
        if isinstance(first, _ModelBuilder):
            inner = first
            while isinstance(inner, _ModelBuilder):
                first_of_inner = next(iter(inner.layers.values()), None)
                if not isinstance(first_of_inner, _ModelBuilder):
                    break
                inner = first_of_inner
            config = first_of_inner.config if isinstance(first_of_inner, ConfiguredLayer) else {}
        else:
            config = first.config if first is not None else {}
        shape = next((config[key] for key in ("batch_shape", "batch_input_shape") if config.get(key)), None)
        shape = shape or self.config.get("build_input_shape") or _input_shape(config)
        dtype = config.get("dtype") if config.get("class_name") == "InputLayer" else config.get("input_dtype")
        if dtype is None and isinstance(first, ConfiguredLayer) and first.class_name == "Embedding":
            dtype = "int32"
        input_config = {"batch_shape": shape, "dtype": dtype, "name": "input"}
        return ConfiguredLayer((*self.path, "input"), "InputLayer", input_config, "", "", "", False)

    def _call_functional(self, args: list[Any] | None) -> tuple[list[CallOutput], list[str]]:
        inputs = list(references(self.config.get("input_layers")))
        outputs = self.config.get("output_layers")
        results: dict[tuple[str, int], CallResult] = {}
        arguments = None if args is None else _inputs_in_order(args, [name for name, _, _ in inputs], self.config)
        for index, (name, node, _) in enumerate(inputs):
            layer = self.layers.get(name)
            if not isinstance(layer, ConfiguredLayer):
                raise damaged(f"its input {name!r} is not a layer")
            if arguments is not None and index >= len(arguments):
                raise damaged(f"the model {self.name!r} is called with too few inputs")
            results[name, node] = [self._input(layer) if arguments is None else arguments[index]]
        self._make_calls(results)
        output_references = list(references(outputs))
        names = list(outputs) if isinstance(outputs, dict) else [name for name, _, _ in output_references]
        return [self._tensor(results, reference) for reference in output_references], names

    def _make_calls(self, results: dict[tuple[str, int], CallResult]) -> None:
        """Make all calls of the configuration, each once its inputs exist."""
        offsets = self._offsets()
        arguments: dict[tuple[str, int], Any] = {}
        for entry, name in zip(self.entries, self.layers, strict=True):
            nodes = entry.get("inbound_nodes") or []
            if not isinstance(nodes, list):
                raise damaged(f"the calls of the layer {name!r} are not a list")
            for index, node in enumerate(nodes):
                arguments[name, index + offsets[name]] = call_arguments(node, self.layers)
        readers: dict[tuple[str, int], list[tuple[str, int]]] = {}
        missing_counts: dict[tuple[str, int], int] = {}
        for key, read in arguments.items():
            needed = {(name, node) for name, node, _ in instances_in(read, Reference)} - results.keys()
            missing_counts[key] = len(needed)
            for need in needed:
                readers.setdefault(need, []).append(key)
        positions = {key: position for position, key in enumerate(arguments)}
        ready = [position for key, position in positions.items() if not missing_counts[key]]
        keys = list(arguments)
        while ready:  # in the order of the configuration, once the inputs exist
            key = keys[heappop(ready)]
            if key not in results:
                results[key] = self._outputs(key[0], self._resolved(results, arguments[key]), "new" in arguments[key])
                for reader in readers.get(key, ()):
                    missing_counts[reader] -= 1
                    if not missing_counts[reader]:
                        heappush(ready, positions[reader])
        stuck = sorted({name for name, node in arguments if (name, node) not in results})
        if stuck:
            raise damaged(f"layers read each other in a circle, or what is not there: {', '.join(stuck[:6])}")

    def _outputs(self, name: str, arguments: tuple[list[Any], dict[str, Any]], tells_mask: bool) -> CallResult:
        args, kwargs = arguments
        layer = self.layers[name]
        if isinstance(layer, _ModelBuilder):
            return layer.call(args)[0]
        call = self._call(layer, args, kwargs)
        call.states_mask = tells_mask
        return call

    def _tensor(self, results: Mapping[tuple[str, int], CallResult], reference: Reference) -> CallOutput:
        name, node, index = reference
        result = results.get((name, node))
        if result is None or index < 0 or (isinstance(result, list) and index >= len(result)):
            raise damaged(f"there is no output {index} of call {node} of {name[:60]!r}")
        return result[index] if isinstance(result, list) else CallOutput(result, index)

    def _offsets(self) -> dict[str, int]:
        """Offset of the indices of a layer's calls from those in the configuration.

        The construction of a functional model (in Keras 2 also of a Sequential) is its first call.
        """
        used: dict[str, set[int]] = {}
        calls = [
            call_arguments(node, self.layers) for entry in self.entries for node in entry.get("inbound_nodes") or []
        ]
        outputs = references(self.config.get("output_layers"))
        for name, node, _ in (*instances_in(calls, Reference), *outputs):
            used.setdefault(name, set()).add(node)
        offsets = {}
        for entry, (name, layer) in zip(self.entries, self.layers.items(), strict=True):
            used_indices, count = used.get(name, set()), len(entry.get("inbound_nodes") or [])
            is_model = isinstance(layer, _ModelBuilder)
            has_construction_call = (
                is_model and (not layer.sequential or not self.new) if isinstance(layer, _ModelBuilder) else False
            )
            offsets[name] = int(
                is_model
                and (max(used_indices, default=0) >= count or (has_construction_call and 0 not in used_indices))
            )
        return offsets

    def _resolved(
        self, results: Mapping[tuple[str, int], CallResult], arguments: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        def fill(value: Any) -> Any:
            if isinstance(value, Reference):
                return self._tensor(results, value)
            if isinstance(value, list):
                return [fill(item) for item in value]
            if isinstance(value, dict):
                return {key: fill(item) for key, item in value.items()}
            return value

        args = fill(arguments["args"])
        return args if isinstance(args, list) else [args], fill(arguments["kwargs"])


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
    return new and (of_layers.isdisjoint(config) or entry.get("class_name") in _TYPED_OPERATIONS)


_TYPED_OPERATIONS = (
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


def _inputs_in_order(args: list[Any], names: Iterable[str], config: Mapping[str, Any]) -> list[CallOutput]:
    """The arguments of a model's call, in the order of its inputs."""
    first = args[0] if args else None
    if isinstance(first, dict):
        inputs = config.get("input_layers")
        keys = list(inputs) if isinstance(inputs, dict) else list(names)
        return [tensor for key in keys for tensor in tensors_in(first.get(key))]
    return list(tensors_in(args))
