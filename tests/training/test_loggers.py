"""Callbacks that write losses and metrics for other programs."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import netspec
from netspec.errors import InputError, RunError, install_command
from netspec.training.callbacks.loggers import MLflow
from netspec.training.loop import TrainingLoop

Make = Callable[..., dict[str, Any]]


def train(spec: Make, run_dir: Path, *callbacks: dict[str, Any], resume: bool = False, **loop: Any) -> netspec.Run:
    settings: dict[str, Any] = {"max_steps": 9, "checkpoint_every": 4, "test_every": 4, "log_every": 3, **loop}
    return netspec.train(
        {**spec(**settings), "callbacks": list(callbacks)}, run_dir=run_dir, device="reference", resume=resume
    )


class Stop(netspec.Callback):
    """Stops the training after step 5, with a checkpoint."""

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.step == 5:
            training.request_stop("test")


def stop_after_5(spec: Make, run_dir: Path, callback: dict[str, Any]) -> None:
    settings = spec(max_steps=9, checkpoint_every=4, test_every=4, log_every=3) | {"callbacks": [callback]}
    with pytest.raises(netspec.Interrupted):
        netspec.train(settings, run_dir=run_dir, device="reference", callbacks=[Stop()])


def rows(run_dir: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run_dir / "metrics.csv").read_text().splitlines()))


def test_csv_has_a_row_for_each_step_with_values(spec: Make, tmp_path: Path) -> None:
    run = train(spec, tmp_path / "run", {"type": "CSVLogger"})
    table = rows(run.run_dir)
    assert [row["step"] for row in table] == ["1", "3", "4", "6", "8", "9"]
    logged = {event["step"]: event for event in run.history if event["event"] == "log"}
    for row in table:
        event = logged.get(int(row["step"]))
        assert row["train/loss"] == ("" if event is None else str(event["loss"]))
    assert table[-1]["test/loss"] == str(run.test.loss if run.test else None)
    assert {"learning_rate", "epoch", "test/accuracy"} <= set(table[0])


def test_a_resumed_run_writes_the_same_table(spec: Make, tmp_path: Path) -> None:
    whole = train(spec, tmp_path / "whole", {"type": "CSVLogger"})
    stop_after_5(spec, tmp_path / "parts", {"type": "CSVLogger"})
    train(spec, tmp_path / "parts", {"type": "CSVLogger"}, resume=True)
    speeds = {"samples_per_second"}
    tables = [
        {row["step"]: {name: cell for name, cell in row.items() if name not in speeds} for row in rows(run_dir)}
        for run_dir in (whole.run_dir, tmp_path / "parts")
    ]
    assert tables[0] == tables[1]


def test_tensorboard_reads_the_event_files(spec: Make, tmp_path: Path) -> None:
    from tensorboardX.proto import event_pb2

    run = train(spec, tmp_path / "run", {"type": "TensorBoard"})
    (file,) = (run.run_dir / "tensorboard").iterdir()
    data = file.read_bytes()
    found: dict[tuple[str, int], float] = {}
    while data:  # a record: its length in 8 bytes, a checksum in 4, the event, a checksum in 4
        size = int.from_bytes(data[:8], "little")
        event = event_pb2.Event.FromString(data[12 : 12 + size])
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        data = data[16 + size :]
    logged = {event["step"]: event for event in run.history if event["event"] == "log"}
    for step, event in logged.items():
        assert found["train/loss", step] == pytest.approx(event["loss"], rel=1e-6)
    assert run.test is not None
    assert found["test/loss", 9] == pytest.approx(run.test.loss, rel=1e-6)


class FakeMLflow(SimpleNamespace):
    """Records calls of MLflow's fluent interface."""

    def __init__(self) -> None:
        super().__init__(calls=[], metrics={})

    def start_run(self, run_id: str | None = None, run_name: str | None = None) -> Any:
        self.calls.append(("start_run", run_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "17"))

    def log_params(self, params: dict[str, Any]) -> None:
        self.calls.append(("log_params", params["solver.type"]))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        assert all(re.fullmatch(r"[\w\-. :/]+", name) for name in metrics), "the service refuses other names"
        self.metrics |= {(name, step): value for name, value in metrics.items()}

    def set_experiment(self, name: str) -> None:
        self.calls.append(("set_experiment", name))

    def set_tracking_uri(self, uri: str) -> None:
        self.calls.append(("set_tracking_uri", uri))

    def end_run(self, status: str = "FINISHED") -> None:
        self.calls.append(("end_run", status))


