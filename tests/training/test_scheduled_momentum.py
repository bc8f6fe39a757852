"""Trainings with a scheduled momentum: the log, a resume, and a constant schedule, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.compile import LEARNING_RATE, MOMENTUM, Compiler, ProgramKind, scheduled_inputs
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.hogwild import Hogwild
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.schema.specs.kinds import SCHEDULES, SOLVERS
from netspec.training.events import Event, format_event
from tests.compile.nets import net

Make = Callable[..., dict[str, Any]]
CYCLE = {"type": "OneCycle", "initial": 0.95, "peak": 0.85, "end": 0.95, "decay_steps": 24}
SOLVERS_OF_RUNS = [
    {"type": "SGD", "learning_rate": 0.05, "momentum": CYCLE, "nesterov": True},
    {"type": "Adam", "learning_rate": {"type": "OneCycle", "peak": 0.02, "decay_steps": 24}, "beta_1": CYCLE},
]


def run(spec: Make, folder: Path, solver: dict[str, Any], **loop: Any) -> tuple[dict[str, Any], dict[int, float]]:
    """The weights of a training, and the momenta that it logged."""
    resume, log_events = loop.pop("resume", False), list[Event]()
    train_spec = {**spec(log_every=1, **loop), "solver": solver}
    finished = netspec.train(train_spec, run_dir=folder, resume=resume, listeners=[log_events.append])
    momenta = {
        event["step"]: event["momentum"] for event in log_events if event["event"] == "log" and "momentum" in event
    }
    return read_weights(finished.last_weights).arrays, momenta


@pytest.mark.parametrize(
    ("solver", "accumulate"),
    [
        (SOLVERS_OF_RUNS[0], 1),
        (SOLVERS_OF_RUNS[1], 3),
        pytest.param(SOLVERS_OF_RUNS[0], 3, marks=pytest.mark.exhaustive),
        pytest.param(SOLVERS_OF_RUNS[1], 1, marks=pytest.mark.exhaustive),
    ],
    ids=["SGD-1", "Adam-3", "SGD-3", "Adam-1"],
)
@pytest.mark.slow
def test_a_resumed_run_continues_the_momentum_schedule(solver, accumulate, spec: Make, tmp_path: Path) -> None:
    uninterrupted, momenta = run(spec, tmp_path / "whole", solver, accumulate=accumulate, max_steps=24)
    schedule: Any = SCHEDULES.parse(CYCLE)
    assert momenta == {step + 1: schedule.value(step, 24) for step in range(24)}
    run(spec, tmp_path / "parts", solver, accumulate=accumulate, max_steps=11)
    parts, resumed = run(spec, tmp_path / "parts", solver, accumulate=accumulate, max_steps=24, resume=True)
    assert resumed == {step: value for step, value in momenta.items() if step > 11}
    assert all(np.array_equal(array, parts[name]) for name, array in uninterrupted.items())


@pytest.mark.exhaustive
def test_a_constant_schedule_trains_like_a_fixed_momentum(spec: Make, tmp_path: Path) -> None:
    """In float64: only the rounding of 1 - β differs."""
    equal = {"type": "PiecewiseConstantDecay", "boundaries": [5], "values": [0.75, 0.75]}
    for solver in ({"type": "SGD", "momentum": 0.75}, {"type": "Adam", "beta_1": 0.75}):
        name = "momentum" if "momentum" in solver else "beta_1"
        number, none = run(spec, tmp_path / f"{name}-number", solver, precision="float64")
        scheduled, _ = run(spec, tmp_path / f"{name}-schedule", {**solver, name: equal}, precision="float64")
        assert none == {}
        for key, array in number.items():
            np.testing.assert_allclose(scheduled[key], array, rtol=1e-9, atol=1e-11)


def test_a_constant_momentum_adds_no_input_to_the_program(tmp_path: Path) -> None:
    text = """
netspec: 1
inputs: {x: {shape: [3]}, y: {shape: [2]}}
layers: [{name: fc, type: Dense, from: x, units: 2}]
losses: [{type: MeanSquaredError, from: [fc, y]}]
"""
    number, constant, schedule = (
        SOLVERS.parse({"type": "SGD", "momentum": momentum})
        for momentum in (0.9, {"type": "Constant", "initial": 0.9}, CYCLE)
    )
    assert number == constant
    programs = [
        Compiler(net(text, tmp_path), solver=solver, device="reference").program(ProgramKind.TRAIN, 4)  # type: ignore[arg-type]  # a registry of specs
        for solver in (number, schedule)
    ]
    assert set(programs[1].inputs) - set(programs[0].inputs) == {MOMENTUM}


def test_workers_with_summed_updates_divide_rates_but_not_momenta() -> None:
    group = {"match": "*/bias", "solver": {"type": "Adam", "learning_rate": 0.5, "beta_1": CYCLE}}
    solver: Any = SOLVERS.parse({"type": "SGD", "momentum": {**CYCLE, "end": 0.9}, "groups": [group]})
    names = list(scheduled_inputs(solver))
    assert names == [LEARNING_RATE, f"{LEARNING_RATE}/1", MOMENTUM, f"{MOMENTUM}/1"]
    of_group: Any = SOLVERS.parse({"type": "SGD", "momentum": 0.9, "groups": [group]})
    assert list(scheduled_inputs(of_group))[2:] == [f"{MOMENTUM}/1"], "`momentum` in the log is the solver's own"
    session: Any = SimpleNamespace(strategy=Hogwild(strategy="hogwild"), size=4)
    assert list(WorkerSession.scheduled(session, dict.fromkeys(names, 0.8)).values()) == [0.2, 0.2, 0.8, 0.8]


def test_the_log_shows_the_momentum() -> None:
    facts = {"step": 1, "epoch": 0.5, "loss": 1.0, "learning_rate": 0.1, "samples_per_second": 10.0}
    assert "learning rate 0.1 momentum 0.925 10 samples/s" in format_event({"event": "log", **facts, "momentum": 0.925})
    assert "momentum" not in format_event({"event": "log", **facts})
