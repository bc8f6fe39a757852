"""Callbacks: the order of hooks, state over a resume, early stopping, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.training.callbacks.base import HOOKS
from netspec.training.events import Event
from netspec.training.loop import TrainingLoop

Make = Callable[..., dict[str, Any]]


class Recorder(netspec.Callback):
    """Records the hooks that are called, with the step."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in HOOKS and name != "on_event":
            return lambda training, *_: self.calls.append((name, training.step))
        return super().__getattribute__(name)


class Counter(netspec.Callback):
    """Sums losses; its state is saved in checkpoints. Can stop the training after a step."""

    def __init__(self, stop: int | None = None) -> None:
        self.steps, self.total, self.stop = 0, 0.0, stop

    def on_step_end(self, training: TrainingLoop) -> None:
        self.steps += 1
        self.total += training.loss
        self.stop_training = self.steps == self.stop

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.total = state["steps"], state["total"]


def test_hooks_are_called_in_their_documented_order(spec: Make, tmp_path: Path) -> None:
    recorder = Recorder()
    netspec.train(spec(max_steps=9, checkpoint_every=4, test_every=4), run_dir=tmp_path / "run", callbacks=[recorder])
    ends = {step: [("on_step_end", step)] for step in range(1, 10)}
    ends[4] += [("on_checkpoint", 4), ("on_evaluation_end", 4)]
    ends[8] = [("on_step_end", 8), ("on_checkpoint", 8), ("on_evaluation_end", 8), ("on_epoch_end", 8)]  # 230 samples
    ends[9] += [("on_evaluation_end", 9), ("on_train_end", 9), ("on_checkpoint", 9)]
    assert recorder.calls == [("on_train_start", 0), *(call for calls in ends.values() for call in calls)]


def test_a_callback_does_not_change_the_training(spec: Make, tmp_path: Path) -> None:
    plain = netspec.train(spec(), run_dir=tmp_path / "plain")
    other = netspec.train(spec(), run_dir=tmp_path / "other", callbacks=[Counter(), Recorder()])
    for name, array in read_weights(plain.last_weights).arrays.items():
        np.testing.assert_array_equal(read_weights(other.last_weights).arrays[name], array)


def test_the_state_of_a_callback_survives_a_resume(spec: Make, tmp_path: Path) -> None:
    uninterrupted, first, second = Counter(), Counter(), Counter()
    constant = {"solver": {"type": "Adam", "learning_rate": 0.01}}
    netspec.train(spec(max_steps=20) | constant, run_dir=tmp_path / "whole", callbacks=[uninterrupted])
    netspec.train(spec(max_steps=12) | constant, run_dir=tmp_path / "parts", callbacks=[first])
    saved = read_checkpoint(tmp_path / "parts" / "checkpoints" / "step-00000012.h5").progress["callbacks"]
    assert saved == {"Counter": {"stop_training": False, "state": {"steps": 12, "total": first.total}}}
    netspec.train(spec(max_steps=20) | constant, run_dir=tmp_path / "parts", resume=True, callbacks=[second])
    assert (second.steps, second.total) == (20, uninterrupted.total)


def test_a_checkpoint_without_its_state_does_not_change_a_callback(spec: Make, tmp_path: Path) -> None:
    netspec.train(spec(max_steps=12), run_dir=tmp_path / "run")
    counter = Counter()
    netspec.train(spec(max_steps=20), run_dir=tmp_path / "run", resume=True, callbacks=[counter])
    assert counter.steps == 8


def test_a_callback_can_end_the_training(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[Counter(stop=5)])
    assert (run.steps, run.test is not None, run.weights.is_file()) == (5, True, True)
    resumed = netspec.train(spec(), run_dir=tmp_path / "run", resume=True, callbacks=[Counter(stop=5)])
    assert resumed.steps == 5
    further = netspec.train(spec(), run_dir=tmp_path / "run", resume=True)
    assert further.steps == 40


class Deadline(netspec.Callback):
    """Requests a stop after a step, once."""

    reads_loss = False

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.step == self.step:
            training.request_stop("the deadline")


