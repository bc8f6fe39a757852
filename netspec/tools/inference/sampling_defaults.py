"""Default settings of generated text, for Python, the command line and `/predict`."""

from __future__ import annotations

TOKENS = 200
TEMPERATURE = 1.0
SEED = 1
