"""Caffe's fillers → initializers."""

from __future__ import annotations

from typing import Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.unsupported import UnsupportedFeature

_MODES = {"FAN_IN": "fan_in", "FAN_OUT": "fan_out", "AVERAGE": "fan_avg"}
_SWAPPED = {"fan_in": "fan_out", "fan_out": "fan_in", "fan_avg": "fan_avg"}


def initializers(given: Message, path: str, *, swapped: bool = False, **fields: str) -> dict[str, Any]:
    """The fields of a layer for the fillers that it has: `kernel_initializer="weight_filler"`.

    Without a filler Caffe initializes with 0, from which nothing can be trained: then our own defaults stay. `swapped`
    if Caffe's inputs of the first array are outputs here.
    """
    found = {}
    for ours, theirs in fields.items():
        if theirs in given:
            found[ours] = initializer(given[theirs], f"{path}.{theirs}", swapped=swapped)
    return found


def initializer(filler: Message, path: str, *, swapped: bool = False) -> Any:
    """A FillerParameter as the mapping of an initializer."""
    kind = filler["type"]
    if kind == "constant":
        value = filler["value"]
        return {0.0: "Zeros", 1.0: "Ones"}.get(value, {"type": "Constant", "value": value})
    if kind == "gaussian":
        found = {"type": "RandomNormal"} | ({"mean": filler["mean"]} if filler["mean"] else {})
        return found | {"stddev": filler["std"]} | ({"sparse": filler["sparse"]} if filler["sparse"] > 0 else {})
    if kind == "uniform":
        return {"type": "RandomUniform", "minval": filler["min"], "maxval": filler["max"]}
    if kind in ("xavier", "msra"):
        mode = _MODES[filler["variance_norm"]]
        mode = _SWAPPED[mode] if swapped else mode
        found = {"type": "VarianceScaling"} | ({} if mode == "fan_in" else {"mode": mode})
        if kind == "xavier":
            return found | {"distribution": "uniform"}
        return found | {"scale": 2.0, "distribution": "untruncated_normal"}
    named = {"positive_unitball": "PositiveUnitball", "bilinear": "Bilinear"}
    if kind not in named:
        raise UnsupportedFeature(f"Caffe has no filler `{kind}`", field=path)
    return named[kind]
