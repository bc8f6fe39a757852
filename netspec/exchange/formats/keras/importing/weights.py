"""Load the arrays of a file into layers: by path from a `.weights.h5`, by order from the older layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import Problem
from netspec.exchange.containers.hdf5 import Hdf5Reader
from netspec.exchange.formats.keras.importing.archive import KerasFile
from netspec.exchange.formats.keras.importing.importer import WeightedLayer
from netspec.exchange.formats.keras.names import EXTRA_VARIABLES, KerasVariable, from_keras, layer_type, trained_first
from netspec.exchange.interface import WithoutNet

_LSTM_GATES = 4
_FIRST_OF_GATES = {12: (0, 6, 3, 9), 9: (0, 3, 6)}
"""Number of arrays of a Keras 1 LSTM or GRU, which has a matrix per gate → indices of each gate's first array."""


def load_weights(file: KerasFile, layers: Sequence[WeightedLayer]) -> list[Problem]:
    """Fill the arrays of the layers; return problems of missing arrays and wrong shapes."""
    if file.weights is None:
        return [Problem(f"{file.name} has no weights", expected="a model that was saved with its weights")]
    if is_tree(file.weights):
        return _from_tree(file, file.weights, layers)
    return _in_order(file, file.weights, layers)


def is_tree(file: Hdf5Reader) -> bool:
    """Whether the file has the layout of Keras 3's weights."""
    return file.attribute("", "layer_names") is None and "model_weights" not in file


class WeightTree:
    """A `.weights.h5`: arrays by the paths of Keras 3.15, also from files of earlier versions."""

    def __init__(self, file: Hdf5Reader) -> None:
        self.file = file
        self.paths = {_current_path(path): path for path in file.paths() if "/seed_generator/" not in path}

    def __contains__(self, path: str) -> bool:
        return _current_path(path) in self.paths

    def name(self, path: str) -> str:
        """The name of the layer at a path; empty if the file does not state it."""
        name = self.file.attribute(f"{path}/vars", "name")
        return name if isinstance(name, str) else ""

    def array(self, path: str) -> NDArray[Any]:
        """The array at a path."""
        return self.file.array(self.paths[_current_path(path)])


def _current_path(path: str) -> str:
    """Convert a path of Keras 2.12 to 3.0: `layers` had another name, and Windows wrote backslashes."""
    names = path.replace("\\", "/").split("/")
    return "/".join("layers" if name == "_layer_checkpoint_dependencies" else name.lstrip("_") for name in names)


def _from_tree(file: KerasFile, weights: Hdf5Reader, layers: Sequence[WeightedLayer]) -> list[Problem]:
    tree = WeightTree(weights)
    problems = []
    for layer in layers:
        for variable in layer.variables:
            path = f"{layer.configured.group}/{variable.path}"
            if path not in tree:
                problems.append(_missing(file, layer, variable))
                continue
            problems += store_array(file, layer, variable, tree.array(path))
    return problems


def _missing(file: KerasFile, layer: WeightedLayer, variable: KerasVariable) -> Problem:
    return Problem(f"{file.name}: the weight `{variable.state}` of the layer `{layer.configured.name}` is missing",
                   expected=str(list(layer.shapes[layer.prefix + variable.state])))  # fmt: skip


def _from_cudnn(
    expected: Sequence[tuple[WeightedLayer, KerasVariable | None]], arrays: list[NDArray[Any]]
) -> list[NDArray[Any]]:
    """Arrays of CuDNNLSTM and CuDNNGRU in the layout of LSTM and GRU: a larger bias identifies them, as in Keras 2.

    cuDNN has a matrix (units, features) per gate, stored with the shape (features, units), and two biases, which an
    LSTM adds and a GRU keeps.
    """
    converted = list(arrays)
    for index, (_, variable) in enumerate(expected[: len(arrays)]):
        if variable is None or variable.name != "bias" or index < 2:
            continue
        kernel, recurrent, bias = converted[index - 2 : index + 1]
        if recurrent.ndim != 2 or kernel.ndim != 2:
            continue
        if bias.shape != (2 * recurrent.shape[1],) or kernel.shape[1:] != recurrent.shape[1:]:
            continue
        units, gates = recurrent.shape[0], recurrent.shape[1] // max(1, recurrent.shape[0])
        for position, array in ((index - 2, kernel), (index - 1, recurrent)):
            by_gate = np.split(array, gates, axis=1)
            converted[position] = np.concatenate([gate.reshape(units, -1).T for gate in by_gate], axis=1)
        converted[index] = bias.reshape(2, -1).sum(axis=0) if gates == _LSTM_GATES else bias.reshape(2, -1)
    return converted


def store_array(file: KerasFile, layer: WeightedLayer, variable: KerasVariable, array: NDArray[Any]) -> list[Problem]:
    """Store an array in a layer, in the net's order of axes."""
    converted = convert_array(array, variable, layer, flipped=file.backend == "theano")
    shape = layer.shapes[layer.prefix + variable.state]
    if converted is None or converted.shape != shape:
        return [
            Problem(f"{file.name}: the weight `{variable.state}` of the layer `{layer.configured.name}` has the "
                    "wrong shape",
                    expected=str(list(shape)), got=str(list(array.shape if converted is None else converted.shape)))
        ]  # fmt: skip
    layer.draft.arrays[layer.prefix + variable.state] = converted
    return []


