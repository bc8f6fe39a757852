"""Join layers of a draft that mean one layer, as a person would write it.

This follows lifting: then all ways to write a product or a scale are one, and shapes are known. Each other module is a
family of rules, and is imported by `fusion`.
"""

from __future__ import annotations

from netspec.exchange.lift.layer_fusion.fusion import join

__all__ = ["join"]
