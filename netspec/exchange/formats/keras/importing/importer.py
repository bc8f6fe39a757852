"""Import the calls of a Keras model in order, by the rules of `layers` and `operations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.errors import Problem, did_you_mean, listing
from netspec.exchange.axis_view import axes_of_order
from netspec.exchange.formats.keras.importing.axes import (
    Order,
    TensorReaders,
    TensorView,
    axis_in_net,
    channels_first,
    data_format,
    keras_order,
    permutation_to,
    preference_of_call,
)
from netspec.exchange.formats.keras.importing.config import (
    CallOutput,
    ConfiguredLayer,
    LayerCall,
    ModelGraph,
    tensors_in,
)
from netspec.exchange.formats.keras.importing.fields import ReadContext, fields_of, without_data_format
from netspec.exchange.formats.keras.names import KerasVariable, layer_type, variables
from netspec.exchange.interface import sizes_shown, unread
from netspec.exchange.layer_builder import BuiltLayer, build_layer
from netspec.exchange.lift.inputs import OPEN_BATCH
from netspec.exchange.names import UniqueNames
from netspec.exchange.net_yaml_writer import Draft, DraftLayer, clean
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.activation.base import OverAxis
from netspec.layers.base import LayerSpec
from netspec.schema.specs.kinds import ACTIVATIONS, LAYERS, LayerFields

MAX_NAME_LENGTH = 180
"""Largest length of a name, without the suffix that makes it unique."""
_DTYPES = {"float16": "float32", "bfloat16": "float32", "float64": "float32"}

Convert: TypeAlias = "Callable[[NDArray[Any]], NDArray[Any]]"


@dataclass
class WeightedLayer:
    """A layer whose states are loaded from the file: its variables in Keras's order, and their conversions."""

    configured: ConfiguredLayer
    draft: DraftLayer
    variables: list[KerasVariable]
    shapes: dict[str, tuple[int, ...]]
    convert: dict[str, Convert] = field(default_factory=dict)
    """Conversion of each state, in addition to the order of a kernel's axes."""
    prefix: str = ""
    """Prefix of the names of the variables' states in the net."""
    stored: dict[str, str] = field(default_factory=dict)
    """Name of each state's weight in the file, if the file identifies weights by name."""
    signature: str = ""
    """Equal for two calls of a layer that need its weights in the same order."""


