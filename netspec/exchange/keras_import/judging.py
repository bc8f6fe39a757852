"""What a model was compiled with → losses and metrics of the net, and the inputs for what they compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from netspec.errors import NetspecError
from netspec.exchange.keras_import.axes import Held, identity
from netspec.exchange.keras_import.fields import Unsupported, plain, refuse_foreign
from netspec.exchange.keras_import.translate import BATCH, Translator
from netspec.graph.types import DType, TensorType
from netspec.graph.value import in_scope
from netspec.layers.base import Builder
from netspec.schema.foreign import meant_by
from netspec.schema.kinds import LOSSES, METRICS
from netspec.schema.spec import Registry

_ACCURACY = ("accuracy", "acc")
_OF_LOSS = {"Sparse": "SparseCategoricalAccuracy", "Categorical": "CategoricalAccuracy", "Binary": "BinaryAccuracy"}
"""Which accuracy is meant, by how the class of the loss begins."""
_WITHOUT = ("name", "dtype", "fn", "reduction")


class Judging:
    """Writes down losses and metrics; what has no counterpart is noted, and the net is there all the same."""

    def __init__(self, net: Translator, output_names: Sequence[str]) -> None:
        self.net = net
        self.outputs = net.graph.outputs
        self.names = list(output_names)
        self.targets: dict[int, str] = {}
        self.losses: dict[int, str] = {}
        """By output: the class of its loss."""
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

    def _each(self, given: Any, *, of_lists: bool = False) -> Iterator[tuple[int, Any]]:
        """What is said of each output: for all, in a list, or by their names."""
        count = len(self.outputs)
        if isinstance(given, dict) and "class_name" not in given:
            for name, one in given.items():
                if name in self.names and one is not None:
                    yield self.names.index(name), one
                elif one is not None:
                    self.net.reading.note(f"there is no output `{str(name)[:60]}` to judge")
        elif isinstance(given, list) and (not of_lists or (any(isinstance(one, (list, dict)) for one in given) and (
            len(given) == count and (count > 1 or isinstance(given[0], list))))):  # fmt: skip
            yield from ((index, one) for index, one in enumerate(given[:count]) if one is not None)
        elif given is not None:
            yield from ((index, given) for index in range(count))

    def _one(self, registry: Registry[Any], index: int, given: Any, more: Mapping[str, Any]) -> None:
        tensor = self.outputs[index]
        held = self.net.held[tensor.call, tensor.index]
        output = self.net.draft.outputs[index]
        try:
            type_, fields = self._named(registry, given, self.losses.get(index, ""))
            if held.order != identity(len(held.order)) and "axis" in registry[type_].model_fields:
                fields["axis"] = held.order[-1]
            target = self._target(registry, index, output, held, type_, fields)
        except (Unsupported, NetspecError) as reason:
            what = given.get("class_name") if isinstance(given, dict) else given
            text = reason.summary if isinstance(reason, NetspecError) else str(reason)
            self.net.reading.note(f"the {registry.kind} {str(what)[:60]!r} of `{output}` was left out: {text}"[:300])
            return
        entry: dict[str, Any] = {"type": type_, "from": [output, target], **fields, **more}
        if registry is LOSSES:
            self.losses[index] = type_
            self.net.draft.losses.append(entry)
        else:
            self.net.draft.metrics.append(entry)
        same = [one for one in self._entries(registry) if one["type"] == type_]
        if len(same) > 1:
            for one in same:
                one.setdefault("name", f"{one['from'][0]}_{type_}".replace("/", "_"))

    def _entries(self, registry: Registry[Any]) -> list[dict[str, Any]]:
        return self.net.draft.losses if registry is LOSSES else self.net.draft.metrics

    def _named(self, registry: Registry[Any], given: Any, loss: str) -> tuple[str, dict[str, Any]]:
        config: dict[str, Any] = {}
        if isinstance(given, dict):
            name, inside = given.get("class_name"), given.get("config")
            refuse_foreign(str(name), given.get("module"), given.get("registered_name"))
            if isinstance(inside, str):
                name = inside  # a function
            elif isinstance(inside, dict):
                config = inside
                if name in ("MeanMetricWrapper", "LossFunctionWrapper", "function") and isinstance(
                    inside.get("fn"), str
                ):
                    name = inside["fn"]
        else:
            name = given
        if not isinstance(name, str):
            raise Unsupported("it has no name")
        if registry is METRICS and name in _ACCURACY:
            name = next((one for start, one in _OF_LOSS.items() if loss.startswith(start)), "")
            if not name:
                raise Unsupported("it does not follow from the loss which accuracy is meant")
        type_ = registry.spelled(name)
        if type_ not in registry:
            meant = meant_by(registry.kind, name, registry.names())
            if meant is None or meant.name is None or meant.name not in registry:
                raise Unsupported(f"there is no {registry.kind} of that name")
            type_ = meant.name
        declared = registry[type_].model_fields
        fields: dict[str, Any] = {}
        for key, value in config.items():
            usual = key in declared and declared[key].get_default(call_default_factory=True)
            if key in declared and key not in _WITHOUT and value is not None:
                kept = plain(value)
                if kept != (list(usual) if isinstance(usual, tuple) else usual) and not (key == "axis" and kept == -1):
                    fields[key] = kept
            elif key == "reduction" and "reduction" in declared and value not in (usual, None, "auto", "mean", "none"):
                fields[key] = value
            elif key not in declared and key not in _WITHOUT and value not in (None, False, 0, 0.0, [], usual):
                self.net.reading.note(f"`{key}` of the {registry.kind} {type_} was left out")
        return type_, fields

    def _target(
        self, registry: Registry[Any], index: int, output: str, held: Held, type_: str, fields: Mapping[str, Any]
    ) -> str:
        """The input that the output is compared with: made with the first that compares, if it fits."""
        shape = held.value.shape
        axis = fields.get("axis", -1)
        if index in self.targets:
            kind = self._values[self.targets[index]]
        elif "Sparse" in type_:
            left = shape[: axis % len(shape)] + shape[axis % len(shape) + 1 :]
            kind = TensorType(left, DType("int32"))
        else:
            kind = TensorType(shape, DType("float32"))
        builder = Builder(training=False, dtype=DType.FLOAT32)
        try:
            spec = registry[type_].model_validate({"type": type_, **fields})
        except ValidationError as error:
            raise Unsupported(f"{type_} does not take it: {error.errors()[0]['msg']}") from None
        prediction = builder.input("prediction", TensorType((BATCH, *shape[1:]), held.value.dtype))
        with in_scope(builder.enter(spec, type_)):
            spec.build(builder, prediction, builder.input("target", kind))
        if index not in self.targets:
            name = "target" if len(self.outputs) == 1 else f"{output}_target"
            while name in self.net.draft.inputs or any(layer.name == name for layer in self.net.draft.layers):
                name += "_"
            declared: dict[str, Any] = {"shape": list(kind.shape[1:])}
            if str(kind.dtype) != "float32":
                declared["dtype"] = str(kind.dtype)
            self.net.draft.inputs[name] = declared
            self.targets[index], self._values[name] = name, kind
        return self.targets[index]
