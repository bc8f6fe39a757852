"""What each layer of Keras becomes. Most go by their fields alone; here is what differs."""

from __future__ import annotations

from typing import Any

from netspec.exchange.keras_import import elements, moving, products, reducing, shaping, unlisted  # noqa: F401  # operations and rules register there
from netspec.exchange.keras_import.axes import axis_here, data_format
from netspec.exchange.keras_import.config import MASKED, Call, Tensor, is_operation, tensors_in
from netspec.exchange.keras_import.fields import Unsupported, fields_of, plain, refuse_foreign, without_format
from netspec.exchange.keras_import.operations import operate
from netspec.exchange.keras_import.samples import followed
from netspec.exchange.keras_import.translate import Translator
from netspec.exchange.keras_import.vocabulary import MERGES, operands, rule, rule_of, turn_fields, usual, wrapped
from netspec.exchange.keras_names import layer_type
from netspec.schema.foreign import meant_by
from netspec.schema.kinds import LAYERS

_ARGUMENTS = frozenset(("training", "mask", "initial_state", "use_causal_mask", "attention_mask", "query", "value",
                        "key", "reverse", "inputs", "query_mask", "value_mask", "key_mask", "name"))  # fmt: skip


_AS_IT_IS = ("Dense", "Embedding", "SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
"""Layers with a rule that reads their configuration as it stands."""


def apply(net: Translator, call: Call) -> None:
    """Write down a call, or raise `Unsupported` with the reason."""
    layer = call.layer
    _check_origin(net, call)
    if _is_operation(call):
        if not followed(net, call):
            operate(net, call)
        return
    for name, value in call.kwargs.items():
        if name not in _ARGUMENTS and value not in (None, False, [], {}):
            raise Unsupported(f"it is called with `{name[:40]}`")
    _check_mask(net, call)
    type_ = layer_type(layer.class_name)
    found = rule_of(type_)
    if found is not None:
        found(net, call)
    else:
        usual(net, call)


def check(net: Translator, call: Call) -> None:
    """Raise `Unsupported` for a layer that has no counterpart, whatever it reads."""
    _check_origin(net, call)
    type_ = layer_type(call.layer.class_name)
    if not _is_operation(call) and type_ in LAYERS and (rule_of(type_) is None or type_ in _AS_IT_IS):
        fields_of(type_, without_format(call.layer.config), net.reading)


def _check_origin(net: Translator, call: Call) -> None:
    layer, type_ = call.layer, layer_type(call.layer.class_name)
    refuse_foreign(layer.class_name, layer.module or None, layer.registered)
    _check_precision(net, call)
    if not _is_operation(call) and type_ not in LAYERS and rule_of(type_) is None:
        meant = meant_by("layer", type_, LAYERS.names())
        raise Unsupported("there is no such layer" + (f": {meant.hint}" if meant else ""))


def _is_operation(call: Call) -> bool:
    layer = call.layer
    old = layer.class_name in ("TFOpLambda", "SlicingOpLambda")
    return is_operation(layer.module) or old or _has_constants(call)


def _check_precision(net: Translator, call: Call) -> None:
    policy = call.layer.config.get("dtype")
    name = (policy.get("config") or {}).get("name") if isinstance(policy, dict) else policy
    if _is_operation(call):
        return
    if isinstance(name, str) and ("int8" in name or "int4" in name or "float8" in name) and call.layer.class_name:
        raise Unsupported(f"its weights are quantized ({name[:40]})")
    if isinstance(name, str) and "16" in name:
        net.reading.note(f"Keras computed in {name}; here the train file says the precision")


def _check_mask(net: Translator, call: Call) -> None:
    """Masks follow from Masking and `mask_zero`; one that somebody gives otherwise is refused."""
    masks = list(tensors_in(call.kwargs.get("mask")))
    if masks and call.layer.class_name not in MASKED and not any(net.mask(net.get(one)) for one in call.tensors()):
        raise Unsupported("it is called with a mask that no layer before it makes")


def _has_constants(call: Call) -> bool:
    """Whether an operation was written without its module, as old files have it: `x + 1`."""
    return layer_type(call.layer.class_name) in MERGES and any(
        not isinstance(one, (Tensor, list, tuple, dict)) for one in call.args
    )


@rule("Softmax")
def softmax(net: Translator, call: Call) -> None:
    """Of the places that count: a mask that no layer made is a second input."""
    masks = list(tensors_in(call.kwargs.get("mask")))
    (tensor,) = operands(net, call)
    held = net.get(tensor)
    if not masks or net.mask(held) is not None:
        usual(net, call)
        return
    mask = net.turned(net.get(masks[0]), held.order)
    fields = fields_of("Softmax", call.layer.config, net.reading)
    turn_fields("Softmax", fields, held.order)
    net.put(call, *net.add(call, "Softmax", fields, [held, mask], held.order))


@rule("Embedding", "ReversibleEmbedding")
def embedding(net: Translator, call: Call) -> None:
    """Whole numbers, which Keras has as floats at times; ReversibleEmbedding may be called for the way back."""
    (tensor,) = operands(net, call)[:1]
    type_, held = layer_type(call.layer.class_name), net.plain(tensor)
    fields = fields_of(type_, call.layer.config, net.reading)
    if call.kwargs.get("reverse"):
        fields["reverse"] = True
    elif held.value.dtype.is_float:
        (held,) = net.add(call, "Cast", {"dtype": "int32"}, [held], name=f"{net.name_of(call)}/cast")
    type_, fields = wrapped(net, call, type_, fields, 1)
    looked_up = held
    net.put(call, *net.weighted(call, type_, fields, [held], lambda _: [], lambda _: None))
    net.remember(net.held[call, 0], "1 if x > 0 else 0", looked_up)


@rule("SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
def recurrent(net: Translator, call: Call) -> None:
    """In Keras 3 a layer that is given first states heeds no mask."""
    first, *states = operands(net, call)
    held = net.get(first)
    more = {"reset_after": True} if call.layer.class_name == "CuDNNGRU" else {}
    if states and call.tells_mask and not list(tensors_in(call.kwargs.get("mask"))) and net.mask(held) is not None:
        held = net.plain(held)
        name, shape = f"{net.name_of(call)}/unmasked", list(held.value.shape[1:])
        net.held[first.call, first.index], kept = (
            net.add(call, "Reshape", {"target_shape": shape}, [held], name=name)[0],
            net.get(first),
        )
        usual(net, call, more)
        net.held[first.call, first.index] = kept
    else:
        usual(net, call, more)


@rule("Conv2DTranspose")
def transposed(net: Translator, call: Call) -> None:
    """Keras 1 says the shape of the output, which follows from the rest."""
    config = call.layer.config
    kept = {key: value for key, value in config.items() if key != "output_shape"}
    usual(net, call, fields=fields_of("Conv2DTranspose", without_format(kept), net.reading))
    told, made = plain(config.get("output_shape") or []), list(net.held[call, 0].shape[1:])
    if told and told[1:] != made:
        raise Unsupported(f"its output is {told[1:]}, and from the other fields follows {made}")


@rule("Bidirectional")
def bidirectional(net: Translator, call: Call) -> None:
    """Both layers, of which the second is left out where it is as the first; steps without a mask get zeros anyway."""
    config = dict(call.layer.config)
    if "layer" not in config and isinstance(config.get("forward_layer"), dict):
        config["layer"] = config["forward_layer"]
    config.pop("forward_layer", None)
    for name in ("layer", "backward_layer"):
        inner = config.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("config"), dict):
            told = {key: one for key, one in inner["config"].items() if key != "zero_output_for_mask"}
            config[name] = {**inner, "config": told}
    fields = fields_of("Bidirectional", config, net.reading)
    forward, backward = fields["layer"], fields.get("backward_layer")
    if isinstance(backward, dict) and {**forward, "go_backwards": True} == backward:
        fields["backward_layer"] = None
    usual(net, call, fields=fields)


@rule("GroupNormalization")
def group_normalization(net: Translator, call: Call) -> None:
    """`groups: -1` is one for each channel."""
    held, config = net.get(operands(net, call)[0]), call.layer.config
    axis = config.get("axis", -1)
    more = {"groups": held.shape[axis]} if config.get("groups") == -1 and isinstance(axis, int) else {}
    usual(net, call, more)


@rule("Normalization")
def normalization(net: Translator, call: Call) -> None:
    """Numbers that are given stand in a plain list."""
    import numpy as np

    given: dict[str, Any] = {}
    for name in ("mean", "variance"):
        if call.layer.config.get(name) is not None:
            numbers = np.asarray(plain(call.layer.config[name]), np.float64).ravel().tolist()
            given[name] = numbers[0] if len(numbers) == 1 else numbers
    usual(net, call, given)


@rule("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def spatial_dropout(net: Translator, call: Call) -> None:
    """Where the channels do not come first, a Dropout that drops along the other axes together."""
    held, config = net.get(operands(net, call)[0]), call.layer.config
    rank, channel = len(held.order), 1 if data_format(config) == "channels_first" else -1
    axis = axis_here(channel, held.order) % rank
    type_, rate = layer_type(call.layer.class_name), config.get("rate", config.get("p", 0.5))
    if axis == 1 and rank > 2:
        net.put(call, *net.add(call, type_, {"rate": rate}, [held], held.order))
        return
    places = [None if one in (0, axis) else 1 for one in range(rank)]
    net.put(call, *net.add(call, "Dropout", {"rate": rate, "noise_shape": places}, [held], held.order))


@rule("MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention")
def attention(net: Translator, call: Call) -> None:
    """Query, value, key and a mask, which Keras takes one by one or by name."""
    type_, kwargs = layer_type(call.layer.class_name), call.kwargs
    given = list(tensors_in(call.args))
    for index, name in enumerate(("query", "value", "key")):
        if name in kwargs and kwargs[name] is not None and len(given) == index:
            given += tensors_in(kwargs[name])
    if kwargs.get("return_attention_scores") or call.layer.config.get("return_attention_scores"):
        raise Unsupported("its scores are an output")
    masks = list(tensors_in(kwargs.get("attention_mask")))
    if masks:
        while len(given) < 3:
            given.append(given[-1])
        given += masks
    elif len(given) == 3 and _same(given[1], given[2]):
        given.pop()
    if len(given) == 2 and type_ in ("MultiHeadAttention", "GroupQueryAttention") and _same(given[0], given[1]):
        given.pop()
    config = dict(call.layer.config)
    causal = bool(config.pop("causal", False)) or bool(kwargs.get("use_causal_mask"))
    fields = fields_of(type_, config, net.reading) | ({"use_causal_mask": True} if causal else {})
    if call.layer.wrapped:
        raise Unsupported("it is within a model that is TimeDistributed")
    held = [net.plain(one) for one in given]
    if len(held[0].order) == 3 and fields.get("attention_axes") in (1, [1]):
        del fields["attention_axes"]  # the only axis that there is
    if fields.get("value_dim") == fields.get("key_dim"):
        fields.pop("value_dim", None)
    net.put(call, *net.weighted(call, type_, fields, held, lambda _: [], lambda _: None))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.call is other.call and one.index == other.index


@rule("Rescaling")
def rescaling(net: Translator, call: Call) -> None:
    """Factor and offset: of all numbers a Power, of each channel a Scale that is not trained."""
    import numpy as np

    (tensor,) = operands(net, call)
    held, config = net.get(tensor), call.layer.config
    scale, shift = (plain(config.get(name, usual_)) for name, usual_ in (("scale", 1.0), ("offset", 0.0)))
    if not isinstance(scale, list) and not isinstance(shift, list):
        fields = {"scale": float(scale), "shift": float(shift)}
        net.put(call, *net.add(call, "Power", fields, [held], held.order))
        return
    channels = held.shape[-1]
    fields = {"axis": held.order[-1], "use_bias": True, "trainable": False}
    net.put(call, *net.add(call, "Scale", fields, [held], held.order))
    for name, numbers in (("scale", scale), ("bias", shift)):
        spread = np.broadcast_to(np.asarray(numbers, np.float32).ravel(), (channels,))
        net.draft.layers[-1].arrays[name] = np.ascontiguousarray(spread)


@rule("ThresholdedReLU")
def thresholded(net: Translator, call: Call) -> None:
    """An activation function today."""
    held = net.get(operands(net, call)[0])
    function = {"type": "threshold", "threshold": plain(call.layer.config.get("theta", 1.0))}
    net.put(call, *net.add(call, "Activation", {"activation": function}, [held], held.order))


@rule("GlobalAveragePooling1D")
def mean_over_steps(net: Translator, call: Call) -> None:
    """In Keras the mean is over the steps that count: written as sums where a mask says which do."""
    (held,) = (net.get(one) for one in operands(net, call)[:1])
    counted = net.counts(held)
    if net.mask(held) is None:
        usual(net, call)
        return
    if counted is None or call.layer.wrapped or call.layer.config.get("keepdims"):
        raise Unsupported("what it reads has a mask, and its mean leaves out places")
    name, held = net.name_of(call), net.plain(held)
    formula, source = counted
    (each,) = net.add(call, "Expression", {"expr": formula}, [source], name=f"{name}/counts")
    if len(each.order) == 2:  # of numbers that are looked up
        (each,) = net.add(call, "ExpandDims", {"axis": 2}, [each], name=f"{name}/expand")
    else:  # of vectors
        fields = {"operation": "max", "axes": [2], "keepdims": True}
        (each,) = net.add(call, "Reduction", fields, [each], name=f"{name}/any")
    (kept,) = net.add(call, "Multiply", {}, [held, each], name=f"{name}/kept")
    (total,) = net.add(call, "Reduction", {"axes": [1]}, [kept], name=f"{name}/sum")
    (number,) = net.add(call, "Reduction", {"axes": [1]}, [each], name=f"{name}/number")
    net.put(call, *net.add(call, "Expression", {"expr": "x / y"}, [total, number]))


@rule("Masking")
def masking(net: Translator, call: Call) -> None:
    """Remembers which places count."""
    usual(net, call)
    value = plain(call.layer.config.get("mask_value", 0.0))
    net.remember(net.held[call, 0], f"1 if x != {value!r} else 0", net.plain(operands(net, call)[0]))


_MODES = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "concat": "Concatenate", "dot": "Dot"}


@rule("Merge")
def old_merge(net: Translator, call: Call) -> None:
    """Keras 1 had one layer for all ways to merge."""
    config = call.layer.config
    type_ = _MODES.get(str(config.get("mode")))
    if type_ is None:
        raise Unsupported(f"its mode {str(config.get('mode'))[:40]!r} has no counterpart")
    if type_ == "Dot":
        axes = config.get("dot_axes", -1)
        given = [net.plain(one) for one in operands(net, call)]
        net.put(call, *net.add(call, "Dot", {"axes": plain(axes)}, given))
        return
    fields = {"axis": int(config.get("concat_axis", -1))} if type_ == "Concatenate" else {}
    shaping.merged(net, call, type_, fields, operands(net, call))
