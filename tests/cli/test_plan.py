"""`netspec plan`: golden tables, and figures that agree with the compiled and allocated programs."""

from __future__ import annotations

from typing import Any

import pytest

from netspec.backends.program import Program
from netspec.compile import Compiler, ProgramKind
from netspec.distributed.cost_model.comm_volume import VOTES
from netspec.schema.bundled import zoo_root
from netspec.schema.load import load_train
from netspec.solvers.base import SolverSpec

LENET = zoo_root() / "lenet_mnist" / "train.yaml"

LAYERS = """\
blobs: a batch of 8, float32

layer   type   output  parameters   forward  memory
hidden  Dense  [8, 4]          16  256 FLOP   384 B
logits  Dense  [8, 2]          10  144 FLOP   128 B
total                          26  400 FLOP   512 B
"""


def test_the_table_of_layers(netspec, work):
    # hidden: 3 multiplications and additions for each of 8 · 4 outputs (192 FLOPs), then a bias and a ReLU (32 each),
    # and three arrays of 32 float32. logits: 8 · 2 · 4 · 2 + 16 FLOPs, two arrays of 16.
    result = netspec.ok("plan", "train.yaml")
    assert result.out.startswith(LAYERS)


def test_each_output_of_a_layer_has_a_line(netspec, work):
    (work / "split.yaml").write_text(
        "netspec: 1\nname: cut\ninputs: {x: {shape: [6]}}\nlayers: [{name: parts, type: Split, sections: [2, 4]}]\n"
        "outputs: [parts.1]\n"
    )
    lines = netspec("plan", "split.yaml").out.splitlines()
    assert [line.split("  ")[:1] + line[line.index("[") :].split("]")[:1] for line in lines[3:6]] == [
        ["parts", "[1, 2"], ["", "[1, 2"], ["", "[1, 4"],
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[3:6]] == ["parts", "parts.0", "parts.1"]
    (layer,) = netspec("plan", "split.yaml", "--json").json["layers"]
    assert (layer["output_shape"], layer["outputs"]) == ([1, 2], {"parts.0": [1, 2], "parts.1": [1, 4]})


def test_the_table_of_programs(netspec, work):
    head, train, test, predict = netspec("plan", "train.yaml").out.splitlines()[7:11]
    assert head.split() == [
        "program",
        "operations",
        "arithmetic",
        "arena",
        "constants",
        "invariant",
        "states",
        "total",
    ]
    assert [line.split()[0] for line in (train, test, predict)] == ["train", "test", "predict"]
    net = netspec("plan", "net.yaml")
    assert "\ntrain " not in net.out
    assert "a batch of 1," in net.out


@pytest.mark.exhaustive
def test_a_memory_budget_is_kept_and_its_recomputation_reported(netspec, tmp_path):
    net = zoo_root().parent / "benchmarks" / "nets" / "resnet20.yaml"
    file = tmp_path / "train.yaml"
    file.write_text(
        f"netspec: 1\nnet: {net}\ndata: {{train: {{source: mnist, split: train, batch_size: 16}}}}\n"
        "solver: {type: SGD, learning_rate: 0.1}\ntrain: {max_steps: 1}\n"
    )
    unlimited = netspec("plan", file)
    assert "a second time" not in unlimited.out
    before = netspec("plan", file, "--json").json
    states = sum(before["states_bytes"].values())
    budget = states + 3 * before["programs"]["train"]["arena_bytes"] // 4
    result = netspec("plan", file, f"train.memory_budget={budget}")
    assert "train runs" in result.out
    assert "operations twice" in result.out
    after = netspec("plan", file, "--json", f"train.memory_budget={budget}").json["programs"]["train"]
    assert states + after["arena_bytes"] + after["constant_bytes"] + after["invariant_bytes"] <= budget
    assert after["spared_bytes"] == before["programs"]["train"]["arena_bytes"] - after["arena_bytes"]
    assert after["flops"] == before["programs"]["train"]["flops"] + after["recomputed_flops"]
    least = netspec("plan", file, "--json", "train.recompute=all").json["programs"]["train"]
    assert least["arena_bytes"] < after["arena_bytes"]
    too_little = netspec("plan", file, "train.memory_budget=1MiB")
    assert too_little.status == 2
    assert "does not fit into its memory budget" in too_little.err
    assert "train.memory_budget" in too_little.err


