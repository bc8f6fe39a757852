"""Compile a net: spec → graph → plan → program.

`build` turns a net spec into graph values for one batch size and purpose; `steps` and `training` turn these into the
graph of a program; `planning` runs the passes and plans layouts, kernels and memory; `Compiler` binds the plan to a
device and keeps one program for each purpose and batch size. All programs of a compiler share its states. All changes
for distributed training come through one optional argument, a `DistributedPlan`.

Names are imported when they are first used: `netspec check` builds a net without loading the passes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from netspec.compile.build import LOSS, REGULARIZATION, NetGraph, build, input_type

if TYPE_CHECKING:
    from netspec.compile.compiler import KEPT_VARIANTS, Compiler
    from netspec.compile.planning import PASSES, make_plan
    from netspec.compile.purposes import ProcessRole, ProgramKind
    from netspec.compile.steps import (
        FIRST,
        LEARNING_RATE,
        MOMENTUM,
        NEW,
        SHARE,
        STEP,
        TOTAL,
        is_rate,
        mean_totals,
        scheduled_inputs,
        training_form,
    )
    from netspec.compile.training import GRADIENT_NORM, SCALE, SKIPPED, gradient_sum_label
    from netspec.graph.ops.all_reduce import WEIGHT

__all__ = [
    "FIRST",
    "GRADIENT_NORM",
    "KEPT_VARIANTS",
    "LEARNING_RATE",
    "LOSS",
    "MOMENTUM",
    "NEW",
    "PASSES",
    "REGULARIZATION",
    "SCALE",
    "SHARE",
    "SKIPPED",
    "STEP",
    "TOTAL",
    "WEIGHT",
    "Compiler",
    "NetGraph",
    "ProcessRole",
    "ProgramKind",
    "build",
    "gradient_sum_label",
    "input_type",
    "is_rate",
    "make_plan",
    "mean_totals",
    "scheduled_inputs",
    "training_form",
]

_HOMES = {
    **dict.fromkeys(("KEPT_VARIANTS", "Compiler"), "compiler"),
    **dict.fromkeys(("ProcessRole", "ProgramKind"), "purposes"),
    **dict.fromkeys(("PASSES", "make_plan"), "planning"),
    **dict.fromkeys(
        (
            "FIRST",
            "LEARNING_RATE",
            "MOMENTUM",
            "NEW",
            "SHARE",
            "STEP",
            "TOTAL",
            "is_rate",
            "mean_totals",
            "scheduled_inputs",
            "training_form",
        ),
        "steps",
    ),
    **dict.fromkeys(("GRADIENT_NORM", "SCALE", "SKIPPED", "gradient_sum_label"), "training"),
    "WEIGHT": "training",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
