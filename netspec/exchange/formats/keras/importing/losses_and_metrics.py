"""Losses and metrics of a compiled model, and the inputs for their targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from netspec.errors import NetspecError
from netspec.exchange.formats.keras.importing.axes import TensorView, keras_order
from netspec.exchange.formats.keras.importing.fields import plain_value, refuse_foreign
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.names import REDUCES_LAST_AXIS, Form, builtin_loss_or_metric
from netspec.exchange.lift.inputs import OPEN_BATCH
from netspec.exchange.names import UniqueNames
from netspec.exchange.truncation import dropped
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, in_scope
from netspec.layers.base import Builder
from netspec.schema.specs.kinds import LOSSES, METRICS
from netspec.schema.specs.spec import Registry

_BY_SHAPES: Mapping[str, str] = {
    "accuracy": "Accuracy", "acc": "Accuracy", "crossentropy": "Crossentropy", "ce": "Crossentropy",
}  # fmt: skip
"""Strings whose metric depends on the target, and the ending of the names of the classes that they can mean."""
_IGNORED = ("name", "dtype", "fn", "reduction")
_DEFAULTS = {"axis": -1}
"""Default of `axis` if the file does not state it: the last axis, which all of them reduce."""
_WRAPPERS = ("MeanMetricWrapper", "LossFunctionWrapper")
_COUNTS_CLASSES = ("class_id", "top_k", "multi_label", "label_weights")
"""Fields of metrics that count classes along the last axis."""


class LossImporter:
    """Imports losses and metrics; those without a counterpart are left out with a note."""

    def __init__(self, importer: KerasImporter, output_names: Sequence[str]) -> None:
        self.importer = importer
        self.outputs, self.output_indices = importer.graph.outputs, importer.graph.loss_indices
        unique = UniqueNames()
        self.names = [unique(name) for name in output_names]
        self.targets: dict[int, str] = {}
        self.losses: dict[int, str] = {}
        """The class of the loss of each output."""
        self._values: dict[str, Any] = {}

    def write(self, config: Mapping[str, Any]) -> None:
        """Add the losses and metrics of all outputs to the draft."""
        weights = dict(self._by_output(config.get("loss_weights")))
        for index, entry in self._by_output(config.get("loss")):
            weight = weights.get(index)
            extra = {"weight": plain_value(float(weight))} if isinstance(weight, (int, float)) and weight != 1 else {}
            self._add_entry(LOSSES, index, entry, extra)
        for key in ("metrics", "weighted_metrics"):
            for index, entries in self._by_output(config.get(key), of_lists=True):
                for entry in entries if isinstance(entries, list) else [entries]:
                    self._add_entry(METRICS, index, entry, {})
        self._name_repeated()

    def _by_output(self, setting: Any, *, of_lists: bool = False) -> Iterator[tuple[int, Any]]:
        """The value of each output: one for all, a list, or by name."""
        count = len(self.names)
        if isinstance(setting, dict) and "class_name" not in setting:
            for name, value in setting.items():
                if name in self.names and value is not None:
                    yield self.names.index(name), value
                elif value is not None:
                    self.importer.reading.notes.add(
                        f"there is no output `{str(name)[:60]}`: its losses and metrics are left out"
                    )
        elif isinstance(setting, list) and (not of_lists or self._has_list_per_output(setting)):
            yield from ((index, value) for index, value in enumerate(setting[:count]) if value is not None)
        elif setting is not None:
            yield from ((index, setting) for index in range(count))

    def _has_list_per_output(self, setting: list[Any]) -> bool:
        """Whether a list of metrics has an entry for each output, and not an entry for each metric."""
        is_nested = any(isinstance(value, (list, dict)) for value in setting)
        return is_nested and len(setting) == len(self.names) and (len(setting) > 1 or isinstance(setting[0], list))

    def _add_entry(self, registry: Registry[Any], index: int, entry: Any, extra: Mapping[str, Any]) -> None:
        if index not in self.output_indices:
            shown_name = repr(_shown(entry))
            self.importer.reading.notes.add(
                *dropped(f"the {registry.kind} {shown_name}", [f"`{self.names[index]}`"], shown_name)
            )
            return
        index_here = self.output_indices[index]
        tensor = self.outputs[index_here]
        view = self.importer.views[tensor.call, tensor.index]
        output = self.importer.draft.outputs[index_here]
        try:
            type_, fields = self._type_and_fields(registry, entry, index, view)
            if view.order != keras_order(len(view.order)):
                _set_axis(registry, type_, fields, view)
            target = self._target(registry, index, output, view, type_, {**fields, **extra})
        except (UnsupportedFeature, NetspecError) as reason:
            text = reason.summary if isinstance(reason, NetspecError) else str(reason)
            self.importer.reading.notes.add(
                f"the {registry.kind} {_shown(entry)!r} of `{output}` is left out: {text}"[:300],
                "{count} losses and metrics are left out", f"{_shown(entry)!r} of `{output}` ({text})"[:150],
            )  # fmt: skip
            return
        spec_entry: dict[str, Any] = {"type": type_, "from": [output, target], **fields, **extra}
        if registry is LOSSES:
            self.losses[index] = type_
            self.importer.draft.losses.append(spec_entry)
        else:
            self.importer.draft.metrics.append(spec_entry)

    def _name_repeated(self) -> None:
        """Name losses and metrics whose type occurs several times."""
        for entries in (self.importer.draft.losses, self.importer.draft.metrics):
            types = [entry["type"] for entry in entries]
            unique = UniqueNames()
            for entry in entries:
                if types.count(entry["type"]) > 1:
                    entry["name"] = unique(f"{entry['from'][0]}_{entry['type']}".replace("/", "_"))

    def _type_and_fields(
        self, registry: Registry[Any], entry: Any, index: int, view: TensorView
    ) -> tuple[str, dict[str, Any]]:  # fmt: skip
        """netspec's type, and its fields. Raises `UnsupportedFeature` for a name that Keras does not define."""
        name, form, config = _reference(entry)
        if registry is METRICS and form == "text" and name in _BY_SHAPES:
            type_: str | None = self._by_shapes(name, index, view)
        else:
            type_ = builtin_loss_or_metric(registry.kind, name, form, self.importer.reading.major)
        if type_ is None:
            raise UnsupportedFeature(
                f"Keras defines no such {registry.kind}: it is user-defined, and its code is not in the file"
            )
        declared = registry[type_].model_fields
        fields: dict[str, Any] = {}
        for key, value in config.items():
            default = key in declared and declared[key].get_default(call_default_factory=True)
            if key in declared and key not in _IGNORED and value is not None:
                plain_value_ = plain_value(value)
                if plain_value_ != (list(default) if isinstance(default, tuple) else default) and not (
                    key == "axis" and plain_value_ == -1
                ):
                    fields[key] = plain_value_
            elif key == "reduction" and "reduction" in declared and value not in (default, None, "auto", "mean"):
                fields[key] = value
            elif key not in (*declared, *_IGNORED) and value not in (None, False, 0, 0.0, [], _DEFAULTS.get(key)):
                self.importer.reading.notes.add(
                    f"`{key}` of the {registry.kind} {type_} is left out",
                    "{count} arguments of losses and metrics are left out", f"`{key}` of {type_}",
                )  # fmt: skip
        return type_, fields

    def _by_shapes(self, name: str, index: int, view: TensorView) -> str:
        """The metric that Keras selects for `accuracy` or `crossentropy`, by the prediction and the loss's target."""
        loss = self.losses.get(index, "")
        if not loss:
            raise UnsupportedFeature(f"which {name} is meant depends on the loss, which is missing")
        binary = view.shape[-1] == 1 or (self.importer.reading.accuracy_by_loss and loss.startswith("Binary"))
        sparse = loss.startswith("Sparse")
        ending = _BY_SHAPES[name]
        kind = "Binary" if binary else "SparseCategorical" if sparse else "Categorical"
        return f"{kind}{ending}"

    def _target(
        self, registry: Registry[Any], index: int, output: str, view: TensorView, type_: str, fields: Mapping[str, Any]
    ) -> str:
        """The input for an output's target, created for the first loss or metric that it fits."""
        shape = view.value.shape
        axis = fields.get("axis", -1)
        if index in self.targets:
            kind = self._values[self.targets[index]]
        elif "Sparse" in type_:
            target_shape = shape[: axis % len(shape)] + shape[axis % len(shape) + 1 :]
            kind = TensorType(target_shape, DType("int32"))
        else:
            kind = TensorType(shape, DType("float32"))
        _check(registry, type_, fields, view, kind)
        if index not in self.targets:
            name = "target" if len(self.outputs) == 1 else f"{output}_target"
            while name in self.importer.draft.inputs or any(layer.name == name for layer in self.importer.draft.layers):
                name += "_"
            declared: dict[str, Any] = {"shape": list(kind.shape[1:])}
            if str(kind.dtype) != "float32":
                declared["dtype"] = str(kind.dtype)
            self.importer.draft.inputs[name] = declared
            self.targets[index], self._values[name] = name, kind
        return self.targets[index]


