"""A layer as an importer writes it down, built as far as its shapes go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from netspec.errors import NetspecError
from netspec.exchange.onnx_import.inputs import INPUT_TYPES
from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.graph.types import DType
from netspec.graph.value import ShapeMismatch, Value, in_scope
from netspec.layers.base import Builder, LayerSpec
from netspec.schema.kinds import LAYERS
from netspec.schema.names import snake_case

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class Layer:
    """A layer as it will be written: fields that differ from their defaults, parameters, and the tensors it joins."""

    type: str
    fields: dict[str, Any]
    inputs: tuple[str, ...]
    output: str
    node: Node
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    name: str = ""
    sources: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    """Of a layer with several outputs: the tensor that each is, the first too, and the output's name."""

    renamed: bool = False
    """Whether an output of the model is the first of such a layer, and so has the name of its tensor."""

    @property
    def stem(self) -> str:
        """What a layer with several outputs is called: `split`, which `split/Split` makes, as netspec writes it.

        Where the node has no name, as its first tensor, or as its type where an output of the model has that name.
        """
        name = self.node.called
        told = name.removesuffix(f"/{self.node.op_type}") if name else ""
        return told or (snake_case(self.type) if self.renamed else self.outputs[0][0])

    def same_as(self, other: Layer) -> bool:
        """Whether another layer computes the same: type, fields, what it reads, and weights."""
        import numpy as np

        told = (self.type, self.fields, self.inputs) == (other.type, other.fields, other.inputs)
        return (
            told
            and self.arrays.keys() == other.arrays.keys()
            and all(
                array is other.arrays[name]
                or np.array_equal(array, other.arrays[name], equal_nan=array.dtype.kind == "f")
                for name, array in self.arrays.items()
            )
        )

    @property
    def applies_activation(self) -> bool:
        """Whether layers of this type apply their field `activation` to what they make, by default none.

        That of a recurrent layer is within its steps.
        """
        known = LAYERS[self.type].model_fields.get("activation")
        return known is not None and known.default is None


def built(
    type_: str, values: Sequence[Value], fields: Mapping[str, Any], weights: Mapping[str, NDArray[Any]]
) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    """Names of the layer's outputs, as `output_names` gives them, and their values."""
    try:
        spec = LAYERS[type_].model_validate({"type": type_, **fields})
        assert isinstance(spec, LayerSpec)
        builder = Builder(training=False, dtype=DType.FLOAT32)
        with in_scope(builder.enter(spec, "layer")):
            made = spec.build(builder, *values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Unsupported(f"{type_} does not take it: {place}: {first['msg']}") from None
    except ShapeMismatch as error:
        raise Unsupported(f"{type_} does not fit: {error.message} (got {error.got})") from None
    except NetspecError as error:
        raise Unsupported(f"{type_} does not fit: {error.summary}") from None
    wanted = {name.removeprefix("layer/"): info.value.shape for name, info in builder.states.items()}
    given = {name: array.shape for name, array in weights.items()}
    if wanted != given:
        raise Unsupported(f"{type_} needs weights of shapes {wanted}, these are {given}")
    for name, info in builder.states.items():
        have, kind = weights[name.removeprefix("layer/")].dtype, info.value.dtype
        if have != str(kind):
            raise Unsupported(f"its weights are {have}, not {'floating-point numbers' if kind.is_float else kind}")
    return spec.output_names(), made if isinstance(made, tuple) else (made,)


def held_as(array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """The element type that a layer holds a constant in, and the numbers in it. Raises `Unsupported`."""
    import numpy as np

    name = INPUT_TYPES.get(str(array.dtype))
    if name is None:
        raise Unsupported(f"a constant of {array.dtype}")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo("int64").max:
        raise Unsupported("a constant of whole numbers beyond int64")
    return name, np.asarray(array, name, order="C")
