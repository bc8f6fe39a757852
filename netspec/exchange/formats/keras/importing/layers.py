"""What each layer of Keras becomes. Most depend only on their fields; here are those that differ.

Among them are classes that no spec has: layers that augment data in training only, and those of Keras's applications.
"""

from __future__ import annotations

from typing import Any

from netspec.exchange.formats.keras.importing import (  # these register their rules
    elementwise,  # noqa: F401
    products,  # noqa: F401
    reductions,  # noqa: F401
    shape_layers,
    shape_ops,  # noqa: F401
)
from netspec.exchange.formats.keras.importing.axes import axis_here, data_format
from netspec.exchange.formats.keras.importing.config import MASKED, CallOutput, LayerCall, is_operation, tensors_in
from netspec.exchange.formats.keras.importing.fields import fields_of, plain, refuse_foreign, without_format
from netspec.exchange.formats.keras.importing.importer import (
    MERGES,
    KerasImporter,
    operands,
    rule,
    rule_of,
    ruled,
    turn_fields,
    usual,
    wrapped,
)
from netspec.exchange.formats.keras.importing.leading_axis import followed
from netspec.exchange.formats.keras.importing.operations import operate
from netspec.exchange.formats.keras.names import builtin, layer_type, types
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.messages.foreign import meant_by
from netspec.schema.specs.kinds import LAYERS

AUGMENTING = (
    "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter", "RandomContrast", "RandomElasticTransform",
    "RandomErasing", "RandomFlip", "RandomGaussianBlur", "RandomGrayscale", "RandomHeight", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear",
    "RandomTranslation", "RandomWidth", "RandomZoom", "AugMix", "CutMix", "MixUp", "RandAugment",
)  # fmt: skip
"""Layers that return their input unless the model is trained."""


@rule(*AUGMENTING)
def augmenting(importer: KerasImporter, call: LayerCall) -> None:
    """Left out, with a note: augmentation of data belongs to the train file."""
    (tensor,) = operands(importer, call)
    importer.reading.note(
        f"the layer `{call.layer.name}` ({call.layer.class_name}) changes samples in training only and is left out: "
        "add it to `transforms` in the train file"
    )
    importer.put(call, importer.get(tensor))


@rule("LayerScale")
def layer_scale(importer: KerasImporter, call: LayerCall) -> None:
    """LayerScale of ConvNeXt: a learned factor per channel."""
    (tensor,) = operands(importer, call)
    held, config = importer.get(tensor), call.layer.config
    first = plain(config.get("init_values"))
    if held.rows is not None or type(first) not in (int, float) or "projection_dim" not in config:
        raise UnsupportedFeature("it is not the LayerScale of Keras's applications")
    fields = {
        "axis": axis_here(-1, held.order),
        "scale_initializer": {"type": "Constant", "value": float(first)},
    }
    importer.put(call, *importer.weighted(call, "Scale", fields, [held], lambda _: [held.order], lambda _: None))


@rule("CustomScaleLayer")
def scaled_sum(importer: KerasImporter, call: LayerCall) -> None:
    """CustomScaleLayer of InceptionResNetV2: the first input plus a multiple of the second."""
    first, second = (importer.get(one) for one in operands(importer, call))
    factor = plain(call.layer.config.get("scale"))
    if type(factor) not in (int, float):
        raise UnsupportedFeature("it is not the CustomScaleLayer of Keras's applications")
    second = importer.turned(second, first.order)
    (part,) = importer.add(
        call, "Power", {"scale": float(factor)}, [second], first.order, name=f"{importer.name_of(call)}/scaled"
    )
    importer.put(call, *importer.add(call, "Add", {}, [first, part], first.order))


_ARGUMENTS = frozenset(("training", "mask", "initial_state", "use_causal_mask", "attention_mask",
                        "return_attention_scores", "query", "value",
                        "key", "reverse", "inputs", "query_mask", "value_mask", "key_mask", "name"))  # fmt: skip


