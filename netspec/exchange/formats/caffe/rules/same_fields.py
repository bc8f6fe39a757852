"""Layers that Caffe and netspec both have, with the same fields: the table for reading and writing, and its rule."""

from __future__ import annotations

from collections.abc import Mapping

from netspec.exchange.formats.caffe.importer import CaffeImporter, rule
from netspec.exchange.formats.caffe.proto.fields import own_param
from netspec.exchange.formats.caffe.wiring import CaffeNode
from netspec.exchange.unsupported import UnsupportedFeature

_BASE = {"base": "base", "scale": "scale", "shift": "shift"}
SAME_FIELDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "AbsVal": ("Abs", {}),
    "BatchReindex": ("BatchReindex", {}),
    "Clip": ("Clip", {"min": "min", "max": "max"}),
    "Dropout": ("Dropout", {"dropout_ratio": "rate"}),
    "ELU": ("ELU", {"alpha": "alpha"}),
    "Exp": ("Exp", _BASE),
    "Log": ("Log", _BASE),
    "MVN": ("MVN", {"normalize_variance": "normalize_variance", "across_channels": "across_channels",
                    "eps": "epsilon"}),
    "Swish": ("Swish", {"beta": "beta"}),
    "Threshold": ("Threshold", {"threshold": "threshold"}),
    "Tile": ("Tile", {"tiles": "tiles", "axis": "axis"}),
}  # fmt: skip
"""The layer for each type of Caffe, and our field for each of Caffe's."""


@rule(*SAME_FIELDS)
def same_fields(importer: CaffeImporter, node: CaffeNode) -> None:
    """The layers of the table; a base of -1 is e."""
    type_, names = SAME_FIELDS[node.type]
    path = own_param(node.type) if names else ""
    inputs = [importer.read(node, index) for index in range(2 if node.type == "BatchReindex" else 1)]
    fields = {ours: node.layer[path][theirs] for theirs, ours in names.items()}
    if "axis" in fields:
        fields["axis"] = importer.axis(node, f"{path}.axis", len(inputs[0].shape), fields["axis"])
    if fields.get("base") == -1:
        fields["base"] = None
    elif "base" in fields and fields["base"] <= 0:
        raise UnsupportedFeature(f"its `base` must be positive or -1 (e), got {fields['base']:g}", field=f"{path}.base")
    importer.set_top(node, importer.add(node, type_, inputs, fields))