class KerasImporter:
    """The state of one import, and the methods that rules use."""

    def __init__(
        self, graph: ModelGraph, shapes: Mapping[str, tuple[int, ...]], reading: ReadContext, origin: str
    ) -> None:
        self.graph, self.shapes, self.reading = graph, shapes, reading
        self.draft = Draft(graph.name, origin)
        self.layer_weights: list[WeightedLayer] = []
        self.problems: list[Problem] = []
        self.views: dict[tuple[LayerCall, int], TensorView] = {}
        self._masks: dict[str, Value | None] = {}
        self._mask_formulas: list[tuple[Value, str, TensorView]] = []
        self._failed: set[LayerCall] = set()
        self._unique = UniqueNames()
        self._permuted: dict[tuple[str, tuple[int, ...]], TensorView] = {}
        self._first_calls: dict[ConfiguredLayer, WeightedLayer] = {}
        self.readers = TensorReaders(graph)
        self._import_inputs()

    # The inputs.

    def _import_inputs(self) -> None:
        input_names = [clean(call.layer.path[-1]) for call in self.graph.inputs]
        for name in sorted(self.shapes.keys() - set(input_names)):
            self.problems.append(
                Problem(f"a shape is given for `{name}`, which is not an input", expected=listing(input_names),
                        hint=did_you_mean(name, input_names))
            )  # fmt: skip
        for call in self.graph.inputs:
            if not self.readers.needs((call, 0)):
                self.reading.notes.add(*unread(call.layer.name))
                continue
            self._import_input(call)

    def _import_input(self, call: LayerCall) -> None:
        config, name = call.layer.config, clean(call.layer.path[-1])
        declared = config.get("batch_shape") or config.get("batch_input_shape")
        sizes: Any = list(declared[1:]) if isinstance(declared, (list, tuple)) and declared else None
        if name in self.shapes:
            sizes = list(self.shapes[name])
        dtype = config.get("dtype") or "float32"
        dtype = dtype if isinstance(dtype, str) else "float32"
        dtype = _DTYPES.get(dtype, dtype)
        lookups = [reader for reader in self.readers.readers_of((call, 0)) if not reader.kwargs.get("reverse")]
        if dtype == "float32" and any(_innermost(reader.layer).endswith("Embedding") for reader in lookups):
            dtype = "int32"
        if sizes is None or any(type(size) is not int or size < 1 for size in sizes):
            known_sizes = [size if type(size) is int and size > 0 else None for size in sizes or ()]
            open_axes = " and ".join(f"axis {axis}" for axis, size in enumerate(known_sizes, 1) if size is None)
            option = ",".join(str(size or "…") for size in known_sizes) or "…"
            self.problems.append(
                Problem(f"the input `{name}` has no fixed size" + (f" along {open_axes}" if open_axes else ""),
                        expected="sizes that are numbers",
                        got="unknown" if sizes is None else sizes_shown((None, *known_sizes), ("batch",)),
                        hint=f"give the sizes for which the net is made, in Keras's order: `--shape {name}={option}`")
            )  # fmt: skip
            self._failed.add(call)
            return
        if dtype not in [reader.value for reader in DType]:
            self.problems.append(Problem(f"the input `{name}` holds {dtype[:40]}, which no net takes"))
            self._failed.add(call)
            return
        if isinstance(declared, (list, tuple)) and declared[0] not in (None, -1):
            self.reading.notes.add(f"the model is for batches of {declared[0]}; the net takes any batch size")
        rank = len(sizes) + 1
        order = self.readers.order_of_input(call, rank)
        shape = [0] * rank
        for axis, size in zip(order, (OPEN_BATCH, *sizes), strict=True):
            shape[axis] = size
        name = self._unique(name[:MAX_NAME_LENGTH])
        fields: dict[str, Any] = {"shape": shape[1:]} | ({"dtype": dtype} if dtype != "float32" else {})
        self.draft.inputs[name] = fields
        value = Input(name, TensorType(tuple(shape), DType(dtype)))()
        if order != keras_order(rank):
            self.reading.notes.add(
                f"the input `{name}` is {shape[1:]}, channels first; in Keras it was {sizes}",
                "{count} inputs are channels first here, and channels last in Keras", f"`{name}` {shape[1:]}",
            )  # fmt: skip
        self.views[call, 0] = TensorView(source=name, axes=axes_of_order(order), value=value, is_input=True)

    # The calls.

    def run(
        self, apply: Callable[[KerasImporter, LayerCall], None], check: Callable[[KerasImporter, LayerCall], None]
    ) -> None:
        """Import every call; what is unsupported is collected in `problems`.

        For a layer whose input is unsupported, `check` reports the problems of the layer itself.
        """
        for call in self.readers.calls:
            failed = any(tensor.call in self._failed for tensor in call.tensors())
            try:
                (check if failed else apply)(self, call)
            except UnsupportedFeature as reason:
                failed = True
                layer = f"the layer `{call.layer.name}` ({call.layer.class_name})"
                problem = Problem(f"{layer} can't be imported: {str(reason).replace(str(OPEN_BATCH), 'N')}")
                if problem not in self.problems:
                    self.problems.append(problem)
            if failed:
                self._failed.add(call)
        if not self.problems:
            self._finish()

    def _finish(self) -> None:
        for tensor in self.graph.outputs:
            view = self.views.get((tensor.call, tensor.index))
            if view is None or view.across_samples is not None:
                problem = "does not exist" if view is None else "combines samples of the batch"
                self.problems.append(Problem(f"the output of `{tensor.call.layer.name}` {problem}"))
                continue
            if view.is_input or view.source in self.draft.outputs:
                (view,) = self.add(tensor.call, "Identity", {}, [view], view.order)
            if view.order != keras_order(len(view.order)):
                shape = list(view.value.shape[1:])
                self.reading.notes.add(
                    f"the output `{view.source}` is {shape}, channels first; in Keras it was {list(view.shape[1:])}",
                    "{count} outputs are channels first here, and channels last in Keras", f"`{view.source}` {shape}",
                )  # fmt: skip
            self.draft.outputs.append(view.source)
        self._drop_unread_layers()

    def _drop_unread_layers(self) -> None:
        """Drop layers that nothing reads: their only use was a shape, or a mask that other layers imply."""
        outputs = self.draft.outputs
        kept_layers, read = [], {*outputs, *(name.rpartition(".")[0] for name in outputs)}
        for layer in reversed(self.draft.layers):
            if layer.name in read:
                kept_layers.append(layer)
                layer_names = [name.rpartition(".")[0] for name in layer.sources]  # one of several outputs
                read.update((*layer.sources, *layer_names, layer.fields.get("share", "")))
        self.draft.layers = kept_layers[::-1]

    # Used by rules.

    def get(self, tensor: CallOutput) -> TensorView:
        """A tensor in its own order of axes. Raises `UnsupportedFeature` if its layer has no such output."""
        view = self.views.get((tensor.call, tensor.index))
        if view is None:
            raise UnsupportedFeature(f"`{tensor.call.layer.name}` has no output {tensor.index}")
        if view.across_samples is not None:
            raise UnsupportedFeature(f"`{tensor.call.layer.name}` combines samples of the batch")
        return view

    def in_keras_order(self, tensor: CallOutput | TensorView, name: str = "") -> TensorView:
        """A tensor with its axes in Keras's order."""
        view = tensor if isinstance(tensor, TensorView) else self.get(tensor)
        return self.permuted(view, keras_order(len(view.order)), name)

    def permuted(self, view: TensorView, order: Order, name: str = "") -> TensorView:
        """The tensor with its axes in that order, permuted if necessary."""
        if view.order == order:
            return view
        if view.feature_order is not None:
            raise UnsupportedFeature(
                "it needs the features of a flattened image in Keras's order (channels last), unlike netspec's"
            )
        permutation = permutation_to(view.order, order)
        permuted = self._permuted.get((view.source, permutation))
        if permuted is None:
            (permuted,) = self._add_layer(
                name or f"{view.source}/permute", "Permute", {"dims": list(permutation[1:])}, [view], [order]
            )
            self._permuted[view.source, permutation] = permuted
        return permuted

    def set_results(self, call: LayerCall, *results: TensorView) -> None:
        """Set the results of a call."""
        for index, view in enumerate(results):
            self.views[call, index] = view

    def add(
        self,
        call: LayerCall,
        type_: str,
        fields: Mapping[str, Any],
        inputs: Sequence[TensorView],
        *orders: Order,
        name: str = "",
        feature_order: Any = None,
    ) -> list[TensorView]:
        """Add a layer without weights, and return its outputs; `orders` are those of their axes (default: Keras's)."""
        return self._add_layer(
            name or self.name_of(call), type_, fields, inputs, list(orders), feature_order=feature_order
        )

    def name_of(self, call: LayerCall) -> str:
        """The name in the net of the layer of a call."""
        return "/".join(clean(part) for part in call.layer.path)

    def weighted(
        self, call: LayerCall, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView],
        orders: Callable[[Sequence[Value]], list[Order]] = lambda _: [],
        convert: Callable[[KerasVariable], tuple[str, Convert] | None] = lambda _: None, feature_order: Any = None,
    ) -> list[TensorView]:  # fmt: skip
        """Add a layer that may have weights; `convert` returns the conversion of a weight, and a text that names it.

        If a layer is called again, the second call shares the weights of the first.
        """
        layer, built = self._build(self.name_of(call), type_, fields, inputs)
        states = {name: kind.shape for name, kind in built.states.items()}
        first = self._first_calls.get(call.layer)
        if first is not None and states:
            layer.fields["share"] = first.draft.name
        if call.layer.frozen and states and "trainable" in type(built.spec).model_fields:
            layer.fields["trainable"] = False
        views = self._register(layer, built, orders(built.outputs), feature_order)
        if states:
            weights = self._weights_of_layer(call.layer, built.spec, states, convert)
            if first is None:
                self.layer_weights.append(weights)
                self._first_calls[call.layer] = weights
            elif first.signature != weights.signature or first.shapes != weights.shapes:
                raise UnsupportedFeature("it is called twice, with inputs whose axes have different orders in netspec")
        return views

    def _weights_of_layer(
        self, layer: ConfiguredLayer, spec: LayerSpec, states: dict[str, tuple[int, ...]],
        convert: Callable[[KerasVariable], tuple[str, Convert] | None],
    ) -> WeightedLayer:  # fmt: skip
        inner: Any = spec
        prefix = ""
        for _ in range(layer.wrapped):  # the file has the layers of the nested model without their wrappers
            from netspec.layers.recurrent.wrappers import inner_name

            inner = inner.layer
            prefix += f"{inner_name(inner)}/"
        names = [name.removeprefix(prefix) for name in states]
        layer_variables = variables(inner, names) if isinstance(inner, LayerFields) else []
        weights = WeightedLayer(layer, self.draft.layers[-1], layer_variables, states, prefix=prefix)
        for variable in layer_variables:
            weight_conversion = convert(variable)
            if weight_conversion is not None:
                weights.signature += f"{variable.state}: {weight_conversion[0]}; "
                weights.convert[variable.state] = weight_conversion[1]
        return weights

    def _add_layer(
        self, name: str, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView], orders: list[Order],
        feature_order: Any = None,
    ) -> list[TensorView]:  # fmt: skip
        return self._register(*self._build(name, type_, fields, inputs), orders, feature_order)

    def _build(
        self, name: str, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView]
    ) -> tuple[DraftLayer, BuiltLayer]:
        layer = DraftLayer(name, type_, dict(fields), tuple(view.source for view in inputs))
        return layer, build_layer(type_, fields, [view.value for view in inputs], list(map(self.mask, inputs)))

    def _register(
        self, layer: DraftLayer, built: BuiltLayer, orders: list[Order], feature_order: Any
    ) -> list[TensorView]:
        """Add a layer to the net under a unique name, and return its outputs."""
        name = layer.name = self._unique(layer.name[:MAX_NAME_LENGTH])
        self.draft.layers.append(layer)
        output_names = built.spec.output_names()
        views = []
        for index, value in enumerate(built.outputs):
            source = name if index == 0 else f"{name}.{output_names[index]}"
            order = orders[index] if index < len(orders) else keras_order(len(value.shape))
            views.append(TensorView(source=source, axes=axes_of_order(order), value=value, feature_order=feature_order))
        for view, mask in zip(views, built.masks, strict=False):
            self._masks[view.source] = mask
        return views

    def mask(self, view: TensorView) -> Value | None:
        """The mask of a tensor, if it has one."""
        return self._masks.get(view.source)

    def record_mask(self, view: TensorView, formula: str, source: TensorView) -> None:
        """Record that a layer makes a mask, with a formula of `source` that is 1 for valid positions."""
        mask = self.mask(view)
        if mask is not None:
            self._mask_formulas.append((mask, formula, source))

    def mask_formula(self, view: TensorView) -> tuple[str, TensorView] | None:
        """The formula of a tensor's mask, and its operand; None if there is no mask."""
        mask = self.mask(view)
        return next(
            ((formula, source) for formula_mask, formula, source in self._mask_formulas if formula_mask is mask), None
        )


