"""Signals during a training have their documented effects."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.training.events import Event, Listener
from netspec.training.run import Interrupted

Make = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the platform has no such signals")


def at_step(step: int, *names: str) -> Listener:
    """Send signals to this process when the log event of a step arrives."""

    def send(event: Event) -> None:
        if event["event"] == "log" and event["step"] == step:
            for name in names:
                os.kill(os.getpid(), getattr(signal, name))

    return send


def saved(folder: Path) -> list[int]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [event["step"] for event in map(json.loads, lines) if event["event"] == "checkpoint"]


@pytest.mark.parametrize(("name", "second_signal"), [("SIGINT", "Ctrl-C"), ("SIGTERM", "SIGTERM")])
def test_a_request_to_stop_ends_the_step_and_saves(
    spec: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, second_signal: str
) -> None:
    before = signal.getsignal(getattr(signal, name))
    with pytest.raises(Interrupted) as caught:
        netspec.train(spec(checkpoint_every=0), run_dir=tmp_path / "run", listeners=[at_step(10, name)])
    assert signal.getsignal(getattr(signal, name)) is before
    assert capfd.readouterr().err == f"finishing this step, then saving; {second_signal} again stops now\n"
    assert not caught.value.at_once
    assert caught.value.step in (10, 11)  # the handler runs at once or in the next step
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert read_checkpoint(checkpoint).progress["step"] == caught.value.step
    assert not (tmp_path / "run" / "weights.h5").exists()  # only a finished run has this file


@pytest.mark.parametrize("names", [("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("SIGTERM", "SIGINT")])
def test_the_second_request_stops_at_once(spec: Make, tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(Interrupted) as caught:
        netspec.train(spec(checkpoint_every=4), run_dir=tmp_path / "run", listeners=[at_step(10, *names)])
    assert caught.value.at_once
    assert caught.value.step == 8
    assert saved(tmp_path / "run") == [4, 8]  # nothing was written after the second request


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1"])
def test_a_requested_checkpoint_is_written_and_training_continues(spec: Make, tmp_path: Path, name: str) -> None:
    plain = netspec.train(spec(checkpoint_every=0), run_dir=tmp_path / "plain")
    signalled = netspec.train(spec(checkpoint_every=0), run_dir=tmp_path / "asked", listeners=[at_step(10, name)])
    assert signalled.steps == 40
    assert saved(signalled.run_dir) in ([10, 40], [11, 40])
    plain_weights, other = (read_weights(run.last_weights).arrays for run in (plain, signalled))
    assert {key: array.tobytes() for key, array in plain_weights.items()} == {
        key: a.tobytes() for key, a in other.items()
    }
