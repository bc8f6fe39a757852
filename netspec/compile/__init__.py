"""Spec → graph → plan → program: the one place that knows the whole pipeline.

`build` turns a net spec into graph values for one batch size and one purpose; `steps` makes of them what a program
computes; `planning` takes that through the passes and the plans; `Compiler` binds it to a device, and keeps one program
for each purpose and batch size. All programs of a compiler share its states.
"""

from netspec.compile.build import LOSS, REGULARIZATION, Built, build, input_type
from netspec.compile.compiler import KEPT_FORMS, Compiler, Purpose
from netspec.compile.planning import PASSES, make_plan
from netspec.compile.steps import LEARNING_RATE, STEP, rate_inputs

__all__ = [
    "KEPT_FORMS",
    "LEARNING_RATE",
    "LOSS",
    "PASSES",
    "REGULARIZATION",
    "STEP",
    "Built",
    "Compiler",
    "Purpose",
    "build",
    "input_type",
    "make_plan",
    "rate_inputs",
]
