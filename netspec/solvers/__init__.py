"""Solvers and schedules: one file per family, its YAML fields, its transforms, its samples.

Modules are found by scanning: the spec language, the tests of all solvers and the docs include every file here and in
`schedules/`.
"""

from __future__ import annotations

from netspec.schema.specs.kinds import SCHEDULES, SOLVERS

for _registry in (SOLVERS, SCHEDULES):
    _registry.lives_in(__name__)