_AS_IT_IS = ("Dense", "Embedding", "SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
"""Layers with a rule that reads their configuration itself."""


def layers() -> set[str]:
    """Current names of the Keras layers that are imported, except layers that augment samples."""
    return {*types("layer"), *ruled()} - set(AUGMENTING)


def apply(importer: KerasImporter, call: LayerCall) -> None:
    """Import a call, or raise `UnsupportedFeature` with the reason."""
    layer = call.layer
    _check_origin(importer, call)
    if _is_operation(call):
        if not followed(importer, call):
            operate(importer, call)
        return
    for name, value in call.kwargs.items():
        if name not in _ARGUMENTS and value not in (None, False, [], {}):
            raise UnsupportedFeature(f"it is called with `{name[:40]}`")
    _check_mask(importer, call)
    type_ = layer_type(layer.class_name)
    found = rule_of(type_)
    if found is not None:
        found(importer, call)
    else:
        usual(importer, call)


def check(importer: KerasImporter, call: LayerCall) -> None:
    """Raise `UnsupportedFeature` for a layer that has no counterpart, whatever it reads."""
    _check_origin(importer, call)
    type_ = layer_type(call.layer.class_name)
    if not _is_operation(call) and type_ in LAYERS and (rule_of(type_) is None or type_ in _AS_IT_IS):
        fields_of(type_, without_format(call.layer.config), importer.reading)


def _check_origin(importer: KerasImporter, call: LayerCall) -> None:
    layer = call.layer
    refuse_foreign(layer.class_name, layer.module, layer.registered)
    _check_precision(importer, call)
    if _is_operation(call) or builtin("layer", layer.class_name) or rule_of(layer_type(layer.class_name)):
        return
    if layer.class_name in LAYERS:  # netspec's layer of that name computes something else
        raise UnsupportedFeature(
            "it is a user-defined class, since Keras has no layer of that name: its code is not in the file"
        )
    meant = meant_by("layer", layer.class_name, LAYERS.names())
    raise UnsupportedFeature("there is no such layer" + (f": {meant.hint}" if meant else ""))


def _is_operation(call: LayerCall) -> bool:
    layer = call.layer
    old = layer.class_name in ("TFOpLambda", "SlicingOpLambda")
    return is_operation(layer.module) or old or _has_constants(call)


def _check_precision(importer: KerasImporter, call: LayerCall) -> None:
    policy = call.layer.config.get("dtype")
    name = (policy.get("config") or {}).get("name") if isinstance(policy, dict) else policy
    if _is_operation(call):
        return
    if isinstance(name, str) and ("int8" in name or "int4" in name or "float8" in name) and call.layer.class_name:
        raise UnsupportedFeature(f"its weights are quantized ({name[:40]})")
    if isinstance(name, str) and "16" in name:
        importer.reading.note(f"Keras computed in {name}; here the train file sets the precision")


def _check_mask(importer: KerasImporter, call: LayerCall) -> None:
    """Refuse masks that do not follow from Masking or `mask_zero`."""
    masks = list(tensors_in(call.kwargs.get("mask")))
    if (
        masks
        and call.layer.class_name not in MASKED
        and not any(importer.mask(importer.get(one)) for one in call.tensors())
    ):
        raise UnsupportedFeature("it is called with a mask that no layer before it makes")


def _has_constants(call: LayerCall) -> bool:
    """Whether an operation was written without its module, as old files have it: `x + 1`."""
    return layer_type(call.layer.class_name) in MERGES and any(
        not isinstance(argument, (CallOutput, list, tuple, dict)) for argument in call.args
    )


@rule("Softmax")
def softmax(importer: KerasImporter, call: LayerCall) -> None:
    """A Softmax; a mask that no layer made is its second input."""
    masks = list(tensors_in(call.kwargs.get("mask")))
    (tensor,) = operands(importer, call)
    held = importer.get(tensor)
    if not masks or importer.mask(held) is not None:
        usual(importer, call)
        return
    mask = importer.turned(importer.get(masks[0]), held.order)
    fields = fields_of("Softmax", call.layer.config, importer.reading)
    turn_fields("Softmax", fields, held.order)
    importer.put(call, *importer.add(call, "Softmax", fields, [held, mask], held.order))


@rule("Embedding", "ReversibleEmbedding")
def embedding(importer: KerasImporter, call: LayerCall) -> None:
    """An Embedding of integers, which may be floats in Keras; a ReversibleEmbedding may be called in reverse."""
    (tensor,) = operands(importer, call)[:1]
    type_, held = layer_type(call.layer.class_name), importer.plain(tensor)
    fields = fields_of(type_, call.layer.config, importer.reading)
    if call.kwargs.get("reverse"):
        fields["reverse"] = True
    elif held.value.dtype.is_float:
        (held,) = importer.add(call, "Cast", {"dtype": "int32"}, [held], name=f"{importer.name_of(call)}/cast")
    type_, fields = wrapped(importer, call, type_, fields, 1)
    looked_up = held
    importer.put(call, *importer.weighted(call, type_, fields, [held], lambda _: [], lambda _: None))
    importer.remember(importer.held[call, 0], "1 if x > 0 else 0", looked_up)


@rule("SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
def recurrent(importer: KerasImporter, call: LayerCall) -> None:
    """In Keras 3, a layer with initial states ignores the mask."""
    first, *states = operands(importer, call)
    held = importer.get(first)
    more = {"reset_after": True} if call.layer.class_name == "CuDNNGRU" else {}
    if states and call.tells_mask and not list(tensors_in(call.kwargs.get("mask"))) and importer.mask(held) is not None:
        held = importer.plain(held)
        name, shape = f"{importer.name_of(call)}/unmasked", list(held.value.shape[1:])
        importer.held[first.call, first.index], kept = (
            importer.add(call, "Reshape", {"target_shape": shape}, [held], name=name)[0],
            importer.get(first),
        )
        usual(importer, call, more)
        importer.held[first.call, first.index] = kept
    else:
        usual(importer, call, more)


@rule("Conv2DTranspose")
def transposed(importer: KerasImporter, call: LayerCall) -> None:
    """A transposed convolution; Keras 1 also states the shape of its output, which is redundant."""
    config = call.layer.config
    kept = {key: value for key, value in config.items() if key != "output_shape"}
    usual(importer, call, fields=fields_of("Conv2DTranspose", without_format(kept), importer.reading))
    told, made = plain(config.get("output_shape") or []), list(importer.held[call, 0].shape[1:])
    if told and told[1:] != made:
        raise UnsupportedFeature(f"its output is {told[1:]}, but its other fields imply {made}")


@rule("Bidirectional")
def bidirectional(importer: KerasImporter, call: LayerCall) -> None:
    """A Bidirectional, without its second layer if that equals the first; masked steps are zeros anyway."""
    config = dict(call.layer.config)
    if "layer" not in config and isinstance(config.get("forward_layer"), dict):
        config["layer"] = config["forward_layer"]
    config.pop("forward_layer", None)
    for name in ("layer", "backward_layer"):
        inner = config.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("config"), dict):
            told = {key: one for key, one in inner["config"].items() if key != "zero_output_for_mask"}
            config[name] = {**inner, "config": told}
    fields = fields_of("Bidirectional", config, importer.reading)
    forward, backward = fields["layer"], fields.get("backward_layer")
    if isinstance(backward, dict) and {**forward, "go_backwards": True} == backward:
        fields["backward_layer"] = None
    usual(importer, call, fields=fields)


@rule("GroupNormalization")
def group_normalization(importer: KerasImporter, call: LayerCall) -> None:
    """A GroupNormalization; `groups: -1` means one per channel."""
    held, config = importer.get(operands(importer, call)[0]), call.layer.config
    axis = config.get("axis", -1)
    more = {"groups": held.shape[axis]} if config.get("groups") == -1 and isinstance(axis, int) else {}
    usual(importer, call, more)


@rule("Normalization")
def normalization(importer: KerasImporter, call: LayerCall) -> None:
    """A Normalization; given statistics are plain lists."""
    import numpy as np

    given: dict[str, Any] = {}
    for name in ("mean", "variance"):
        if call.layer.config.get(name) is not None:
            numbers = np.asarray(plain(call.layer.config[name]), np.float64).ravel().tolist()
            given[name] = numbers[0] if len(numbers) == 1 else numbers
    usual(importer, call, given)


@rule("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def spatial_dropout(importer: KerasImporter, call: LayerCall) -> None:
    """A SpatialDropout; if the channels are not first, a Dropout with a `noise_shape`."""
    held, config = importer.get(operands(importer, call)[0]), call.layer.config
    rank, channel = len(held.order), 1 if data_format(config) == "channels_first" else -1
    axis = axis_here(channel, held.order) % rank
    type_, rate = layer_type(call.layer.class_name), config.get("rate", config.get("p", 0.5))
    if axis == 1 and rank > 2:
        importer.put(call, *importer.add(call, type_, {"rate": rate}, [held], held.order))
        return
    places = [None if one in (0, axis) else 1 for one in range(rank)]
    importer.put(call, *importer.add(call, "Dropout", {"rate": rate, "noise_shape": places}, [held], held.order))


@rule("MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention")
def attention(importer: KerasImporter, call: LayerCall) -> None:
    """Attention of query, value, key and mask, which Keras takes by position or by name."""
    type_, kwargs = layer_type(call.layer.class_name), call.kwargs
    given = list(tensors_in(call.args))
    for index, name in enumerate(("query", "value", "key")):
        if name in kwargs and kwargs[name] is not None and len(given) == index:
            given += tensors_in(kwargs[name])
    scores = bool(kwargs.get("return_attention_scores") or call.layer.config.get("return_attention_scores"))
    if scores and type_ in ("Attention", "AdditiveAttention"):
        raise UnsupportedFeature("its scores are an output")
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
    fields = fields_of(type_, config, importer.reading) | ({"use_causal_mask": True} if causal else {})
    fields |= {"return_attention_scores": True} if scores else {}
    if call.layer.wrapped:
        raise UnsupportedFeature("it is inside a model that is TimeDistributed")
    held = [importer.plain(one) for one in given]
    if len(held[0].order) == 3 and fields.get("attention_axes") in (1, [1]):
        del fields["attention_axes"]  # the only axis
    if fields.get("value_dim") == fields.get("key_dim"):
        fields.pop("value_dim", None)
    importer.put(call, *importer.weighted(call, type_, fields, held, lambda _: [], lambda _: None))


def _same(one: CallOutput, other: CallOutput) -> bool:
    return one.call is other.call and one.index == other.index


@rule("Rescaling")
def rescaling(importer: KerasImporter, call: LayerCall) -> None:
    """A Rescaling: a Power, or with values per channel a Scale that is not trained."""
    import numpy as np

    (tensor,) = operands(importer, call)
    held, config = importer.get(tensor), call.layer.config
    scale, shift = (plain(config.get(name, usual_)) for name, usual_ in (("scale", 1.0), ("offset", 0.0)))
    if not isinstance(scale, list) and not isinstance(shift, list):
        fields = {"scale": float(scale), "shift": float(shift)}
        importer.put(call, *importer.add(call, "Power", fields, [held], held.order))
        return
    channels = held.shape[-1]
    fields = {"axis": held.order[-1], "use_bias": True, "trainable": False}
    importer.put(call, *importer.add(call, "Scale", fields, [held], held.order))
    for name, numbers in (("scale", scale), ("bias", shift)):
        spread = np.broadcast_to(np.asarray(numbers, np.float32).ravel(), (channels,))
        importer.draft.layers[-1].arrays[name] = np.ascontiguousarray(spread)


@rule("ThresholdedReLU")
def thresholded(importer: KerasImporter, call: LayerCall) -> None:
    """ThresholdedReLU, now an activation function."""
    held = importer.get(operands(importer, call)[0])
    function = {"type": "threshold", "threshold": plain(call.layer.config.get("theta", 1.0))}
    importer.put(call, *importer.add(call, "Activation", {"activation": function}, [held], held.order))


@rule("GlobalAveragePooling1D")
def mean_over_steps(importer: KerasImporter, call: LayerCall) -> None:
    """A mean over steps; with a mask it is written as sums over the valid steps."""
    (held,) = (importer.get(one) for one in operands(importer, call)[:1])
    counted = importer.counts(held)
    if importer.mask(held) is None:
        usual(importer, call)
        return
    if counted is None or call.layer.wrapped or call.layer.config.get("keepdims"):
        raise UnsupportedFeature("its input has a mask, and its mean excludes masked elements")
    name, held = importer.name_of(call), importer.plain(held)
    formula, source = counted
    (each,) = importer.add(call, "Expression", {"expr": formula}, [source], name=f"{name}/counts")
    if len(each.order) == 2:  # of integers
        (each,) = importer.add(call, "ExpandDims", {"axis": 2}, [each], name=f"{name}/expand")
    else:  # of vectors
        fields = {"operation": "max", "axes": [2], "keepdims": True}
        (each,) = importer.add(call, "Reduction", fields, [each], name=f"{name}/any")
    (kept,) = importer.add(call, "Multiply", {}, [held, each], name=f"{name}/kept")
    (total,) = importer.add(call, "Reduction", {"axes": [1]}, [kept], name=f"{name}/sum")
    (number,) = importer.add(call, "Reduction", {"axes": [1]}, [each], name=f"{name}/number")
    importer.put(call, *importer.add(call, "Expression", {"expr": "x / y"}, [total, number]))


@rule("Masking")
def masking(importer: KerasImporter, call: LayerCall) -> None:
    """Masking, whose mask is recorded."""
    usual(importer, call)
    value = plain(call.layer.config.get("mask_value", 0.0))
    importer.remember(
        importer.held[call, 0], f"1 if x != {value!r} else 0", importer.plain(operands(importer, call)[0])
    )


_MODES = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "concat": "Concatenate", "dot": "Dot"}


@rule("Merge")
def old_merge(importer: KerasImporter, call: LayerCall) -> None:
    """Merge of Keras 1, one layer for all kinds."""
    config = call.layer.config
    type_ = _MODES.get(str(config.get("mode")))
    if type_ is None:
        raise UnsupportedFeature(f"its mode {str(config.get('mode'))[:40]!r} has no counterpart")
    if type_ == "Dot":
        axes = config.get("dot_axes", -1)
        given = [importer.plain(one) for one in operands(importer, call)]
        importer.put(call, *importer.add(call, "Dot", {"axes": plain(axes)}, given))
        return
    fields = {"axis": int(config.get("concat_axis", -1))} if type_ == "Concatenate" else {}
    shape_layers.merged(importer, call, type_, fields, operands(importer, call))
