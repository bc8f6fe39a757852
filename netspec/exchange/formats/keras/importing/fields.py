"""Convert the configuration of a Keras layer to fields of the netspec layer. Only keys that differ are listed.

Initializers, regularizers, constraints, activations, cells and layers in fields are configurations too, which the
registry of the field's type identifies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from netspec.errors import NetspecError
from netspec.exchange.formats.keras.names import IGNORED_KEYS, builtin
from netspec.exchange.layer_builder import invalid_field
from netspec.exchange.notes import Notes
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.layers.recurrent.cells import CellSpec
from netspec.schema.specs.kinds import ACTIVATIONS, CELLS, LAYERS, REGULARIZERS
from netspec.schema.specs.spec import Member, Registry

KERAS_PACKAGES = ("keras", "tf_keras", "tensorflow", "builtins", "")
"""Packages whose classes are Keras's own."""
_RUNS_CODE = ("Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")


@dataclass
class ReadContext:
    """Facts about the file that is read, and notes for the user."""

    major: int = 3
    version: str = ""
    """The version of Keras that wrote the file; empty if the file does not state it."""
    notes: Notes = field(default_factory=Notes)

    @property
    def standalone(self) -> bool:
        """Whether the standalone package of Keras 1 or 2 (up to 2.3) wrote the file, not TensorFlow's Keras."""
        version_parts = self.version.split(".")[:2]
        return (
            all(part.isdigit() for part in version_parts)
            and [*map(int, version_parts)] < [2, 4]
            and not self.version.endswith("-tf")
        )

    @property
    def accuracy_by_loss(self) -> bool:
        """Whether the loss selects the kind of `accuracy`, as before TensorFlow 2.2, and not only the shapes."""
        return self.standalone or self.version.startswith("2.2.4")


_OLD_FIELDS: Mapping[str, str] = {
    "init": "kernel_initializer", "inner_init": "recurrent_initializer", "W_regularizer": "kernel_regularizer",
    "U_regularizer": "recurrent_regularizer", "b_regularizer": "bias_regularizer", "W_constraint": "kernel_constraint",
    "b_constraint": "bias_constraint", "U_constraint": "recurrent_constraint",
    "inner_activation": "recurrent_activation",
    "nb_filter": "filters", "filter_length": "kernel_size", "subsample": "strides", "subsample_length": "strides",
    "border_mode": "padding", "bias": "use_bias", "atrous_rate": "dilation_rate", "pool_length": "pool_size",
    "stride": "strides", "output_dim": "units", "dropout_W": "dropout", "dropout_U": "recurrent_dropout",
    "gamma_init": "gamma_initializer", "beta_init": "beta_initializer", "p": "rate", "sigma": "stddev",
    "alpha": "negative_slope", "length": "size", "concat_axis": "axis", "dims": "dims", "forget_bias_init": "",
}  # fmt: skip
"""Names of fields in Keras 1, and some in Keras 2."""
_KEPT_OLD = {"ELU": ("alpha",), "Embedding": ("output_dim",), "Conv1D": ("bias",), "RepeatVector": ()}
"""Layers that still have a field of such a name."""

_INHERITED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), ("groups", "kernel_initializer")),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), ("groups",)),
}
"""Keys of a layer's base class that Keras 2 writes, but that the layer ignores."""

_DEFAULT_AXIS_IS_LAST = (
    "BatchNormalization", "LayerNormalization", "GroupNormalization", "Normalization", "Concatenate", "Softmax",
    "RMSNormalization", "UnitNormalization",
)  # fmt: skip
"""Layers whose default axis is the last one in Keras."""
_ONE_AXIS = ("BatchNormalization", "GroupNormalization", "Normalization")
_OLD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"GRU": {"reset_after": False}, "GRUCell": {"reset_after": False}}
"""Values of fields in files that are older than the fields."""


def fields_of(type_: str, config: Mapping[str, Any], reading: ReadContext) -> dict[str, Any]:
    """The fields of a netspec layer or cell. Raises `UnsupportedFeature` with every key that has no counterpart."""
    registry: Registry[Any] = CELLS if type_ in CELLS else LAYERS
    return _fields(registry, type_, config, reading)


