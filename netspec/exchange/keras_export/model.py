"""A Keras model as plain data: layers, their calls and variables, in the order and under the paths that its files have.

Nothing here needs Keras or HDF5. What a file must look like is told by Keras 3.15's `saving_lib`, `functional` and
`function.map_graph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.keras_names import keras_snake, numbered

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAYERS, OPS_NN, OPS_NUMPY = "keras.layers", "keras.src.ops.nn", "keras.src.ops.numpy"
OPS_CORE, OPS_MATH, OPS_LINALG = "keras.src.ops.core", "keras.src.ops.math", "keras.src.ops.linalg"
"""The modules that classes are in, as files name them."""
FLOAT = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": None}

Arguments: TypeAlias = "tuple[list[Any], dict[str, Any]]"
"""Of a call: by place and by name; tensors, lists of them, and plain values."""


@dataclass(frozen=True)
class Tensor:
    """A result of a call in the model, and how it lies there."""

    layer: str
    call: int
    index: int
    shape: tuple[int, ...]
    """Sizes as Keras has them, without the batch."""
    dtype: str
    order: tuple[int, ...]
    """For each axis in Keras, the batch included, the axis that it is in the net."""
    rows: Tensor | None = None
    """Of numbers that were laid out in a row in Keras's order: the tensor that they were."""

    @property
    def plain(self) -> bool:
        """Whether it lies as it does in the net."""
        return self.rows is None and self.order == tuple(range(len(self.order)))

    def axis(self, axis: int) -> int:
        """Where an axis of the net lies in Keras; a negative one counts from the last."""
        return self.order.index(axis % len(self.order))

    def described(self) -> dict[str, Any]:
        """As files have it."""
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
    """What its class is called in Keras's code, where the name it is known by is another: paths have that."""
    calls: list[Arguments] = field(default_factory=list)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """By the path within the layer's group: `vars/0`."""

    @property
    def has_group(self) -> bool:
        """Whether files of weights have a group for it: operations have none."""
        return self.module == LAYERS

    def described(self) -> dict[str, Any]:
        """As files have it."""
        return {
            "module": self.module,
            "class_name": self.class_name,
            "config": self.config,
            "registered_name": None if self.has_group else self.class_name,
            "name": self.name,
            "inbound_nodes": [
                {"args": _described(args), "kwargs": _described(kwargs)} for args, kwargs in self.calls
            ],
        }  # fmt: skip


@dataclass
class KerasModel:
    """A functional model."""

    name: str
    layers: dict[str, KerasLayer] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    compiled: dict[str, Any] = field(default_factory=dict)
    """What it is compiled with: the optimizer, losses and metrics; nothing where no training is told."""
    optimizer: list[NDArray[Any]] = field(default_factory=list)
    """The variables of the optimizer in Keras's order; none where it has yet to begin."""

    def described(self) -> dict[str, Any]:
        """The configuration, as `config.json` has it."""

        def ends(tensors: Sequence[Tensor]) -> list[Any]:
            found: list[Any] = [[one.layer, one.call, one.index] for one in tensors]
            return found[0] if len(found) == 1 else found

        config = {
            "name": self.name,
            "trainable": True,
            "layers": [layer.described() for layer in self.ordered()],
            "input_layers": ends(self.inputs),
            "output_layers": ends(self.outputs),
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
        tracked = [layer for layer in self.ordered() if layer.has_group]
        names = numbered(keras_snake(layer.python_name or layer.class_name) for layer in tracked)
        return dict(zip(names, tracked, strict=True))

    def ordered(self) -> list[KerasLayer]:
        """The layers in the order that Keras gives them: by how far they are from the outputs, the farthest first.

        Those that are as far are in the order in which a search from the outputs meets them.
        """
        met: dict[str, int] = {}
        calls: list[tuple[str, int]] = []  # each after those that it reads
        done: set[tuple[str, int]] = set()
        for output in self.outputs:
            stack: list[tuple[tuple[str, int], Iterator[Tensor]]] = []
            self._enter((output.layer, output.call), stack, met, done)
            while stack:
                call, parents = stack[-1]
                parent = next(parents, None)
                if parent is not None:
                    self._enter((parent.layer, parent.call), stack, met, done)
                else:
                    stack.pop()
                    done.add(call)
                    calls.append(call)
        far_calls: dict[tuple[str, int], int] = {}
        far: dict[str, int] = {}
        for call in reversed(calls):
            depth = max(far_calls.get(call, 0), far.get(call[0], 0))
            far_calls[call] = far[call[0]] = depth
            for parent in self._parents(call):
                key = (parent.layer, parent.call)
                far_calls[key] = max(far_calls.get(key, 0), depth + 1)
        return [self.layers[name] for name in sorted(met, key=lambda name: (-far[name], met[name]))]

    def _enter(
        self,
        call: tuple[str, int],
        stack: list[tuple[tuple[str, int], Iterator[Tensor]]],
        met: dict[str, int],
        done: set[tuple[str, int]],
    ) -> None:
        if call not in done:
            met.setdefault(call[0], len(met))
            stack.append((call, self._parents(call)))

    def _parents(self, call: tuple[str, int]) -> Iterator[Tensor]:
        name, index = call
        calls = self.layers[name].calls
        return tensors_in(calls[index]) if calls else iter(())


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors among the arguments of a call, in Keras's order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from tensors_in(value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.described()
    if isinstance(value, Mapping):
        return {key: _described(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_described(one) for one in value]
    if isinstance(value, slice):
        return {"class_name": "__slice__", "config": {end: getattr(value, end) for end in ("start", "stop", "step")}}
    if hasattr(value, "tolist"):
        return {"class_name": "__numpy__", "config": {"value": value.tolist(), "dtype": str(value.dtype)}}
    return value
