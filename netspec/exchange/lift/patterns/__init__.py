"""Find nodes that together mean one operator, and replace them by one node of the domain `netspec`.

A pattern is a formula (`formula.py`). The nodes compute that formula, with factors and terms in any order and form
(`matching.py`). Each other module is a family of patterns, and is imported by `finding`.
"""

from __future__ import annotations

from netspec.exchange.lift.patterns.finding import PARTS, find_patterns

__all__ = ["PARTS", "find_patterns"]
