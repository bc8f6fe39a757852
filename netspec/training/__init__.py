"""Training: `train`, and the base classes of what a training file names.

Packages that add their own import from this module, from `netspec.layers` (what a net file names) and from
`netspec.graph` (ops and their values). To write

- a callback: `CallbackSpec` has its fields, `Callback` its hooks, which get the `TrainingLoop`;
- a solver: `SolverSpec`, or `DecayingSolver`, `ScalingSolver` and `DecoupledSolver` for the usual order of its stages;
- a stage of a solver: an `UpdateTransform`, with `Param`, `Step`, `Updates`, `Slots`, `SlotSpec` and `for_each`; stages
  to combine are `Descend`, `Scale` and `AddDecayedWeights`; a `Coefficient` is a field with a number or a schedule;
- a learning rate schedule: `ScheduleSpec`;
- a data source: `Source`, which opens a `Dataset` whose fields have a `FieldType`; `Transform` changes its samples,
  `ColumnSpec` reads a column of a table, `TokenizerSpec` splits text.

Registries, for classes that are not added by an entry point: `@CALLBACKS.register`, and likewise `SOLVERS`,
`SCHEDULES`, `SOURCES`, `TRANSFORMS`, `COLUMNS`, `TOKENIZERS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from netspec.data.base import Dataset as Dataset
    from netspec.data.base import FieldType as FieldType
    from netspec.data.base import Source as Source
    from netspec.data.base import Transform as Transform
    from netspec.data.tabular.columns.base import ColumnSpec as ColumnSpec
    from netspec.data.text.tokenizers.base import TokenizerSpec as TokenizerSpec
    from netspec.schema.specs.data import COLUMNS as COLUMNS
    from netspec.schema.specs.data import SOURCES as SOURCES
    from netspec.schema.specs.data import TOKENIZERS as TOKENIZERS
    from netspec.schema.specs.data import TRANSFORMS as TRANSFORMS
    from netspec.schema.specs.kinds import CALLBACKS as CALLBACKS
    from netspec.schema.specs.kinds import SCHEDULES as SCHEDULES
    from netspec.schema.specs.kinds import SOLVERS as SOLVERS
    from netspec.solvers.base import SolverSpec as SolverSpec
    from netspec.solvers.rules import DecayingSolver as DecayingSolver
    from netspec.solvers.rules import DecoupledSolver as DecoupledSolver
    from netspec.solvers.rules import ScalingSolver as ScalingSolver
    from netspec.solvers.scaling import AddDecayedWeights as AddDecayedWeights
    from netspec.solvers.scaling import Descend as Descend
    from netspec.solvers.scaling import Scale as Scale
    from netspec.solvers.schedules.base import ScheduleSpec as ScheduleSpec
    from netspec.solvers.schedules.constant import Coefficient as Coefficient
    from netspec.solvers.transform import Param as Param
    from netspec.solvers.transform import Slots as Slots
    from netspec.solvers.transform import SlotSpec as SlotSpec
    from netspec.solvers.transform import Step as Step
    from netspec.solvers.transform import Updates as Updates
    from netspec.solvers.transform import UpdateTransform as UpdateTransform
    from netspec.solvers.transform import for_each as for_each
    from netspec.training.callbacks.base import Callback as Callback
    from netspec.training.callbacks.base import CallbackSpec as CallbackSpec
    from netspec.training.events import Listener
    from netspec.training.loop import TrainingLoop as TrainingLoop
    from netspec.training.run import Run

_NAMES = {
    "netspec.data.base": "Dataset FieldType Source Transform",
    "netspec.data.tabular.columns.base": "ColumnSpec",
    "netspec.data.text.tokenizers.base": "TokenizerSpec",
    "netspec.schema.specs.data": "COLUMNS SOURCES TOKENIZERS TRANSFORMS",
    "netspec.schema.specs.kinds": "CALLBACKS SCHEDULES SOLVERS",
    "netspec.solvers.base": "SolverSpec",
    "netspec.solvers.rules": "DecayingSolver DecoupledSolver ScalingSolver",
    "netspec.solvers.scaling": "AddDecayedWeights Descend Scale",
    "netspec.solvers.schedules.base": "ScheduleSpec",
    "netspec.solvers.schedules.constant": "Coefficient",
    "netspec.solvers.transform": "Param SlotSpec Slots Step UpdateTransform Updates for_each",
    "netspec.training": "train",
    "netspec.training.callbacks.base": "Callback CallbackSpec",
    "netspec.training.loop": "TrainingLoop",
}
"""Names by the module that defines them, which is imported when one of them is first used."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
if not TYPE_CHECKING:
    __all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@overload
def train(
    spec: str | PathLike[str] | Mapping[str, Any],
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
@overload  # `**{"train.max_epochs": 2}` for type checkers
def train(spec: str | PathLike[str] | Mapping[str, Any], /, **overrides: Any) -> Run: ...
def train(
    spec: str | PathLike[str] | Mapping[str, Any],
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
    """Train a net as described in a training file, and return the finished run.

    `spec` is the path of a training file, or a mapping with the same content.

    - `run_dir`: folder to write the run to; by default the next free of `runs/NAME`, `runs/NAME-2`, …
    - `resume`: `True` continues the run in `run_dir` (or the run whose `spec.yaml` `spec` is) from its newest
      checkpoint; `"auto"` does so if there is a run, and starts one otherwise; the path of a checkpoint starts a new
      run from it.
    - `weights`: file to start from; parameters that match by name and shape are loaded.
    - `samples`: the data of splits with `source: python`, such as `{"train": arrays, "test": function}`.
    - `device`: `"auto"`, or a name that `netspec.devices()` lists.
    - `listeners`: functions that are called with every event of the log, a `dict`. A notebook shows the progress.
    - `callbacks`: `netspec.Callback` objects, whose hooks are called between steps.

    Any other keyword changes the spec: `solver={"learning_rate": 0.1}`, or `**{"solver.learning_rate": 0.1}`.

    Raises `netspec.InputError` if the spec or the data is wrong, `netspec.RunError` if the run fails, and
    `netspec.Interrupted`, a `KeyboardInterrupt`, if Ctrl-C ended it.

        >>> run = netspec.train("train.yaml", run_dir="runs/fast", **{"train.max_epochs": 2})
        >>> run.test.metrics, run.best_weights
    """
    from netspec.training.notebook import NotebookProgress, in_notebook
    from netspec.training.run import run

    return run(
        spec,
        overrides,
        run_dir=run_dir,
        resume=resume,
        weights=weights,
        samples=samples,
        device=device,
        listeners=[*([NotebookProgress()] if in_notebook() else []), *listeners],
        callbacks=callbacks,
    )
