"""Convert names and shapes of weights between PyTorch and netspec, layer by layer.

The kind of a layer follows from its states: a `kernel` of two axes belongs to torch.nn.Linear; together with a
`recurrent_kernel`, to LSTM, GRU or RNN; and so on. Formulas of the recurrent layers: the pages of
torch.nn.LSTM, GRU and RNN; gates are i, f, g, o there and i, f, c, o here; r, z, n there and z, r, h here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"
COUNTERS = "num_batches_tracked"
"""Number of batches that a BatchNorm has seen, which only matters without a momentum."""

OPTIMIZER_STATE = "optimizer.state."
"""Prefix of the names of optimizer states, in a file that contains them in addition to the weights."""


def from_state_dict(state_dict: Mapping[str, NDArray[Any]], shapes_by_name: Shapes) -> Arrays:
    """The arrays of a state dict by netspec's names. Arrays without a counterpart keep their names.

    `shapes_by_name` are those of a net's states. A layer `block/conv` is PyTorch's `block.conv`; names may have a
    common prefix that the net lacks (`module.`, of DataParallel). Layers with other names, such as outputs of an ONNX
    model, get the remaining arrays if each layer fits exactly one module and no array is left over.
    """
    wants_counters = any(name.rpartition("/")[2] == COUNTERS for name in shapes_by_name)
    unused = {name: array for name, array in state_dict.items() if wants_counters or not _is_counter(name)}
    layers = list(_layers(shapes_by_name))
    arrays: Arrays = {}
    prefix = _prefix(unused, [holder for holder, _, _ in layers])
    levels: dict[str, int] = {}
    for holder, shapes, family in layers:
        if family is not None:
            path = f"{prefix}{_dotted(holder)}." if holder else prefix
            layer_arrays = family.read(_Source(unused, path), shapes) or _arrays_of_module(
                unused, prefix, holder, shapes, family, levels
            )
            arrays |= {_state_path(holder, name): array for name, array in layer_arrays.items()}
    arrays |= _match_unused(unused, [layer for layer in layers if not _is_filled(arrays, layer)])
    for name in [name for name in unused if name in shapes_by_name or _state_called(name, shapes_by_name)]:
        arrays[_state_called(name, shapes_by_name) or name] = unused.pop(name)
    return arrays | {name: array for name, array in unused.items() if not _is_counter(name)}


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == COUNTERS


def to_state_dict(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """States by PyTorch's names, in its shapes; states of layers that PyTorch does not have keep their names."""
    return {name: array for _, name, array in _state_dict_entries(arrays)}


def collisions(shapes: Shapes) -> list[tuple[str, str, str]]:
    """Names in a state dict that two layers would share: `(path of one, path of the other, name)`."""
    holders: dict[str, str] = {}
    shared = []
    nothing = np.zeros((), "int8")  # only names are compared
    for holder, name, _ in _state_dict_entries(
        {state: np.broadcast_to(nothing, shape) for state, shape in shapes.items()}
    ):
        first_holder = holders.setdefault(name, holder)
        if first_holder != holder:
            shared.append((first_holder, holder, name))
    return shared


