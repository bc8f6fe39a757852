"""Strategies: how several workers train one net. One file each, from its paper; found by scan."""

from __future__ import annotations

from netspec.schema.kinds import STRATEGIES

STRATEGIES.lives_in(__name__)
