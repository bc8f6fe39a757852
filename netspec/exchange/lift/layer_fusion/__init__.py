"""Fuse layers of a draft that together compute one layer, as a person would write it.

This runs after lifting, when shapes are known, and products and scales are the same layers however the model wrote
them. Each other module is a family of rules, and is imported by `fusion`.
"""

from __future__ import annotations

from netspec.exchange.lift.layer_fusion.fusion import fuse_layers

__all__ = ["fuse_layers"]