def convert_array(
    array: NDArray[Any], variable: KerasVariable, layer: WeightedLayer, *, flipped: bool = False
) -> NDArray[Any] | None:
    """An array in the layout of its state; None if it does not fit."""
    shape = layer.shapes[layer.prefix + variable.state]
    if array.dtype.kind not in "fiu":
        return None
    try:
        if variable.kind in ("kernel", "depthwise"):
            array = _kernel_of_keras_1(array, layer, shape)
            if flipped:  # Theano flipped kernels
                array = array[tuple(slice(None, None, -1) for _ in array.shape[:-2])]
        array = from_keras(array, variable)
        convert = layer.convert.get(variable.state)
        array = array if convert is None else convert(array)
    except (ValueError, IndexError):
        return None
    if array.size == int(np.prod(shape, dtype=np.int64)) and array.ndim != len(shape):
        array = array.reshape(shape)
    return np.array(array, np.float32, order="C")  # unlike `ascontiguousarray`, keeps scalars 0-d


def _kernel_of_keras_1(array: NDArray[Any], layer: WeightedLayer, shape: tuple[int, ...]) -> NDArray[Any]:
    """Convert a kernel of Keras 1, which may have another order of axes, to Keras 2's order."""
    # (window…, in, out), or with `th` (out, in, window…)
    if layer.configured.class_name == "Deconvolution2D" and array.ndim == len(shape):
        if layer.configured.config.get("dim_ordering") == "th":
            return array.transpose(2, 3, 0, 1)
        return array.transpose(0, 1, 3, 2)
    if layer.configured.config.get("dim_ordering") == "th":  # (out, in, window…)
        return array.transpose(*range(2, array.ndim), 1, 0)
    if array.ndim == len(shape) + 1 and array.shape[1] == 1:  # sequences were images of width 1
        return array[:, 0]
    return array


def _in_order(file: KerasFile, weights: Hdf5Reader, layers: Sequence[WeightedLayer]) -> list[Problem]:
    """Read old files: a list of arrays for each layer of the model, trained ones first."""
    stored = stored_in_order(weights)
    problems: list[Problem] = []
    non_empty = {name: arrays for name, arrays in stored.items() if arrays}
    for top, group in groupby(layers, key=lambda layer: layer.configured.path[0]):
        of_top_layer = list(group)
        paths = non_empty.get(top)
        if paths is None:
            problems.append(Problem(f"{file.name}: the layer `{top}` has no weights", expected=f"a group `{top}`"))
            continue
        problems += _one_layer(file, of_top_layer, {path: weights.array(path) for path in paths})
    return problems


def stored_in_order(weights: Hdf5Reader) -> dict[str, list[str]]:
    """Paths of the arrays of each layer, in the order of the file."""
    root = "" if weights.attribute("", "layer_names") is not None else "model_weights"
    names = weights.attribute(root, "layer_names")
    if not isinstance(names, list):
        weights.refuse("it does not list its layers")
    paths_by_layer: dict[str, list[str]] = {}
    for name in map(str, names):
        group = f"{root}/{name}".lstrip("/")
        weight_names = weights.attribute(group, "weight_names")
        if group not in weights or not isinstance(weight_names, list):
            weights.refuse(f"its layer {name[:100]!r} is missing, or does not list its weights")
        paths_by_layer[name] = [f"{group}/{weight_name}" for weight_name in map(str, weight_names)]
        for path in paths_by_layer[name]:
            if not weights.holds(path):
                weights.refuse(f"its weight {path[:100]!r} is missing")
    return paths_by_layer


def file_order(layers: Iterable[WeightedLayer]) -> list[tuple[WeightedLayer, KerasVariable | None]]:
    """The variables of layers in the order of an old file; None for a variable without a state in the net."""
    trained: list[tuple[WeightedLayer, KerasVariable | None]] = []
    untrained: list[tuple[WeightedLayer, KerasVariable | None]] = []
    for layer in layers:
        for variable in trained_first(layer.variables, frozen=layer.configured.frozen):
            (trained if variable.trainable and not layer.configured.frozen else untrained).append((layer, variable))
        untrained += [(layer, None)] * len(EXTRA_VARIABLES.get(layer_type(layer.configured.class_name), ()))
    return trained + untrained


def _one_layer(file: KerasFile, layers: Sequence[WeightedLayer], stored: dict[str, NDArray[Any]]) -> list[Problem]:
    expected = file_order(layers)
    arrays, names = list(stored.values()), [path.split("/", 2)[-1] for path in stored]
    if len(layers) == 1 and len(arrays) in _FIRST_OF_GATES and len(expected) in (2, 3):
        arrays = _join_gates(arrays)
    if len(arrays) == len(expected) - sum(layer is None for _, layer in expected):
        expected = [pair for pair in expected if pair[1] is not None]
    if len(arrays) != len(expected):
        name = layers[0].configured.path[0]
        return [Problem(f"{file.name}: the layer `{name}` has another number of weights",
                        expected=str(len(expected)), got=str(len(arrays)))]  # fmt: skip
    problems = []
    arrays = _from_cudnn(expected, arrays)
    for (layer, variable), array, name in zip(expected, arrays, [*names, *names], strict=False):
        if variable is not None:
            layer.stored[variable.state] = name
            problems += store_array(file, layer, variable, array)
    return problems


def _join_gates(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    first_indices = _FIRST_OF_GATES[len(arrays)]
    return [np.concatenate([arrays[index + k] for index in first_indices], axis=-1) for k in range(3)]


def missing_model_error(file: KerasFile) -> WithoutNet:
    """The error for a file without a model, where one is needed."""
    return WithoutNet(
        f"{file.name} holds weights without the model they belong to",
        expected="a model of Keras with its configuration",
        hint="lay them onto a net: `netspec import FILE --net net.yaml`",
    )
