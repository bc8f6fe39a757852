"""Convert names and shapes of weights between PyTorch and netspec, layer by layer.

The kind of a layer follows from its states: a `kernel` of two axes belongs to torch.nn.Linear; together with a
`recurrent_kernel`, to LSTM, GRU or RNN; and so on. Formulas of the recurrent layers: the pages of
torch.nn.LSTM, GRU and RNN; gates are i, f, g, o there and i, f, c, o here; r, z, n there and z, r, h here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"
COUNTERS = "num_batches_tracked"
"""Number of batches that a BatchNorm has seen, which only matters without a momentum."""

OPTIMIZER_STATE = "optimizer.state."
"""Prefix of the names of optimizer states, in a file that contains them in addition to the weights."""


def from_state_dict(given: Mapping[str, NDArray[Any]], wanted: Shapes) -> Arrays:
    """The arrays of a state dict by netspec's names. Arrays without a counterpart keep their names.

    `wanted` are the shapes of a net's states by name. A layer `block/conv` is PyTorch's `block.conv`; names may have a
    prefix in common that the net does not know (`module.`, of DataParallel). Layers of other names, as those that make
    outputs of an ONNX model, get what is left over where each fits one module alone and nothing remains.
    """
    counts = any(name.rpartition("/")[2] == COUNTERS for name in wanted)
    left = {name: array for name, array in given.items() if counts or not _is_counter(name)}
    layers = list(_layers(wanted))
    found: Arrays = {}
    prefix = _prefix(left, [holder for holder, _, _ in layers])
    levels: dict[str, int] = {}
    for holder, shapes, family in layers:
        if family is not None:
            path = f"{prefix}{_dotted(holder)}." if holder else prefix
            made = family.read(_Source(left, path), shapes) or _of_module(left, prefix, holder, shapes, family, levels)
            found |= {_joined(holder, name): array for name, array in made.items()}
    found |= _left_over(left, [layer for layer in layers if not _has(found, layer)])
    for name in [name for name in left if name in wanted or _slashed(name, wanted)]:
        found[_slashed(name, wanted) or name] = left.pop(name)
    return found | {name: array for name, array in left.items() if not _is_counter(name)}


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == COUNTERS


def to_state_dict(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """States by PyTorch's names, in its shapes; those of layers that it does not have keep their own."""
    return {name: array for _, name, array in _written(arrays)}


def collisions(shapes: Shapes) -> list[tuple[str, str, str]]:
    """Names of a state dict that two layers would both have, each with the paths of the two: `(one, other, name)`."""
    import numpy as np

    holders: dict[str, str] = {}
    found = []
    nothing = np.zeros((), "int8")  # what is written is looked at by its name alone
    for holder, name, _ in _written({state: np.broadcast_to(nothing, shape) for state, shape in shapes.items()}):
        other = holders.setdefault(name, holder)
        if other != holder:
            found.append((other, holder, name))
    return found


