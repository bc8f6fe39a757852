"""Classes of Keras that no spec has: what augments data in training alone, and what its applications are made of."""

from __future__ import annotations

from netspec.exchange.keras_import.axes import axis_here
from netspec.exchange.keras_import.config import Call
from netspec.exchange.keras_import.fields import Unsupported, plain
from netspec.exchange.keras_import.translate import Translator
from netspec.exchange.keras_import.vocabulary import operands, rule

_AUGMENTING = (
    "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter", "RandomContrast", "RandomElasticTransform",
    "RandomErasing", "RandomFlip", "RandomGaussianBlur", "RandomGrayscale", "RandomHeight", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear",
    "RandomTranslation", "RandomWidth", "RandomZoom", "AugMix", "CutMix", "MixUp", "RandAugment",
)  # fmt: skip
"""Layers that give back what they read unless the model is trained."""


@rule(*_AUGMENTING)
def augmenting(net: Translator, call: Call) -> None:
    """Left out, which a note says: what augments data belongs to the train file."""
    (tensor,) = operands(net, call)
    net.reading.note(
        f"the layer `{call.layer.name}` ({call.layer.class_name}) changes samples in training alone and is left out: "
        "here it goes under `transforms` in the train file"
    )
    net.put(call, net.get(tensor))


@rule("LayerScale")
def layer_scale(net: Translator, call: Call) -> None:
    """ConvNeXt's: a learned factor for each channel."""
    (tensor,) = operands(net, call)
    held, config = net.get(tensor), call.layer.config
    first = plain(config.get("init_values"))
    if held.rows is not None or type(first) not in (int, float) or "projection_dim" not in config:
        raise Unsupported("it is not the LayerScale of Keras's applications")
    fields = {
        "axis": axis_here(-1, held.order),
        "scale_initializer": {"type": "Constant", "value": float(first)},
    }
    net.put(call, *net.weighted(call, "Scale", fields, [held], lambda _: [held.order], lambda _: None))


@rule("CustomScaleLayer")
def scaled_sum(net: Translator, call: Call) -> None:
    """InceptionResNetV2's: the first input, and the second times a number."""
    first, second = (net.get(one) for one in operands(net, call))
    factor = plain(call.layer.config.get("scale"))
    if type(factor) not in (int, float):
        raise Unsupported("it is not the CustomScaleLayer of Keras's applications")
    second = net.turned(second, first.order)
    (part,) = net.add(
        call, "Power", {"scale": float(factor)}, [second], first.order, name=f"{net.name_of(call)}/scaled"
    )
    net.put(call, *net.add(call, "Add", {}, [first, part], first.order))
