"""Initializers → Caffe's fillers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from netspec.exchange.caffe.proto.message import Message

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Blob

_NORMS = {"fan_in": "FAN_IN", "fan_out": "FAN_OUT", "fan_avg": "AVERAGE"}
CUT = "draws from a normal distribution that is cut at two deviations, Caffe from a whole one as wide"


def filler(initializer: Any, blob: Blob, note: Callable[[str], None]) -> Message:
    """The filler of an array. Where Caffe has no such distribution, one of the same deviation, and a note."""
    kind = getattr(initializer, "type", "")
    made = _PLAIN.get(kind)
    if made is not None:
        return made(initializer)
    if kind == "VarianceScaling":
        return _by_fans(initializer.scale, initializer.mode, initializer.distribution, blob, note)
    if hasattr(initializer, "fan"):
        distribution = "truncated_normal" if initializer.normal else "uniform"
        return _by_fans(initializer.factor, initializer.fan, distribution, blob, note)
    if kind == "TruncatedNormal":
        note(f"{blob.state}: {kind} {CUT}")
        return _gaussian(initializer.mean, initializer.stddev)
    deviation = float(blob.values.std()) if blob.values.size > 1 else 0.0
    note(
        f"{blob.state}: {kind or 'its initializer'} has no filler: a normal distribution as wide as the weights now are"
    )
    return _gaussian(0.0, deviation)


def _by_fans(scale: float, mode: str, distribution: str, blob: Blob, note: Callable[[str], None]) -> Message:
    """A variance of scale / fan: Caffe's xavier is uniform of scale 1, its msra normal of scale 2; else in numbers."""
    shape = blob.values.shape
    fans = {"fan_in": prod(shape[1:]), "fan_out": prod(shape) / max(1, prod(shape[1:2]))}
    fans["fan_avg"] = (fans["fan_in"] + fans["fan_out"]) / 2
    norm: dict[str, Any] = {} if mode == "fan_in" else {"variance_norm": _NORMS[mode]}
    if distribution == "truncated_normal":
        note(f"{blob.state}: its initializer {CUT}")
    if distribution == "uniform":
        if scale == 1:
            return Message("FillerParameter", type="xavier", **norm)
        limit = sqrt(3 * scale / fans[mode])
        return Message("FillerParameter", type="uniform", min=-limit, max=limit)
    if scale == 2:
        return Message("FillerParameter", type="msra", **norm)
    return _gaussian(0.0, sqrt(scale / fans[mode]))


def _gaussian(mean: float, deviation: float) -> Message:
    made = Message("FillerParameter", type="gaussian")
    if mean:
        made["mean"] = mean
    made["std"] = deviation
    return made


def _normal(initializer: Any) -> Message:
    made = _gaussian(initializer.mean, initializer.stddev)
    if initializer.sparse is not None:
        made["sparse"] = initializer.sparse
    return made


def _constant(value: float) -> Message:
    made = Message("FillerParameter", type="constant")
    if value:
        made["value"] = value
    return made


_PLAIN: dict[str, Callable[[Any], Message]] = {
    "Zeros": lambda one: _constant(0.0),
    "Ones": lambda one: _constant(1.0),
    "Constant": lambda one: _constant(float(one.value)),
    "RandomNormal": _normal,
    "RandomUniform": lambda one: Message("FillerParameter", type="uniform", min=one.minval, max=one.maxval),
    "PositiveUnitball": lambda one: Message("FillerParameter", type="positive_unitball"),
    "Bilinear": lambda one: Message("FillerParameter", type="bilinear"),
}