def _state_dict_entries(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """Yield the path of each layer, and the full name and array of each of its entries."""
    for holder, own_shapes, family in _layers({name: array.shape for name, array in arrays.items()}):
        own_arrays = {name: arrays[_state_path(holder, name)] for name in own_shapes}
        for name, array in (family.write(own_arrays) if family else own_arrays).items():
            yield holder, ".".join(filter(None, (_dotted(holder), name))), array


def _arrays_of_module(
    unused: Arrays, prefix: str, holder: str, shapes: Shapes, family: _Family, levels: dict[str, int]
) -> Arrays:  # fmt: skip
    """The arrays of the module that a layer was exported from, if all exist and fit.

    `levels` counts the net's layers for each module: a stacked recurrent module becomes several.
    """
    module = _exported_module(holder)
    if not module:
        return {}
    candidates, path = dict(unused), f"{prefix}{module}."
    arrays = family.read(_Source(candidates, path, levels.get(module, 0)), shapes)
    own_parameters = [name for name in unused if name.startswith(path) and "." not in name.removeprefix(path)]
    if not arrays and len(own_parameters) == len(shapes) == 1:  # the module's only own parameter, whatever its name
        ((state, shape),) = shapes.items()
        array = candidates.pop(own_parameters[0])
        arrays = {state: array.reshape(shape)} if array.size == prod(shape) else {}
    if {name: array.shape for name, array in arrays.items()} != {name: tuple(shape) for name, shape in shapes.items()}:
        return {}
    levels[module] = levels.get(module, 0) + 1
    for name in unused.keys() - candidates.keys():
        del unused[name]
    return arrays


def _is_filled(arrays: Mapping[str, NDArray[Any]], layer: _Layer) -> bool:
    holder, shapes, _ = layer
    return any(_state_path(holder, name) in arrays for name in shapes)


def _match_unused(unused: Arrays, layers: Sequence[_Layer]) -> Arrays:
    """The remaining arrays for the remaining layers, if each layer fits exactly one module; else empty."""
    modules: dict[str, Arrays] = {}
    for name, array in unused.items():
        path = name.split(".")
        for depth in range(1, len(path)):
            modules.setdefault(".".join(path[:depth]), {})[name] = array
    by_size: dict[int, list[str]] = {}
    for module, arrays in modules.items():
        by_size.setdefault(sum(array.size for array in arrays.values()), []).append(module)
    result: Arrays = {}
    used_names: set[str] = set()
    for holder, shapes, family in layers:
        fitting = []
        for module in by_size.get(sum(map(prod, shapes.values())), ()) if family is not None else ():
            remaining = dict(modules[module])
            read = family.read(_Source(remaining, f"{module}."), shapes) if family is not None else {}
            if not remaining and {name: array.shape for name, array in read.items()} == dict(shapes):
                fitting.append((module, read))
        if len(fitting) != 1 or not used_names.isdisjoint(modules[fitting[0][0]]):
            return {}
        used_names |= modules[fitting[0][0]].keys()
        result |= {_state_path(holder, name): array for name, array in fitting[0][1].items()}
    if used_names != unused.keys():
        return {}
    unused.clear()
    return result


def _exported_module(holder: str) -> str:
    """The module in a node's name from PyTorch's exporter: `layer1.0.conv1` for `layer1/layer1.0/conv1/Conv`.

    The scope of a module in a Sequential or a ModuleList follows the list's scope and begins with it.
    """
    modules: list[str] = []
    for part in holder.split("/")[:-1]:
        if modules and part.startswith(f"{modules[-1]}."):
            modules.pop()
        modules.append(part)
    return ".".join(modules)


class _Source:
    """The arrays below a prefix; arrays that are used are removed, so that the others can be reported."""

    def __init__(self, arrays: Arrays, prefix: str, level: int = 0) -> None:
        self._arrays, self._prefix = arrays, prefix
        self.level = f"_l{level}"
        """Suffix of the names of a layer in a stacked recurrent module."""

    def has(self, *names: str) -> bool:
        return all(self._full_name(name) in self._arrays for name in names)

    def take(self, name: str) -> NDArray[Any]:
        return self._arrays.pop(self._full_name(name))

    def _full_name(self, name: str) -> str:
        return f"{self._prefix}{name}" if name else self._prefix.removesuffix(".")


@dataclass(frozen=True)
class _Family:
    """Layers with the same kinds of states."""

    matches: Callable[[Shapes], bool]
    read: Callable[[_Source, Shapes], Arrays]
    write: Callable[[Mapping[str, NDArray[Any]]], Arrays]


_Layer: TypeAlias = "tuple[str, dict[str, tuple[int, ...]], _Family | None]"
"""The path of a layer, its states by their names within it, and its family."""


# Layers whose states are arrays of PyTorch's under other names.

_NAMES = {
    "kernel": "weight", "gamma": "weight", "scale": "weight", "embeddings": "weight", "alpha": "weight",
    "bias": "bias", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var",
    COUNTERS: COUNTERS,
}  # fmt: skip


def _renamed_read(source: _Source, shapes: Shapes) -> Arrays:
    arrays: Arrays = {}
    for name, shape in shapes.items():
        pytorch_name = _NAMES[name]
        if source.has(pytorch_name):
            array = source.take(pytorch_name)
            array = array.T if name == "kernel" and array.ndim == 2 else array
            arrays[name] = array.reshape(shape) if name == "alpha" and array.size == prod(shape) else array
    return arrays


def _renamed_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    state_dict = {_NAMES[name]: array for name, array in arrays.items()}
    for name, array in arrays.items():
        if name == "kernel" and array.ndim == 2:
            state_dict["weight"] = array.T
        elif name == "alpha":
            state_dict["weight"] = array.reshape(-1)
    if "moving_mean" in arrays:
        state_dict[COUNTERS] = np.rint(arrays.get(COUNTERS, np.zeros(()))).astype("int64")
    return state_dict


def _is_renamed(shapes: Shapes) -> bool:
    pytorch_names = [_NAMES.get(name) for name in shapes]
    return None not in pytorch_names and len(set(pytorch_names)) == len(pytorch_names) and "weight" in pytorch_names


# Parameter: an array with the name of the layer.


def _is_parameter(shapes: Shapes) -> bool:
    return set(shapes) == {"value"}


def _parameter_read(source: _Source, shapes: Shapes) -> Arrays:
    if not source.has(""):
        return {}
    array, shape = source.take(""), shapes["value"]
    return {"value": array.reshape(shape) if array.size == prod(shape) else array}


def _parameter_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    return {"": arrays["value"]}


# Recurrent layers.

_GATES = {4: (0, 1, 2, 3), 3: (1, 0, 2), 1: (0,)}
"""PyTorch's index of each gate in netspec's order, by the number of gates."""
_DIRECTION_SUFFIXES = ("", "_reverse")


_RECURRENT_NAMES = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh", "projection_kernel": "weight_hr"}


def _is_recurrent(shapes: Shapes) -> bool:
    if not {"kernel", "recurrent_kernel"} <= set(shapes) <= {*_RECURRENT_NAMES, "bias"}:
        return False
    gates = _gate_count(shapes)
    return gates in _GATES and ("bias" not in shapes or len(shapes["bias"]) == (2 if gates == 3 else 1))


def _gate_count(shapes: Shapes) -> int:
    """Number of gates of a recurrent layer: columns of the recurrent kernel / units (the rows of a projection)."""
    units = shapes.get("projection_kernel", shapes["recurrent_kernel"])[0]
    return shapes["recurrent_kernel"][1] // units


def _recurrent_read(source: _Source, shapes: Shapes, direction: str = "") -> Arrays:
    suffix = source.level + direction
    gates = _gate_count(shapes)
    arrays: Arrays = {}
    for state, pytorch_name in _RECURRENT_NAMES.items():
        if state in shapes and source.has(pytorch_name + suffix):
            array = source.take(pytorch_name + suffix)
            arrays[state] = (array if state == "projection_kernel" else _gates(array, gates)).T
    if "bias" in shapes and source.has(f"bias_ih{suffix}", f"bias_hh{suffix}"):
        biases = [_gates(source.take(f"{name}{suffix}"), gates) for name in ("bias_ih", "bias_hh")]
        arrays["bias"] = _stacked(biases) if gates == 3 else biases[0] + biases[1]
    return arrays


def _recurrent_write(arrays: Mapping[str, NDArray[Any]], direction: str = "") -> Arrays:
    suffix = f"_l0{direction}"

    gates = _gate_count({name: array.shape for name, array in arrays.items()})
    state_dict = {
        pytorch_name + suffix: arrays[state].T if state == "projection_kernel" else _gates(arrays[state].T, gates)
        for state, pytorch_name in _RECURRENT_NAMES.items()
        if state in arrays
    }
    bias = arrays.get("bias")
    if bias is not None:
        biases = bias if gates == 3 else (bias, np.zeros_like(bias))
        state_dict |= {f"bias_ih{suffix}": _gates(biases[0], gates), f"bias_hh{suffix}": _gates(biases[1], gates)}
    return state_dict


def _gates(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Reorder the gates, parts of the first axis, to the other library's order; the permutation is its own inverse."""
    if array.shape[0] % count:
        return array  # the wrong size, which is reported when shapes are compared
    gates = np.split(array, count)
    return np.concatenate([gates[index] for index in _GATES[count]])


def _stacked(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.stack(arrays) if arrays[0].shape == arrays[1].shape else arrays[0]


def _directions(shapes: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
    """The states of both directions of a Bidirectional layer by direction; empty for other layers."""
    by_direction = _by_holder(shapes)
    has_prefixes = all(
        name.startswith(prefix) for name, prefix in zip(by_direction, ("forward_", "backward_"), strict=False)
    )
    return (
        by_direction
        if len(by_direction) == 2 and has_prefixes and all(map(_is_recurrent, by_direction.values()))
        else {}
    )


def _bidirectional_read(source: _Source, shapes: Shapes) -> Arrays:
    arrays: Arrays = {}
    for (direction, direction_shapes), suffix in zip(_directions(shapes).items(), _DIRECTION_SUFFIXES, strict=True):
        arrays |= {
            f"{direction}/{name}": array for name, array in _recurrent_read(source, direction_shapes, suffix).items()
        }
    return arrays


def _bidirectional_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    state_dict: Arrays = {}
    by_direction = _directions({name: array.shape for name, array in arrays.items()})
    for (direction, direction_shapes), suffix in zip(by_direction.items(), _DIRECTION_SUFFIXES, strict=True):
        state_dict |= _recurrent_write({name: arrays[f"{direction}/{name}"] for name in direction_shapes}, suffix)
    return state_dict


# Attention: four projections, three of which torch.nn.MultiheadAttention stores as one matrix.

_PROJECTIONS = ("query", "key", "value")
_OUTPUT = "attention_output"
_SPELLINGS = {"query": ("q_proj", "query", "q"), "key": ("k_proj", "key", "k"), "value": ("v_proj", "value", "v"),
           _OUTPUT: ("out_proj", "o_proj", _OUTPUT, "out")}  # fmt: skip

_EXTRA_BIASES = ("bias_k", "bias_v")
"""Optional learned key and value of an attention layer, (1, 1, features) in PyTorch."""


def _is_attention(shapes: Shapes) -> bool:
    return set(_by_holder({name: shape for name, shape in shapes.items() if name not in _EXTRA_BIASES})) == {
        *_PROJECTIONS,
        _OUTPUT,
    } and all(len(shapes.get(f"{name}/kernel", ())) == 3 for name in _SPELLINGS)


def _attention_read(source: _Source, shapes: Shapes) -> Arrays:
    flat: Arrays = {name: source.take(name) for name in _EXTRA_BIASES if name in shapes and source.has(name)}
    for pytorch_name, state in (("weight", "kernel"), ("bias", "bias")):
        if source.has(f"in_proj_{pytorch_name}"):
            projections = np.array_split(source.take(f"in_proj_{pytorch_name}"), 3)
            flat |= {f"{name}/{state}": projection for name, projection in zip(_PROJECTIONS, projections, strict=True)}
        for name, spellings in _SPELLINGS.items():
            spelling = next((spelling for spelling in spellings if source.has(f"{spelling}.{pytorch_name}")), None)
            if spelling:
                flat[f"{name}/{state}"] = source.take(f"{spelling}.{pytorch_name}")
    arrays: Arrays = {}
    for name, array in flat.items():
        transposed = array.T if array.ndim == 2 else array
        shape = shapes.get(name)
        arrays[name] = transposed.reshape(shape) if shape is not None and prod(shape) == transposed.size else transposed
    return arrays


def _attention_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    flat: Arrays = {}
    for name, array in arrays.items():
        if name == f"{_OUTPUT}/kernel":
            flat[name] = array.reshape(-1, array.shape[-1]).T
        elif name.endswith("/kernel"):
            flat[name] = array.reshape(array.shape[0], -1).T
        else:
            flat[name] = array.reshape(-1)
    state_dict: Arrays = {name: flat[name].reshape(1, 1, -1) for name in _EXTRA_BIASES if name in flat}
    for state, pytorch_name in (("kernel", "weight"), ("bias", "bias")):
        projections = [flat[f"{name}/{state}"] for name in _PROJECTIONS if f"{name}/{state}" in flat]
        if len(projections) == len(_PROJECTIONS) and len({projection.shape for projection in projections}) == 1:
            state_dict[f"in_proj_{pytorch_name}"] = np.concatenate(projections)
        else:  # projections of different sizes, with the names that PyTorch's users give them
            state_dict |= {
                f"{_SPELLINGS[name][0]}.{pytorch_name}": projection
                for name, projection in zip(_PROJECTIONS, projections, strict=False)
            }
        if f"{_OUTPUT}/{state}" in flat:
            state_dict[f"out_proj.{pytorch_name}"] = flat[f"{_OUTPUT}/{state}"]
    return state_dict


_COMPOSITE_FAMILIES = (
    _Family(_is_attention, _attention_read, _attention_write),
    _Family(lambda shapes: bool(_directions(shapes)), _bidirectional_read, _bidirectional_write),
)
"""Layers that consist of other layers."""
_FAMILIES = (
    _Family(_is_parameter, _parameter_read, _parameter_write),
    _Family(_is_recurrent, _recurrent_read, _recurrent_write),
    _Family(_is_renamed, _renamed_read, _renamed_write),
)


# Names.


def _layers(shapes: Shapes) -> Iterator[_Layer]:
    """The layers that states belong to: path, states by their names within the layer, and family."""
    remaining = dict(shapes)
    parents = {holder.rpartition("/")[0] for holder in _by_holder(shapes) if holder}
    for parent in sorted(parents):
        prefix = f"{parent}/" if parent else ""
        own_shapes = {name.removeprefix(prefix): shape for name, shape in remaining.items() if name.startswith(prefix)}
        family = next((candidate for candidate in _COMPOSITE_FAMILIES if candidate.matches(own_shapes)), None)
        if family is not None:
            remaining = {name: shape for name, shape in remaining.items() if not name.startswith(prefix)}
            yield parent, own_shapes, family
    for holder, own_shapes in _by_holder(remaining).items():
        yield holder, own_shapes, next((candidate for candidate in _FAMILIES if candidate.matches(own_shapes)), None)


def _by_holder(shapes: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
    """States by the part of their names before the last `/`."""
    by_holder: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        holder, _, state = name.rpartition("/")
        by_holder.setdefault(holder, {})[state] = tuple(shape)
    return by_holder


def _state_path(holder: str, name: str) -> str:
    return f"{holder}/{name}" if holder else name


def _dotted(holder: str) -> str:
    return holder.replace("/", ".")


def _state_called(name: str, shapes: Shapes) -> str | None:
    """The net's state with a dotted name, if it exists."""
    return next((state for state in shapes if _dotted(state) == name), None)


def _prefix(names: Mapping[str, Any], holders: Sequence[str]) -> str:
    """The common prefix of all names, with its dot, if the net's layers do not have it; else empty."""
    first_parts = {name.partition(".")[0] for name in names}
    if len(first_parts) != 1:
        return ""
    (first_part,) = first_parts
    return "" if any(_dotted(holder).partition(".")[0] == first_part for holder in holders) else f"{first_part}."
