"""A Keras model as plain data, and its files: layers, their calls and variables, in Keras's order and under its paths.

Nothing here needs Keras. The facts are those of Keras 3.15's `saving_lib`, `functional` and `function.map_graph`. The
same model gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.files import write_atomically
from netspec.exchange.formats.keras.names import keras_snake, unique_names

LAYERS, OPS_NN, OPS_NUMPY = "keras.layers", "keras.src.ops.nn", "keras.src.ops.numpy"
OPS_CORE, OPS_MATH, OPS_LINALG = "keras.src.ops.core", "keras.src.ops.math", "keras.src.ops.linalg"
"""The modules that classes are in, as files name them."""


def object_json(module: str, class_name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The JSON of an object of Keras."""
    return {"module": module, "class_name": class_name, "config": config, "registered_name": None}


FLOAT = object_json("keras", "DTypePolicy", {"name": "float32"})

Arguments: TypeAlias = "tuple[list[Any], dict[str, Any]]"
"""Positional and keyword arguments of a call: tensors, lists of them, and plain values."""


@dataclass(frozen=True)
class KerasTensor:
    """An output of a call in the model, and the order of its axes."""

    layer: str
    call: int
    index: int
    shape: tuple[int, ...]
    """Shape in Keras, without the batch."""
    dtype: str
    order: tuple[int, ...]
    """For each axis in Keras, including the batch, its axis in the net."""
    flattened_from: KerasTensor | None = None
    """The tensor that was flattened in Keras's order, if this is its result."""

    @property
    def plain(self) -> bool:
        """Whether its elements are in the net's order."""
        return self.flattened_from is None and self.order == tuple(range(len(self.order)))

    def axis(self, axis: int) -> int:
        """The axis in Keras of an axis of the net; negative ones count from the last."""
        return self.order.index(axis % len(self.order))

    def to_json(self) -> dict[str, Any]:
        """The JSON of the files."""
        history = [self.layer, self.call, self.index]
        return {
            "class_name": "__keras_tensor__",
            "config": {"shape": [None, *self.shape], "dtype": self.dtype, "keras_history": history},
        }


@dataclass
class KerasLayer:
    """A layer, or an operation, with all its calls."""

    name: str
    class_name: str
    config: dict[str, Any]
    module: str = LAYERS
    python_name: str = ""
    """The name of its class in Keras's code, which paths use, if it differs from the exported name."""
    calls: list[Arguments] = field(default_factory=list)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays by their paths in the layer's group: `vars/0`."""

    @property
    def has_group(self) -> bool:
        """Whether weight files have a group for it: true for layers, false for operations."""
        return self.module == LAYERS

    def to_json(self) -> dict[str, Any]:
        """The JSON of the files."""
        return {
            "module": self.module,
            "class_name": self.class_name,
            "config": self.config,
            "registered_name": None if self.has_group else self.class_name,
            "name": self.name,
            "inbound_nodes": [
                {"args": _to_json(args), "kwargs": _to_json(kwargs)} for args, kwargs in self.calls
            ],
        }  # fmt: skip


