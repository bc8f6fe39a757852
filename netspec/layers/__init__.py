"""One file per layer family: its YAML fields, its `build` in terms of ops, its own ops, its samples.

Modules are found by scan: a file put here is known to the spec language, the registry-wide tests and the docs.
"""

from __future__ import annotations

from netspec.schema.specs.kinds import (
    ACTIVATIONS,
    CELLS,
    CONSTRAINTS,
    INITIALIZERS,
    LAYERS,
    LOSSES,
    METRICS,
    REGULARIZERS,
)

for _registry in (LAYERS, LOSSES, METRICS, ACTIVATIONS, CELLS, CONSTRAINTS, INITIALIZERS, REGULARIZERS):
    _registry.lives_in(__name__)