def _written(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """The path of each layer with the arrays that are written of it, by their whole names."""
    for holder, own, family in _layers({name: array.shape for name, array in arrays.items()}):
        of_holder = {name: arrays[_joined(holder, name)] for name in own}
        for name, array in (family.write(of_holder) if family else of_holder).items():
            yield holder, f"{_dotted(holder)}.{name}" if holder else name, array


def _of_module(
    left: Arrays, prefix: str, holder: str, shapes: Shapes, family: _Family, levels: dict[str, int]
) -> Arrays:  # fmt: skip
    """The arrays of the module that a layer was exported from, if all exist and fit.

    `levels` counts the layers of one module: a recurrent one has several, one upon another.
    """
    module = _module(holder)
    if not module:
        return {}
    rest, path = dict(left), f"{prefix}{module}."
    made = family.read(_Source(rest, path, levels.get(module, 0)), shapes)
    own = [name for name in left if name.startswith(path) and "." not in name.removeprefix(path)]
    if not made and len(own) == len(shapes) == 1:  # a parameter that the module has itself, whatever it is called
        ((state, shape),) = shapes.items()
        array = rest.pop(own[0])
        made = {state: array.reshape(shape)} if array.size == prod(shape) else {}
    if {name: array.shape for name, array in made.items()} != {name: tuple(shape) for name, shape in shapes.items()}:
        return {}
    levels[module] = levels.get(module, 0) + 1
    for name in left.keys() - rest.keys():
        del left[name]
    return made


def _has(found: Mapping[str, NDArray[Any]], layer: _Layer) -> bool:
    holder, shapes, _ = layer
    return any(_joined(holder, name) in found for name in shapes)


def _left_over(left: Arrays, layers: Sequence[_Layer]) -> Arrays:
    """The arrays of the modules that are left, for the layers that are: each of one that no other fits, or nothing."""
    modules: dict[str, Arrays] = {}
    for name, array in left.items():
        parts = name.split(".")
        for depth in range(1, len(parts)):
            modules.setdefault(".".join(parts[:depth]), {})[name] = array
    by_size: dict[int, list[str]] = {}
    for path, arrays in modules.items():
        by_size.setdefault(sum(array.size for array in arrays.values()), []).append(path)
    made: Arrays = {}
    used: set[str] = set()
    for holder, shapes, family in layers:
        fitting = []
        for path in by_size.get(sum(map(prod, shapes.values())), ()) if family is not None else ():
            rest = dict(modules[path])
            read = family.read(_Source(rest, f"{path}."), shapes) if family is not None else {}
            if not rest and {name: array.shape for name, array in read.items()} == dict(shapes):
                fitting.append((path, read))
        if len(fitting) != 1 or not used.isdisjoint(modules[fitting[0][0]]):
            return {}
        used |= modules[fitting[0][0]].keys()
        made |= {_joined(holder, name): array for name, array in fitting[0][1].items()}
    if used != left.keys():
        return {}
    left.clear()
    return made


def _module(holder: str) -> str:
    """The module in a node's name from PyTorch's exporter: `layer1.0.conv1` for `layer1/layer1.0/conv1/Conv`.

    The scope of a module in a Sequential or a ModuleList follows the list's scope and begins with it.
    """
    parts: list[str] = []
    for part in holder.split("/")[:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts)


class _Source:
    """The arrays below a prefix; those that are used are removed, so that the rest can be reported."""

    def __init__(self, arrays: Arrays, prefix: str, level: int = 0) -> None:
        self._arrays, self._prefix = arrays, prefix
        self.level = f"_l{level}"
        """Endings of the names of a recurrent layer."""

    def has(self, *names: str) -> bool:
        return all(f"{self._prefix}{name}" in self._arrays for name in names)

    def take(self, name: str) -> NDArray[Any]:
        return self._arrays.pop(f"{self._prefix}{name}")


@dataclass(frozen=True)
class _Family:
    """Layers with the same kinds of states."""

    is_of: Callable[[Shapes], bool]
    read: Callable[[_Source, Shapes], Arrays]
    write: Callable[[Mapping[str, NDArray[Any]]], Arrays]


_Layer: TypeAlias = "tuple[str, dict[str, tuple[int, ...]], _Family | None]"
"""The path of a layer, its states by their names within it, and what it is."""


# Layers whose states are arrays of PyTorch's under other names.

_NAMES = {
    "kernel": "weight", "gamma": "weight", "scale": "weight", "embeddings": "weight", "alpha": "weight",
    "bias": "bias", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var",
    COUNTERS: COUNTERS,
}  # fmt: skip


def _renamed_read(source: _Source, shapes: Shapes) -> Arrays:
    made: Arrays = {}
    for name, shape in shapes.items():
        theirs = _NAMES[name]
        if source.has(theirs):
            array = source.take(theirs)
            array = array.T if name == "kernel" and array.ndim == 2 else array
            made[name] = array.reshape(shape) if name == "alpha" and array.size == prod(shape) else array
    return made


def _renamed_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    import numpy as np

    made = {_NAMES[name]: array for name, array in arrays.items()}
    for name, array in arrays.items():
        if name == "kernel" and array.ndim == 2:
            made["weight"] = array.T
        elif name == "alpha":
            made["weight"] = array.reshape(-1)
    if "moving_mean" in arrays:
        made[COUNTERS] = np.rint(arrays.get(COUNTERS, np.zeros(()))).astype("int64")
    return made


def _is_renamed(shapes: Shapes) -> bool:
    theirs = [_NAMES.get(name) for name in shapes]
    return None not in theirs and len(set(theirs)) == len(theirs) and "weight" in theirs


# Recurrent layers.

_GATES = {4: (0, 1, 2, 3), 3: (1, 0, 2), 1: (0,)}
"""PyTorch's index of each gate in netspec's order, by the number of gates."""
_DIRECTIONS = ("", "_reverse")


_RECURRENT = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh", "projection_kernel": "weight_hr"}


def _is_recurrent(shapes: Shapes) -> bool:
    if not {"kernel", "recurrent_kernel"} <= set(shapes) <= {*_RECURRENT, "bias"}:
        return False
    gates = _gate_count(shapes)
    return gates in _GATES and ("bias" not in shapes or len(shapes["bias"]) == (2 if gates == 3 else 1))


def _gate_count(shapes: Shapes) -> int:
    """Number of gates of a recurrent layer: columns of the recurrent kernel / units (the rows of a projection)."""
    units = shapes.get("projection_kernel", shapes["recurrent_kernel"])[0]
    return shapes["recurrent_kernel"][1] // units


def _recurrent_read(source: _Source, shapes: Shapes, way: str = "") -> Arrays:
    suffix = source.level + way
    gates = _gate_count(shapes)
    made: Arrays = {}
    for ours, theirs in _RECURRENT.items():
        if ours in shapes and source.has(theirs + suffix):
            array = source.take(theirs + suffix)
            made[ours] = (array if ours == "projection_kernel" else _gates(array, gates)).T
    if "bias" in shapes and source.has(f"bias_ih{suffix}", f"bias_hh{suffix}"):
        both = [_gates(source.take(f"{name}{suffix}"), gates) for name in ("bias_ih", "bias_hh")]
        made["bias"] = _stacked(both) if gates == 3 else both[0] + both[1]
    return made


def _recurrent_write(arrays: Mapping[str, NDArray[Any]], way: str = "") -> Arrays:
    import numpy as np

    suffix = f"_l0{way}"

    gates = _gate_count({name: array.shape for name, array in arrays.items()})
    made = {
        theirs + suffix: arrays[ours].T if ours == "projection_kernel" else _gates(arrays[ours].T, gates)
        for ours, theirs in _RECURRENT.items()
        if ours in arrays
    }
    bias = arrays.get("bias")
    if bias is not None:
        both = bias if gates == 3 else (bias, np.zeros_like(bias))
        made |= {f"bias_ih{suffix}": _gates(both[0], gates), f"bias_hh{suffix}": _gates(both[1], gates)}
    return made


def _gates(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The gates, which are parts of the first axis, in the other library's order (the exchange is its own inverse)."""
    import numpy as np

    if array.shape[0] % count:
        return array  # differs in size from the net's: reported when shapes are compared
    parts = np.split(array, count)
    return np.concatenate([parts[place] for place in _GATES[count]])


def _stacked(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return np.stack(arrays) if arrays[0].shape == arrays[1].shape else arrays[0]


def _two_ways(shapes: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
    """The states of both directions of a Bidirectional layer, by the name of each."""
    ways = _by_holder(shapes)
    named = all(name.startswith(way) for name, way in zip(ways, ("forward_", "backward_"), strict=False))
    return ways if len(ways) == 2 and named and all(map(_is_recurrent, ways.values())) else {}


def _two_ways_read(source: _Source, shapes: Shapes) -> Arrays:
    made: Arrays = {}
    for (way, own), end in zip(_two_ways(shapes).items(), _DIRECTIONS, strict=True):
        made |= {f"{way}/{name}": array for name, array in _recurrent_read(source, own, end).items()}
    return made


def _two_ways_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    made: Arrays = {}
    ways = _two_ways({name: array.shape for name, array in arrays.items()})
    for (way, own), suffix in zip(ways.items(), _DIRECTIONS, strict=True):
        made |= _recurrent_write({name: arrays[f"{way}/{name}"] for name in own}, suffix)
    return made


# Attention: four projections, three of which PyTorch's own layer keeps as one.

_PROJECTIONS = ("query", "key", "value")
_OUTPUT = "attention_output"
_OTHERS = {"query": ("q_proj", "query", "q"), "key": ("k_proj", "key", "k"), "value": ("v_proj", "value", "v"),
           _OUTPUT: ("out_proj", "o_proj", _OUTPUT, "out")}  # fmt: skip

_EXTRA = ("bias_k", "bias_v")
"""Optional learned key and value of an attention layer, (1, 1, features) in PyTorch."""


def _is_attention(shapes: Shapes) -> bool:
    return set(_by_holder({name: shape for name, shape in shapes.items() if name not in _EXTRA})) == {
        *_PROJECTIONS,
        _OUTPUT,
    } and all(len(shapes.get(f"{name}/kernel", ())) == 3 for name in _OTHERS)


def _attention_read(source: _Source, shapes: Shapes) -> Arrays:
    import numpy as np

    found: Arrays = {name: source.take(name) for name in _EXTRA if name in shapes and source.has(name)}
    for theirs, ours in (("weight", "kernel"), ("bias", "bias")):
        if source.has(f"in_proj_{theirs}"):
            parts = np.array_split(source.take(f"in_proj_{theirs}"), 3)
            found |= {f"{name}/{ours}": part for name, part in zip(_PROJECTIONS, parts, strict=True)}
        for name, others in _OTHERS.items():
            other = next((other for other in others if source.has(f"{other}.{theirs}")), None)
            if other:
                found[f"{name}/{ours}"] = source.take(f"{other}.{theirs}")
    made: Arrays = {}
    for name, array in found.items():
        turned = array.T if array.ndim == 2 else array
        shape = shapes.get(name)
        made[name] = turned.reshape(shape) if shape is not None and prod(shape) == turned.size else turned
    return made


def _attention_write(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    import numpy as np

    flat: Arrays = {}
    for name, array in arrays.items():
        if name == f"{_OUTPUT}/kernel":
            flat[name] = array.reshape(-1, array.shape[-1]).T
        elif name.endswith("/kernel"):
            flat[name] = array.reshape(array.shape[0], -1).T
        else:
            flat[name] = array.reshape(-1)
    made: Arrays = {name: flat[name].reshape(1, 1, -1) for name in _EXTRA if name in flat}
    for ours, theirs in (("kernel", "weight"), ("bias", "bias")):
        parts = [flat[f"{name}/{ours}"] for name in _PROJECTIONS if f"{name}/{ours}" in flat]
        if len(parts) == len(_PROJECTIONS) and len({part.shape for part in parts}) == 1:
            made[f"in_proj_{theirs}"] = np.concatenate(parts)
        else:  # heads of other sizes, as PyTorch's users write them by hand
            made |= {f"{_OTHERS[name][0]}.{theirs}": part for name, part in zip(_PROJECTIONS, parts, strict=False)}
        if f"{_OUTPUT}/{ours}" in flat:
            made[f"out_proj.{theirs}"] = flat[f"{_OUTPUT}/{ours}"]
    return made


_OF_SEVERAL = (
    _Family(_is_attention, _attention_read, _attention_write),
    _Family(lambda shapes: bool(_two_ways(shapes)), _two_ways_read, _two_ways_write),
)
"""Layers that hold others."""
_SINGLE = (
    _Family(_is_recurrent, _recurrent_read, _recurrent_write),
    _Family(_is_renamed, _renamed_read, _renamed_write),
)


# Names.


def _layers(shapes: Shapes) -> Iterator[_Layer]:
    """The layers that states belong to: the path of each, its states by their names within it, and what it is."""
    left = dict(shapes)
    parents = {holder.rpartition("/")[0] for holder in _by_holder(shapes) if holder}
    for parent in sorted(parents):
        below = f"{parent}/" if parent else ""
        own = {name.removeprefix(below): shape for name, shape in left.items() if name.startswith(below)}
        family = next((one for one in _OF_SEVERAL if one.is_of(own)), None)
        if family is not None:
            left = {name: shape for name, shape in left.items() if not name.startswith(below)}
            yield parent, own, family
    for holder, own in _by_holder(left).items():
        yield holder, own, next((one for one in _SINGLE if one.is_of(own)), None)


def _by_holder(shapes: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
    """States by what stands before the last `/` of their names."""
    deep: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        holder, _, own = name.rpartition("/")
        deep.setdefault(holder, {})[own] = tuple(shape)
    return deep


def _joined(holder: str, name: str) -> str:
    return f"{holder}/{name}" if holder else name


def _dotted(holder: str) -> str:
    return holder.replace("/", ".")


def _slashed(name: str, wanted: Shapes) -> str | None:
    """The net's state that a dotted name means, if there is one."""
    return next((one for one in wanted if _dotted(one) == name), None)


def _prefix(given: Mapping[str, Any], holders: Sequence[str]) -> str:
    """The common prefix of all names that the net's layers do not have, with its dot."""
    firsts = {name.partition(".")[0] for name in given}
    if len(firsts) != 1:
        return ""
    (first,) = firsts
    return "" if any(_dotted(holder).partition(".")[0] == first for holder in holders) else f"{first}."
