"""`netspec train --dry-run`: describes the training, or reports what prevents it, and writes nothing."""

from __future__ import annotations

import pytest


def test_a_dry_run_reports_the_training(netspec, work):
    before = sorted(work.iterdir())
    result = netspec("train", "train.yaml", "--workers", "3", "--dry-run", "--json").json
    facts = {name: result[name] for name in ("event", "name", "workers", "batch_size", "largest_share", "steps")}
    assert facts == {
        "event": "dry_run", "name": "blobs", "workers": 3, "batch_size": 8, "largest_share": 3, "steps": 12,
    }  # fmt: skip
    assert result["samples"] == {"training": 42, "test": 42}
    plan = netspec("plan", "train.yaml", "--json").json
    program = plan["programs"]["train"]
    parts = program["arena_bytes"] + program["constant_bytes"] + program["invariant_bytes"]
    alone = netspec("train", "train.yaml", "--dry-run", "--json").json
    assert alone["worker_bytes"] == parts + sum(plan["states_bytes"].values())
    assert sorted(work.iterdir()) == before


def test_memory_depends_on_the_strategy(netspec, work):
    """Each of two workers has half of the optimizer states, or one of the pipeline stages."""

    def memory(way: str) -> int:
        words = "net.vars.width=4096", f"parallel={way}", "--workers", "2", "--dry-run", "--json"
        return int(netspec("train", "train.yaml", *words).json["worker_bytes"])

    full, slots = memory("{strategy: all_reduce}"), 4 * (4096 * (3 + 1 + 2) + 2)
    assert memory("{strategy: sharded_optimizer}") < full - slots / 2 + 4096
    result = netspec("train", "train.yaml", "parallel={strategy: pipeline}", "--workers", "2", "--dry-run").out
    assert result.startswith("blobs: 2 workers, a batch of 8\n")
    assert memory("{strategy: pipeline}") < full


@pytest.mark.parametrize(
    ("workers", "strategy", "message"),
    [
        ("3", "{strategy: model, layers: {hidden: columns}}", "equal parts on 3 workers"),
        ("2", "{strategy: model, layers: {hidden: rows}}", "equal parts on 2 workers"),
        ("2", "{strategy: model, layers: {hidden: whole, logits: whole}}", "a layer that can be split over 2 workers"),
        ("2", "{strategy: sufficient_factors, layers: [act]}", "act: the gradient is not a product over samples"),
    ],
)
def test_strategies_that_the_net_excludes_are_reported(netspec, work, workers, strategy, message):
    net = (work / "net.yaml").read_text().replace("  - {name: logits", "  - {name: act, type: ReLU}\n  - {name: logits")
    (work / "net.yaml").write_text(net)
    train = (work / "train.yaml").read_text()
    (work / "train.yaml").write_text(f"{train}parallel: {strategy}\n")
    result = netspec("train", "train.yaml", "--workers", workers, "--dry-run")
    assert result.status == 2
    assert "train.yaml:8:" in result.err
    assert message in result.err


def test_steps_of_epochs_and_limits_of_data(netspec, work):
    words = "train.yaml", "~train.max_steps", "train.max_epochs=2", "data.train.limit=20", "~data.test"
    out = netspec("train", *words, "--dry-run").out.splitlines()
    assert out[0] == "blobs: 1 worker, a batch of 8"
    assert out[1] == "20 samples of training data; 6 steps"
    assert out[-1] == "nothing was written: this was a dry run"
    stages = "stages=[{max_epochs: 3, freeze: hidden}, {}]"
    assert netspec("train", *words, stages, "--dry-run", "--json").json["steps"] == 9 + 6
    out = netspec("train", *words, "--dry-run", "--workers", "5").out
    assert out.startswith("blobs: 5 workers, a batch of 8: 2 samples each or one fewer\n")


def test_under_a_launcher_one_process_reports_for_all(netspec, work, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "0")
    assert netspec("train", "train.yaml", "--dry-run").out.startswith(
        "blobs: 4 workers, a batch of 8: 2 samples each\n"
    )
    monkeypatch.setenv("PMI_RANK", "3")
    assert netspec("train", "train.yaml", "--dry-run").out == ""
    asked_for_another = "train", "train.yaml", "--dry-run", "--workers", "2"
    assert netspec(*asked_for_another).err == ""  # the first process reports the error
    monkeypatch.setenv("PMI_RANK", "0")
    assert "which started 4 processes" in netspec(*asked_for_another).err


def test_why_a_synchronized_layer_sees_a_part_of_a_batch(netspec, work):
    (work / "net.yaml").write_text(
        (work / "net.yaml")
        .read_text()
        .replace("layers:", "layers:\n  - {type: BatchNormalization, synchronized: true}")
    )
    words = "train", "train.yaml", "--workers", "2", "--dry-run", "parallel={strategy: all_reduce, deterministic: true}"
    errors = netspec(*words).err
    assert "cannot be synchronized: `deterministic` steps compute a batch in parts" in errors
    assert "expected: `synchronized: false`, or `deterministic: false`" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "16"), "train.yaml:4:53: error: a batch has fewer samples than there are workers"),
        (("--workers", "0"), "--workers must be 1 or more"),
        (("net.layers.hidden.units=0",), "units"),
        (("data.train.path=blob.npz",), "blob.npz"),
        (("--weights", "nosuch.h5"), "--weights: file nosuch.h5 does not exist"),
        (("--weights", "nosuch.h5", "--workers", "16", "data.train.path=blob.npz"), "3 errors"),
        (("parallel={strategy: all_reduce, deterministic: true, shards: 9}",), "`shards` is larger than the batch"),
        (("solver.learning_rat=1",), "did you mean `learning_rate`?"),
    ],
)
def test_mistakes(netspec, work, words, message):
    result = netspec("train", "train.yaml", *words, "--dry-run")
    assert result.status == 2
    assert message in result.err
    assert not (work / "runs").exists()
