"""Build a layer of an imported net, to know the types of its outputs and states, and whether it fits its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from netspec.errors import NetspecError
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, Value, in_scope
from netspec.layers.base import Builder, LayerSpec
from netspec.schema.specs.kinds import LAYERS


@dataclass(frozen=True)
class BuiltLayer:
    """A layer with the values that it reads and computes."""

    spec: LayerSpec
    inputs: Sequence[Value]
    outputs: tuple[Value, ...]
    states: dict[str, TensorType]
    """Types of its states by their names within the layer."""
    masks: tuple[Value | None, ...]
    """The mask of each output."""


def build_layer(
    type_: str, fields: Mapping[str, Any], inputs: Sequence[Value], masks: Sequence[Value | None] = ()
) -> BuiltLayer:
    """Build a layer for inputs with these masks. Raises `UnsupportedFeature` if its fields or the inputs do not fit."""
    builder = Builder(training=False, dtype=DType.FLOAT32)
    try:
        spec = LAYERS[type_].model_validate({"type": type_, **fields})
        assert isinstance(spec, LayerSpec)
        with in_scope(builder.enter(spec, "layer", masks)):
            outputs = spec.build(builder, *inputs)
        output_masks = spec.mask(builder, *inputs)
    except ValidationError as error:
        raise invalid_field(type_, error) from None
    except ShapeMismatch as error:
        raise UnsupportedFeature(f"{type_} does not fit: {error.message} (got {error.got})"[:300]) from None
    except NetspecError as error:
        raise UnsupportedFeature(f"{type_} does not fit: {error.summary}"[:300]) from None
    except TypeError as error:  # a wrong number of inputs
        raise UnsupportedFeature(f"{type_} does not fit: {error}"[:300]) from None
    states = {name.removeprefix("layer/"): info.value.type for name, info in builder.states.items()}
    return BuiltLayer(
        spec, inputs, outputs if isinstance(outputs, tuple) else (outputs,), states,
        output_masks if isinstance(output_masks, tuple) else (output_masks,),
    )  # fmt: skip


def invalid_field(type_: str, error: ValidationError) -> UnsupportedFeature:
    """The reason why a type does not take fields."""
    first = error.errors()[0]
    path, reason = ".".join(str(part) for part in first["loc"]), first["msg"]
    if path:
        verb = " is" if reason.startswith("not ") else "" if reason.startswith("has ") else ":"
        reason = f"`{path}`{verb} {reason}"
    got = first.get("ctx", {}).get("got")
    return UnsupportedFeature((f"{type_} does not take it: {reason}" + (f", got {got}" if got else ""))[:300])
