"""`netspec.runs`: the list of runs below a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec.tools.comparing.runs import differing_settings, runs_by_net
from netspec.training.events import HEAD_BYTES, TAIL_BYTES
from netspec.training.lock import locked

SPEC = """\
netspec: 1
net: {name: n, layers: [{type: Dense, name: hidden, units: %s}, {type: Dense, name: logits, units: 2}]}
data: {train: {source: npz, batch_size: 8}}
solver: {type: SGD, learning_rate: {type: Constant, initial: %s}}
train: {monitor: accuracy, mode: max, seed: 1}
"""
START = {"event": "start", "step": 0, "steps": 30, "time": "2026-01-02T03:04:05.678Z", "elapsed": 0.5}


def evaluation(step: int, accuracy: float | None, **more: Any) -> dict[str, Any]:
    return {
        "event": "test",
        "step": step,
        "split": "validation",
        "loss": 1.0,
        "metrics": {"accuracy": accuracy},
        **more,
    }


def write_run(folder: Path, *events: dict[str, Any], units: int = 4, rate: float = 0.1) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC % (units, rate))
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_states_follow_from_the_last_event_and_the_lock(tmp_path):
    write_run(tmp_path / "a", START, {"event": "done", "steps": 30, "seconds": 3.0})
    problems = [{"message": "the loss is not finite"}]
    write_run(tmp_path / "b", START, {"event": "error", "step": 3, "problems": problems, "exit_status": 1})
    write_run(tmp_path / "c", START, {"event": "stopped", "step": 3})
    write_run(tmp_path / "d", START, {"event": "done", "steps": 30}, {**START, "step": 30, "steps": 60})
    with locked(write_run(tmp_path / "deep" / "e", START)), locked(write_run(tmp_path / "f")):
        listed = netspec.runs(tmp_path, sort="name")
    assert [(run.name, run.state) for run in listed] == [
        ("a", "finished"), ("b", "failed"), ("c", "stopped"), ("d", "stopped"), ("deep/e", "running"), ("f", "running"),
    ]  # fmt: skip
    assert listed[1].problem == "the loss is not finite"
    assert (listed[3].steps, listed[4].started) == (60, "2026-01-02T03:04:05.678Z")


def test_best_and_last_monitored_values_come_from_the_validation_data(tmp_path):
    write_run(
        tmp_path / "run", START, evaluation(10, 0.7), evaluation(20, 0.9, elapsed=4.5), evaluation(30, None),
        {"event": "test", "step": 30, "split": "test", "loss": 2.0, "metrics": {"accuracy": 0.99}, "elapsed": 6.0},
    )  # fmt: skip
    (run,) = netspec.runs(tmp_path)
    assert (run.monitor, run.last, run.best, run.best_step) == ("validation/accuracy", None, 0.9, 20)
    assert run.metrics["test/accuracy"] == 0.99
    assert (run.step, run.steps, run.seconds) == (30, 30, 6.0)


@pytest.mark.parametrize(
    ("data", "split"),
    [
        ("", "test"),
        (", split: {validation: 0.1}", "validation"),
        (", split: {folds: 5, fold: 0}", "validation"),
        ("}, validation: {source: npz, batch_size: 8", "validation"),
    ],
)
def test_a_run_without_an_evaluation_has_the_split_that_it_would_evaluate(tmp_path, data: str, split: str):
    folder = write_run(tmp_path / "run", START)
    text = (folder / "spec.yaml").read_text()
    (folder / "spec.yaml").write_text(text.replace("batch_size: 8}", f"batch_size: 8{data}}}"))
    (run,) = netspec.runs(tmp_path)
    assert run.monitor == f"{split}/accuracy"


def test_a_run_without_an_evaluation_may_monitor_a_further_set(tmp_path):
    folder = write_run(tmp_path / "run", START)
    text = (folder / "spec.yaml").read_text().replace("monitor: accuracy", "monitor: night/accuracy")
    evaluated = "batch_size: 8}, evaluate: {night: {source: npz, batch_size: 8}}"
    (folder / "spec.yaml").write_text(text.replace("batch_size: 8}", evaluated))
    (run,) = netspec.runs(tmp_path)
    assert run.monitor == "night/accuracy"


def test_the_middle_of_a_long_log_is_not_read(tmp_path):
    lines = [{"event": "log", "step": step, "loss": 0.5, "padding": "x" * 1000} for step in range(1, 1000)]
    best = {"monitor": "accuracy", "mode": "max", "value": 0.97}
    stopped = {"event": "stopped", "step": 999, "best": best, "weights_step": 500}
    folder = write_run(
        tmp_path / "run", START, *lines[:500], evaluation(500, 0.97), *lines[500:], evaluation(999, 0.8), stopped
    )
    log = folder / "log.jsonl"
    assert log.stat().st_size > 2 * (HEAD_BYTES + TAIL_BYTES)
    (run,) = netspec.runs(tmp_path)
    assert (run.best, run.best_step, run.last, run.step, run.steps) == (0.97, 500, 0.8, 999, 30)
    content = bytearray(log.read_bytes())
    content[HEAD_BYTES:-TAIL_BYTES] = b"\0" * (len(content) - HEAD_BYTES - TAIL_BYTES)
    log.write_bytes(content)
    assert netspec.runs(tmp_path) == [run]


def test_damaged_runs_are_listed_with_the_reason(tmp_path):
    write_run(tmp_path / "bad-spec", START)
    (tmp_path / "bad-spec" / "spec.yaml").write_text("net: [")
    write_run(tmp_path / "no-spec", START)
    (tmp_path / "no-spec" / "spec.yaml").unlink()
    write_run(tmp_path / "no-log", START)
    (tmp_path / "no-log" / "log.jsonl").unlink()
    write_run(tmp_path / "torn", START)
    (tmp_path / "torn" / "log.jsonl").write_bytes(b'\xff{"event": "sta\n[1, 2]\n{"event": 3}\n')
    write_run(tmp_path / "odd", {"event": "start", "step": "x"}, {"event": "test", "metrics": [1]}, {"event": "error"})
    listed = {run.name: run for run in netspec.runs(tmp_path)}
    assert {name for name, run in listed.items() if run.state == "damaged"} == {"bad-spec", "no-spec", "no-log", "torn"}
    assert all(run.problem for run in listed.values() if run.state == "damaged")
    assert listed["odd"].state == "failed"


def test_settings_that_differ_are_dotted_fields_in_the_order_of_sections(tmp_path):
    write_run(tmp_path / "a", START)
    write_run(tmp_path / "b", START, units=8, rate=0.2)
    first, other = netspec.runs(tmp_path)
    assert list(first.settings.items()) == [("solver.learning_rate.initial", 0.1), ("net.layers.hidden.units", 4)]
    assert other.settings == {"solver.learning_rate.initial": 0.2, "net.layers.hidden.units": 8}


def test_values_that_some_specs_lack_come_last_and_count_as_null():
    specs: list[dict[str, Any] | None] = [
        {"solver": {"type": "SGD", "momentum": 0.9, "ema": None}, "train": {"seed": 1}, "vars": {"a": 1}},
        None,
        {"solver": {"type": "Adam"}, "train": {"seed": 2}, "vars": {"a": 2}},
    ]
    assert differing_settings(specs) == {
        "solver.type": ["SGD", None, "Adam"], "train.seed": [1, None, 2], "solver.momentum": [0.9, None, None],
    }  # fmt: skip
    layers: list[dict[str, Any]] = [{"net": {"layers": [{"name": "a.b", "type": "Dense"}]}}, {"net": {"layers": []}}]
    assert differing_settings(layers) == {"net.layers.a.b": ["Dense", None]}


def test_fields_of_a_type_that_some_specs_lack_are_compared_between_the_others():
    rates = [None, {"type": "Cosine", "final": 0.1}, {"type": "Cosine", "final": 0.2}]
    specs = [{"solver": {"type": "SGD", "schedule": rate}} for rate in rates]
    assert differing_settings(specs) == {
        "solver.schedule": [None, "Cosine", "Cosine"], "solver.schedule.final": [None, 0.1, 0.2],
    }  # fmt: skip


def test_lists_differ_in_the_fields_of_their_items_and_in_the_order_of_names():
    losses: list[dict[str, Any]] = [{"net": {"losses": [{"type": "Huber", "delta": delta}]}} for delta in (1.0, 2.0)]
    assert differing_settings(losses) == {"net.losses.0.delta": [1.0, 2.0]}
    others: list[dict[str, Any]] = [{"net": {"losses": [{"type": kind}]}} for kind in ("Huber", "LogCosh")]
    assert differing_settings(others) == {"net.losses": ["[{type: Huber}]", "[{type: LogCosh}]"]}
    names = [["a", "b"], ["b", "a"]]
    layers: list[dict[str, Any]] = [{"net": {"layers": [{"name": name} for name in order]}} for order in names]
    assert differing_settings(layers) == {"net.layers": ["[{name: a}, {name: b}]", "[{name: b}, {name: a}]"]}


def test_runs_by_net_have_the_settings_that_differ_between_runs_of_the_net(tmp_path):
    for name, net, units, rate in (("a", "n", 4, 0.1), ("b", "n", 4, 0.2), ("c", "m", 8, 0.1)):
        folder = write_run(tmp_path / name, START, units=units, rate=rate)
        (folder / "spec.yaml").write_text((SPEC % (units, rate)).replace("name: n,", f"name: {net},"))
    by_net = runs_by_net(tmp_path, sort="name")
    assert {net: [run.name for run in listed] for net, listed in by_net.items()} == {"n": ["a", "b"], "m": ["c"]}
    assert by_net["n"][1].settings == {"solver.learning_rate.initial": 0.2}
    assert by_net["m"][0].settings == {}
    assert "net.layers.hidden.units" in netspec.runs(tmp_path)[0].settings
    (tmp_path / "c" / "spec.yaml").unlink()
    assert [run.name for run in runs_by_net(tmp_path, sort="name")["n"]] == ["a", "b", "c"]
    assert [run.name for run in runs_by_net(tmp_path, sort="name", reverse=True)["n"]] == ["c", "b", "a"]


def test_runs_are_sorted_by_any_value_and_those_without_it_come_last(tmp_path):
    write_run(tmp_path / "a", START, evaluation(10, 0.5))
    write_run(tmp_path / "b", START)
    write_run(tmp_path / "c", START, evaluation(10, 0.75), rate=0.3)
    by_accuracy = netspec.runs(tmp_path, sort="validation/accuracy", reverse=True)
    assert [run.name for run in by_accuracy] == ["c", "a", "b"]
    assert netspec.runs(tmp_path, sort="accuracy", reverse=True) == by_accuracy
    by_rate = netspec.runs(tmp_path, sort="solver.learning_rate.initial", reverse=True)
    assert [run.name for run in by_rate] == ["c", "a", "b"]
    with pytest.raises(netspec.InputError, match=r"no run has a value `bst` to sort by[\s\S]*did you mean `best`"):
        netspec.runs(tmp_path, sort="bst")
    with pytest.raises(netspec.InputError, match=r"folder .* does not exist"):
        netspec.runs(tmp_path / "missing")


def test_the_best_run_comes_first_whether_low_or_high_values_are_best(tmp_path):
    for name, accuracy in (("a", 0.7), ("b", 0.9), ("c", None)):
        write_run(tmp_path / name, START, evaluation(10, accuracy, loss=accuracy))
    assert [run.name for run in netspec.runs(tmp_path, sort="best")] == ["b", "a", "c"]
    assert [run.name for run in netspec.runs(tmp_path, sort="best", reverse=True)] == ["a", "b", "c"]
    for spec in tmp_path.glob("*/spec.yaml"):
        spec.write_text(spec.read_text().replace("{monitor: accuracy, mode: max", "{monitor: loss, mode: min"))
    lowest, *_ = netspec.runs(tmp_path, sort="best")
    assert (lowest.name, lowest.monitor, lowest.mode, lowest.best) == ("a", "validation/loss", "min", 0.7)
