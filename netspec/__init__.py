"""netspec: declarative neural networks, from YAML to a compiled training step.

The Python interface is small: `load` gives a `Model`, `train` runs a training file. Importing the package loads
nothing else; each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from netspec.train.model import Model as Model
    from netspec.train.model import load as load
    from netspec.train.run import Run as Run

__version__ = "0.1.0"

_HOMES = {"Model": "netspec.train.model", "load": "netspec.train.model", "Run": "netspec.train.run"}


def train(spec: str | Path | Mapping[str, Any], /, **overrides: Any) -> Run:
    """Train as a training file (or a mapping with what it would say) tells; values can be replaced by name.

    Options of the command go by their names: `run_dir`, `resume`, `weights`, `device`, `listeners`. Everything else is
    an override: `train("train.yaml", solver={"learning_rate": 0.1}, **{"train.max_epochs": 2})`.

    Raises `netspec.errors.InputError` for what the caller can mend, `RunError` for a run that failed.
    """
    from netspec.train.run import train as run

    options = {name: overrides.pop(name) for name in ("run_dir", "resume", "weights", "device", "listeners") if name in overrides}
    return run(spec, overrides, **options)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'netspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
