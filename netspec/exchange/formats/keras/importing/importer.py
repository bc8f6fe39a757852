"""Import the calls of a Keras model in order, by the rules of `layers` and `operations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from netspec.errors import NetspecError, Problem, did_you_mean, listing
from netspec.exchange.axis_view import axes_of_order
from netspec.exchange.formats.keras.importing.axes import (
    Order,
    TensorReaders,
    TensorView,
    axis_here,
    channels_first,
    data_format,
    identity,
    moved,
    wish_of_call,
)
from netspec.exchange.formats.keras.importing.config import (
    CallOutput,
    ConfiguredLayer,
    LayerCall,
    ModelGraph,
    tensors_in,
)
from netspec.exchange.formats.keras.importing.fields import ReadContext, fields_of, invalid_field, without_format
from netspec.exchange.formats.keras.names import KerasVariable, layer_type, variables
from netspec.exchange.interface import sizes_shown, unread
from netspec.exchange.lift.inputs import OPEN_BATCH
from netspec.exchange.names import UniqueNames
from netspec.exchange.net_yaml_writer import Draft, DraftLayer, clean
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, Value, in_scope
from netspec.layers.activation.base import OverAxis
from netspec.layers.base import Builder, LayerSpec
from netspec.schema.specs.kinds import ACTIVATIONS, LAYERS, LayerFields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.graph.value import Value


LONGEST = 180
"""Largest length of a name, without the number that makes it unique."""
_DTYPES = {"float16": "float32", "bfloat16": "float32", "float64": "float32"}

Convert: TypeAlias = "Callable[[NDArray[Any]], NDArray[Any]]"


@dataclass
class LayerWeights:
    """The states of a layer that the file's weights fill: variables in Keras's order, and their conversions."""

    layer: ConfiguredLayer
    draft: DraftLayer
    variables: list[KerasVariable]
    shapes: dict[str, tuple[int, ...]]
    convert: dict[str, Convert] = field(default_factory=dict)
    """Conversion of each state, in addition to the order of a kernel's axes."""
    prefix: str = ""
    """Prefix of the names of the variables' states here."""
    stored: dict[str, str] = field(default_factory=dict)
    """Name of each state's weight in the file, if the file identifies weights by name."""
    signature: str = ""
    """Equal for two calls of a layer that need its weights in the same order."""


