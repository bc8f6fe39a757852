"""`netspec scale`: predictions from given and from measured step times, and mistakes on the command line."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from netspec.distributed.cost_model.strategies import STRATEGIES
from netspec.tools.measuring import roofline, timing
from netspec.tools.planning import scale

GIVEN = "--step-time", "80ms", "--network", "ethernet-10g"


def by_name(result: Any, strategy: str) -> dict[int, Any]:
    return {
        prediction["workers"]: prediction for prediction in result["predictions"] if prediction["strategy"] == strategy
    }


def test_each_strategy_and_number_has_a_prediction_or_a_reason(netspec, work):
    (work / "blobs.npz").unlink()  # needs no data
    result = netspec("scale", "train.yaml", *GIVEN, "--workers", "1..6", "--json").json
    assert (result["samples"], result["per_worker"]) == (8, False)
    assert result["gradient_bytes"] == 4 * (3 * 4 + 4 + 4 * 2 + 2)
    assert [(prediction["strategy"], prediction["workers"]) for prediction in result["predictions"]] == [
        (name, workers) for name in STRATEGIES for workers in (1, 2, 4, 6)
    ]
    for prediction in result["predictions"]:
        if "impossible" not in prediction:
            assert prediction["step_seconds"] == pytest.approx(
                prediction["compute_seconds"] + prediction["exposed_seconds"] + prediction["waiting_seconds"]
            )
            assert prediction["efficiency"] == pytest.approx(prediction["speedup"] / prediction["workers"])
            assert prediction["samples_per_second"] == pytest.approx(prediction["samples"] / prediction["step_seconds"])
    single = by_name(result, "all_reduce")[1]
    assert (single["step_seconds"], single["speedup"]) == (pytest.approx(0.08), pytest.approx(1))
    assert by_name(result, "all_reduce")[2]["compute_seconds"] == pytest.approx(0.04)
    assert by_name(result, "all_reduce")[2]["sent_bytes"] == {"worker": result["gradient_bytes"]}
    assert "hierarchical" not in [
        prediction["strategy"]
        for prediction in result["predictions"]
        if "speedup" in prediction and prediction["workers"] > 1
    ]


def test_a_batch_for_each_worker_keeps_its_time(netspec, work):
    words = "scale", "train.yaml", *GIVEN, "--workers", "4,64", "--batch-size", "16/worker", "--strategy", "all_reduce"
    predictions = by_name(netspec(*words, "--json").json, "all_reduce")
    assert [prediction["samples"] for prediction in predictions.values()] == [64, 1024]
    assert [prediction["compute_seconds"] for prediction in predictions.values()] == [pytest.approx(0.08)] * 2
    faster = netspec(*words, "--compute-scale", "4", "--json").json
    assert by_name(faster, "all_reduce")[4]["compute_seconds"] == pytest.approx(0.02)
    waiting = by_name(netspec(*words, "--jitter", "5%", "--json").json, "all_reduce")
    assert waiting[64]["waiting_seconds"] > waiting[4]["waiting_seconds"] > 0


def test_settings_reach_their_strategies(netspec, work):
    small = "parallel={strategy: top_k, smallest: 1}"  # since the net's parameters are small
    words = (small, *GIVEN, "--workers", "8", "--workers-per-host", "4", "--within", "alpha=1us,beta=0.1ns")
    settings = "--servers", "2", "--every", "4", "--density", "50%", "--micro-batches", "4", "--algorithm", "tree"
    plain, changed = (
        {
            prediction["strategy"]: prediction
            for prediction in netspec("scale", "train.yaml", *words, *more, "--json").json["predictions"]
        }
        for more in ((), settings)
    )
    # The default is a quarter of the 8 workers, which is 2, too.
    assert changed["parameter_server"]["sent_bytes"] == plain["parameter_server"]["sent_bytes"]
    assert changed["top_k"]["total_bytes"] > plain["top_k"]["total_bytes"]
    assert changed["local_sgd"]["total_bytes"] > plain["local_sgd"]["total_bytes"]
    assert changed["all_reduce"]["total_bytes"] == pytest.approx(2 * 7 * 104)  # a tree all-reduce
    # Recursive doubling, since there are few bytes: each worker sends everything three times.
    assert plain["all_reduce"]["total_bytes"] == pytest.approx(8 * 3 * 104)
    assert changed["all_reduce"]["hosts"] == 2


def test_a_step_is_measured_if_its_time_is_not_passed(netspec, work, monkeypatch):
    monkeypatch.setattr(timing, "BUDGET", 0.0)
    monkeypatch.setattr(roofline, "MATRICES", (32,))
    monkeypatch.setattr(roofline, "COPIED", 2**12)
    monkeypatch.setattr(roofline, "BUDGET", 0.0)
    monkeypatch.setattr(scale, "ADDED", 2**12)
    result = netspec("scale", "train.yaml", "--workers", "1..8", "--strategy", "all_reduce", "--json").json
    steps = result["one_worker"]["steps"]
    assert [step["samples"] for step in steps] == [1, 2, 8]
    assert all(step["seconds"] > 0 for step in steps)
    assert result["one_worker"]["adding_seconds_per_byte"] > 0
    single = by_name(result, "all_reduce")[1]
    assert single["compute_seconds"] == pytest.approx(steps[-1]["seconds"])
    assert result["one_worker"]["from"].startswith("measured on ")


def test_communication_settings_come_from_the_training_file(netspec, work):
    words = "scale", "train.yaml", *GIVEN, "--workers", "8", "--json"

    def total(strategy: str, *more: str) -> float:
        return float(by_name(netspec(*words, *more).json, strategy)[8]["total_bytes"])

    every = total("local_sgd", "parallel={strategy: local_sgd, every: 2}")
    assert every == pytest.approx(4 * total("local_sgd"))
    assert total("local_sgd", "parallel={strategy: local_sgd, every: 2}", "--every", "8") == total("local_sgd")
    sent = by_name(netspec(*words, "--algorithm", "ring").json, "local_sgd")[8]["sent_bytes"]["worker"]
    moments = by_name(netspec(*words, "solver={type: Adam, learning_rate: 0.1}").json, "local_sgd")[8]["sent_bytes"]
    plain = by_name(netspec(*words, "solver={type: SGD, learning_rate: 0.1}").json, "local_sgd")[8]["sent_bytes"]
    assert moments["worker"] == pytest.approx(3 * plain["worker"]), "what the solver remembers is averaged too"
    planned = netspec("plan", "train.yaml", "parallel={strategy: local_sgd}", "--workers", "8", "--json").json["sent"]
    (states,) = (message["sent_bytes"]["worker"] for message in planned["messages"] if message["holds"])
    assert sent == pytest.approx(states), "as the plan of the training says, which counts wishes to stop too"
    small = by_name(netspec(*words, "parallel={strategy: all_reduce, bucket: 8, first_bucket: 8}").json, "all_reduce")[
        8
    ]
    all_reduce = by_name(netspec(*words).json, "all_reduce")[8]
    assert small["communication_seconds"] > all_reduce["communication_seconds"], "more messages, each with its latency"


def test_by_default_there_are_as_many_workers_as_samples(netspec, work):
    words = "scale", "train.yaml", *GIVEN, "--strategy", "all_reduce", "--json"
    assert list(by_name(netspec(*words).json, "all_reduce")) == [1, 2, 4, 8]
    assert list(by_name(netspec(*words, "--batch-size", "8/worker").json, "all_reduce")) == [1, 2, 4, 8, 16, 32, 64]


def test_sizes_that_are_measured():
    sizes = scale.sizes_to_measure
    assert sizes(64, [8, 16, 32, 64], per_worker=False) == [1, 8, 64]
    assert sizes(8192, [64, 128, 256], per_worker=False) == [32, 64, 128]
    assert sizes(8192, [1, 2], per_worker=False) == [128, 256]
    assert sizes(32, [1, 4096], per_worker=True) == [32]
    assert sizes(2048, [1, 4096], per_worker=True) == [256]


def test_times_below_a_millisecond_have_enough_digits(netspec, work):
    result = netspec.ok(
        "scale", "train.yaml", "--step-time", "0.05ms", "--network", "shared-memory", "--workers", "2,4"
    )
    row = next(line for line in result.out.splitlines() if line.startswith("all_reduce "))
    assert len(set(row.split())) == 3, row


def test_text_and_a_drawing(netspec, work):
    result = netspec.ok("scale", "train.yaml", *GIVEN, "--workers", "2..8", "--output", "scale.svg")
    assert result.out.startswith("blobs: a batch of 8 in total, 104 B of gradients\n")
    assert "network     ethernet-10g: α 25 µs, 1.18 GB/s" in result.out
    for title in ("step, ms", "not hidden, ms", "speedup", "efficiency, %", "sent by each worker in a step"):
        assert f"\n{title}\n" in result.out
    assert "pipeline has none for 4 workers, nor more: 2 layers cannot form 4 stages" in result.out
    hosts = netspec("scale", "train.yaml", *GIVEN, "--workers", "2,4,8", "--workers-per-host", "4").out
    assert "hierarchical has none for 2, 4 workers: " in hosts
    drawing = ET.parse(work / "scale.svg").getroot()
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "blobs: speedup, ethernet-10g" in texts
    assert {"2", "4", "8", "all_reduce", "one_bit"} <= set(texts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "0"), "at least one worker"),
        (("--workers", "8..4"), "the range ends before it begins"),
        (("--workers", "4..x"), "not numbers of workers"),
        (("--workers", "1..9999999"), "there may be at most 1,048,576"),
        (("--workers", "2..16"), "train.yaml:4:53: error: a batch of 8 is too small for 16 workers"),
        (("--workers", "16", "--batch-size", "12"), "a batch of 12 is too small for 16 workers"),
        (("--network", "ib-hrd"), "did you mean `ib-hdr`?"),
        (("--within", "nvlnk"), "did you mean `nvlink`?"),
        (("--batch-size", "8/host"), "--batch-size: not a batch size"),
        (("--batch-size", "0"), "--batch-size must be 1 or more"),
        (("--strategy", "allreduce"), "did you mean `all_reduce`?"),
        (("--algorithm", "rings"), "did you mean `ring`?"),
        (("--step-time", "80"), "--step-time: not a time"),
        (("--step-time", "0ms"), "--step-time must be above 0"),
        (("--compute-scale", "0"), "--compute-scale must be above 0"),
        (("--jitter", "3"), "--jitter: not a percentage"),
        (("--density", "0%"), "--density is out of range"),
        (("--workers-per-host", "0"), "--workers-per-host must be 1 or more"),
        (("--output", "scale.png"), "--output: the file is written as SVG"),
    ],
)
def test_mistakes(netspec, work, words, message):
    result = netspec("scale", "train.yaml", "--step-time", "80ms", "--workers", "2..8", *words)
    assert result.status == 2
    assert message in result.err


def test_a_net_needs_a_batch_and_losses(netspec, work):
    assert "a net has no batch size" in netspec("scale", "net.yaml", *GIVEN).err
    netspec.ok("scale", "net.yaml", *GIVEN, "--batch-size", "64", "--workers", "2")
    (work / "net.yaml").write_text("netspec: 1\ninputs: {x: {shape: [4]}}\nlayers: [{type: Dense, units: 4}]\n")
    result = netspec("scale", "net.yaml", *GIVEN, "--batch-size", "64")
    assert result.status == 2
    assert "this net has no losses" in result.err
