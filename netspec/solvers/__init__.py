"""Solvers and schedules: one file per family, its YAML fields, its transforms, its samples.

Modules are found by scan: a file put here, or in `schedules/`, is known to the spec language, the registry-wide tests
and the docs.
"""

from __future__ import annotations

from netspec.schema.specs.kinds import SCHEDULES, SOLVERS

for _registry in (SOLVERS, SCHEDULES):
    _registry.lives_in(__name__)