def test_planned_memory_is_what_programs_allocate(netspec):
    result = netspec("plan", LENET, "--json", "--batch-size", "16").json
    spec = load_train(LENET)
    assert isinstance(spec.solver, SolverSpec)
    compiler = Compiler(spec.net, solver=spec.solver, device="cpu", loop=spec.train)
    for purpose in (ProgramKind.TRAIN, ProgramKind.TEST, ProgramKind.PREDICT):
        program: Program = compiler.program(purpose, 16)
        assert result["programs"][purpose]["arena_bytes"] == program.plan.memory.arena_bytes
        assert result["programs"][purpose]["invariant_bytes"] == program.plan.memory.invariant_bytes
        assert result["programs"][purpose]["lower_bound_bytes"] <= result["programs"][purpose]["arena_bytes"]
    assert sum(result["states_bytes"].values()) == compiler.states.nbytes


def test_lenet_is_as_published(netspec):
    result = netspec("plan", LENET, "--json", "--batch-size", "1").json
    assert result["parameters"] == result["trainable_parameters"] == 431_080  # the number in Caffe's example
    assert [layer["parameters"] for layer in result["layers"] if layer["parameters"]] == [520, 25_050, 400_500, 5_010]
    convolution = result["layers"][0]
    assert convolution["output_shape"] == [1, 20, 24, 24]
    assert convolution["flops"] == 20 * 24 * 24 * (2 * 25 + 1)
    assert result["totals"]["flops"] == sum(layer["flops"] for layer in result["layers"])


def test_batch_size_scales_the_arithmetic(netspec, work):
    single, ten = (netspec("plan", "net.yaml", "--json", "--batch-size", size).json for size in ("1", "10"))
    assert ten["totals"]["flops"] == 10 * single["totals"]["flops"]
    assert ten["parameters"] == single["parameters"]


def test_frozen_parameters_are_counted(netspec, work):
    result = netspec("plan", "net.yaml", "layers.hidden.trainable=false")
    assert "10 parameters are trainable, 16 are frozen" in result.out


def test_members_of_solver_groups_are_listed(netspec, work):
    groups = (
        '[{match: "*/bias", weight_decay: 0}, {match: "hidden/*", solver: {type: Adam}, learning_rate_multiplier: 2}]'
    )
    lines = netspec("plan", "train.yaml", f"solver.groups={groups}").out.splitlines()
    start = lines.index("parameter groups of the solver")
    rows = [line.split() for line in lines[start + 2 : start + 5]]
    assert rows == [
        ["1", "weight_decay", "0", "2", "hidden/bias,", "logits/bias"],
        ["2", "learning_rate", "×", "2,", "Adam", "1", "hidden/kernel"],
        ["3", "the", "solver's", "settings", "1", "logits/kernel"],
    ]
    result = netspec("plan", "train.yaml", f"solver.groups={groups}", "--json").json["groups"]
    assert [(group["settings"], group["parameters"]) for group in result] == [
        ("weight_decay 0", ["hidden/bias", "logits/bias"]),
        ("learning_rate × 2, Adam", ["hidden/kernel"]),
        ("the solver's settings", ["logits/kernel"]),
    ]
    assert netspec("plan", "train.yaml", "--json").json["groups"] == []


def test_shared_parameters_count_once(netspec, work):
    (work / "net.yaml").write_text(
        "netspec: 1\ninputs: {x: {shape: [4]}}\n"
        "layers: [{name: a, type: Dense, units: 4}, {name: b, type: Dense, units: 4, share: a}]\n"
    )
    result = netspec("plan", "net.yaml", "--json").json
    assert [layer["parameters"] for layer in result["layers"]] == [20, 0]
    assert result["parameters"] == 20


def test_kernels_of_every_node(netspec, work):
    result = netspec("plan", "net.yaml", "--kernels", "--json").json
    used = result["kernels"]["predict"]
    # Reference kernels run these ops one by one; other kernels may fuse bias and activation.
    assert "+".join(node["op"] for node in used) == "MatMul+Add+Relu+MatMul+Add"
    assert {node["layer"] for node in used} == {"hidden", "logits"}
    assert len(used) == result["programs"]["predict"]["nodes"]
    assert all(node["kernel"].count(":") == 1 for node in used)
    text = netspec("plan", "net.yaml", "--kernels").out
    assert "kernels of predict, in the order of execution" in text
    assert "kernels" not in netspec("plan", "net.yaml", "--json").json


@pytest.mark.parametrize("words", [(), ("--kernels",)])
def test_no_line_ends_in_blanks(netspec, work, words):
    lines = netspec("plan", "train.yaml", *words).out.splitlines()
    assert all(line == line.rstrip() for line in lines)