class KerasImporter:
    """The state of one import, and the vocabulary of the rules."""

    def __init__(
        self, graph: ModelGraph, shapes: Mapping[str, tuple[int, ...]], reading: ReadContext, origin: str
    ) -> None:
        self.graph, self.shapes, self.reading = graph, shapes, reading
        self.draft = Draft(graph.name, origin)
        self.wanted: list[LayerWeights] = []
        self.problems: list[Problem] = []
        self.held: dict[tuple[LayerCall, int], TensorView] = {}
        self._masks: dict[str, Value | None] = {}
        self._counted: list[tuple[Value, str, TensorView]] = []
        self._lost: set[LayerCall] = set()
        self._unique = UniqueNames()
        self._turned: dict[tuple[str, tuple[int, ...]], TensorView] = {}
        self._first: dict[ConfiguredLayer, LayerWeights] = {}
        self.readers = TensorReaders(graph)
        self._take_inputs()

    # The inputs.

    def _take_inputs(self) -> None:
        known = [clean(call.layer.path[-1]) for call in self.graph.inputs]
        for name in sorted(self.shapes.keys() - set(known)):
            self.problems.append(
                Problem(f"a shape is given for `{name}`, which is not an input", expected=listing(known),
                        hint=did_you_mean(name, known))
            )  # fmt: skip
        for call in self.graph.inputs:
            if not self.readers.needs((call, 0)):
                self.reading.note(*unread(call.layer.name))
                continue
            self._input(call)

    def _input(self, call: LayerCall) -> None:
        config, name = call.layer.config, clean(call.layer.path[-1])
        declared = config.get("batch_shape") or config.get("batch_input_shape")
        sizes: Any = list(declared[1:]) if isinstance(declared, (list, tuple)) and declared else None
        if name in self.shapes:
            sizes = list(self.shapes[name])
        dtype = config.get("dtype") or "float32"
        dtype = dtype if isinstance(dtype, str) else "float32"
        dtype = _DTYPES.get(dtype, dtype)
        looked_up = [one for one in self.readers.of((call, 0)) if not one.kwargs.get("reverse")]
        if dtype == "float32" and any(_innermost(one.layer).endswith("Embedding") for one in looked_up):
            dtype = "int32"
        if sizes is None or any(type(size) is not int or size < 1 for size in sizes):
            known = [size if type(size) is int and size > 0 else None for size in sizes or ()]
            along = " and ".join(f"axis {place}" for place, size in enumerate(known, 1) if size is None)
            option = ",".join(str(size or "…") for size in known) or "…"
            self.problems.append(
                Problem(f"the input `{name}` has no fixed size" + (f" along {along}" if along else ""),
                        expected="sizes that are numbers",
                        got="unknown" if sizes is None else sizes_shown((None, *known), ("batch",)),
                        hint=f"give the sizes for which the net is made, in Keras's order: `--shape {name}={option}`")
            )  # fmt: skip
            self._lost.add(call)
            return
        if dtype not in [one.value for one in DType]:
            self.problems.append(Problem(f"the input `{name}` holds {dtype[:40]}, which no net takes"))
            self._lost.add(call)
            return
        if isinstance(declared, (list, tuple)) and declared[0] not in (None, -1):
            self.reading.note(f"the model is for batches of {declared[0]}; the net takes any batch size")
        rank = len(sizes) + 1
        order = self.readers.order_of_input(call, rank)
        shape = [0] * rank
        for axis, size in zip(order, (OPEN_BATCH, *sizes), strict=True):
            shape[axis] = size
        name = self._unique(name[:LONGEST])
        fields: dict[str, Any] = {"shape": shape[1:]} | ({"dtype": dtype} if dtype != "float32" else {})
        self.draft.inputs[name] = fields
        value = Input(name, TensorType(tuple(shape), DType(dtype)))()
        if order != identity(rank):
            self.reading.note(
                f"the input `{name}` is {shape[1:]}, channels first; in Keras it was {sizes}",
                "{count} inputs are channels first here, and channels last in Keras", f"`{name}` {shape[1:]}",
            )  # fmt: skip
        self.held[call, 0] = TensorView(source=name, axes=axes_of_order(order), value=value, is_input=True)

    # Walking.

    def run(
        self, apply: Callable[[KerasImporter, LayerCall], None], check: Callable[[KerasImporter, LayerCall], None]
    ) -> None:
        """Import every call; what is unsupported is collected in `problems`.

        For a layer whose input is unsupported, `check` reports the problems of the layer itself.
        """
        for call in self.readers.calls:
            lost = any(one.call in self._lost for one in call.tensors())
            try:
                (check if lost else apply)(self, call)
            except UnsupportedFeature as reason:
                lost = True
                what = f"the layer `{call.layer.name}` ({call.layer.class_name})"
                problem = Problem(f"{what} can't be imported: {str(reason).replace(str(OPEN_BATCH), 'N')}")
                if problem not in self.problems:
                    self.problems.append(problem)
            if lost:
                self._lost.add(call)
        if not self.problems:
            self._finish()

    def _finish(self) -> None:
        for tensor in self.graph.outputs:
            held = self.held.get((tensor.call, tensor.index))
            if held is None or held.through is not None:
                what = "is not there" if held is None else "goes through all samples of the batch"
                self.problems.append(Problem(f"the output of `{tensor.call.layer.name}` {what}"))
                continue
            if held.is_input or held.source in self.draft.outputs:
                (held,) = self.add(tensor.call, "Identity", {}, [held], held.order)
            if held.order != identity(len(held.order)):
                have = list(held.value.shape[1:])
                self.reading.note(
                    f"the output `{held.source}` is {have}, channels first; in Keras it was {list(held.shape[1:])}",
                    "{count} outputs are channels first here, and channels last in Keras", f"`{held.source}` {have}",
                )  # fmt: skip
            self.draft.outputs.append(held.source)
        self._leave_out_unread()

    def _leave_out_unread(self) -> None:
        """Layers that became nothing: they only set a shape, or a mask that follows from other layers here."""
        outputs = self.draft.outputs
        kept, read = [], {*outputs, *(name.rpartition(".")[0] for name in outputs)}
        for layer in reversed(self.draft.layers):
            if layer.name in read:
                kept.append(layer)
                whole = [name.rpartition(".")[0] for name in layer.sources]  # one of several outputs
                read.update((*layer.sources, *whole, layer.fields.get("share", "")))
        self.draft.layers = kept[::-1]

    # Used by rules.

    def get(self, tensor: CallOutput) -> TensorView:
        """A tensor in its own order of axes. Raises `UnsupportedFeature` if its layer has no such output."""
        found = self.held.get((tensor.call, tensor.index))
        if found is None:
            raise UnsupportedFeature(f"`{tensor.call.layer.name}` has no output {tensor.index}")
        if found.through is not None:
            raise UnsupportedFeature(f"`{tensor.call.layer.name}` goes through all samples of the batch")
        return found

    def plain(self, tensor: CallOutput | TensorView, name: str = "") -> TensorView:
        """A tensor with its axes in Keras's order."""
        held = tensor if isinstance(tensor, TensorView) else self.get(tensor)
        return self.turned(held, identity(len(held.order)), name)

    def turned(self, held: TensorView, order: Order, name: str = "") -> TensorView:
        """The tensor with its axes in that order, permuted if necessary."""
        if held.order == order:
            return held
        if held.rows is not None:
            raise UnsupportedFeature("the features of a flattened image come in another order")
        permutation = moved(held.order, order)
        known = self._turned.get((held.source, permutation))
        if known is None:
            (known,) = self._write(
                name or f"{held.source}/permute", "Permute", {"dims": list(permutation[1:])}, [held], [order]
            )
            self._turned[held.source, permutation] = known
        return known

    def put(self, call: LayerCall, *made: TensorView) -> None:
        """The results of a call."""
        for index, held in enumerate(made):
            self.held[call, index] = held

    def add(
        self,
        call: LayerCall,
        type_: str,
        fields: Mapping[str, Any],
        inputs: Sequence[TensorView],
        *orders: Order,
        name: str = "",
        rows: Any = None,
    ) -> list[TensorView]:
        """Add a layer without weights, and return its outputs; `orders` are those of their axes (default: Keras's)."""
        return self._write(name or self.name_of(call), type_, fields, inputs, list(orders), rows=rows)

    def name_of(self, call: LayerCall) -> str:
        """The name here of the layer of a call."""
        return "/".join(clean(part) for part in call.layer.path)

    def weighted(
        self, call: LayerCall, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView],
        orders: Callable[[Sequence[Value]], list[Order]],
        convert: Callable[[KerasVariable], tuple[str, Convert] | None],
        rows: Any = None,
    ) -> list[TensorView]:  # fmt: skip
        """Add a layer that may have weights; `convert` returns the conversion of a weight, and a text that names it.

        If a layer is called again, the second call shares the weights of the first.
        """
        spec, builder, made = self._build(type_, fields, inputs)
        states = {name.removeprefix("layer/"): info.value.shape for name, info in builder.states.items()}
        first = self._first.get(call.layer)
        given = dict(fields)
        if first is not None and states:
            given["share"] = first.draft.name
        if call.layer.frozen and states and "trainable" in type(spec).model_fields:
            given["trainable"] = False
        held = self._register(self.name_of(call), type_, given, inputs, spec, builder, made, orders(made), rows)
        if states:
            wanted = self._want(call.layer, spec, states, convert)
            if first is None:
                self.wanted.append(wanted)
                self._first[call.layer] = wanted
            elif first.signature != wanted.signature or first.shapes != wanted.shapes:
                raise UnsupportedFeature("it is called twice, with inputs whose axes have different orders")
        return held

    def _want(
        self, layer: ConfiguredLayer, spec: LayerSpec, states: dict[str, tuple[int, ...]],
        convert: Callable[[KerasVariable], tuple[str, Convert] | None],
    ) -> LayerWeights:  # fmt: skip
        inner: Any = spec
        prefix = ""
        for _ in range(layer.wrapped):  # the file has the layers of the nested model without their wrappers
            from netspec.layers.recurrent.wrappers import inner_name

            inner = inner.layer
            prefix += f"{inner_name(inner)}/"
        names = [name.removeprefix(prefix) for name in states]
        listed = variables(inner, names) if isinstance(inner, LayerFields) else []
        found = LayerWeights(layer, self.draft.layers[-1], listed, states, prefix=prefix)
        for one in listed:
            told = convert(one)
            if told is not None:
                found.signature += f"{one.state}: {told[0]}; "
                found.convert[one.state] = told[1]
        return found

    def _write(
        self, name: str, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView], orders: list[Order],
        rows: Any = None,
    ) -> list[TensorView]:  # fmt: skip
        spec, builder, made = self._build(type_, fields, inputs)
        return self._register(name, type_, fields, inputs, spec, builder, made, orders, rows)

    def _register(
        self, name: str, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView], spec: LayerSpec,
        builder: Builder, made: tuple[Value, ...], orders: list[Order], rows: Any,
    ) -> list[TensorView]:  # fmt: skip
        name = self._unique(name[:LONGEST])
        self.draft.layers.append(DraftLayer(name, type_, dict(fields), tuple(one.source for one in inputs)))
        outputs = spec.output_names()
        found = []
        for index, value in enumerate(made):
            source = name if index == 0 else f"{name}.{outputs[index]}"
            order = orders[index] if index < len(orders) else identity(len(value.shape))
            found.append(TensorView(source=source, axes=axes_of_order(order), value=value, rows=rows))
        masks = spec.mask(builder, *(tensor.value for tensor in inputs))
        for one, mask in zip(found, masks if isinstance(masks, tuple) else (masks,), strict=False):
            self._masks[one.source] = mask
        return found

    def mask(self, held: TensorView) -> Value | None:
        """The mask of a tensor, if it has one."""
        return self._masks.get(held.source)

    def remember(self, held: TensorView, formula: str, source: TensorView) -> None:
        """Record that a layer makes a mask, with a formula of `source` that is 1 for valid positions."""
        mask = self.mask(held)
        if mask is not None:
            self._counted.append((mask, formula, source))

    def counts(self, held: TensorView) -> tuple[str, TensorView] | None:
        """The formula of a tensor's mask, and its operand; None if there is no mask."""
        mask = self.mask(held)
        return next(((formula, source) for one, formula, source in self._counted if one is mask), None)

    def _build(
        self, type_: str, fields: Mapping[str, Any], inputs: Sequence[TensorView]
    ) -> tuple[LayerSpec, Builder, tuple[Value, ...]]:
        builder = Builder(training=False, dtype=DType.FLOAT32)
        try:
            spec = LAYERS[type_].model_validate({"type": type_, **fields})
            assert isinstance(spec, LayerSpec)
            with in_scope(builder.enter(spec, "layer", [self.mask(tensor) for tensor in inputs])):
                made = spec.build(builder, *(one.value for one in inputs))
        except ValidationError as error:
            raise invalid_field(type_, error) from None
        except ShapeMismatch as error:
            raise UnsupportedFeature(f"{type_} does not fit: {error.message} (got {error.got})"[:300]) from None
        except NetspecError as error:
            raise UnsupportedFeature(f"{type_} does not fit: {error.summary}"[:300]) from None
        except TypeError as error:  # a wrong number of inputs
            raise UnsupportedFeature(f"{type_} does not fit: {error}"[:300]) from None
        return spec, builder, made if isinstance(made, tuple) else (made,)