def test_mlflow_gets_settings_and_values_and_continues_its_run(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = {"type": "MLflow", "experiment": "digits", "tracking_uri": "sqlite:///mlflow.db"}
    monkeypatch.setitem(sys.modules, "mlflow", first := FakeMLflow())
    stop_after_5(spec, tmp_path / "run", logger)
    begin = [("set_tracking_uri", "sqlite:///mlflow.db"), ("set_experiment", "digits")]
    assert first.calls == [*begin, ("start_run", None, "run"), ("log_params", "Adam"), ("end_run", "KILLED")]
    assert ("test/loss", 4) in first.metrics
    monkeypatch.setitem(sys.modules, "mlflow", second := FakeMLflow())
    run = train(spec, tmp_path / "run", logger, resume=True)
    assert second.calls == [*begin, ("start_run", "17", None), ("end_run", "FINISHED")]
    assert run.test is not None
    assert second.metrics["test/loss", 9] == run.test.loss


def test_mlflow_and_wandb_get_a_failure(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", mlflow := FakeMLflow())
    ended: list[int] = []
    run = SimpleNamespace(id="5", log=lambda values, step: None, finish=lambda exit_code: ended.append(exit_code))
    begun: list[dict[str, Any]] = []

    def init(**words: Any) -> Any:
        begun.append(words)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    settings = spec(max_steps=9) | {"callbacks": [{"type": "MLflow"}, {"type": "WandB", "project": "digits"}]}
    settings["solver"] = {"type": "SGD", "learning_rate": 1e30}
    with pytest.raises(RunError, match="not finite"):
        netspec.train(settings, run_dir=tmp_path / "run", device="reference")
    assert mlflow.calls[-1] == ("end_run", "FAILED")
    assert ended == [1]
    assert (begun[0]["project"], begun[0]["resume"], begun[0]["id"]) == ("digits", "allow", None)
    assert begun[0]["config"]["solver.learning_rate.initial"] == 1e30


def test_a_service_that_fails_is_a_warning(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(FakeMLflow):
        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            if step > 3:
                raise ValueError("the server went away")

    monkeypatch.setitem(sys.modules, "mlflow", Away())
    run = train(spec, tmp_path / "run", {"type": "MLflow"})
    assert run.steps == 9
    warnings = [line for line in run.log.read_text().splitlines() if '"warning"' in line]
    assert len([line for line in warnings if "MLflow failed" in line and "went away" in line]) == 1


def test_names_that_a_service_refuses_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", fake := FakeMLflow())
    logger: Any = MLflow().build()
    logger._run = "17"
    logger.send({"test/error in the target's unit": 1.5}, 3)
    assert fake.metrics == {("test/error in the targets unit", 3): 1.5}


def test_an_edited_table_is_not_continued(spec: Make, tmp_path: Path) -> None:
    stop_after_5(spec, tmp_path / "run", {"type": "CSVLogger"})
    (tmp_path / "run" / "metrics.csv").write_text("step;loss\none;2\n")
    with pytest.raises(InputError, match=r"metrics\.csv cannot be continued"):
        train(spec, tmp_path / "run", {"type": "CSVLogger"}, resume=True)


def test_a_missing_package_is_named_with_its_extra(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, extra in (("TensorBoard", "tensorboard"), ("MLflow", "mlflow"), ("WandB", "wandb")):
        package = {"TensorBoard": "tensorboardX", "MLflow": "mlflow", "WandB": "wandb"}[name]
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InputError, match=f"`{package}` is not installed") as caught:
            train(spec, tmp_path / "run", {"type": name})
        assert caught.value.problems[0].hint == install_command(extra)
    assert not (tmp_path / "run").exists()
