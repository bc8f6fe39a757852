"""Caffe's fillers → initializers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.unsupported import UnsupportedFeature

_FILLERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "gaussian": ("RandomNormal", {"mean": "mean", "std": "stddev", "sparse": "sparse"}),
    "uniform": ("RandomUniform", {"min": "minval", "max": "maxval"}),
    "positive_unitball": ("PositiveUnitball", {}),
    "bilinear": ("Bilinear", {}),
}
"""The initializer for each filler with the same fields, and our field for each of Caffe's."""
_UNSET = {"mean": (0.0,), "sparse": (-1, 0)}
"""Values that are our defaults too."""
_CONSTANTS = {"Zeros": 0.0, "Ones": 1.0}
_MODES = {"FAN_IN": "fan_in", "FAN_OUT": "fan_out", "AVERAGE": "fan_avg"}
_SWAPPED = {"fan_in": "fan_out", "fan_out": "fan_in", "fan_avg": "fan_avg"}


def initializers(param: Message, path: str, *, swapped: bool = False, **fields: str) -> dict[str, Any]:
    """The fields of a layer for the fillers that it has: `kernel_initializer="weight_filler"`.

    Without a filler Caffe initializes with 0, from which nothing can be trained: then netspec's defaults stay.
    `swapped` exchanges fan-in and fan-out.
    """
    return {
        ours: initializer(param[theirs], f"{path}.{theirs}", swapped=swapped)
        for ours, theirs in fields.items()
        if theirs in param
    }


def initializer(filler: Message, path: str, *, swapped: bool = False) -> Any:
    """A FillerParameter as the mapping of an initializer, or its name if it has no fields."""
    kind = filler["type"]
    if kind == "constant":
        names = {value: name for name, value in _CONSTANTS.items()}
        return names.get(filler["value"], {"type": "Constant", "value": filler["value"]})
    if kind in ("xavier", "msra"):
        mode = _MODES[filler["variance_norm"]]
        mode = _SWAPPED[mode] if swapped else mode
        fields = {"type": "VarianceScaling"} | ({} if mode == "fan_in" else {"mode": mode})
        if kind == "xavier":
            return fields | {"distribution": "uniform"}
        return fields | {"scale": 2.0, "distribution": "untruncated_normal"}
    if kind not in _FILLERS:
        raise UnsupportedFeature(f"Caffe has no filler `{kind}`", field=path)
    type_, names_of = _FILLERS[kind]
    values = {ours: filler[theirs] for theirs, ours in names_of.items() if filler[theirs] not in _UNSET.get(theirs, ())}
    return {"type": type_, **values} if names_of else type_