def _innermost(layer: ConfiguredLayer) -> str:
    """The type of a layer, or of the layer that it wraps."""
    name, config = layer.class_name, layer.config
    while isinstance(inner := config.get("layer"), dict) and isinstance(inner.get("config"), dict):
        name, config = str(inner.get("class_name")), inner["config"]
    return layer_type(name)


KerasImportRule: TypeAlias = "Callable[[KerasImporter, LayerCall], Sequence[TensorView]]"
_RULES: RuleTable[KerasImportRule] = RuleTable("netspec.exchange.formats.keras.importing")
rule, rules = _RULES.register, _RULES.all
"""`@rule(*classes)` registers a function that imports calls of these layers."""

AXIS_FIELDS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization", "RMSNormalization",
            "Normalization", "Softmax", "Concatenate",
        ),
        "axis",
    ),
    "PReLU": "shared_axes",
}  # fmt: skip
"""Fields that hold axes of the input."""
_ONE_AXIS = ("BatchNormalization", "GroupNormalization", "Normalization", "Concatenate")
MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")


def operands(call: LayerCall) -> list[CallOutput]:
    """The tensors that the layer reads, in the order of `from`."""
    tensors = list(tensors_in(call.args))
    if "inputs" in call.kwargs:
        tensors += tensors_in(call.kwargs["inputs"])
    tensors += tensors_in(call.kwargs.get("initial_state"))
    return tensors