@dataclass
class KerasModel:
    """A functional model."""

    name: str
    layers: dict[str, KerasLayer] = field(default_factory=dict)
    inputs: list[KerasTensor] = field(default_factory=list)
    outputs: list[KerasTensor] = field(default_factory=list)
    compiled: dict[str, Any] = field(default_factory=dict)
    """The optimizer, losses and metrics that it is compiled with; empty without a training."""
    optimizer: list[NDArray[Any]] = field(default_factory=list)
    """The variables of the optimizer in Keras's order; empty before its first step."""

    def to_json(self) -> dict[str, Any]:
        """The configuration in `config.json`."""

        def as_references(tensors: Sequence[KerasTensor]) -> list[Any]:
            references: list[Any] = [[tensor.layer, tensor.call, tensor.index] for tensor in tensors]
            return references[0] if len(references) == 1 else references

        config = {
            "name": self.name,
            "trainable": True,
            "layers": [layer.to_json() for layer in self.layers_in_order()],
            "input_layers": as_references(self.inputs),
            "output_layers": as_references(self.outputs),
        }
        return {
            "module": "keras.src.models.functional",
            "class_name": "Functional",
            "config": config,
            "registered_name": "Functional",
            **({"compile_config": self.compiled} if self.compiled else {}),
        }

    def groups(self) -> dict[str, KerasLayer]:
        """The layers by the names of their groups in a file of weights: `conv2d`, `conv2d_1`."""
        tracked = [layer for layer in self.layers_in_order() if layer.has_group]
        names = unique_names(keras_snake(layer.python_name or layer.class_name) for layer in tracked)
        return dict(zip(names, tracked, strict=True))

    def layers_in_order(self) -> list[KerasLayer]:
        """The layers in Keras's order: by their distance from the outputs, the farthest first.

        Layers of the same distance are in the order in which a search from the outputs visits them.
        """
        visited: dict[str, int] = {}
        calls: list[tuple[str, int]] = []  # each after the calls that it reads
        finished: set[tuple[str, int]] = set()
        for output in self.outputs:
            stack: list[tuple[tuple[str, int], Iterator[KerasTensor]]] = []
            self._enter((output.layer, output.call), stack, visited, finished)
            while stack:
                call, parents = stack[-1]
                parent = next(parents, None)
                if parent is not None:
                    self._enter((parent.layer, parent.call), stack, visited, finished)
                else:
                    stack.pop()
                    finished.add(call)
                    calls.append(call)
        call_depth: dict[tuple[str, int], int] = {}
        layer_depth: dict[str, int] = {}
        for call in reversed(calls):
            depth = max(call_depth.get(call, 0), layer_depth.get(call[0], 0))
            call_depth[call] = layer_depth[call[0]] = depth
            for parent in self._parents(call):
                key = (parent.layer, parent.call)
                call_depth[key] = max(call_depth.get(key, 0), depth + 1)
        return [self.layers[name] for name in sorted(visited, key=lambda name: (-layer_depth[name], visited[name]))]

    def _enter(
        self,
        call: tuple[str, int],
        stack: list[tuple[tuple[str, int], Iterator[KerasTensor]]],
        visited: dict[str, int],
        finished: set[tuple[str, int]],
    ) -> None:
        if call not in finished:
            visited.setdefault(call[0], len(visited))
            stack.append((call, self._parents(call)))

    def _parents(self, call: tuple[str, int]) -> Iterator[KerasTensor]:
        name, index = call
        calls = self.layers[name].calls
        return tensors_in(calls[index]) if calls else iter(())


def tensors_in(value: Any) -> Iterator[KerasTensor]:
    """The tensors among the arguments of a call, in Keras's order."""
    if isinstance(value, KerasTensor):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from tensors_in(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def _to_json(value: Any) -> Any:
    if isinstance(value, KerasTensor):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, slice):
        return {"class_name": "__slice__", "config": {end: getattr(value, end) for end in ("start", "stop", "step")}}
    if hasattr(value, "tolist"):
        return {"class_name": "__numpy__", "config": {"value": value.tolist(), "dtype": str(value.dtype)}}
    return value


KERAS_VERSION = "3.0.0"
"""The version of Keras that the files declare; later versions read them."""
SAVE_TIME = "1980-01-01@00:00:00"
"""The constant time of saving, so that the same content gives the same bytes."""


def write_model(path: Path, model: KerasModel) -> None:
    """Write a `.keras` file atomically."""
    members = {
        "metadata.json": json.dumps({"keras_version": KERAS_VERSION, "date_saved": SAVE_TIME}).encode(),
        "config.json": json.dumps(model.to_json()).encode(),
        "model.weights.h5": weights_file(model),
    }

    def write(temporary: Path) -> None:
        with ZipFile(temporary, "w", ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(ZipInfo(name), content)

    write_atomically(path, write)


def write_weights(path: Path, model: KerasModel) -> None:
    """Write a `.weights.h5` file atomically."""
    content = weights_file(model)
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def weights_file(model: KerasModel) -> bytes:
    """The HDF5 file of a model's weights."""
    import h5py

    buffer = BytesIO()
    with h5py.File(buffer, "w", libver=("earliest", "v110")) as file:
        file.create_group("vars").attrs["name"] = model.name

        def put(group: Any, path: str, array: NDArray[Any]) -> None:
            data = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
            group.create_dataset(path, data=data, track_times=False)

        layers = file.create_group("layers")
        for name, layer in model.groups().items():
            group = layers.create_group(name)
            group.create_group("vars").attrs["name"] = layer.name
            for path, array in sorted(layer.arrays.items()):
                put(group, path, array)
        if model.optimizer:
            group = file.create_group("optimizer/vars")
            group.attrs["name"] = model.compiled["optimizer"]["config"]["name"]
            for index, array in enumerate(model.optimizer):
                put(group, str(index), array)
    return buffer.getvalue()