def test_messages_of_workers(netspec, work):
    def sent(*words: str) -> Any:
        return netspec("plan", "train.yaml", "--workers", "4", "--json", *words).json["sent"]

    messages = sent()
    assert (messages["strategy"], messages["workers"], messages["workers_per_host"]) == ("all_reduce", 4, 1)
    first, second, wish = messages["messages"]
    assert first["holds"] == ["samples", "loss"]
    parameters = ["hidden/bias", "hidden/kernel", "logits/bias", "logits/kernel"]
    assert sorted(second["holds"]) == [*parameters, "loss/sparse_categorical_crossentropy"]
    assert (first["starts"], second["starts"], wish["starts"], wish["bytes"]) == (0, 1, 0, VOTES)
    total = first["bytes"] + second["bytes"] + VOTES
    assert messages["sent_bytes"] == {"worker": 1.5 * total}  # an all-reduce sends 2 (p - 1) / p of the bytes
    assert (messages["total_bytes"], messages["between_hosts_bytes"]) == (4 * 1.5 * total, 4 * 1.5 * total)
    assert sent("--workers-per-host", "4")["between_hosts_bytes"] == 0
    assert sent("--workers-per-host", "2")["between_hosts_bytes"] == 2 * 1.5 * total
    states_per_weight = 2  # weights and momentum
    alike = 26 // 4 + 1  # each of four workers sums a quarter of 26 elements, padded to the same number
    for way, nbytes in (
        ("{strategy: local_sgd, every: 4}", 1.5 * (states_per_weight * 104 + VOTES) / 4),
        ("{strategy: elastic_averaging, every: 4}", 1.5 * (4 * alike * 4 + VOTES) / 4),
        ("{strategy: all_reduce, reduce_in: float16}", 1.5 * (first["bytes"] + 4 + 4 * alike * 2 + VOTES)),
    ):
        assert sent(f"parallel={way}")["sent_bytes"]["worker"] == pytest.approx(nbytes), way
    assert [message["times"] for message in sent("train.accumulate=3")["messages"]] == [3, 3, 1, 3]
    _, averaged = sent("parallel={strategy: local_sgd, every: 4}")["messages"]
    # The message contains the parameters and their momentum.
    assert (set(parameters) < set(averaged["holds"]), len(averaged["holds"])) == (True, 8)
    assert (averaged["bytes"], averaged["times"], averaged["every"]) == (states_per_weight * 104, 1, 4)
    net = netspec("plan", "net.yaml", "--workers", "4", "--batch-size", "8", "--json").json["sent"]
    assert net["sent_bytes"] == messages["sent_bytes"]


def test_messages_of_workers_are_printed(netspec, work):
    out = netspec(
        "plan", "train.yaml", "--workers", "4", "parallel={strategy: all_reduce, bucket: 1, first_bucket: 1}"
    ).out
    assert "all_reduce on 4 workers of 4 hosts: what a step sends" in out
    rows = [line.split("  ") for line in out.splitlines() if line.startswith("bucket")]
    starts = [row[-1].strip() for row in rows]
    assert (starts[0], starts[-1]) == ("before backward", "after backward")
    assert len(rows) == 3 + 4  # number of samples, loss, its only term, and each parameter
    assert any("% of backward done" in start for start in starts)
    alone = netspec("plan", "train.yaml", "--workers", "1").out
    assert "in total 0 B per step" in alone
    wrong = netspec("plan", "train.yaml", "--workers", "9")
    assert wrong.status == 2
    assert wrong.err.startswith("train.yaml:")
    assert "a batch has fewer samples than there are workers" in wrong.err
    assert "--batch-size 9" in netspec("plan", "net.yaml", "--workers", "9").err
    assert "sent" not in netspec("plan", "train.yaml", "--json").json


def test_workers_of_a_host_without_workers_are_an_error(netspec, work):
    wrong = netspec("plan", "train.yaml", "--workers-per-host", "2")
    assert (wrong.status, "has no effect without --workers" in wrong.err) == (2, True)


def test_workers_of_one_host(netspec, work):
    words = "plan", "train.yaml", "--workers", "4"
    hogwild = "parallel={strategy: hogwild}"
    assert netspec(*words, hogwild, "--json").json["sent"]["workers_per_host"] == 4
    netspec.ok(*words, hogwild, "--workers-per-host", "4")
    wrong = netspec(*words, hogwild, "--workers-per-host", "2")
    assert wrong.status == 2
    assert "hogwild share memory, so they must be on one host" in wrong.err
    assert wrong.err.startswith("<command line>:1:10: error:")