def _fields(registry: Registry[Any], type_: str, config: Mapping[str, Any], reading: ReadContext) -> dict[str, Any]:
    cls = registry[type_]
    recurrent = issubclass(cls, CellSpec)
    config_fields: dict[str, Any] = {"axis": -1} if type_ in _DEFAULT_AXIS_IS_LAST else {}
    if recurrent and type_ in _OLD_DEFAULTS and "reset_after" not in config:
        config_fields |= _OLD_DEFAULTS[type_]
    config_fields |= _current_names(type_, config, cls.model_fields)
    fields: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in config_fields.items():
        field = cls.model_fields.get(name)
        try:
            if name == "stateful" and value:
                reading.notes.add("a recurrent layer was `stateful`: here states begin at 0 with every batch")
            elif field is not None and name not in ("name", "stateful"):
                fields[name] = _value(_registry(field), value, reading)
                if name.endswith("_constraint") and isinstance(fields[name], dict):
                    fields[name] = _constraint(type_, name, fields[name])
            elif name not in (*IGNORED_KEYS, *_INHERITED.get(type_, ()), "trainable") and not _has_no_effect(
                name, value
            ):
                problems.append(f"`{name}: {_shown(value)}` has no counterpart")
        except UnsupportedFeature as reason:
            problems.append(f"`{name}`: {reason}")
    if problems:
        raise UnsupportedFeature("; ".join(problems))
    if (
        type_ == "MultiHeadAttention"
        and isinstance(fields.get("output_shape"), list)
        and len(fields["output_shape"]) == 1
    ):
        fields["output_shape"] = fields["output_shape"][0]
    _check(cls, type_, fields)
    return _shortened(cls, type_, fields)


