"""The training loop, evaluation, checkpoints and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from netspec.schema.load import Source
    from netspec.training.callbacks.base import Callback, CallbackSpec
    from netspec.training.events import Listener
    from netspec.training.run import Run


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
    callbacks: Sequence[Callback | CallbackSpec] = (),
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
    callbacks: Sequence[Callback | CallbackSpec] = (),
    **overrides: Any,
) -> Run:
    """Train as a training file (or a mapping with the same content) says.

    `run_dir` is where the run is written, by default the next free of `runs/NAME`, `runs/NAME-2`, …; `resume=True`
    continues from its newest checkpoint, the path of a checkpoint starts a new run from it; `weights` starts from a
    file; `samples` are those of splits of `source: python`, by split: `{"train": arrays, "test": function}`; `device`
    is one of `netspec devices`; each of `listeners` is called with every event; the hooks of `callbacks` are called
    between steps (`netspec.Callback`). All other names change the spec:
    `netspec.train("train.yaml", solver={"learning_rate": 0.1}, **{"train.max_epochs": 2})`.

    Raises `netspec.InputError` for mistakes in the spec or the data, `netspec.RunError` if the run fails, and
    `netspec.Interrupted`, a KeyboardInterrupt, if Ctrl-C ended it.
    """
    from netspec.training.run import run

    return run(
        spec,
        overrides,
        run_dir=run_dir,
        resume=resume,
        weights=weights,
        samples=samples,
        device=device,
        listeners=listeners,
        callbacks=callbacks,
    )
