"""Fields as Keras's configurations have them: initializers, regularizers, constraints, functions, layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netspec.exchange.formats.keras.exporting.model import FLOAT, LAYERS, object_json
from netspec.exchange.formats.keras.names import (
    DATA_FORMAT,
    SPATIAL_WITHOUT_FORMAT,
    KerasVariable,
    unique_names,
    variables,
)
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.layers.activation.base import ActivationSpec
from netspec.layers.base import LayerSpec
from netspec.layers.constraints import ConstraintSpec
from netspec.layers.recurrent.cells import CellSpec
from netspec.layers.regularizers import RegularizerSpec
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.names import snake_case
from netspec.schema.specs.spec import Spec

COMMON = frozenset(LayerFields.model_fields) | {"type"}
"""Fields that all layers have; `layer_config` writes those that Keras's layers have too."""
INITIALIZERS_WITHOUT_COUNTERPART = ("Bilinear", "PositiveUnitball")
"""Initializers that Keras lacks. The file has weights, so that Keras's default only matters if the model is reset."""


ABSENT: Mapping[str, tuple[str, ...]] = {
    **{f"Conv{rank}DTranspose": ("groups",) for rank in (1, 2, 3)},
    **{f"MaxPooling{rank}D": ("dilation_rate", "ceil_mode") for rank in (1, 2, 3)},
    **{f"AveragePooling{rank}D": ("dilation_rate", "ceil_mode", "count_include_pad") for rank in (1, 2, 3)},
    **dict.fromkeys(("LSTM", "LSTMCell"), ("projection_units", "projection_initializer", "projection_regularizer",
                                           "projection_constraint")),
    "MultiHeadAttention": ("add_bias_kv", "add_zero_attn"),
    "RMSNormalization": ("scale_initializer", "scale_regularizer", "scale_constraint"),
}  # fmt: skip
"""Fields of layers that Keras's layers of the same name do not have."""


def layer_config(
    layer: LayerFields | CellSpec, name: str, shapes: Mapping[str, tuple[int, ...]], *without: str
) -> dict[str, Any]:
    """The configuration of a layer in Keras; `shapes` are those of its states.

    Fields in `without` are not written. Raises `UnsupportedFeature` for the first value that Keras does not have.
    """
    config: dict[str, Any] = {"name": name, "dtype": FLOAT}
    if not getattr(layer, "trainable", True):
        config["trainable"] = False
    penalty = getattr(layer, "activity_regularizer", None)
    if penalty is not None:
        config["activity_regularizer"] = _entry("keras.regularizers", penalty)
    variables_by_state = (
        {variable.state: variable for variable in variables(layer, shapes)} if isinstance(layer, LayerFields) else {}
    )
    for key in type(layer).model_fields:
        if key in COMMON or key in without:
            continue
        value = getattr(layer, key)
        if key in ABSENT.get(_type(layer), ()):
            if not key.endswith("initializer") and value != type(layer).model_fields[key].default:
                raise UnsupportedFeature(f"Keras's {_type(layer)} has no `{key}`")
        elif isinstance(value, ConstraintSpec):
            state = key.removesuffix("_constraint")
            if state in variables_by_state:
                config[key] = _constraint(value, variables_by_state[state], len(shapes[state]))
        elif not (key.endswith("initializer") and _keras_lacks(value)):
            config[key] = to_json(value, name)
    return config


def to_json(value: Any, name: str = "") -> Any:
    """A value as JSON; `name` is that of its layer."""
    if isinstance(value, ActivationSpec):
        return parameterless_function(value)
    if isinstance(value, LayerSpec):
        return nested_layer(value, f"{name}_{snake_case(_type(value))}")
    if isinstance(value, CellSpec):
        return _nested_cell(value, f"{name}_{snake_case(_type(value))}")
    if isinstance(value, RegularizerSpec):
        return _entry("keras.regularizers", value)
    if isinstance(value, Spec):
        return _entry("keras.initializers", value)
    if isinstance(value, (list, tuple)):
        return [to_json(item, name) for item in value]
    return value


def nested_layer(layer: LayerSpec, name: str) -> dict[str, Any]:
    """The configuration of a layer in a field of another layer."""
    return object_json(LAYERS, _type(layer), {**layer_config(layer, name, {}), **data_format(layer)})


def data_format(layer: LayerFields) -> dict[str, str]:
    """The `data_format` of a layer that has one."""
    type_ = _type(layer)
    return (
        {"data_format": "channels_last"} if DATA_FORMAT.fullmatch(type_) and type_ not in SPATIAL_WITHOUT_FORMAT else {}
    )


def _nested_cell(cell: CellSpec, name: str) -> dict[str, Any]:
    config = layer_config(cell, name, {}, "cells")
    cells: Iterable[CellSpec] | None = getattr(cell, "cells", None)
    if cells is not None:
        cells = list(cells)
        names = unique_names(f"{name}_{snake_case(_type(cell))}" for cell in cells)
        config["cells"] = [_nested_cell(cell, cell_name) for cell, cell_name in zip(cells, names, strict=True)]
    return object_json(LAYERS, _type(cell), config)


def parameterless_function(spec: ActivationSpec) -> str:
    """The name of an activation function. Raises `UnsupportedFeature` if fields differ from their defaults."""
    changed = function_fields(spec)
    if changed:
        fields = ", ".join(f"{key}: {value}" for key, value in changed.items())
        raise UnsupportedFeature(f"Keras's function `{_type(spec)}` has fixed constants, not `{fields}`")
    return function_name(spec)


def function_name(spec: ActivationSpec) -> str:
    """The name of an activation function in Keras. Raises `UnsupportedFeature` if the function differs there."""
    if _type(spec) == "sparsemax":
        raise UnsupportedFeature("Keras's `sparsemax` has a bug: its result does not sum to 1")
    return _type(spec)


def function_fields(spec: ActivationSpec) -> dict[str, Any]:
    """The fields of an activation function that are not its defaults."""
    fields = {key: field.default for key, field in type(spec).model_fields.items() if key != "type"}
    return {key: getattr(spec, key) for key, default in fields.items() if getattr(spec, key) != default}


def _keras_lacks(value: Any) -> bool:
    return _type(value) in INITIALIZERS_WITHOUT_COUNTERPART or getattr(value, "sparse", None) is not None


def _constraint(spec: ConstraintSpec, variable: KerasVariable, rank: int) -> dict[str, Any]:
    """A constraint, with its axes in the order of Keras's kernels."""
    entry = _entry("keras.constraints", spec)
    if "axis" in entry["config"]:
        axes = getattr(spec, "axis", None)
        net_axes = axes if axes is not None else tuple(range(1, rank)) if rank > 2 else (0,)
        channel_axes = {0: rank - 1, 1: rank - 2} if variable.kind == "kernel" else {}
        window_axes = {axis: axis - 2 for axis in range(2, rank)} if variable.kind == "kernel" else {}
        entry["config"]["axis"] = sorted(
            {**channel_axes, **window_axes}.get(axis % rank, axis % rank) for axis in net_axes
        )
    return entry


def _entry(module: str, spec: Spec) -> dict[str, Any]:
    config = {key: to_json(getattr(spec, key)) for key in type(spec).model_fields if key not in ("type", "sparse")}
    return object_json(module, _type(spec), config)


def _type(spec: Any) -> str:
    return str(getattr(spec, "type", ""))