def _shortened(cls: Any, type_: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields in their shortest form: equal sizes as a single number."""
    if fields.get("activation") == "linear" and cls.model_fields["activation"].default is None:
        del fields["activation"]
    if "pool_size" in fields and fields.get("strides") == fields["pool_size"]:
        del fields["strides"]
    spec = cls.model_validate({"type": type_, **fields})
    for name, value in fields.items():
        if isinstance(value, list) and value and all(element == value[0] for element in value):
            try:
                value_of_one = getattr(cls.model_validate({"type": type_, **fields, name: value[0]}), name)
            except (ValidationError, NetspecError):
                continue
            if value_of_one == getattr(spec, name):
                fields = fields | {name: value[0]}
    return fields


def _constraint(type_: str, name: str, constraint: dict[str, Any]) -> Any:
    """A constraint, whose axes are those of Keras's weight."""
    axis = constraint.pop("axis", 0)
    axes = axis if isinstance(axis, list) else [axis]
    if "Conv" in type_ and name.endswith("kernel_constraint") and "axis" not in constraint:
        rank = 2 + int(next(axis_ for axis_ in type_ if axis_.isdigit()))
        if "depthwise" in name or type_.startswith("Depthwise"):
            raise UnsupportedFeature(
                "its axes belong to a depthwise kernel, which has another order of axes in netspec"
            )
        net_axes = [{rank - 1: 0, rank - 2: 1}.get(axis_ % rank, axis_ % rank + 2) for axis_ in axes]
        if sorted(net_axes) != list(range(1, rank)):  # the axes of the weights of one output, the default in netspec
            constraint["axis"] = sorted(net_axes)
    elif axes != [0]:
        constraint["axis"] = axes
    return constraint if len(constraint) > 1 else constraint["type"]


def _check(cls: Any, type_: str, fields: dict[str, Any]) -> None:
    try:
        cls.model_validate({"type": type_, **fields})
    except ValidationError as error:
        raise invalid_field(type_, error) from None
    except NetspecError as error:
        raise UnsupportedFeature(f"{type_} does not take it: {error.summary}"[:300]) from None


def _current_names(type_: str, config: Mapping[str, Any], declared: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """The configuration under current names."""
    current: dict[str, Any] = {}
    for name, value in config.items():
        new = _OLD_FIELDS.get(name)
        if name in declared or new is None or name in _KEPT_OLD.get(type_, ()):
            current[name] = value
        elif new:
            current[new] = value
    if "nb_row" in config:
        sizes = [
            config[key] for key in ("kernel_dim1", "kernel_dim2", "kernel_dim3", "nb_row", "nb_col") if key in config
        ]
        current = {key: value for key, value in current.items() if key not in ("nb_row", "nb_col")} | {
            "kernel_size": sizes
        }
    if type_ == "Embedding" and "init" in config:
        current["embeddings_initializer"] = current.pop("kernel_initializer")
    if type_ in _ONE_AXIS and isinstance(current.get("axis"), list) and len(current["axis"]) < 2:
        current["axis"] = current["axis"][0] if current["axis"] else None
    if type_ == "BatchNormalization" and current.pop("mode", 0) not in (0, None):
        current["mode"] = config["mode"]
    return current


def _has_no_effect(name: str, value: Any) -> bool:
    """Whether a key without a counterpart has no effect."""
    return value is None or value is False or value in ([], {}, "") or (name == "fill_mode" and value == "constant")


def _shown(value: Any) -> str:
    text = value.get("class_name", value) if isinstance(value, dict) else value
    return str(text)[:60]


def _registry(declared: FieldInfo) -> Registry[Any] | None:
    """The registry of the field's values, if it has one."""

    def search(annotation: Any) -> Registry[Any] | None:
        for argument in (*getattr(annotation, "__metadata__", ()), *getattr(annotation, "__args__", ())):
            registry = argument.registry if isinstance(argument, Member) else search(argument)
            if registry is not None:
                return registry
        return search(annotation.__origin__) if hasattr(annotation, "__metadata__") else None

    members = [argument.registry for argument in declared.metadata if isinstance(argument, Member)]
    return members[0] if members else search(declared.annotation)


def _value(registry: Registry[Any] | None, value: Any, reading: ReadContext) -> Any:
    if isinstance(value, list) and registry is not None:
        return [_value(registry, item, reading) for item in value]
    if value is None or registry is None:
        return plain_value(value)
    return spec_of(registry, value, reading)


def spec_of(registry: Registry[Any], value: Any, reading: ReadContext) -> Any:
    """An initializer, activation, … as in a spec: its name, or a mapping with `type`. Raises `UnsupportedFeature`."""
    if isinstance(value, str):
        return _function(registry, value, {}, reading)
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        if isinstance(value, dict) and registry is ACTIVATIONS and isinstance(value.get("name"), str):
            return _function(registry, value["name"], {}, reading)
        if isinstance(value, dict) and registry is REGULARIZERS and {"l1", "l2"} & value.keys():  # of Keras 1
            return _penalty(value)
        raise UnsupportedFeature(f"{_shown(value)} is not a known {registry.kind}")
    name, config = value["class_name"], value.get("config")
    refuse_foreign(name, value.get("module", ""), value.get("registered_name"))
    if isinstance(config, str) and name in ("function", "builtin_function_or_method", "method"):
        return _function(registry, config, {}, reading)
    if not isinstance(config, dict):
        raise UnsupportedFeature(f"the configuration of {name[:60]} is missing")
    if registry in (LAYERS, CELLS):
        type_ = _builtin_type(registry, name)
        config = {**config, "reset_after": True} if name == "CuDNNGRU" else config
        return {"type": type_, **_fields(registry, type_, without_data_format(config), reading)}
    return _function(registry, name, config, reading)


def without_data_format(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without its data format."""
    return {name: value for name, value in config.items() if name not in ("data_format", "dim_ordering")}


def refuse_foreign(class_name: str, module: Any, registered: Any) -> None:
    """Raise `UnsupportedFeature` for a class or function of the user: its code is not in the file, or must not run.

    `module` is "" if the file does not state it; Keras writes None for a class that the user's script defines.
    """
    top = str(module or "").partition(".")[0]
    if class_name in _RUNS_CODE:
        raise UnsupportedFeature(f"{class_name} runs code, which netspec never does")
    if top not in KERAS_PACKAGES:
        raise UnsupportedFeature(
            f"{class_name[:60]} is a class of the package {top[:60]!r}: its code is not in the file"
        )
    qualified_name = str(registered or class_name)
    if (module is None and registered) or (">" in qualified_name and qualified_name.partition(">")[0] != "keras"):
        raise UnsupportedFeature(f"{qualified_name[:80]} is a user-defined class: its code is not in the file")


def _builtin_type(registry: Registry[Any], name: str) -> str:
    """netspec's type for a name that Keras defines. Raises `UnsupportedFeature` for any other name."""
    if ">" in name:
        raise UnsupportedFeature(f"{name[:80]} is a user-defined function: its code is not in the file")
    type_ = builtin(registry.kind, name)
    if type_ is None:
        raise UnsupportedFeature(
            f"Keras defines no {registry.kind} {name[:60]!r}: it is user-defined, and its code is not in the file"
        )
    return type_


_VARIANCE_SCALINGS: Mapping[tuple[Any, Any, Any], str] = {
    (1.0, "fan_avg", "uniform"): "GlorotUniform",
    (1.0, "fan_avg", "truncated_normal"): "GlorotNormal",
    (2.0, "fan_in", "uniform"): "HeUniform",
    (2.0, "fan_in", "truncated_normal"): "HeNormal",
    (1.0, "fan_in", "uniform"): "LecunUniform",
    (1.0, "fan_in", "truncated_normal"): "LecunNormal",
}
"""Names of special cases of VarianceScaling: scale, mode and distribution."""
_IGNORED = ("seed", "input_axes", "output_axes", "name", "dtype", "partitioner", "trainable")


def _function(registry: Registry[Any], name: str, config: Mapping[str, Any], reading: ReadContext) -> Any:
    if registry is ACTIVATIONS:
        return _activation(name, config, reading)
    type_ = _builtin_type(registry, name)
    declared = registry[type_].model_fields
    fields = {key: plain_value(value) for key, value in config.items() if key in declared and value is not None}
    unknown = [
        key for key, value in config.items() if key not in declared and key not in _IGNORED and value is not None
    ]
    if unknown:
        raise UnsupportedFeature(f"{type_} has no `{unknown[0]}`")
    if registry is REGULARIZERS and type_ == "L1L2":
        return _penalty(fields)
    _check(registry[type_], type_, fields)
    special_case = _VARIANCE_SCALINGS.get((fields.get("scale"), fields.get("mode"), fields.get("distribution")))
    if type_ == "VarianceScaling" and special_case is not None:
        return special_case
    non_defaults = {
        key: value
        for key, value in fields.items()
        if declared[key].is_required() or declared[key].get_default(call_default_factory=True) != value
    }
    return {"type": type_, **non_defaults} if non_defaults else type_


def _penalty(fields: Mapping[str, Any]) -> Any:
    """An L1L2 with one zero as L1 or L2; None if both are zero."""
    l1, l2 = (float(fields.get(key) or 0.0) for key in ("l1", "l2"))
    if l1 and l2:
        return {"type": "L1L2", "l1": l1, "l2": l2}
    return {"type": "L1", "l1": l1} if l1 else {"type": "L2", "l2": l2} if l2 else None


def _activation(name: str, config: Mapping[str, Any], reading: ReadContext) -> Any:
    """A function, by its name or by its class in Keras 3."""
    if name == "hard_sigmoid" and reading.major < 3:
        return {"type": "hard_sigmoid", "alpha": 0.2}  # its name before Keras 3
    if name == "<lambda>":
        raise UnsupportedFeature("it is a Python lambda, whose code is not in the file")
    type_ = _builtin_type(ACTIVATIONS, name)
    renamed = {
        "negative_slope" if key == "alpha" and type_ == "leaky_relu" else key: value for key, value in config.items()
    }
    fields = {key: plain_value(value) for key, value in renamed.items() if key not in _IGNORED and value is not None}
    if not fields:
        return type_
    _check(ACTIVATIONS[type_], type_, fields)
    return {"type": type_, **fields}


def plain_value(value: Any) -> Any:
    """A value for YAML: floats that were rounded to float32 get their original digits."""
    if isinstance(value, dict) and value.get("class_name") == "__tuple__":
        value = value.get("items", [])
    if isinstance(value, dict) and value.get("class_name") in ("__numpy__", "__tensor__"):
        value = (value.get("config") or {}).get("value")
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if isinstance(value, float):
        return round_to_float32_digits(value)
    if isinstance(value, dict) and "class_name" in value:
        raise UnsupportedFeature(f"{str(value['class_name'])[:60]} is not a plain value")
    return value


def round_to_float32_digits(value: float) -> float:
    """Round a number to its shortest decimal in float32: 0.009999999776482582, which was 0.01, becomes 0.01."""
    near = float(f"{value:.6g}")
    if abs(near - value) <= 2**-23 * abs(value):
        return near
    with np.errstate(over="ignore"):
        short = np.float32(value)
    return float(str(short)) if np.isfinite(short) and float(short) == value else value
