"""`netspec profile`: a trace that viewers can read, and a summary that agrees with it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.backends.device_registry import ReferenceDevice
from netspec.backends.executor import CallTimer
from netspec.cli import main
from netspec.compile import Compiler, ProgramKind
from netspec.data import prefetch
from netspec.errors import InputError
from netspec.solvers.base import SolverSpec
from netspec.tools.measuring import profiling
from netspec.tools.measuring.profiling import Profile, Recorder
from netspec.tools.measuring.timing import PHASES, writer
from netspec.tools.specs import load_train

SMALL: dict[str, Any] = {"steps": 2, "warmup": 1, "device": "reference"}


@pytest.fixture
def training(current_folder: Path) -> dict[str, Any]:
    """A small classifier of noise."""
    random = np.random.default_rng(0)
    np.savez("noise.npz", x=random.normal(size=(40, 6)).astype("f"), label=random.integers(0, 3, 40).astype("i4"))
    return {
        "netspec": 1,
        "net": {
            "netspec": 1, "name": "noise", "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
            "layers": [
                {"name": "fc1", "type": "Dense", "units": 4, "activation": "relu"},
                {"name": "logits", "type": "Dense", "units": 3},
            ],
            "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
        },
        "data": {
            "train": {
                "source": "npz", "path": str(current_folder / "noise.npz"), "batch_size": 8,
                "transforms": [{"type": "Rescaling", "scale": 0.5}],
            }
        },
        "solver": {"type": "SGD", "learning_rate": 0.1}, "train": {"max_epochs": 3},
    }  # fmt: skip


def check_trace(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Check a trace by the Trace Event Format; return the complete events by process and thread.

    Events of a thread must not overlap, except that one contains the other.
    """
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    named = set()
    last = 0.0
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X")
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            kind = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name",
                    "thread_sort_index": "sort_index"}[event["name"]]  # fmt: skip
            assert set(event["args"]) == {kind}
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
            continue
        assert set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
        assert event["dur"] >= 0
        assert event["ts"] >= last, "in the order of time"
        last = event["ts"]
        tracks[event["pid"], event["tid"]].append(event)
    assert named == set(tracks)
    rounding = 0.002  # microseconds: start and duration have three digits after the point
    for events in tracks.values():
        ends: list[float] = []
        for event in events:
            while ends and ends[-1] <= event["ts"] + rounding:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + rounding, f"{event['name']} ends after what contains it"
            ends.append(end)
    return tracks


def inside(events: list[dict[str, Any]], outer: dict[str, Any]) -> list[dict[str, Any]]:
    end = outer["ts"] + outer["dur"] + 0.002
    return [event for event in events if event is not outer and outer["ts"] <= event["ts"] <= end]


def test_each_step_contains_the_operations_of_its_program_in_their_order(training: dict[str, Any]) -> None:
    result = netspec.profile(training, output="trace.json", **SMALL)
    (events,) = check_trace(json.loads(Path("trace.json").read_text())).values()
    steps = [event for event in events if event["cat"] == "step"]
    assert [step["name"] for step in steps] == ["step 2", "step 3"]
    spec = load_train(training)
    assert isinstance(spec.solver, SolverSpec)
    plan = Compiler(spec.net, solver=spec.solver, device="reference").plan(ProgramKind.TRAIN, 8)
    planned = [(node.op.name, node.scope.layer, node.scope.phase) for node in plan.order if node in plan.choices]
    for step in steps:
        parts = inside(events, step)
        assert [part["name"] for part in parts if part["cat"] not in (*PHASES, "data")] == [
            "next batch", "copy inputs", "train program", "wait for the loss",
        ]  # fmt: skip
        operations = [part for part in parts if part["cat"] in PHASES and part["name"] != "copy of a state"]
        called = [(each["name"], each["args"]["layer"], each["cat"]) for each in operations]
        assert called == planned
        (batch,) = [part for part in parts if part["cat"] == "batch"]
        assert [part["name"] for part in inside(parts, batch) if part["cat"] == "data"] == ["read", "Rescaling"]
    product = next(event for event in events if event["cat"] == "forward" and event["args"]["layer"] == "fc1")
    assert product["args"]["kernel"].startswith("reference:")
    assert product["args"]["flop"] > 0
    assert product["args"]["bytes"] > 0
    assert "float32[8, 6]" in product["args"]["inputs"]
    assert result.step_seconds == pytest.approx(sum(step["dur"] for step in steps) / 2e6)
    assert sum(result.parts.values()) == pytest.approx(result.step_seconds)
    computed = sum(result.parts[phase] for phase in PHASES)
    assert sum(total.seconds for total in result.operations) == pytest.approx(computed)


