"""Import layers of Keras. Most need only their fields converted; this module has rules for the others.

The rules include classes that netspec does not have: layers that augment data, and layers of Keras's applications.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from netspec.exchange.formats.keras.importing import shape_layers
from netspec.exchange.formats.keras.importing.axes import TensorView, axis_in_net, data_format
from netspec.exchange.formats.keras.importing.config import (
    TAKES_MASK_INPUT,
    CallOutput,
    LayerCall,
    is_operation,
    tensors_in,
)
from netspec.exchange.formats.keras.importing.fields import fields_of, plain_value, refuse_foreign, without_data_format
from netspec.exchange.formats.keras.importing.importer import (
    MERGES,
    KerasImporter,
    convert_axes,
    import_by_fields,
    operands,
    rule,
    rules,
    time_distributed,
)
from netspec.exchange.formats.keras.importing.leading_axis import import_across_samples
from netspec.exchange.formats.keras.importing.operations import import_operation
from netspec.exchange.formats.keras.names import builtin, layer_type, types
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.messages.foreign import suggest
from netspec.schema.specs.kinds import LAYERS

AUGMENTING = (
    "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter", "RandomContrast", "RandomElasticTransform",
    "RandomErasing", "RandomFlip", "RandomGaussianBlur", "RandomGrayscale", "RandomHeight", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear",
    "RandomTranslation", "RandomWidth", "RandomZoom", "AugMix", "CutMix", "MixUp", "RandAugment",
)  # fmt: skip
"""Layers that change their input only in training."""


@rule(*AUGMENTING)
def augmenting(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """Leave out the layer, with a note: augmentation of data belongs in the training file."""
    (tensor,) = operands(call)
    importer.reading.notes.add(
        f"the layer `{call.layer.name}` ({call.layer.class_name}) changes samples in training only and is left out: "
        "add it to `transforms` in the training file"
    )
    return [importer.get(tensor)]


@rule("LayerScale")
def layer_scale(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """LayerScale of ConvNeXt: a learned factor per channel."""
    (tensor,) = operands(call)
    view, config = importer.get(tensor), call.layer.config
    first = plain_value(config.get("init_values"))
    if view.feature_order is not None or type(first) not in (int, float) or "projection_dim" not in config:
        raise UnsupportedFeature("it is not the LayerScale of Keras's applications")
    fields = {
        "axis": axis_in_net(-1, view.order),
        "scale_initializer": {"type": "Constant", "value": float(first)},
    }
    return importer.weighted(call, "Scale", fields, [view], lambda _: [view.order])


@rule("CustomScaleLayer")
def custom_scale(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """CustomScaleLayer of InceptionResNetV2: the first input plus a multiple of the second."""
    first, second = (importer.get(tensor) for tensor in operands(call))
    factor = plain_value(call.layer.config.get("scale"))
    if type(factor) not in (int, float):
        raise UnsupportedFeature("it is not the CustomScaleLayer of Keras's applications")
    second = importer.permuted(second, first.order)
    (scaled,) = importer.add(
        call, "Power", {"scale": float(factor)}, [second], first.order, name=f"{importer.name_of(call)}/scaled"
    )
    return importer.add(call, "Add", {}, [first, scaled], first.order)


_CALL_ARGUMENTS = frozenset(("training", "mask", "initial_state", "use_causal_mask", "attention_mask",
                        "return_attention_scores", "query", "value",
                        "key", "reverse", "inputs", "query_mask", "value_mask", "key_mask", "name"))  # fmt: skip


_CHECKED_BY_FIELDS = ("Dense", "Embedding", "SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
"""Layers with a rule that reads their configuration itself."""


def imported_layers() -> set[str]:
    """Current names of the Keras layers that are imported, except layers that augment samples."""
    return {*types("layer"), *rules()} - set(AUGMENTING)


def apply(importer: KerasImporter, call: LayerCall) -> None:
    """Import a call, or raise `UnsupportedFeature` with the reason."""
    layer = call.layer
    _check_origin(importer, call)
    if _is_operation(call):
        if not import_across_samples(importer, call):
            import_operation(importer, call)
        return
    for name, value in call.kwargs.items():
        if name not in _CALL_ARGUMENTS and value not in (None, False, [], {}):
            raise UnsupportedFeature(f"it is called with `{name[:40]}`")
    _check_mask(importer, call)
    type_ = layer_type(layer.class_name)
    import_rule = rules().get(type_, import_by_fields)
    importer.set_results(call, *import_rule(importer, call))


def check(importer: KerasImporter, call: LayerCall) -> None:
    """Raise `UnsupportedFeature` for a layer without a counterpart, independent of its inputs."""
    _check_origin(importer, call)
    type_ = layer_type(call.layer.class_name)
    if not _is_operation(call) and type_ in LAYERS and (type_ not in rules() or type_ in _CHECKED_BY_FIELDS):
        fields_of(type_, without_data_format(call.layer.config), importer.reading)


def _check_origin(importer: KerasImporter, call: LayerCall) -> None:
    layer = call.layer
    refuse_foreign(layer.class_name, layer.module, layer.registered)
    _check_precision(importer, call)
    if _is_operation(call) or builtin("layer", layer.class_name) or layer_type(layer.class_name) in rules():
        return
    if layer.class_name in LAYERS:  # netspec's layer of that name computes something else
        raise UnsupportedFeature(
            "it is a user-defined class, since Keras has no layer of that name: its code is not in the file"
        )
    suggestion = suggest("layer", layer.class_name, LAYERS.names())
    raise UnsupportedFeature("there is no such layer" + (f": {suggestion.hint}" if suggestion else ""))


def _is_operation(call: LayerCall) -> bool:
    layer = call.layer
    old = layer.class_name in ("TFOpLambda", "SlicingOpLambda")
    return is_operation(layer.module) or old or _has_constant_operands(call)


def _check_precision(importer: KerasImporter, call: LayerCall) -> None:
    policy = call.layer.config.get("dtype")
    name = (policy.get("config") or {}).get("name") if isinstance(policy, dict) else policy
    if _is_operation(call):
        return
    if isinstance(name, str) and ("int8" in name or "int4" in name or "float8" in name) and call.layer.class_name:
        raise UnsupportedFeature(f"its weights are quantized ({name[:40]})")
    if isinstance(name, str) and "16" in name:
        importer.reading.notes.add(f"Keras computed in {name}; here the training file sets the precision")


def _check_mask(importer: KerasImporter, call: LayerCall) -> None:
    """Refuse masks that do not follow from Masking or `mask_zero`."""
    masks = list(tensors_in(call.kwargs.get("mask")))
    if (
        masks
        and call.layer.class_name not in TAKES_MASK_INPUT
        and not any(importer.mask(importer.get(tensor)) for tensor in call.tensors())
    ):
        raise UnsupportedFeature("it is called with a mask that no earlier layer computes")


def _has_constant_operands(call: LayerCall) -> bool:
    """Whether an operation was written without its module, as old files have it: `x + 1`."""
    return layer_type(call.layer.class_name) in MERGES and any(
        not isinstance(argument, (CallOutput, list, tuple, dict)) for argument in call.args
    )


@rule("Softmax")
def softmax(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """Import a Softmax; a mask that is an input of the model becomes its second input."""
    masks = list(tensors_in(call.kwargs.get("mask")))
    (tensor,) = operands(call)
    view = importer.get(tensor)
    if not masks or importer.mask(view) is not None:
        return import_by_fields(importer, call)
    mask = importer.permuted(importer.get(masks[0]), view.order)
    fields = fields_of("Softmax", call.layer.config, importer.reading)
    convert_axes("Softmax", fields, view.order)
    return importer.add(call, "Softmax", fields, [view, mask], view.order)


@rule("Embedding", "ReversibleEmbedding")
def embedding(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """An Embedding of integers, which may be floats in Keras; a ReversibleEmbedding may be called in reverse."""
    (tensor,) = operands(call)[:1]
    type_, view = layer_type(call.layer.class_name), importer.in_keras_order(tensor)
    fields = fields_of(type_, call.layer.config, importer.reading)
    if call.kwargs.get("reverse"):
        fields["reverse"] = True
    elif view.value.dtype.is_float:
        (view,) = importer.add(call, "Cast", {"dtype": "int32"}, [view], name=f"{importer.name_of(call)}/cast")
    type_, fields = time_distributed(call, type_, fields, 1)
    indices = view
    results = importer.weighted(call, type_, fields, [view])
    importer.record_mask(results[0], "1 if x > 0 else 0", indices)
    return results


@rule("SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
def recurrent(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """Import a recurrent layer. In Keras 3, a layer with initial states ignores the mask."""
    first, *states = operands(call)
    view = importer.get(first)
    extra = {"reset_after": True} if call.layer.class_name == "CuDNNGRU" else {}
    has_mask_argument = bool(list(tensors_in(call.kwargs.get("mask"))))
    if states and call.states_mask and not has_mask_argument and importer.mask(view) is not None:
        view = importer.in_keras_order(view)
        name, shape = f"{importer.name_of(call)}/unmasked", list(view.value.shape[1:])
        (unmasked,) = importer.add(call, "Reshape", {"target_shape": shape}, [view], name=name)
        masked, importer.views[first.call, first.index] = importer.get(first), unmasked
        results = import_by_fields(importer, call, extra)
        importer.views[first.call, first.index] = masked
        return results
    return import_by_fields(importer, call, extra)


@rule("Conv2DTranspose")
def transposed(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A transposed convolution; Keras 1 also states the shape of its output, which is redundant."""
    config = call.layer.config
    relevant = {key: value for key, value in config.items() if key != "output_shape"}
    fields = fields_of("Conv2DTranspose", without_data_format(relevant), importer.reading)
    results = import_by_fields(importer, call, fields=fields)
    declared_shape, shape = plain_value(config.get("output_shape") or []), list(results[0].shape[1:])
    if declared_shape and declared_shape[1:] != shape:
        raise UnsupportedFeature(f"its output is {declared_shape[1:]}, but its other fields imply {shape}")
    return results


