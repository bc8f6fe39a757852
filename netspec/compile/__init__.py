"""Spec → graph → plan → program: the one place that knows the whole pipeline.

`build` turns a net spec into graph values for one batch size and one purpose; `steps` makes of them what a program
computes; `planning` takes that through the passes and the plans; `Compiler` binds it to a device, and keeps one program
for each purpose and batch size. All programs of a compiler share its states.

What is behind a name is imported when the name is first used: `netspec check` of a net builds it, and needs no passes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from netspec.compile.build import LOSS, REGULARIZATION, Built, build, input_type

if TYPE_CHECKING:
    from netspec.compile.compiler import KEPT_FORMS, Compiler
    from netspec.compile.cutting import Cutting
    from netspec.compile.division import Divide
    from netspec.compile.planning import PASSES, make_plan
    from netspec.compile.purposes import Duty, Purpose
    from netspec.compile.steps import FIRST, LEARNING_RATE, NEW, SHARE, STEP, TOTAL, rate_inputs, training_form
    from netspec.compile.training import SCALE, SKIPPED
    from netspec.graph.ops.communication import WEIGHT

__all__ = [
    "FIRST",
    "KEPT_FORMS",
    "LEARNING_RATE",
    "LOSS",
    "NEW",
    "PASSES",
    "REGULARIZATION",
    "SCALE",
    "SHARE",
    "SKIPPED",
    "STEP",
    "TOTAL",
    "WEIGHT",
    "Built",
    "Compiler",
    "Cutting",
    "Divide",
    "Duty",
    "Purpose",
    "build",
    "input_type",
    "make_plan",
    "rate_inputs",
    "training_form",
]

_HOMES = {
    **dict.fromkeys(("KEPT_FORMS", "Compiler"), "compiler"),
    **dict.fromkeys(("Duty", "Purpose"), "purposes"),
    **dict.fromkeys(("PASSES", "make_plan"), "planning"),
    **dict.fromkeys(
        ("FIRST", "LEARNING_RATE", "NEW", "SHARE", "STEP", "TOTAL", "rate_inputs", "training_form"), "steps"
    ),
    **dict.fromkeys(("SCALE", "SKIPPED"), "training"),
    "Divide": "division",
    "Cutting": "cutting",
    "WEIGHT": "spreading",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