def test_a_requested_stop_is_saved_and_resumed(spec: Make, tmp_path: Path) -> None:
    with pytest.raises(netspec.Interrupted):
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[Deadline(5)])
    resumed = netspec.train(spec(), run_dir=tmp_path / "run", resume=True)
    uninterrupted = netspec.train(spec(), run_dir=tmp_path / "whole")
    weights, expected = (read_weights(run.last_weights).arrays for run in (resumed, uninterrupted))
    assert expected
    assert all(np.array_equal(weights[name], array) for name, array in expected.items())


def test_an_error_in_a_callback_names_it_and_leaves_a_checkpoint(spec: Make, tmp_path: Path) -> None:
    class Broken(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 7:
                raise ZeroDivisionError("no luck")

    with pytest.raises(RunError, match=r"callback `Broken` failed in `on_step_end`[\s\S]*ZeroDivisionError: no luck"):
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[Broken()])
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000007.h5").progress["step"] == 7


def test_objects_that_are_no_callbacks_are_refused(spec: Make, tmp_path: Path) -> None:
    callbacks: Any = [print]
    with pytest.raises(InputError, match="not a callback"):
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=callbacks)
    callbacks = [Counter]
    with pytest.raises(InputError, match=r"not a callback[\s\S]*hint: pass an object of the class: `Counter\(\)`"):
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=callbacks)


def test_a_method_that_is_not_a_hook_is_refused(spec: Make, tmp_path: Path) -> None:
    class Machine:
        def on_battery(self) -> bool:
            return False

    class Ends(Machine, netspec.Callback):
        on_rank = 0

        def on_step_ends(self, training: TrainingLoop) -> None: ...

        def on_train_batch_end(self, training: TrainingLoop) -> None: ...

    with pytest.raises(InputError) as error:
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[Ends()])
    assert [(problem.message, problem.hint) for problem in error.value.problems] == [
        (f"the callback `Ends` has a method `{name}`, which is not a hook", "did you mean `on_step_end`?")
        for name in ("on_step_ends", "on_train_batch_end")
    ]


def test_state_that_json_cannot_hold_is_an_error(spec: Make, tmp_path: Path) -> None:
    class Arrays(netspec.Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"steps": 3, "array": np.zeros(3)}

    message = r"state of the callback `Arrays`\s+got: `array`: Object of type ndarray[\s\S]*`x.tolist\(\)` an array"
    with pytest.raises(RunError, match=message):
        netspec.train(spec(max_steps=4), run_dir=tmp_path / "run", callbacks=[Arrays()])


def test_early_stopping_ends_after_evaluations_without_improvement(spec: Make, tmp_path: Path) -> None:
    stopping = {"type": "EarlyStopping", "monitor": "accuracy", "mode": "max", "patience": 2, "min_delta": 1.0}
    train_spec = spec(max_steps=40, test_every=4) | {"callbacks": [stopping]}
    events: list[Event] = []
    run = netspec.train(train_spec, run_dir=tmp_path / "run", listeners=[events.append])
    assert run.steps == 12
    message = "early stopping after step 12: accuracy has not improved in 2 evaluations"
    assert [event["message"] for event in events if event["event"] == "note"][-1] == message
    resumed = netspec.train(train_spec, run_dir=tmp_path / "run", resume=True)
    assert resumed.steps == 12


def test_early_stopping_is_checked_against_the_training(spec: Make) -> None:
    stopping = {"type": "EarlyStopping", "monitor": "acuracy", "mode": "max"}
    with pytest.raises(InputError, match=r"no loss or metric `acuracy`[\s\S]*did you mean `accuracy`"):
        netspec.train(spec() | {"callbacks": [stopping]})
    with pytest.raises(InputError, match="EarlyStopping needs evaluations"):
        netspec.train(spec(test_every=0) | {"callbacks": ["EarlyStopping"]})


class Unlucky(netspec.Callback):
    """Fails when it gets the event of an evaluation."""

    def on_event(self, training: TrainingLoop, event: Event) -> None:
        if event["event"] == "test":
            raise ValueError("no such day")


def test_a_foreign_exception_of_an_event_is_reported_after_a_checkpoint(spec: Make, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the callback `Unlucky` failed in `on_event`") as caught:
        netspec.train(spec(max_steps=9, test_every=4), run_dir=tmp_path / "run", callbacks=[Unlucky()])
    assert caught.value.problems[0].got == "ValueError: no such day"
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1
