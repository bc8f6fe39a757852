"""The training loop, evaluation, checkpoints and logs.

`netspec.train` is this package and, for users, the function `train` below: importing any module of the package puts the
package in the function's place, so the package can be called.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from netspec.schema.load import Source
    from netspec.train.events import Listener
    from netspec.train.run import Run


@overload
def train(
    spec: Source,
    /,
    *,
    run_dir: str | Path | None = None,
    resume: bool | str | Path = False,
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] = (),
    **overrides: Any,
) -> Run: ...
@overload
def train(spec: Source, /, **overrides: Any) -> Run: ...  # what `**{"train.max_epochs": 2}` is for a type checker
def train(
    spec: Source,
    /,
    *,
    run_dir: str | Path | None = None,
    resume: bool | str | Path = False,
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] = (),
    **overrides: Any,
) -> Run:
    """Train as a training file (or a mapping with what it would say) tells.

    `run_dir` is where the run is written, by default the next free of `runs/NAME`, `runs/NAME-2`, …; `resume` goes on
    from its newest checkpoint, or in a new run from the checkpoint file that it names; `weights` starts from a file;
    `samples` are those of splits of `source: python`, by split: `{"train": arrays, "test": function}`; `device` is one
    of `netspec devices`; each of `listeners` is called with every event. All other names change the spec:
    `netspec.train("train.yaml", solver={"learning_rate": 0.1}, **{"train.max_epochs": 2})`.

    Raises `netspec.errors.InputError` for what the caller can mend, `RunError` for a run that failed, and
    `netspec.train.run.Interrupted`, a KeyboardInterrupt, where Ctrl-C ended it.
    """
    from netspec.train.run import run

    return run(
        spec,
        overrides,
        run_dir=run_dir,
        resume=resume,
        weights=weights,
        samples=samples,
        device=device,
        listeners=listeners,
    )


class _CallablePackage(ModuleType):
    def __call__(self, *spec: Any, **options: Any) -> Any:
        if len(spec) != 1:
            raise TypeError(
                f"netspec.train() takes one positional argument, the spec, not {len(spec)}; all else goes by name: "
                "netspec.train('train.yaml', run_dir='runs/a', solver={'learning_rate': 0.1})"
            )
        return train(*spec, **options)


__signature__ = inspect.signature(train)
sys.modules[__name__].__class__ = _CallablePackage
