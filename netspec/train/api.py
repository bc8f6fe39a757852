"""`netspec.train(…)`: the training function as Python users call it."""

from __future__ import annotations

from typing import Any

from netspec.schema.load import Source
from netspec.train.run import Run, run

OPTIONS = ("run_dir", "resume", "weights", "device", "listeners")


def train(spec: Source, /, **overrides: Any) -> Run:
    """Train as a training file (or a mapping with what it would say) tells; values can be replaced by name.

    Options of the command go by their names: `run_dir`, `resume`, `weights`, `device`, `listeners`. Everything else is
    an override: `train("train.yaml", solver={"learning_rate": 0.1}, **{"train.max_epochs": 2})`.

    Raises `netspec.errors.InputError` for what the caller can mend, `RunError` for a run that failed.
    """
    options = {name: overrides.pop(name) for name in OPTIONS if name in overrides}
    return run(spec, overrides, **options)