def test_an_accumulated_step_gets_several_batches(training: dict[str, Any]) -> None:
    training["train"]["accumulate"] = 2
    result = netspec.profile(training, output="trace.json.gz", **SMALL)
    trace = json.loads(gzip.decompress(Path("trace.json.gz").read_bytes()))
    (events,) = check_trace(trace).values()
    step = next(event for event in events if event["cat"] == "step")
    names = [part["name"] for part in inside(events, step) if part["cat"] in ("batch", "program")]
    assert names == ["next batch", "accumulate program", "next batch", "accumulate program", "update program"]
    assert sum(result.parts.values()) == pytest.approx(result.step_seconds)
    assert trace["otherData"]["steps"] == 2


def test_threads_that_prepare_batches_have_tracks(training: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "SLOW", 0.0)  # each batch is slow to prepare
    training["data"]["train"]["workers"] = 2
    result = netspec.profile(training, steps=12, warmup=8, device="reference")
    trace = result.as_trace()
    tracks = check_trace(trace)
    names = {event["args"]["name"]: event["tid"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert result.loads_ahead
    assert result.data_threads
    assert all(thread.startswith("netspec-worker-") for thread in result.data_threads)
    assert set(names) == {"training", *result.data_threads}
    for thread in result.data_threads:
        assert {event["name"] for event in tracks[0, names[thread]]} <= {"read", "Rescaling"}
    assert set(result.data_seconds) == {"read", "Rescaling"}
    assert {event["cat"] for event in tracks[0, names["training"]]}.isdisjoint({"data"})


def test_an_evaluation_follows_the_steps_and_is_not_part_of_their_summary(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "SLOW", 0.0)  # each batch is slow to prepare
    training["data"]["validation"] = {**training["data"]["train"], "batch_size": 16, "workers": 2}
    training["data"]["train"]["workers"] = 2
    result = netspec.profile(training, steps=5, warmup=3, device="reference")
    trace = result.as_trace()
    tracks = check_trace(trace)
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert len(set(names.values())) == len(names), "threads of the same name have a track each"
    (events,) = (events for (_, track), events in tracks.items() if names[track] == "training")
    (evaluation,) = (event for event in events if event["cat"] == "evaluation")
    assert evaluation["name"] == "evaluation of validation data"
    assert all(event["ts"] + event["dur"] <= evaluation["ts"] for event in events if event["cat"] == "step")
    parts = inside(events, evaluation)
    steps = [event for event in parts if event["cat"] == "test"]
    assert [(event["name"], event["args"]["samples"]) for event in steps] == [
        ("test step 1", 16), ("test step 2", 16), ("test step 3", 8),
    ]  # fmt: skip
    operations = [event["name"] for event in inside(parts, steps[0]) if event["cat"] == "forward"]
    assert sum("MatMul" in name for name in operations) == 2
    assert not [event for event in parts if event["cat"] == "compile"]
    assert result.evaluation_seconds == pytest.approx(sum(event["dur"] for event in steps) / 3e6)
    assert {total.phase for total in result.operations} >= {"forward", "backward", "update"}
    assert sum(result.parts.values()) == pytest.approx(result.step_seconds)


def test_a_profile_in_another_thread_has_the_same_tracks(training: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(netspec.profile, training, **SMALL).result()
    assert {event.track for event in result.events} == {"training"}
    assert not result.loads_ahead


def test_a_thread_that_starts_after_another_has_ended_has_a_track_of_its_own() -> None:
    recorder = Recorder(ReferenceDevice())
    for name in ("reader", "prefetch", "prefetch"):  # Python gives a thread the identifier of one that has ended
        thread = Thread(target=recorder.add_data, args=("read", 0.0, 1.0), name=name)
        thread.start()
        thread.join()
    assert [event.track for event in recorder.events_of("data", 0.0)] == ["reader", "prefetch", "prefetch (2)"]


def test_a_profiled_run_computes_the_same(training: dict[str, Any]) -> None:
    spec = load_train(training)
    assert isinstance(spec.solver, SolverSpec)
    results = []
    for profiled in (False, True):
        compiler = Compiler(spec.net, solver=spec.solver, device="reference")
        program = compiler.program(ProgramKind.TRAIN, 8)
        timer = CallTimer()
        if profiled:
            program.profile(timer)
        writer(compiler, program)()
        program.run()
        calls = timer.take()
        assert bool(calls) == profiled
        assert timer.take() == []
        results.append({**program.read(), **compiler.states})
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


def test_the_parts_of_a_step_are_those_of_rank_0_and_leave_nothing_out() -> None:
    event = profiling.TraceEvent
    events = (
        event("step 1", "step", "training", 0.0, 1.0),
        event("next batch", "batch", "training", 0.0, 0.4),
        event("read", "data", "netspec-worker-0", 0.1, 0.5),
        event("train program", "program", "training", 0.4, 0.5),
        event("MatMul", "forward", "training", 0.4, 0.3, arguments={"layer": "fc1", "kernel": "numba:Kernel"}),
        event("JoinAllReduce", "communication", "training", 0.7, 0.1, arguments={"layer": "", "kernel": ""}),
        event("step 1", "step", "training", 0.0, 9.0, rank=1),
    )
    profile = Profile("net", "cpu", "float32", 8, 1, 2, None, events)
    parts = {name: seconds for name, seconds in profile.parts.items() if seconds}
    assert parts == pytest.approx({"batch": 0.4, "forward": 0.3, "communication": 0.1, "other": 0.2})
    assert profile.waits == pytest.approx({"batches": 0.4, "other workers": 0.1})
    assert [(total.op, total.layer, total.calls) for total in profile.operations] == [
        ("MatMul", "fc1", 1), ("JoinAllReduce", "", 1),
    ]  # fmt: skip
    assert profile.loads_ahead
    assert set(check_trace(profile.as_trace())) == {(0, 0), (0, 1), (1, 2)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "the number of steps must be 1 or more, got 0"),
        ({"warmup": -1}, "the number of warm-up steps must be 0 or more"),
        ({"output": "trace.txt"}, "a trace is written as JSON"),
        ({"overrides": ["solver={type: LBFGS}"]}, "LBFGS reads all samples in each step"),
    ],
)
def test_mistakes(training: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        netspec.profile(training, **{**SMALL, **change})
    assert message.replace(", got 0", "") in str(caught.value)


def test_a_loss_that_is_not_finite_ends_the_profile(training: dict[str, Any]) -> None:
    training["solver"]["learning_rate"] = 1e38
    with pytest.raises(netspec.RunError, match=r"not finite at step [23]"):
        netspec.profile(training, **SMALL)


def test_the_command_prints_where_steps_spend_their_time(
    training: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netspec.cli.profile.LEAST", 0.0)  # on a busy machine, one part may take nearly all the time
    training["data"]["validation"] = training["data"]["train"]
    Path("train.yaml").write_text(json.dumps(training))
    words = ["profile", "train.yaml", "--steps", "2", "--warmup", "0", "--device", "reference"]
    assert main([*words, "--output", "out.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("noise: 2 training steps of 8 samples, float32, on reference\n\npart of a step ")
    for line in (
        "next batch ",
        "forward ",
        "backward ",
        "update ",
        "total ",
        "MatMul",
        "data        read ",
        "waiting     ",
        "evaluation  ",
    ):
        assert f"\n{line}" in out
    assert "ms per step, between steps\n" in out
    assert " ms per batch of validation data\n" in out
    assert "trace       out.json: " in out
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parts"].keys() >= {"batch", "forward", "backward", "update", "other"}
    assert len(json.loads(Path("trace.json").read_text())["traceEvents"]) > data["events"]
    for wrong in (["--steps", "0"], ["--warmup", "-1"], ["--output", "trace.txt"], ["--output", "none/trace.json"]):
        assert main([*words, *wrong]) == 2
