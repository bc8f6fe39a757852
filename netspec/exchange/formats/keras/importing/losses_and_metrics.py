"""Losses and metrics of a compiled model, and the inputs for their targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from netspec.errors import NetspecError
from netspec.exchange.formats.keras.importing.axes import TensorView, identity
from netspec.exchange.formats.keras.importing.fields import plain, refuse_foreign
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
_WITHOUT = ("name", "dtype", "fn", "reduction")
_LAST = {"axis": -1}
"""Default of `axis` if the file does not state it: the last axis, which all of them reduce."""
_WRAPPERS = ("MeanMetricWrapper", "LossFunctionWrapper")
_OF_ONE_CLASS = ("class_id", "top_k", "multi_label", "label_weights")
"""Fields of metrics that count classes along the last axis."""


class LossImporter:
    """Imports losses and metrics; those without a counterpart are left out with a note."""

    def __init__(self, importer: KerasImporter, output_names: Sequence[str]) -> None:
        self.importer = importer
        self.outputs, self.places = importer.graph.outputs, importer.graph.judged
        unique = UniqueNames()
        self.names = [unique(name) for name in output_names]
        self.targets: dict[int, str] = {}
        self.losses: dict[int, str] = {}
        """The class of the loss of each output."""
        self._values: dict[str, Any] = {}

    def write(self, config: Mapping[str, Any]) -> None:
        """Losses and metrics of all outputs."""
        weights = dict(self._each(config.get("loss_weights")))
        for index, given in self._each(config.get("loss")):
            weight = weights.get(index)
            more = {"weight": plain(float(weight))} if isinstance(weight, (int, float)) and weight != 1 else {}
            self._one(LOSSES, index, given, more)
        for key in ("metrics", "weighted_metrics"):
            for index, several in self._each(config.get(key), of_lists=True):
                for given in several if isinstance(several, list) else [several]:
                    self._one(METRICS, index, given, {})
        self._name_alike()

    def _each(self, given: Any, *, of_lists: bool = False) -> Iterator[tuple[int, Any]]:
        """The value of each output: one for all, a list, or by name."""
        count = len(self.names)
        if isinstance(given, dict) and "class_name" not in given:
            for name, one in given.items():
                if name in self.names and one is not None:
                    yield self.names.index(name), one
                elif one is not None:
                    self.importer.reading.note(
                        f"there is no output `{str(name)[:60]}`: its losses and metrics are left out"
                    )
        elif isinstance(given, list) and (not of_lists or (any(isinstance(one, (list, dict)) for one in given) and (
            len(given) == count and (count > 1 or isinstance(given[0], list))))):  # fmt: skip
            yield from ((index, one) for index, one in enumerate(given[:count]) if one is not None)
        elif given is not None:
            yield from ((index, given) for index in range(count))

    def _one(self, registry: Registry[Any], index: int, given: Any, more: Mapping[str, Any]) -> None:
        if index not in self.places:
            judge = repr(_shown(given))
            self.importer.reading.note(*dropped(f"the {registry.kind} {judge}", [f"`{self.names[index]}`"], judge))
            return
        place = self.places[index]
        tensor = self.outputs[place]
        held = self.importer.held[tensor.call, tensor.index]
        output = self.importer.draft.outputs[place]
        try:
            type_, fields = self._named(registry, given, index, held)
            if held.order != identity(len(held.order)):
                _turn(registry, type_, fields, held)
            target = self._target(registry, index, output, held, type_, {**fields, **more})
        except (UnsupportedFeature, NetspecError) as reason:
            text = reason.summary if isinstance(reason, NetspecError) else str(reason)
            self.importer.reading.note(
                f"the {registry.kind} {_shown(given)!r} of `{output}` is left out: {text}"[:300],
                "{count} losses and metrics are left out", f"{_shown(given)!r} of `{output}` ({text})"[:150],
            )  # fmt: skip
            return
        entry: dict[str, Any] = {"type": type_, "from": [output, target], **fields, **more}
        if registry is LOSSES:
            self.losses[index] = type_
            self.importer.draft.losses.append(entry)
        else:
            self.importer.draft.metrics.append(entry)

    def _name_alike(self) -> None:
        """Name losses and metrics that occur several times."""
        for entries in (self.importer.draft.losses, self.importer.draft.metrics):
            types = [entry["type"] for entry in entries]
            unique = UniqueNames()
            for one in entries:
                if types.count(one["type"]) > 1:
                    one["name"] = unique(f"{one['from'][0]}_{one['type']}".replace("/", "_"))

    def _named(
        self, registry: Registry[Any], given: Any, index: int, held: TensorView
    ) -> tuple[str, dict[str, Any]]:  # fmt: skip
        """netspec's type, and its fields. Raises `UnsupportedFeature` for a name that Keras does not define."""
        name, form, config = _referred(given)
        if registry is METRICS and form == "text" and name in _BY_SHAPES:
            type_: str | None = self._by_shapes(name, index, held)
        else:
            type_ = builtin_loss_or_metric(registry.kind, name, form, self.importer.reading.major)
        if type_ is None:
            raise UnsupportedFeature(
                f"Keras defines no such {registry.kind}: it is user-defined, and its code is not in the file"
            )
        declared = registry[type_].model_fields
        fields: dict[str, Any] = {}
        for key, value in config.items():
            usual = key in declared and declared[key].get_default(call_default_factory=True)
            if key in declared and key not in _WITHOUT and value is not None:
                kept = plain(value)
                if kept != (list(usual) if isinstance(usual, tuple) else usual) and not (key == "axis" and kept == -1):
                    fields[key] = kept
            elif key == "reduction" and "reduction" in declared and value not in (usual, None, "auto", "mean"):
                fields[key] = value
            elif key not in (*declared, *_WITHOUT) and value not in (None, False, 0, 0.0, [], _LAST.get(key)):
                self.importer.reading.note(
                    f"`{key}` of the {registry.kind} {type_} is left out",
                    "{count} arguments of losses and metrics are left out", f"`{key}` of {type_}",
                )  # fmt: skip
        return type_, fields

    def _by_shapes(self, name: str, index: int, held: TensorView) -> str:
        """The metric that Keras selects for `accuracy` or `crossentropy`, by the prediction and the loss's target."""
        loss = self.losses.get(index, "")
        if not loss:
            raise UnsupportedFeature(f"without the loss it is unknown which {name} is meant")
        binary = held.shape[-1] == 1 or (self.importer.reading.by_loss and loss.startswith("Binary"))
        sparse = loss.startswith("Sparse")
        ending = _BY_SHAPES[name]
        kind = "Binary" if binary else "SparseCategorical" if sparse else "Categorical"
        return f"{kind}{ending}"

    def _target(
        self, registry: Registry[Any], index: int, output: str, held: TensorView, type_: str, fields: Mapping[str, Any]
    ) -> str:
        """The input for an output's target, created for the first loss or metric that it fits."""
        shape = held.value.shape
        axis = fields.get("axis", -1)
        if index in self.targets:
            kind = self._values[self.targets[index]]
        elif "Sparse" in type_:
            left = shape[: axis % len(shape)] + shape[axis % len(shape) + 1 :]
            kind = TensorType(left, DType("int32"))
        else:
            kind = TensorType(shape, DType("float32"))
        _check(registry, type_, fields, held, kind)
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