def _innermost(layer: ConfiguredLayer) -> str:
    """The type of a layer, or of the layer that it wraps."""
    name, config = layer.class_name, layer.config
    while isinstance(inner := config.get("layer"), dict) and isinstance(inner.get("config"), dict):
        name, config = str(inner.get("class_name")), inner["config"]
    return layer_type(name)


KerasImportRule: TypeAlias = "Callable[[KerasImporter, LayerCall], None]"
_RULES: dict[str, KerasImportRule] = {}

AXES: Mapping[str, str] = {
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


def rule(*classes: str) -> Callable[[KerasImportRule], KerasImportRule]:
    """Decorator: the function imports calls of these layers."""

    def register(function: KerasImportRule) -> KerasImportRule:
        _RULES.update(dict.fromkeys(classes, function))
        return function

    return register


def ruled() -> list[str]:
    """Names of the Keras layers that have an import rule."""
    return list(_RULES)


def rule_of(type_: str) -> KerasImportRule | None:
    """The rule of a layer, if it has one of its own."""
    return _RULES.get(type_)


def operands(importer: KerasImporter, call: LayerCall) -> list[CallOutput]:
    """The tensors that the layer reads, in the order of `from`."""
    found = list(tensors_in(call.args))
    if "inputs" in call.kwargs:
        found += tensors_in(call.kwargs["inputs"])
    found += tensors_in(call.kwargs.get("initial_state"))
    return found


def arrived(importer: KerasImporter, call: LayerCall, tensors: Sequence[CallOutput]) -> list[TensorView]:
    """The inputs, with the axes that the layer needs."""
    wish = wish_of_call(call)
    if wish.kind == "any":
        outer = call.layer.wrapped + (call.layer.class_name == "TimeDistributed")
        return [_steps_first(importer, importer.get(tensor), outer) for tensor in tensors]
    found = []
    for index, one in enumerate(tensors):
        held = importer.get(one)
        rank = len(held.order)
        lead = wish.lead if index == 0 else wish.lead - (len(importer.get(tensors[0]).order) - rank)
        order = channels_first(rank, lead) if wish.kind == "first" and lead > 0 else identity(rank)
        if held.rows is not None and wish.kind == "plain":
            found.append(held)  # the rule of Dense handles it
        else:
            found.append(importer.turned(held, order))
    return found


def _steps_first(importer: KerasImporter, held: TensorView, outer: int) -> TensorView:
    """A tensor whose axes of steps, after the batch, have Keras's order."""
    steps = tuple(range(1, min(outer + 1, len(held.order))))
    return held if held.order[1 : 1 + outer] == steps else importer.plain(held)


def wrapped(
    importer: KerasImporter, call: LayerCall, type_: str, fields: dict[str, Any], inputs: int
) -> tuple[str, dict[str, Any]]:
    """The layer in as many TimeDistributed wrappers as its model has."""
    if inputs > 1 and call.layer.wrapped and type_ not in MERGES:
        raise UnsupportedFeature("it has several inputs within a model that is TimeDistributed")
    for _ in range(call.layer.wrapped if inputs == 1 else 0):
        type_, fields = "TimeDistributed", {"layer": {"type": type_, **fields}}
    return type_, fields


def usual(
    importer: KerasImporter,
    call: LayerCall,
    more: Mapping[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
) -> None:
    """Import a layer with the fields of its configuration, and `more`."""
    layer = call.layer
    type_ = layer_type(layer.class_name)
    given = arrived(importer, call, operands(importer, call))
    if not given:
        raise UnsupportedFeature("it reads nothing")
    if fields is None:
        fields = fields_of(type_, without_format(layer.config), importer.reading) | dict(more or {})
    order = given[0].order
    turn_fields(type_, fields, order, layer.wrapped)
    _turn_inner(fields, order)
    _softmax_of_channels_first(call, type_, fields)
    wish = wish_of_call(call)

    def orders(made: Sequence[Value]) -> list[Order]:
        return [_order_behind(type_, wish.kind, wish.lead, given[0], value, fields) for value in made]

    rows = given[0].rows
    outer, wrapping = wrapped(importer, call, type_, fields, len(given))
    keeps = rows if wish.kind == "any" else None
    held = importer.weighted(call, outer, wrapping, given, orders, lambda one: conversion(one, given[0], fields), keeps)
    importer.put(call, *held)


def _order_behind(
    type_: str, kind: str, lead: int, given: TensorView, value: Value, fields: Mapping[str, Any]
) -> Order:
    """The order of the axes of an output."""
    rank, before = len(value.shape), len(given.order)
    if kind == "any":
        return given.order if rank == before else identity(rank)
    if kind == "plain":
        return identity(rank)
    inner = fields.get("layer")
    while isinstance(inner, dict):
        type_, inner = str(inner.get("type")), inner.get("layer")
    if type_.startswith("ConvLSTM"):
        return channels_first(rank, lead - (before - rank))
    return channels_first(rank, lead) if rank == before else identity(rank)


def turn_fields(type_: str, fields: dict[str, Any], order: Order, lead: int = 0) -> None:
    """Axes in fields, as they are counted here; `lead` axes of the input do not belong to the layer."""
    own = (0, *(axis - lead for axis in order[1 + lead :]))
    name = AXES.get(type_)
    if name in fields and fields[name] is not None:
        axes = fields[name] if isinstance(fields[name], list) else [fields[name]]
        turned = sorted({axis_here(int(axis), own) for axis in axes})
        usual_ = LAYERS[type_].model_fields[name].default
        like = [turned, [axis - len(own) for axis in turned]]
        same = next((one for one in like if one == (list(usual_) if isinstance(usual_, tuple) else [usual_])), turned)
        if type_ in _ONE_AXIS and len(same) > 1:
            raise UnsupportedFeature(f"`{name}` are several axes, {axes}")
        fields[name] = same[0] if len(same) == 1 else same
    if fields.get("noise_shape"):
        sizes: list[Any] = [None] * len(order)
        for axis, size in zip(order, fields["noise_shape"], strict=False):
            sizes[axis] = size
        fields["noise_shape"] = sizes
    if type_ == "Activation" and own[-1] != len(own) - 1 and _along_an_axis(fields.get("activation")):
        fields["axis"] = own[-1]


def _turn_inner(fields: dict[str, Any], order: Order) -> None:
    inner, lead = fields.get("layer"), 1
    if isinstance(inner, dict) and len(order) > 2:
        turn_fields(str(inner["type"]), inner, order, lead)


def _along_an_axis(function: Any) -> bool:
    name = function.get("type") if isinstance(function, dict) else function
    return isinstance(name, str) and name in ACTIVATIONS and issubclass(ACTIVATIONS[name], OverAxis)


def _softmax_of_channels_first(call: LayerCall, type_: str, fields: dict[str, Any]) -> None:
    """Set the axis of a function: the last one in Keras, even if the channels come first."""
    function = fields.get("activation")
    if data_format(call.layer.config) == "channels_first" and "Conv" in type_ and _along_an_axis(function):
        fields["activation"] = {"type": function["type"] if isinstance(function, dict) else function, "axis": -1}


def conversion(one: KerasVariable, given: TensorView, fields: Mapping[str, Any]) -> tuple[str, Convert] | None:
    """The conversion of a weight for an input whose order of axes differs from Keras's."""
    import numpy as np

    order = given.order
    if one.kind == "sample" and order != identity(len(order)):
        back = tuple(axis - 1 for axis in np.argsort(order)[1:])
        return f"sample {back}", lambda array: array.transpose(back)
    if one.kind == "axes":
        axes = fields.get("axis", -1)
        here = sorted(axis % len(order) for axis in (axes if isinstance(axes, list) else [axes]) if axis is not None)
        there = [order.index(axis) for axis in here]
        turn = tuple(sorted(range(len(there)), key=lambda k: there[k]))
        back = tuple(np.argsort(turn))
        if list(back) != list(range(len(back))):
            return f"axes {back}", lambda array: array.transpose(back)
    if given.rows is not None:
        return "rows", lambda array: _put_rows(array, given.rows)
    return None


def _put_rows(array: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Reorder the rows of a matrix, or the elements of a vector, to the order of features here."""
    import numpy as np

    if array.shape[:1] != rows.shape:
        return array
    found = np.empty_like(array)
    found[rows] = array
    return found
