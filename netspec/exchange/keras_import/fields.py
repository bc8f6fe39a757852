"""The configuration of a layer → fields of the layer here. The classes' own fields decide: only what differs is listed.

Initializers, regularizers, constraints, activations, cells and layers in fields are configurations too, told by the
registry that the field takes its values from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from netspec.errors import NetspecError
from netspec.exchange.keras_names import WITHOUT_MEANING, layer_type
from netspec.layers.recurrent_cells import CellSpec
from netspec.schema.kinds import (
    ACTIVATIONS,
    CELLS,
    CONSTRAINTS,
    INITIALIZERS,
    LAYERS,
    REGULARIZERS,
)
from netspec.schema.spec import Member, Registry

OURS = ("keras", "tf_keras", "tensorflow", "builtins", "")
"""Packages whose classes are Keras's own."""
_CODE = ("Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")


class Unsupported(Exception):
    """Something has no counterpart here; the message says what."""


@dataclass
class Reading:
    """What is known of the file while layers are read, and what the user should be told."""

    major: int = 3
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Tell the user something, once."""
        if text not in self.notes:
            self.notes.append(text)


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
"""What Keras 1 called a field, and in a few cases Keras 2."""
_KEPT_OLD = {"ELU": ("alpha",), "Embedding": ("output_dim",), "Conv1D": ("bias",), "RepeatVector": ()}
"""Of which layers such a name is still the field's."""

_INHERITED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), ("groups", "kernel_initializer")),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), ("groups",)),
}
"""Keys that Keras 2 writes because the class that a layer is made of has them: the layer makes nothing of them."""

_LAST = ("BatchNormalization", "LayerNormalization", "GroupNormalization", "Normalization", "Concatenate", "Softmax",
         "RMSNormalization", "UnitNormalization")  # fmt: skip
"""Layers whose axis is the last in Keras where nothing is said."""
_ONE_AXIS = ("BatchNormalization", "GroupNormalization", "Normalization")
_OLD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"GRU": {"reset_after": False}, "GRUCell": {"reset_after": False}}
"""Of files that do not say them because they were written before there was a choice."""


