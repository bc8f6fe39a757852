"""Write the losses and metrics of a training for other programs: CSV, TensorBoard, MLflow, Weights & Biases.

Nothing is sent anywhere unless a training file names one of these.
"""

from __future__ import annotations

import csv
import re
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from netspec.errors import InputError, install_command
from netspec.exchange.files import write_text_atomically
from netspec.schema.specs.comparison import plain
from netspec.schema.specs.field_types import Name
from netspec.schema.specs.kinds import CALLBACKS
from netspec.training.callbacks.base import Callback, CallbackSpec
from netspec.training.events import append_line, values_of

if TYPE_CHECKING:
    from netspec.training.events import Event
    from netspec.training.loop import TrainingLoop

STEP_VALUES = ("learning_rate", "momentum", "gradient_norm", "loss_scale", "samples_per_second")
"""Values of a line of the log besides the loss and the metrics."""
STEP, EPOCH = "step", "epoch"
FORBIDDEN_IN_MLFLOW = re.compile(r"[^\w\-. :/]")
"""Characters that MLflow does not allow in names of metrics."""


def logged_values(event: Event) -> dict[str, float]:
    """Return the finite numbers of an event by name, such as `train/loss`, `validation/accuracy`, `learning_rate`."""
    if event["event"] not in ("log", "test"):
        return {}
    split = "train" if event["event"] == "log" else event.get("split", "test")
    values = {f"{split}/{name}": value for name, value in values_of(event).items()}
    values |= {name: event[name] for name in STEP_VALUES if name in event and event["event"] == "log"}
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}


class _Logger(Callback):
    """Base of callbacks that record the values of each event, and how the training ended."""

    reads_loss = False

    def on_event(self, training: TrainingLoop, event: Event) -> None:
        if values := logged_values(event):
            self.write(training, values, event)
        if event["event"] == "done":  # after the last evaluations, which come after `on_train_end`
            self.close(training, "FINISHED")

    def on_train_end(self, training: TrainingLoop) -> None:
        if training.stopped and not training.finished:
            self.close(training, "KILLED")

    def on_exception(self, training: TrainingLoop, error: Exception) -> None:
        self.close(training, "FAILED")

    def write(self, training: TrainingLoop, values: dict[str, float], event: Event) -> None:
        """Record the values of one event."""
        raise NotImplementedError

    def close(self, training: TrainingLoop, status: str) -> None:
        """End the record of the run: it has `FINISHED`, it was `KILLED` (stopped on request), or it `FAILED`."""


@CALLBACKS.register
class CSVLogger(CallbackSpec):
    """Writes `metrics.csv` in the run directory, a row for each step with values. Keras's CSVLogger.

    The columns are `step`, `epoch`, `train/loss`, `validation/accuracy` and so on; a value that a step does not have is
    an empty cell.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "filename": "not needed: the file is `metrics.csv` in the run directory"
    }

    type: Literal["CSVLogger"] = "CSVLogger"

    def build(self) -> Callback:
        return _CSVLogger()


class _CSVLogger(_Logger):
    """Appends rows; the row of the current step is written once another step begins, or a checkpoint is written."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._row: dict[str, Any] = {}

    def on_train_start(self, training: TrainingLoop) -> None:
        path = _csv_path(training)
        if training.is_root and path.is_file():  # resumed: drop the rows of steps that are repeated
            rows = [row for row in _read_csv(path) if int(row[STEP]) <= training.step]
            self._rewrite(path, rows)

    def write(self, training: TrainingLoop, values: dict[str, float], event: Event) -> None:
        if self._row.get(STEP) != event["step"]:
            self._flush(training)
        self._row |= {STEP: event["step"], **({EPOCH: event["epoch"]} if EPOCH in event else {}), **values}

    def on_checkpoint(self, training: TrainingLoop, path: Path) -> None:
        self._flush(training)

    def close(self, training: TrainingLoop, status: str) -> None:
        self._flush(training)

    def _flush(self, training: TrainingLoop) -> None:
        if not self._row:
            return
        training.mend_folder()
        path = _csv_path(training)
        if self._row.keys() <= set(self._columns) and path.is_file():
            append_line(path, _csv_text([self._row], self._columns))
        else:
            self._rewrite(path, [*(_read_csv(path) if path.is_file() else []), self._row])
        self._row = {}

    def _rewrite(self, path: Path, rows: list[dict[str, Any]]) -> None:
        self._columns = list(dict.fromkeys([STEP, EPOCH, *(name for row in rows for name in row)]))
        header = {name: name for name in self._columns}
        text = _csv_text([header, *rows], self._columns) + "\n"
        write_text_atomically(path, text)