def _referred(given: Any) -> tuple[str, Form, Mapping[str, Any]]:
    """How a file refers to a loss or metric: the name, what it names, and the configuration."""
    if isinstance(given, str):
        return given, "text", {}
    if not isinstance(given, dict):
        raise UnsupportedFeature("it has no name")
    name, config = given.get("class_name"), given.get("config")
    refuse_foreign(str(name), given.get("module", ""), given.get("registered_name"))
    if isinstance(config, str):
        return config, "function", {}
    config = config if isinstance(config, dict) else {}
    inner = config.get("fn")
    if name in _WRAPPERS and isinstance(inner, dict):
        inner, _, more = _referred(inner)
        return inner, "class" if inner[:1].isupper() else "function", {**more, **config}
    if name in _WRAPPERS and isinstance(inner, str):
        return inner, "function", config
    return str(name), "class", config


def _shown(given: Any) -> str:
    """The name of a loss or metric in a note: for a function, its own name."""
    try:
        return _referred(given)[0][:60]
    except UnsupportedFeature:
        return str(given.get("class_name") if isinstance(given, dict) else given)[:60]


def _turn(registry: Registry[Any], type_: str, fields: dict[str, Any], held: TensorView) -> None:
    """Set `axis` to the axis that is the last one in Keras. Raises `UnsupportedFeature` if the type has no `axis`."""
    if "axis" in registry[type_].model_fields:
        fields["axis"] = held.order[-1]
    elif type_ in REDUCES_LAST_AXIS or any(fields.get(key) for key in _OF_ONE_CLASS):
        raise UnsupportedFeature("it reduces the channels, which are not the last axis in netspec")


def _check(
    registry: Registry[Any], type_: str, fields: Mapping[str, Any], held: TensorView, target: TensorType
) -> None:
    """Raise `UnsupportedFeature` if the loss or metric does not take its fields, the output, or the target."""
    builder = Builder(training=False, dtype=DType.FLOAT32)
    prediction = builder.input("prediction", TensorType((OPEN_BATCH, *held.value.shape[1:]), held.value.dtype))
    try:
        spec = registry[type_].model_validate({"type": type_, **fields})
        with in_scope(builder.enter(spec, type_)):
            spec.build(builder, prediction, builder.input("target", target))
    except ValidationError as error:
        raise UnsupportedFeature(f"{type_} does not accept it: {error.errors()[0]['msg']}") from None
    except ShapeMismatch as error:
        raise UnsupportedFeature(f"it does not fit the output: {error.message}") from None