def layer_inputs(importer: KerasImporter, call: LayerCall, tensors: Sequence[CallOutput]) -> list[TensorView]:
    """The inputs, with the axes that the layer needs."""
    preference = preference_of_call(call)
    if preference.kind == "any":
        outer = call.layer.wrapped + (call.layer.class_name == "TimeDistributed")
        return [_steps_first(importer, importer.get(tensor), outer) for tensor in tensors]
    views = []
    for index, tensor in enumerate(tensors):
        view = importer.get(tensor)
        rank = len(view.order)
        lead = preference.lead if index == 0 else preference.lead - (len(importer.get(tensors[0]).order) - rank)
        order = channels_first(rank, lead) if preference.kind == "first" and lead > 0 else keras_order(rank)
        if view.feature_order is not None and preference.kind == "plain":
            views.append(view)  # the rule of Dense handles it
        else:
            views.append(importer.permuted(view, order))
    return views


def _steps_first(importer: KerasImporter, view: TensorView, outer: int) -> TensorView:
    """The tensor with its axes of steps right after the batch, as in Keras."""
    steps = tuple(range(1, min(outer + 1, len(view.order))))
    return view if view.order[1 : 1 + outer] == steps else importer.in_keras_order(view)


def time_distributed(call: LayerCall, type_: str, fields: dict[str, Any], inputs: int) -> tuple[str, dict[str, Any]]:
    """Wrap the layer in as many TimeDistributed as there are around its model."""
    if inputs > 1 and call.layer.wrapped and type_ not in MERGES:
        raise UnsupportedFeature("it has several inputs in a model wrapped by TimeDistributed")
    for _ in range(call.layer.wrapped if inputs == 1 else 0):
        type_, fields = "TimeDistributed", {"layer": {"type": type_, **fields}}
    return type_, fields