def _read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a table that this callback wrote, without empty cells. Raises `InputError` if it is another file."""
    rows = [
        {name: cell for name, cell in row.items() if name and cell}
        for row in csv.DictReader(path.read_text(encoding="utf-8", errors="replace").splitlines())
    ]
    if not all(str(row.get(STEP, "")).isdigit() for row in rows):
        raise InputError(f"{path} cannot be continued", expected="the table of this run: a column `step` with numbers")
    return rows


def _csv_text(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """Rows as lines of CSV, without the last line break."""
    text = StringIO()
    csv.DictWriter(text, columns, lineterminator="\n").writerows(rows)
    return text.getvalue().removesuffix("\n")


def _csv_path(training: TrainingLoop) -> Path:
    return training.folder.folder / "metrics.csv"


@CALLBACKS.register
class TensorBoard(CallbackSpec):
    """Writes losses and metrics as event files for TensorBoard, in `tensorboard` in the run directory.

    `tensorboard --logdir runs` shows all runs. Needs the extra `tensorboard`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "log_dir": "not needed: the folder is `tensorboard` in the run directory",
        "histogram_freq": "use the callback `Histograms`, and `netspec report`",
    }

    type: Literal["TensorBoard"] = "TensorBoard"

    def build(self) -> Callback:
        return _TensorBoard(_package(self, "tensorboardX", "tensorboard"))


class _TensorBoard(_Logger):
    def __init__(self, package: Any) -> None:
        self._package = package
        self._writer: Any = None

    def on_train_start(self, training: TrainingLoop) -> None:
        if training.is_root:
            folder = str(training.folder.folder / "tensorboard")
            # a resumed run hides the values of steps that it repeats
            self._writer = self._package.SummaryWriter(folder, purge_step=training.step + 1 if training.step else None)

    def write(self, training: TrainingLoop, values: dict[str, float], event: Event) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, event["step"])
            self._writer.flush()

    def close(self, training: TrainingLoop, status: str) -> None:
        if self._writer is not None:
            self._writer.close()


