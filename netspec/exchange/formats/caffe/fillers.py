"""Caffe's fillers ↔ initializers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.exchange.notes import Notes

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

    Without a filler Caffe initializes with 0, from which nothing can be trained: then our own defaults stay. `swapped`
    if Caffe's inputs of the first array are outputs here.
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


def filler_message(initializer: Any, values: NDArray[Any], state: str, notes: Notes) -> Message:
    """The filler of an array; a normal distribution of the same deviation, and a note, if Caffe has no such filler."""
    kind = getattr(initializer, "type", "")
    normal = "truncated_normal" if getattr(initializer, "normal", kind == "TruncatedNormal") else "uniform"
    distribution = getattr(initializer, "distribution", normal)
    same = {type_: (filler, names) for filler, (type_, names) in _FILLERS.items()}
    same["TruncatedNormal"] = same["RandomNormal"]
    if kind in ("Constant", *_CONSTANTS):
        fields = {"type": "constant", "value": _CONSTANTS[kind] if kind in _CONSTANTS else float(initializer.value)}
    elif kind in same:
        filler, names = same[kind]
        fields = {"type": filler, **{theirs: getattr(initializer, ours, None) for theirs, ours in names.items()}}
    elif kind == "VarianceScaling":
        fields = _fan_filler(initializer.scale, initializer.mode, values.shape, uniform=distribution == "uniform")
    elif hasattr(initializer, "fan"):
        fields = _fan_filler(initializer.factor, initializer.fan, values.shape, uniform=distribution == "uniform")
    else:
        fields = {"type": "gaussian", "std": float(values.std()) if values.size > 1 else 0.0}
        notes.add(f"{state}: Caffe has no filler for {kind or 'its initializer'}: "
                  "a normal distribution with the deviation of the weights")  # fmt: skip
    if distribution == "truncated_normal":
        notes.add(f"{state}: Caffe's normal distribution is not truncated at two deviations")
    message = Message("FillerParameter")
    for name, value in fields.items():
        if name == "type" or value not in (None, message[name]):
            message[name] = value
    return message


def _fan_filler(scale: float, mode: str, shape: tuple[int, ...], *, uniform: bool) -> dict[str, Any]:
    """A variance of scale / fan: xavier is uniform with scale 1, msra normal with scale 2."""
    fans = {"fan_in": prod(shape[1:]), "fan_out": prod(shape) / max(1, prod(shape[1:2]))}
    fans["fan_avg"] = (fans["fan_in"] + fans["fan_out"]) / 2
    if scale == (1 if uniform else 2):
        norms = {ours: theirs for theirs, ours in _MODES.items()}
        return {"type": "xavier" if uniform else "msra", "variance_norm": norms[mode]}
    limit = sqrt((3 if uniform else 1) * scale / fans[mode])
    return {"type": "uniform", "min": -limit, "max": limit} if uniform else {"type": "gaussian", "std": limit}
