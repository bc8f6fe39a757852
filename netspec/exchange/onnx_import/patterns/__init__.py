"""What several nodes of a model mean together: each finding becomes one node of the domain `netspec`.

A pattern is a formula (`formula.py`): what is found computes the same, however its factors and terms are ordered,
divided or rooted (`matching.py`). Each of the other modules is a family of patterns; a module put here is found by
itself.
"""

from __future__ import annotations

from netspec.exchange.onnx_import.patterns.finding import PARTS, find_patterns

__all__ = ["PARTS", "find_patterns"]
