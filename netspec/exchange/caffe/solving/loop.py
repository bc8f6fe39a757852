"""The rest of a solver file → the field `train` of a training file."""

from __future__ import annotations

from typing import Any

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.solving.remarks import Remarks

GUESSED_STEPS = 10_000
"""How long to train where the file does not say it: then Caffe's callers do."""

OF_CAFFE = {
    "solver_mode": "which processor computes is not part of a training file",
    "device_id": "which processor computes is not part of a training file",
    "average_loss": "the log has the loss of each step as it is",
    "debug_info": "`netspec plan` and the log tell of a training",
    "snapshot_diff": "checkpoints hold no gradients",
    "test_compute_loss": "evaluations always have the losses",
    "layer_wise_reduce": "how gradients travel is not part of a training file",
    "weights": "give them to the training: `netspec train train.yaml --weights FILE`",
}
"""Fields that have no counterpart, and why none is missed."""


def loop(solver: Message, remarks: Remarks, *, tested: bool) -> dict[str, Any]:
    """The field `train`; `tested` where there is a test split."""
    made: dict[str, Any] = {"max_steps": solver["max_iter"]}
    if "max_iter" not in solver:
        made["max_steps"] = GUESSED_STEPS
        remarks.note(f"the solver has no max_iter: max_steps {GUESSED_STEPS} is a guess")
    elif solver["max_iter"] < 1:
        remarks.problem("no step is taken", solver, "max_iter", expected="max_iter above 0", got=solver["max_iter"])
    if tested:
        made["test_every"] = _count(solver, "test_interval", remarks)
    made["checkpoint_every"] = _count(solver, "snapshot", remarks)
    if _count(solver, "display", remarks):
        made["log_every"] = solver["display"]
    if solver["random_seed"] >= 0:
        made["seed"] = solver["random_seed"]
    if solver["iter_size"] > 1:
        made["accumulate"] = solver["iter_size"]
    elif solver["iter_size"] < 1:
        remarks.problem("no batch in a step", solver, "iter_size", expected="above 0", got=solver["iter_size"])
    _left_out(solver, remarks)
    return made


def _count(solver: Message, name: str, remarks: Remarks) -> int:
    """Every how many steps; 0: at the end alone."""
    found: int = solver[name]
    if found < 0:
        remarks.problem(f"`{name}` counts steps", solver, name, expected="0 or more", got=found)
    return found


def _left_out(solver: Message, remarks: Remarks) -> None:
    for name, why in OF_CAFFE.items():
        if name in solver:
            value = solver[name]
            told = ", ".join(value) if isinstance(value, list) else str(value)
            remarks.note(f"{name} {told} is left out: {why}")
    if solver["test_initialization"] and "test_initialization" in solver and solver["test_interval"]:
        remarks.note("test_initialization true is left out: the first evaluation comes after test_every steps")
    if not solver["snapshot_after_train"]:
        remarks.note("snapshot_after_train false is left out: the last step is always kept")
    for one in solver.unknown:
        remarks.note(f"`{one.name}` of the solver is unknown, and left out")
