"""Keras models of every layer that Keras has, too, built from the samples of netspec's layers."""

from __future__ import annotations

import re
from typing import Any

from netspec.exchange.formats.keras.names import DATA_FORMAT, SPATIAL_WITHOUT_FORMAT
from netspec.tools.verification.cases import SampleCase, cases

MAX_SAMPLES = 3
"""Samples of each layer."""
AXES = {
    **dict.fromkeys(("GroupNormalization", "BatchNormalization", "Concatenate", "Normalization"), 1),
}
"""Layers whose default axis differs from Keras's."""


def unlike(case: SampleCase) -> bool:
    """Whether Keras has no such layer, or does not support these fields or inputs."""
    fields, sample = case.sample.fields, case.sample
    text = str(fields)
    explicit = fields.get("padding") is not None and not isinstance(fields["padding"], str)
    return bool(
        (explicit and not case.type.startswith("ZeroPadding"))
        or {"ceil_mode", "count_include_pad", "zero_output_for_mask", "share"} & fields.keys()
        or (case.type.endswith("Transpose") and "groups" in fields)
        or (fields.get("padding") == "causal" and case.type != "Conv1D")
        or (fields.get("padding") == "same" and case.type.startswith("AveragePooling"))
        or "lanczos" in text or "bicubic" in text or "sparsemax" in text
        or (case.type == "Activation" and ("axis" in fields or _strange(fields["activation"])))
        or (case.type in ("Activation", "Masking", "ReversibleEmbedding") and (len(sample.shapes) > 1 or not fields))
        or any(sample.masks)
        or ("Pooling" in case.type and "dilation_rate" in fields)
        or (case.type == "SpectralNormalization" and sample.dtypes[0] != "float32")
        or (case.type == "Softmax" and len(sample.shapes) > 1)
        or (case.type in ("LayerNormalization", "RMSNormalization") and fields.get("axis", -1) == 1)
        or any(dtype not in ("float32", "int32") for dtype in sample.dtypes)
        or len(set(sample.dtypes)) > 1
        or (case.type in ("Dropout", "AlphaDropout") and "noise_shape" in fields)
        or (case.type in ("Add", "Average", "Multiply", "Maximum", "Minimum", "Subtract") and "int32" in sample.dtypes)
        or (case.type == "GroupQueryAttention" and len({shape[-1] for shape in sample.shapes[:2]}) > 1)
        # Keras cannot write the regularizer of these layers.
        or (case.type in ("Identity", "Flatten") and "activity_regularizer" in fields)
        or len(sample.shapes[0]) < 2
    )  # fmt: skip


LAYERS_OF_FUNCTIONS = {"leaky_relu": "LeakyReLU", "elu": "ELU", "relu": "ReLU"}
"""Activation functions for whose fields Keras has layers, which it accepts as activations."""


def _strange(function: Any) -> bool:
    return isinstance(function, dict) and function["type"] not in LAYERS_OF_FUNCTIONS


def chosen(keras: Any) -> list[SampleCase]:
    """Return samples of layers that Keras also has, a few of each."""
    chosen_cases: list[SampleCase] = []
    for case in cases("layer"):
        have = sum(chosen_case.type == case.type for chosen_case in chosen_cases)
        most = 99 if case.type == "Activation" else MAX_SAMPLES
        if hasattr(keras.layers, case.type) and have < most and not unlike(case):
            chosen_cases.append(case)
    return chosen_cases


def made(keras: Any, fields: dict[str, Any], **more: Any) -> Any:
    """Return Keras's layer with these fields, for channels-last images."""
    arguments = {
        key: value for key, value in fields.items() if key not in ("type", "name", "use_causal_mask", "reverse")
    }
    for key, value in arguments.items():
        if isinstance(value, dict):
            if key == "activation":
                inside = {name: item for name, item in value.items() if name != "type"}
                arguments[key] = getattr(keras.layers, LAYERS_OF_FUNCTIONS[value["type"]])(**inside)
            else:
                arguments[key] = made(keras, value) if key in PARTS else of_type(keras.regularizers, value)
        if key == "cells":
            arguments[key] = [made(keras, item) for item in value]
        if key == "target_shape" and isinstance(value, int):
            arguments[key] = (value,)
        if key == "output_shape" and isinstance(value, int):
            arguments[key] = (value,)
    if fields["type"] in AXES:
        arguments.setdefault("axis", AXES[fields["type"]])
    if fields["type"].startswith("AveragePooling"):
        arguments.setdefault("pool_size", 2)
    return getattr(keras.layers, fields["type"])(**arguments, **more)


PARTS = ("layer", "backward_layer", "cell")


def of_type(module: Any, fields: dict[str, Any]) -> Any:
    """Return a regularizer."""
    return getattr(module, fields["type"])(**{key: value for key, value in fields.items() if key != "type"})


def lead(fields: dict[str, Any]) -> int | None:
    """Return the number of axes before those of an image, including the batch; None for other data."""
    type_ = fields["type"]
    if type_ in ("TimeDistributed", "SpectralNormalization", "Bidirectional"):
        inner = lead(fields["layer"])
        return None if inner is None else inner + int(type_ == "TimeDistributed")
    if type_ == "Flatten" or not (DATA_FORMAT.fullmatch(type_) or type_ in SPATIAL_WITHOUT_FORMAT):
        return None
    return 2 if type_.startswith("ConvLSTM") else 1


def channels_last(shape: tuple[int, ...], before: int | None) -> tuple[int, ...]:
    """Return the shape of a sample in Keras."""
    if before is None or len(shape) < before + 2:
        return shape[1:]
    return (*shape[1:before], *shape[before + 1 :], shape[before])


CALLED_WITH_LISTS = re.compile(
    "Add|Subtract|Multiply|Average|Maximum|Minimum|Concatenate|Dot|Attention|AdditiveAttention"
)


def catalogue(keras: Any, part: int, parts: int) -> Any:
    """Return a model with many inputs; each is read by one layer, whose output is an output of the model."""
    inputs, outputs = [], []
    for case in [candidate for index, candidate in enumerate(chosen(keras)) if index % parts == part]:
        fields = {**case.sample.fields, "type": case.type}
        name, before = f"{case.type}-{case.number}", lead(fields)
        arguments = [
            keras.Input(
                channels_last(shape, before if k == 0 or before is None else before - 1),
                dtype=dtype,
                name=f"{name}-in{k}",
            )
            for k, (shape, dtype) in enumerate(zip(case.sample.shapes, case.sample.dtypes, strict=True))
        ]
        layer = made(keras, fields, name=name)
        more = {key: fields[key] for key in ("use_causal_mask", "reverse") if key in fields}
        if case.type in ("MultiHeadAttention", "GroupQueryAttention"):
            named = dict(zip(("query", "value", "key", "attention_mask"), arguments, strict=False))
            if len(arguments) == 1:
                named["value"] = arguments[0]
            made_of = layer(**named, **more)
        elif CALLED_WITH_LISTS.fullmatch(case.type):
            made_of = layer(arguments, **more)
        elif len(arguments) > 1:
            made_of = layer(arguments[0], initial_state=arguments[1:], **more)
        else:
            made_of = layer(arguments[0], **more)
        inputs += arguments
        outputs += keras.tree.flatten(made_of)
    return keras.Model(inputs, outputs, name=f"catalogue_{part}")