def import_by_fields(
    importer: KerasImporter,
    call: LayerCall,
    extra: Mapping[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
) -> list[TensorView]:
    """Import a layer with the fields of its configuration, and `extra`."""
    layer = call.layer
    type_ = layer_type(layer.class_name)
    inputs = layer_inputs(importer, call, operands(call))
    if not inputs:
        raise UnsupportedFeature("it has no inputs")
    if fields is None:
        fields = fields_of(type_, without_data_format(layer.config), importer.reading) | dict(extra or {})
    order = inputs[0].order
    convert_axes(type_, fields, order, layer.wrapped)
    _convert_inner_axes(fields, order)
    _set_activation_axis(call, type_, fields)
    preference = preference_of_call(call)

    def orders(outputs: Sequence[Value]) -> list[Order]:
        return [_output_order(type_, preference.kind, preference.lead, inputs[0], value, fields) for value in outputs]

    feature_order = inputs[0].feature_order
    outer, wrapping = time_distributed(call, type_, fields, len(inputs))
    keeps = feature_order if preference.kind == "any" else None
    return importer.weighted(
        call, outer, wrapping, inputs, orders, lambda variable: weight_conversion(variable, inputs[0], fields), keeps
    )


def _output_order(
    type_: str, kind: str, lead: int, first_input: TensorView, value: Value, fields: Mapping[str, Any]
) -> Order:
    """The order of the axes of an output."""
    rank, input_rank = len(value.shape), len(first_input.order)
    if kind == "any":
        return first_input.order if rank == input_rank else keras_order(rank)
    if kind == "plain":
        return keras_order(rank)
    inner = fields.get("layer")
    while isinstance(inner, dict):
        type_, inner = str(inner.get("type")), inner.get("layer")
    if type_.startswith("ConvLSTM"):
        return channels_first(rank, lead - (input_rank - rank))
    return channels_first(rank, lead) if rank == input_rank else keras_order(rank)


def convert_axes(type_: str, fields: dict[str, Any], order: Order, lead: int = 0) -> None:
    """Convert axes in fields to axes of the net; `lead` axes of the input do not belong to the layer."""
    layer_order = (0, *(axis - lead for axis in order[1 + lead :]))
    name = AXIS_FIELDS.get(type_)
    if name in fields and fields[name] is not None:
        axes = fields[name] if isinstance(fields[name], list) else [fields[name]]
        net_axes = sorted({axis_in_net(int(axis), layer_order) for axis in axes})
        default = LAYERS[type_].model_fields[name].default
        spellings = [net_axes, [axis - len(layer_order) for axis in net_axes]]
        spelling = next(
            (
                candidate
                for candidate in spellings
                if candidate == (list(default) if isinstance(default, tuple) else [default])
            ),
            net_axes,
        )
        if type_ in _ONE_AXIS and len(spelling) > 1:
            raise UnsupportedFeature(f"`{name}` must be one axis, got {axes}")
        fields[name] = spelling[0] if len(spelling) == 1 else spelling
    if fields.get("noise_shape"):
        sizes: list[Any] = [None] * len(order)
        for axis, size in zip(order, fields["noise_shape"], strict=False):
            sizes[axis] = size
        fields["noise_shape"] = sizes
    if type_ == "Activation" and layer_order[-1] != len(layer_order) - 1 and _along_an_axis(fields.get("activation")):
        fields["axis"] = layer_order[-1]


def _convert_inner_axes(fields: dict[str, Any], order: Order) -> None:
    inner, lead = fields.get("layer"), 1
    if isinstance(inner, dict) and len(order) > 2:
        convert_axes(str(inner["type"]), inner, order, lead)


def _along_an_axis(function: Any) -> bool:
    name = function.get("type") if isinstance(function, dict) else function
    return isinstance(name, str) and name in ACTIVATIONS and issubclass(ACTIVATIONS[name], OverAxis)


def _set_activation_axis(call: LayerCall, type_: str, fields: dict[str, Any]) -> None:
    """Set the axis of a function: the last one in Keras, even if the channels come first."""
    function = fields.get("activation")
    if data_format(call.layer.config) == "channels_first" and "Conv" in type_ and _along_an_axis(function):
        fields["activation"] = {"type": function["type"] if isinstance(function, dict) else function, "axis": -1}


def weight_conversion(
    variable: KerasVariable, first_input: TensorView, fields: Mapping[str, Any]
) -> tuple[str, Convert] | None:
    """The conversion of a weight for an input whose order of axes differs from Keras's."""
    order = first_input.order
    if variable.kind == "sample" and order != keras_order(len(order)):
        inverse = tuple(axis - 1 for axis in np.argsort(order)[1:])
        return f"sample {inverse}", lambda array: array.transpose(inverse)
    if variable.kind == "axes":
        axes = fields.get("axis", -1)
        net_axes = sorted(
            axis % len(order) for axis in (axes if isinstance(axes, list) else [axes]) if axis is not None
        )
        keras_axes = [order.index(axis) for axis in net_axes]
        permutation = tuple(sorted(range(len(keras_axes)), key=lambda k: keras_axes[k]))
        inverse = tuple(np.argsort(permutation))
        if list(inverse) != list(range(len(inverse))):
            return f"axes {inverse}", lambda array: array.transpose(inverse)
    if first_input.feature_order is not None:
        return "rows", lambda array: _reorder_features(array, first_input.feature_order)
    return None


def _reorder_features(array: NDArray[Any], feature_order: NDArray[Any]) -> NDArray[Any]:
    """Reorder the rows of a matrix, or the elements of a vector, to the net's order of features."""
    if array.shape[:1] != feature_order.shape:
        return array
    reordered = np.empty_like(array)
    reordered[feature_order] = array
    return reordered