class _Service(_Logger):
    """Base of callbacks that send values to a service. If that fails, the training continues with a warning."""

    def __init__(self) -> None:
        self._has_failed = False

    def write(self, training: TrainingLoop, values: dict[str, float], event: Event) -> None:
        try:
            self.send(values, event["step"])
        except Exception as error:
            self._warn(training, error)

    def close(self, training: TrainingLoop, status: str) -> None:
        try:
            self.end(status)
        except Exception as error:
            self._warn(training, error)

    def send(self, values: dict[str, float], step: int) -> None:
        """Send the values of a step."""
        raise NotImplementedError

    def end(self, status: str) -> None:
        """End the record of the run."""
        raise NotImplementedError

    def _warn(self, training: TrainingLoop, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            what = f"{type(self).__name__.removeprefix('_')} failed, values may be missing there"
            training.emit("warning", message=f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


@CALLBACKS.register
class MLflow(CallbackSpec):
    """Sends settings, losses and metrics to MLflow. Needs the extra `mlflow`.

    A resumed run continues the same run of MLflow.
    """

    type: Literal["MLflow"] = "MLflow"
    experiment: Name | None = None
    """Name of the experiment. By default that of the environment variable MLFLOW_EXPERIMENT_NAME, else MLflow's."""
    tracking_uri: str | None = None
    """Address of the server, or of a local store such as `sqlite:///mlflow.db`. By default that of MLFLOW_TRACKING_URI,
    or a folder in the working directory."""
    samples: ClassVar = ({}, {"experiment": "digits", "tracking_uri": "sqlite:///mlflow.db"})

    def build(self) -> Callback:
        return _MLflow(self, _package(self, "mlflow", "mlflow"))


class _MLflow(_Service):
    def __init__(self, spec: MLflow, package: Any) -> None:
        super().__init__()
        self._spec, self._mlflow = spec, package
        self._run: str | None = None

    def on_train_start(self, training: TrainingLoop) -> None:
        if not training.is_root:
            return
        if self._spec.tracking_uri is not None:
            self._mlflow.set_tracking_uri(self._spec.tracking_uri)
        if self._spec.experiment is not None:
            self._mlflow.set_experiment(self._spec.experiment)
        name = training.folder.folder.name
        run = self._mlflow.start_run(run_id=self._run, run_name=None if self._run else name)
        if self._run is None:
            self._run = run.info.run_id
            self._mlflow.log_params({key: str(value)[:500] for key, value in _settings(training).items()})

    def send(self, values: dict[str, float], step: int) -> None:
        if self._run is not None:
            named = {FORBIDDEN_IN_MLFLOW.sub("", name): value for name, value in values.items()}
            self._mlflow.log_metrics(named, step=step)

    def end(self, status: str) -> None:
        if self._run is not None:
            self._mlflow.end_run(status)

    def state_dict(self) -> dict[str, Any]:
        return {"run": self._run}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._run = state["run"]


@CALLBACKS.register
class WandB(CallbackSpec):
    """Sends settings, losses and metrics to Weights & Biases. Needs the extra `wandb`.

    A resumed run continues the same run there. The environment variable WANDB_MODE=offline writes files that `wandb
    sync` sends later.
    """

    type: Literal["WandB"] = "WandB"
    project: Name | None = None
    """Name of the project. By default the name of the net."""
    entity: Name | None = None
    """User or team. By default that of the login."""
    samples: ClassVar = ({}, {"project": "digits", "entity": "team"})

    def build(self) -> Callback:
        return _WandB(self, _package(self, "wandb", "wandb"))


class _WandB(_Service):
    def __init__(self, spec: WandB, package: Any) -> None:
        super().__init__()
        self._spec, self._wandb = spec, package
        self._id: str | None = None
        self._run: Any = None

    def on_train_start(self, training: TrainingLoop) -> None:
        if training.is_root:
            self._run = self._wandb.init(
                project=self._spec.project or training.spec.net.name, entity=self._spec.entity, id=self._id,
                name=training.folder.folder.name, resume="allow", dir=str(training.folder.folder),
                config=_settings(training),
            )  # fmt: skip
            self._id = self._run.id

    def send(self, values: dict[str, float], step: int) -> None:
        if self._run is not None:
            self._run.log(values, step=step)

    def end(self, status: str) -> None:
        if self._run is not None:
            self._run.finish(exit_code=int(status == "FAILED"))

    def state_dict(self) -> dict[str, Any]:
        return {"id": self._id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._id = state["id"]


def _package(spec: CallbackSpec, name: str, extra: str) -> Any:
    """Import the package that a callback needs. Raises `InputError` if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        message = f"the package `{name}` is not installed"
        raise InputError(message, location=spec.where("type"), hint=install_command(extra)) from None


def _settings(training: TrainingLoop) -> dict[str, Any]:
    """The values of the solver, the loop and the training data by dotted path."""
    spec: dict[str, Any] = plain(training.spec)
    return dict(_flatten({"solver": spec["solver"], "train": spec["train"], "data": {"train": spec["data"]["train"]}}))


def _flatten(tree: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """The values of nested mappings, without nulls."""
    values: list[tuple[str, Any]] = []
    for key, value in tree.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            values += _flatten(value, name)
        elif value is not None:
            values.append((name, value))
    return values