def fields_of(type_: str, config: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The fields of a layer (or cell) of a type here. Raises `Unsupported` with all that have no counterpart."""
    registry: Registry[Any] = CELLS if type_ in CELLS else LAYERS
    return _fields(registry, type_, config, reading)


def _fields(registry: Registry[Any], type_: str, config: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    cls = registry[type_]
    recurrent = issubclass(cls, CellSpec)
    given: dict[str, Any] = {"axis": -1} if type_ in _LAST else {}
    if recurrent and type_ in _OLD_DEFAULTS and "reset_after" not in config:
        given |= _OLD_DEFAULTS[type_]
    given |= _modern(type_, config, cls.model_fields)
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in given.items():
        declared = cls.model_fields.get(name)
        try:
            if name == "stateful" and value:
                reading.note("a recurrent layer was `stateful`: here states begin at 0 with every batch")
            elif declared is not None and name not in ("name", "stateful"):
                found[name] = _value(_registry(declared), value, reading)
                if name.endswith("_constraint") and isinstance(found[name], dict):
                    found[name] = _constraint(type_, name, found[name])
            elif name not in (*WITHOUT_MEANING, *_INHERITED.get(type_, ()), "trainable") and not _is_nothing(
                name, value
            ):
                wrong.append(f"`{name}: {_shown(value)}` has no counterpart")
        except Unsupported as reason:
            wrong.append(f"`{name}`: {reason}")
    if wrong:
        raise Unsupported("; ".join(wrong))
    if (
        type_ == "MultiHeadAttention"
        and isinstance(found.get("output_shape"), list)
        and len(found["output_shape"]) == 1
    ):
        found["output_shape"] = found["output_shape"][0]
    _check(cls, type_, found)
    return _short(cls, type_, found)


def _short(cls: Any, type_: str, found: dict[str, Any]) -> dict[str, Any]:
    """The fields as a person writes them: one number for equal ones, nothing for what follows from another field."""
    if found.get("activation") == "linear" and cls.model_fields["activation"].default is None:
        del found["activation"]
    if "pool_size" in found and found.get("strides") == found["pool_size"]:
        del found["strides"]
    spec = cls.model_validate({"type": type_, **found})
    for name, value in found.items():
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            try:
                same = getattr(cls.model_validate({"type": type_, **found, name: value[0]}), name)
            except (ValidationError, NetspecError):
                continue
            if same == getattr(spec, name):
                found = found | {name: value[0]}
    return found


def _constraint(type_: str, name: str, given: dict[str, Any]) -> Any:
    """A constraint whose axes are of a weight as Keras has it."""
    axis = given.pop("axis", 0)
    axes = axis if isinstance(axis, list) else [axis]
    if "Conv" in type_ and name.endswith("kernel_constraint") and "axis" not in given:
        rank = 2 + int(next(one for one in type_ if one.isdigit()))
        if "depthwise" in name or type_.startswith("Depthwise"):
            raise Unsupported("its axes are those of a depthwise kernel, which lie otherwise here")
        turned = [{rank - 1: 0, rank - 2: 1}.get(one % rank, one % rank + 2) for one in axes]
        if sorted(turned) != list(range(1, rank)):  # which are the weights of one output, the default here
            given["axis"] = sorted(turned)
    elif axes != [0]:
        given["axis"] = axes
    return given if len(given) > 1 else given["type"]


def _check(cls: Any, type_: str, found: dict[str, Any]) -> None:
    try:
        cls.model_validate({"type": type_, **found})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Unsupported(f"{type_} does not take it: {place}: {first['msg']}"[:300]) from None
    except NetspecError as error:
        raise Unsupported(f"{type_} does not take it: {error.summary}"[:300]) from None


def _modern(type_: str, config: Mapping[str, Any], declared: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """The configuration under the names of today."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        new = _OLD_FIELDS.get(name)
        if name in declared or new is None or name in _KEPT_OLD.get(type_, ()):
            found[name] = value
        elif new:
            found[new] = value
    if "nb_row" in config:
        sizes = [
            config[key] for key in ("kernel_dim1", "kernel_dim2", "kernel_dim3", "nb_row", "nb_col") if key in config
        ]
        found = {key: one for key, one in found.items() if key not in ("nb_row", "nb_col")} | {"kernel_size": sizes}
    if type_ == "Embedding" and "init" in config:
        found["embeddings_initializer"] = found.pop("kernel_initializer")
    if type_ in _ONE_AXIS and isinstance(found.get("axis"), list) and len(found["axis"]) < 2:
        found["axis"] = found["axis"][0] if found["axis"] else None
    if type_ == "BatchNormalization" and found.pop("mode", 0) not in (0, None):
        found["mode"] = config["mode"]
    return found


def _is_nothing(name: str, value: Any) -> bool:
    """Whether a key without a counterpart asks for nothing."""
    return value is None or value is False or value in ([], {}, "") or (name == "fill_mode" and value == "constant")


def _shown(value: Any) -> str:
    text = value.get("class_name", value) if isinstance(value, dict) else value
    return str(text)[:60]


def _registry(declared: FieldInfo) -> Registry[Any] | None:
    """The registry that the field takes its values from, if it does."""

    def search(annotation: Any) -> Registry[Any] | None:
        for one in (*getattr(annotation, "__metadata__", ()), *getattr(annotation, "__args__", ())):
            found = one.registry if isinstance(one, Member) else search(one)
            if found is not None:
                return found
        return search(annotation.__origin__) if hasattr(annotation, "__metadata__") else None

    members = [one.registry for one in declared.metadata if isinstance(one, Member)]
    return members[0] if members else search(declared.annotation)


def _value(registry: Registry[Any] | None, value: Any, reading: Reading) -> Any:
    if isinstance(value, list) and registry is not None:
        return [_value(registry, one, reading) for one in value]
    if value is None or registry is None:
        return plain(value)
    return object_of(registry, value, reading)


def object_of(registry: Registry[Any], value: Any, reading: Reading) -> Any:
    """An initializer, activation … as a spec has it: its name, or a mapping with `type`. Raises `Unsupported`."""
    if isinstance(value, str):
        return _function(registry, value, {}, reading)
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        if isinstance(value, dict) and registry is ACTIVATIONS and isinstance(value.get("name"), str):
            return _function(registry, value["name"], {}, reading)
        if isinstance(value, dict) and registry is REGULARIZERS and {"l1", "l2"} & value.keys():  # of Keras 1
            return _penalty(value)
        raise Unsupported(f"{_shown(value)} is no {registry.kind}")
    name, config = value["class_name"], value.get("config")
    refuse_foreign(name, value.get("module"), value.get("registered_name"))
    if isinstance(config, str) and name in ("function", "builtin_function_or_method", "method"):
        return _function(registry, config, {}, reading)
    if not isinstance(config, dict):
        raise Unsupported(f"the configuration of {name[:60]} is missing")
    if registry in (LAYERS, CELLS):
        type_ = layer_type(name)
        if type_ not in registry:
            raise Unsupported(f"there is no {registry.kind} {name[:60]}")
        config = {**config, "reset_after": True} if name == "CuDNNGRU" else config
        return {"type": type_, **_told(registry[type_], _fields(registry, type_, without_format(config), reading))}
    return _function(registry, name, config, reading)


def _told(cls: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a layer in a field that say something: those of other layers are left out when a net is written."""
    usual = {name: one.get_default(call_default_factory=True) for name, one in cls.model_fields.items()}
    spec = cls.model_validate({"type": usual["type"], **fields})
    needed = {name for name, one in cls.model_fields.items() if one.is_required()}
    return {name: one for name, one in fields.items() if name in needed or getattr(spec, name) != usual[name]}


def without_format(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what says where the channels are."""
    return {name: value for name, value in config.items() if name not in ("data_format", "dim_ordering")}


def refuse_foreign(class_name: str, module: Any, registered: Any) -> None:
    """Raise `Unsupported` for what is not Keras's own: its code is not in the file, or must not run."""
    top = str(module or "").partition(".")[0]
    if class_name in _CODE:
        raise Unsupported(f"{class_name} runs code, which netspec never does")
    if top not in OURS:
        raise Unsupported(f"{class_name[:60]} is a class of the package {top[:60]!r}: its code is not in the file")
    if isinstance(registered, str) and ">" in registered and not registered.startswith("keras"):
        raise Unsupported(f"{registered[:80]} is a class of one's own: its code is not in the file")


_OLD_INITIALIZERS: Mapping[str, str] = {
    "normal": "RandomNormal", "uniform": "RandomUniform", "zero": "Zeros", "one": "Ones", "constant": "Constant",
    "gaussian": "RandomNormal", "identity": "Identity", "IdentityInitializer": "Identity",
    "OrthogonalInitializer": "Orthogonal",
}  # fmt: skip
_SCALINGS: Mapping[tuple[Any, Any, Any], str] = {
    (1.0, "fan_avg", "uniform"): "GlorotUniform",
    (1.0, "fan_avg", "truncated_normal"): "GlorotNormal",
    (2.0, "fan_in", "uniform"): "HeUniform",
    (2.0, "fan_in", "truncated_normal"): "HeNormal",
    (1.0, "fan_in", "uniform"): "LecunUniform",
    (1.0, "fan_in", "truncated_normal"): "LecunNormal",
}
"""VarianceScaling by another name: scale, mode and distribution."""
_WITHOUT = ("seed", "input_axes", "output_axes", "name", "dtype", "partitioner", "trainable")


def _function(registry: Registry[Any], name: str, config: Mapping[str, Any], reading: Reading) -> Any:
    if registry is INITIALIZERS:
        name = _OLD_INITIALIZERS.get(name, name)
    if registry is CONSTRAINTS:
        name = {"nonneg": "NonNeg", "maxnorm": "MaxNorm", "unitnorm": "UnitNorm"}.get(name.lower(), name)
    if registry is ACTIVATIONS:
        return _activation(name, config, reading)
    type_ = registry.spelled(name)
    if type_ not in registry:
        raise Unsupported(f"there is no {registry.kind} {name[:60]!r}")
    declared = registry[type_].model_fields
    found = {key: plain(one) for key, one in config.items() if key in declared and one is not None}
    strange = [key for key, one in config.items() if key not in declared and key not in _WITHOUT and one is not None]
    if strange:
        raise Unsupported(f"{type_} has no `{strange[0]}`")
    if registry is REGULARIZERS and type_ == "L1L2":
        return _penalty(found)
    _check(registry[type_], type_, found)
    known = _SCALINGS.get((found.get("scale"), found.get("mode"), found.get("distribution")))
    if type_ == "VarianceScaling" and known is not None:
        return known
    more = {
        key: one
        for key, one in found.items()
        if declared[key].is_required() or declared[key].get_default(call_default_factory=True) != one
    }
    return {"type": type_, **more} if more else type_


def _penalty(found: Mapping[str, Any]) -> Any:
    """L1L2 of which one is 0, as the other alone; nothing for nothing."""
    l1, l2 = (float(found.get(key) or 0.0) for key in ("l1", "l2"))
    if l1 and l2:
        return {"type": "L1L2", "l1": l1, "l2": l2}
    return {"type": "L1", "l1": l1} if l1 else {"type": "L2", "l2": l2} if l2 else None


def _activation(name: str, config: Mapping[str, Any], reading: Reading) -> Any:
    """A function, by its name or by that of the class that Keras 3 has for it."""
    if name == "hard_sigmoid" and reading.major < 3:
        return {"type": "hard_sigmoid", "alpha": 0.2}  # as it was before Keras 3
    known = name if name in ACTIVATIONS else ACTIVATIONS.spelled(name)
    if known == "<lambda>":
        raise Unsupported("a Python lambda, of which the file holds nothing but that")
    if known not in ACTIVATIONS:
        raise Unsupported(f"there is no activation {name[:60]!r}")
    given = {"negative_slope" if key == "alpha" and known == "leaky_relu" else key: one for key, one in config.items()}
    found = {key: plain(one) for key, one in given.items() if key not in _WITHOUT and one is not None}
    if not found:
        return known
    _check(ACTIVATIONS[known], known, found)
    return {"type": known, **found}


def plain(value: Any) -> Any:
    """A value as YAML has it: numbers that were rounded to float32 in the digits that they were meant with."""
    if isinstance(value, dict) and value.get("class_name") == "__tuple__":
        value = value.get("items", [])
    if isinstance(value, dict) and value.get("class_name") in ("__numpy__", "__tensor__"):
        value = (value.get("config") or {}).get("value")
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return tidy(value)
    if isinstance(value, dict) and "class_name" in value:
        raise Unsupported(f"{str(value['class_name'])[:60]} is no plain value")
    return value


def tidy(value: float) -> float:
    """0.009999999776482582, which is 0.01 as float32, or next to it, as 0.01."""
    import numpy as np

    near = float(f"{value:.6g}")
    if abs(near - value) <= 2**-23 * abs(value):
        return near
    with np.errstate(over="ignore"):
        short = np.float32(value)
    return float(str(short)) if np.isfinite(short) and float(short) == value else value