@pytest.mark.parametrize(
    ("workers", "per_host", "why"),
    [
        (4, 4, "all workers are on one host"),
        (4, 1, "one host has a single worker"),
        (3, 2, "one host has a single worker"),
        (4, 2, None),
    ],
)
def test_hierarchical_sums_that_are_impossible_are_reported(netspec, work, workers, per_host, why):
    words = "--workers", str(workers), "--workers-per-host", str(per_host), "--json"
    remark = netspec("plan", "train.yaml", "parallel={strategy: all_reduce, hierarchical: true}", *words).json["sent"]
    expected = "all_reduce: `hierarchical: true` has no effect: it needs several hosts with several workers each, but "
    assert remark["remark"] == (expected + why if why else None)


def test_memory_of_a_worker(netspec, work):
    """With sharded_optimizer, each worker has a quarter of the optimizer states."""
    words = "plan", "train.yaml", "net.vars.width=1024", "--workers", "4"
    result = netspec(*words, "--json", "parallel={strategy: sharded_optimizer}").json
    state_bytes, worker = result["states_bytes"], result["worker"]
    assert (worker["samples"], worker["states_bytes"]["parameter"]) == (2, state_bytes["parameter"])
    pieces = 4  # parameters, each of whose shards is padded to a cache line
    assert worker["states_bytes"]["slot"] == pytest.approx(state_bytes["slot"] / 4, abs=pieces * 64)
    assert worker["bytes"] == worker["programs_bytes"] + sum(worker["states_bytes"].values())
    out = netspec(*words, "parallel={strategy: model, layers: {hidden: columns}}").out
    assert "a worker has 2 samples of a batch and allocates" in out
    assert ", gathered shards " in out


def test_memory_that_is_not_there_is_reported(netspec, monkeypatch):
    from netspec.schema.bundled import zoo_root

    spec = zoo_root() / "lenet_mnist" / "train.yaml"
    assert "do not fit" not in netspec("plan", spec).out
    monkeypatch.setattr("netspec.backends.memory.machine_memory", lambda: 2**20)
    assert "do not fit into the memory of this machine, 1.05 MB" in netspec("plan", spec).out


@pytest.mark.parametrize("words", [[], ["train.accumulate=2"]])
@pytest.mark.slow
def test_the_largest_batch_of_this_machine(netspec, work, monkeypatch, words):
    monkeypatch.setattr("netspec.tools.planning.batch_limit.machine_memory", lambda: 2**20)
    limit = netspec("plan", "train.yaml", *words, "--largest-batch", "--json").json["largest_batch"]
    assert (limit["memory_bytes"], limit["memory_of"]) == (2**20, "this machine")
    assert limit["program"] == ("accumulate" if words else "train")

    def needed(samples: int) -> int:
        planned = netspec("plan", "train.yaml", *words, "--batch-size", samples, "--json").json
        program = planned["programs"][limit["program"]]
        parts = ("arena_bytes", "constant_bytes", "invariant_bytes", "staged_bytes")
        total: int = sum(planned["states_bytes"].values()) + sum(program[part] for part in parts)
        return total

    assert needed(limit["samples"]) == limit["needed_bytes"] <= 2**20
    assert needed(limit["samples"] + 1) > 2**20
    needs = f"the program `{limit['program']}` needs 1.05 MB, and this machine has 1.05 MB"
    printed = netspec("plan", "train.yaml", *words, "--largest-batch").out
    assert f"without recomputation: {limit['samples']:,} ({needs})" in printed


def test_no_batch_fits_into_too_little_memory(netspec, work, monkeypatch):
    monkeypatch.setattr("netspec.tools.planning.batch_limit.machine_memory", lambda: 100)
    printed = netspec("plan", "train.yaml", "--largest-batch").out
    assert "not even one sample fits (the program `train` needs " in printed
    assert netspec("plan", "train.yaml", "--largest-batch", "--json").json["largest_batch"]["samples"] is None
    monkeypatch.setattr("netspec.tools.planning.batch_limit.machine_memory", lambda: None)
    result = netspec("plan", "train.yaml", "--largest-batch")
    assert (result.status, "the system does not report its memory" in result.err) == (1, True)


def test_the_largest_batch_is_for_one_worker(netspec, work):
    result = netspec("plan", "train.yaml", "--largest-batch", "--workers", "2")
    assert (result.status, "--largest-batch is for one worker" in result.err) == (2, True)


def test_the_largest_batch_of_a_gpu(netspec, work):
    planned = netspec("plan", "net.yaml", "--largest-batch", "--device", "t4", "--json").json
    limit = planned["largest_batch"]
    assert (limit["program"], limit["samples"]) == ("predict", planned["gpu"]["largest_batch"])
    assert (limit["memory_of"], limit["memory_bytes"]) == (planned["gpu"]["title"], planned["gpu"]["memory_bytes"])
    assert "largest_batch" not in netspec("plan", "net.yaml", "--device", "t4", "--json").json