def _reference(entry: Any) -> tuple[str, Form, Mapping[str, Any]]:
    """The name of a loss or metric in a file, the kind of name, and the configuration."""
    if isinstance(entry, str):
        return entry, "text", {}
    if not isinstance(entry, dict):
        raise UnsupportedFeature("it has no name")
    name, config = entry.get("class_name"), entry.get("config")
    refuse_foreign(str(name), entry.get("module", ""), entry.get("registered_name"))
    if isinstance(config, str):
        return config, "function", {}
    config = config if isinstance(config, dict) else {}
    inner = config.get("fn")
    if name in _WRAPPERS and isinstance(inner, dict):
        inner, _, inner_config = _reference(inner)
        return inner, "class" if inner[:1].isupper() else "function", {**inner_config, **config}
    if name in _WRAPPERS and isinstance(inner, str):
        return inner, "function", config
    return str(name), "class", config


def _shown(entry: Any) -> str:
    """The name of a loss or metric in a note: for a function, its own name."""
    try:
        return _reference(entry)[0][:60]
    except UnsupportedFeature:
        return str(entry.get("class_name") if isinstance(entry, dict) else entry)[:60]


def _set_axis(registry: Registry[Any], type_: str, fields: dict[str, Any], view: TensorView) -> None:
    """Set `axis` to the axis that is the last one in Keras. Raises `UnsupportedFeature` if the type has no `axis`."""
    if "axis" in registry[type_].model_fields:
        fields["axis"] = view.order[-1]
    elif type_ in REDUCES_LAST_AXIS or any(fields.get(key) for key in _COUNTS_CLASSES):
        raise UnsupportedFeature("it reduces the channels, which are not the last axis in netspec")


def _check(
    registry: Registry[Any], type_: str, fields: Mapping[str, Any], view: TensorView, target: TensorType
) -> None:
    """Raise `UnsupportedFeature` if the loss or metric does not take its fields, the output, or the target."""
    builder = Builder(training=False, dtype=DType.FLOAT32)
    prediction = builder.input("prediction", TensorType((OPEN_BATCH, *view.value.shape[1:]), view.value.dtype))
    try:
        spec = registry[type_].model_validate({"type": type_, **fields})
        with in_scope(builder.enter(spec, type_)):
            spec.build(builder, prediction, builder.input("target", target))
    except ValidationError as error:
        raise UnsupportedFeature(f"{type_} does not accept it: {error.errors()[0]['msg']}") from None
    except ShapeMismatch as error:
        raise UnsupportedFeature(f"it does not fit the output: {error.message}") from None