@rule("Bidirectional")
def bidirectional(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Bidirectional, without its second layer if that equals the first; netspec always zeros masked steps."""
    config = dict(call.layer.config)
    if "layer" not in config and isinstance(config.get("forward_layer"), dict):
        config["layer"] = config["forward_layer"]
    config.pop("forward_layer", None)
    for name in ("layer", "backward_layer"):
        inner = config.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("config"), dict):
            inner_config = {key: value for key, value in inner["config"].items() if key != "zero_output_for_mask"}
            config[name] = {**inner, "config": inner_config}
    fields = fields_of("Bidirectional", config, importer.reading)
    forward, backward = fields["layer"], fields.get("backward_layer")
    if isinstance(backward, dict) and {**forward, "go_backwards": True} == backward:
        fields["backward_layer"] = None
    return import_by_fields(importer, call, fields=fields)


@rule("GroupNormalization")
def group_normalization(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A GroupNormalization; `groups: -1` means one per channel."""
    view, config = importer.get(operands(call)[0]), call.layer.config
    axis = config.get("axis", -1)
    extra = {"groups": view.shape[axis]} if config.get("groups") == -1 and isinstance(axis, int) else {}
    return import_by_fields(importer, call, extra)


@rule("Normalization")
def normalization(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """Import a Normalization; statistics in its fields become plain lists."""
    statistics: dict[str, Any] = {}
    for name in ("mean", "variance"):
        if call.layer.config.get(name) is not None:
            values = np.asarray(plain_value(call.layer.config[name]), np.float64).ravel().tolist()
            statistics[name] = values[0] if len(values) == 1 else values
    return import_by_fields(importer, call, statistics)


@rule("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
def spatial_dropout(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A SpatialDropout; if the channels are not first, a Dropout with a `noise_shape`."""
    view, config = importer.get(operands(call)[0]), call.layer.config
    rank, channel = len(view.order), 1 if data_format(config) == "channels_first" else -1
    axis = axis_in_net(channel, view.order) % rank
    type_, rate = layer_type(call.layer.class_name), config.get("rate", config.get("p", 0.5))
    if axis == 1 and rank > 2:
        return importer.add(call, type_, {"rate": rate}, [view], view.order)
    noise_shape = [None if noise_axis in (0, axis) else 1 for noise_axis in range(rank)]
    return importer.add(call, "Dropout", {"rate": rate, "noise_shape": noise_shape}, [view], view.order)


@rule("MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention")
def attention(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """Attention of query, value, key and mask, which Keras takes by position or by name."""
    type_, kwargs = layer_type(call.layer.class_name), call.kwargs
    tensors = list(tensors_in(call.args))
    for index, name in enumerate(("query", "value", "key")):
        if name in kwargs and kwargs[name] is not None and len(tensors) == index:
            tensors += tensors_in(kwargs[name])
    scores = bool(kwargs.get("return_attention_scores") or call.layer.config.get("return_attention_scores"))
    if scores and type_ in ("Attention", "AdditiveAttention"):
        raise UnsupportedFeature("`return_attention_scores` is not supported")
    masks = list(tensors_in(kwargs.get("attention_mask")))
    if masks:
        while len(tensors) < 3:
            tensors.append(tensors[-1])
        tensors += masks
    elif len(tensors) == 3 and tensors[1] == tensors[2]:
        tensors.pop()
    if len(tensors) == 2 and type_ in ("MultiHeadAttention", "GroupQueryAttention") and tensors[0] == tensors[1]:
        tensors.pop()
    config = dict(call.layer.config)
    causal = bool(config.pop("causal", False)) or bool(kwargs.get("use_causal_mask"))
    fields = fields_of(type_, config, importer.reading) | ({"use_causal_mask": True} if causal else {})
    fields |= {"return_attention_scores": True} if scores else {}
    if call.layer.wrapped:
        raise UnsupportedFeature("it is in a model wrapped by TimeDistributed")
    views = [importer.in_keras_order(tensor) for tensor in tensors]
    if len(views[0].order) == 3 and fields.get("attention_axes") in (1, [1]):
        del fields["attention_axes"]  # the default, since there is only one axis
    if fields.get("value_dim") == fields.get("key_dim"):
        fields.pop("value_dim", None)
    return importer.weighted(call, type_, fields, views)


@rule("Rescaling")
def rescaling(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Rescaling: a Power, or with values per channel a Scale that is not trained."""
    (tensor,) = operands(call)
    view, config = importer.get(tensor), call.layer.config
    scale, shift = (plain_value(config.get(name, usual_)) for name, usual_ in (("scale", 1.0), ("offset", 0.0)))
    if not isinstance(scale, list) and not isinstance(shift, list):
        fields = {"scale": float(scale), "shift": float(shift)}
        return importer.add(call, "Power", fields, [view], view.order)
    channels = view.shape[-1]
    fields = {"axis": view.order[-1], "use_bias": True, "trainable": False}
    results = importer.add(call, "Scale", fields, [view], view.order)
    for name, values in (("scale", scale), ("bias", shift)):
        per_channel = np.broadcast_to(np.asarray(values, np.float32).ravel(), (channels,))
        importer.draft.layers[-1].arrays[name] = np.ascontiguousarray(per_channel)
    return results


@rule("ThresholdedReLU")
def thresholded(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """ThresholdedReLU, now an activation function."""
    view = importer.get(operands(call)[0])
    function = {"type": "threshold", "threshold": plain_value(call.layer.config.get("theta", 1.0))}
    return importer.add(call, "Activation", {"activation": function}, [view], view.order)


@rule("GlobalAveragePooling1D")
def masked_mean(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A mean over steps; with a mask it is written as sums over the valid steps."""
    (view,) = (importer.get(operand) for operand in operands(call)[:1])
    mask_formula = importer.mask_formula(view)
    if importer.mask(view) is None:
        return import_by_fields(importer, call)
    if mask_formula is None or call.layer.wrapped or call.layer.config.get("keepdims"):
        raise UnsupportedFeature("its input has a mask: it averages over unmasked elements only")
    name, view = importer.name_of(call), importer.in_keras_order(view)
    formula, source = mask_formula
    (is_valid,) = importer.add(call, "Expression", {"expr": formula}, [source], name=f"{name}/counts")
    if len(is_valid.order) == 2:  # of integers
        (is_valid,) = importer.add(call, "ExpandDims", {"axis": 2}, [is_valid], name=f"{name}/expand")
    else:  # of vectors
        fields = {"operation": "max", "axes": [2], "keepdims": True}
        (is_valid,) = importer.add(call, "Reduction", fields, [is_valid], name=f"{name}/any")
    (masked,) = importer.add(call, "Multiply", {}, [view, is_valid], name=f"{name}/kept")
    (total,) = importer.add(call, "Reduction", {"axes": [1]}, [masked], name=f"{name}/sum")
    (count,) = importer.add(call, "Reduction", {"axes": [1]}, [is_valid], name=f"{name}/number")
    return importer.add(call, "Expression", {"expr": "x / y"}, [total, count])


@rule("Masking")
def masking(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """A Masking; its mask is recorded for the layers after it."""
    results = import_by_fields(importer, call)
    value = plain_value(call.layer.config.get("mask_value", 0.0))
    x = importer.in_keras_order(operands(call)[0])
    importer.record_mask(results[0], f"1 if x != {value!r} else 0", x)
    return results


_MODES = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "concat": "Concatenate", "dot": "Dot"}


@rule("Merge")
def merge_of_keras_1(importer: KerasImporter, call: LayerCall) -> list[TensorView]:
    """Merge of Keras 1, a single layer for sums, products and others."""
    config = call.layer.config
    type_ = _MODES.get(str(config.get("mode")))
    if type_ is None:
        raise UnsupportedFeature(f"its mode {str(config.get('mode'))[:40]!r} has no counterpart")
    if type_ == "Dot":
        axes = config.get("dot_axes", -1)
        views = [importer.in_keras_order(tensor) for tensor in operands(call)]
        return importer.add(call, "Dot", {"axes": plain_value(axes)}, views)
    fields = {"axis": int(config.get("concat_axis", -1))} if type_ == "Concatenate" else {}
    return shape_layers.merged(importer, call, type_, fields, operands(call))
