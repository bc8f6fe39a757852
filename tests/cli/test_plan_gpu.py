"""`netspec plan --device h200`: kernels, memory and time on a GPU that is absent."""

from __future__ import annotations

import sys
from json import loads
from pathlib import Path

import pytest

from netspec.backends.cuda.gpus import GPUS
from netspec.backends.device_registry import open_device
from netspec.compile.largest_batch import largest_batch
from netspec.graph.cost_model import DEFAULT_CORE, machine_model
from netspec.graph.types import DType, Precision
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.tools.compilers import compiler_for, device_for
from netspec.tools.planning.plan import costs
from netspec.tools.specs import load_spec
from tests.cli.conftest import Netspec

ZOO = Path(__file__).parents[2] / "model_zoo"


def test_gpu_kernels_are_planned_without_gpu_libraries(
    netspec: Netspec, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    result = netspec.ok("plan", "train.yaml", "--device", "h200", "--json", "--kernels")
    planned = loads(result.out)
    used = {use["kernel"].partition(":")[0] for uses in planned["kernels"].values() for use in uses}
    assert "cuda" in used
    assert used <= set(open_device("h200").backends)
    gpu = planned["gpu"]
    assert (gpu["name"], gpu["memory_bytes"]) == ("h200", 141 * 10**9)
    for bound in gpu["least"].values():
        assert bound["seconds"] == pytest.approx(bound["arithmetic"] + bound["memory"] + bound["launches"])
    states_bytes = sum(planned["states_bytes"].values())
    parts = ("arena_bytes", "constant_bytes", "invariant_bytes", "staged_bytes")
    totals = [sum(program[part] for part in parts) for program in planned["programs"].values()]
    assert "one CUDA graph" in planned["notes"]["train"]
    assert gpu["needed_bytes"] == states_bytes + max(totals)


@pytest.mark.parametrize("name", ["cifar10_quick", "char_lstm"])
def test_nets_of_the_zoo_are_planned(name: str) -> None:
    spec = load_spec(ZOO / name / "train.yaml", ["train.precision=float16"])
    assert isinstance(spec, TrainSpec)
    assert isinstance(spec.solver, SolverSpec)
    planned = {name: costs(compiler_for(spec, spec.solver, device_for(spec, name)), 64) for name in ("h200", "t4")}
    large, small = (planned[name].gpu for name in ("h200", "t4"))
    assert large is not None
    assert small is not None
    assert large.least["train"].seconds < small.least["train"].seconds
    assert large.largest_batch is not None
    assert small.largest_batch is not None
    assert large.largest_batch > small.largest_batch > 64


def test_communication_of_several_gpus_follows_the_cost_model(netspec: Netspec, work: Path) -> None:
    """Buckets use a ring over NVLink 4; between two hosts, over InfiniBand with 400 Gbit/s."""
    words = ("plan", "train.yaml", "--device", "h200", "--workers", "4")
    for more, alpha, beta in (((), 5.7e-6, 1 / 450e9), (("--workers-per-host", "2"), 1e-6, 8 * 4122 / 4096 / 400e9)):
        planned = loads(netspec(*words, *more, "--json").out)
        gpus, sent = planned["gpus"], planned["sent"]["messages"]
        assert sent.pop()["name"] == "stop vote"  # the CPUs send it while the step runs
        assert gpus["exchange"] == pytest.approx(sum(6 * (alpha + message["bytes"] / 4 * beta) for message in sent))
        assert gpus["step"] == pytest.approx(gpus["compute"] + gpus["exposed"])
        assert 0 < gpus["exposed"] <= gpus["exchange"]
        assert (gpus["samples"], gpus["hosted"]) == (planned["batch_size"] // 4, 0)
    large = loads(netspec(*words, "--batch-size", "40000", "--json").out)
    assert large["gpus"]["needed_bytes"] < large["gpu"]["needed_bytes"], "a worker has a part of the batch"
    single = loads(netspec(*words[:-1], "1", "--json").out)["gpus"]
    assert (single["exchange"], single["exposed"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("strategy", ["all_reduce", "pipeline"])
def test_workers_are_planned_in_each_precision(
    precision: Precision, strategy: str, netspec: Netspec, work: Path
) -> None:
    more = (f"train.precision={precision}", f"parallel={strategy}", "--json")
    result = netspec.ok("plan", "train.yaml", "--device", "h200", "--workers", "2", *more)
    planned = loads(result.out)
    assert planned["worker"]["bytes"] == planned["gpus"]["needed_bytes"]


@pytest.mark.parametrize("strategy", ["pipeline", "parameter_server", "local_sgd"])
def test_messages_through_the_processor_are_not_hidden(strategy: str, netspec: Netspec, work: Path) -> None:
    result = netspec("plan", "train.yaml", "--device", "h200", "--workers", "2", f"parallel={strategy}", "--json")
    gpus = loads(result.out)["gpus"]
    assert gpus["exposed"] > 0
    graph = strategy in ("parameter_server", "local_sgd")  # these communicate between steps
    assert (gpus["hosted"] == 0) == graph
    assert any("go through the CPU" in note for note in gpus["notes"]) != graph
    assert ("one CUDA graph" in gpus["notes"]) == graph


def test_the_largest_batch_is_the_largest() -> None:
    """Memory does not grow linearly with the batch, just as in real plans."""

    def needs(samples: int) -> int:
        return 1000 + 7 * samples + samples // 10

    for memory in (1006, 1007, 5000, 123_456):
        largest = largest_batch(needs, memory, 64)
        exact = max((size for size in range(1, 20_000) if needs(size) <= memory), default=None)
        assert largest == exact


@pytest.mark.parametrize("limit", [300_000, 1_000_000, 5_000_000])
def test_the_largest_batch_is_found_next_to_a_jump(limit: int) -> None:
    """Kernels for large batches may need much more memory."""

    def needs(samples: int) -> int:
        return 100 * samples if samples <= 3_001 else 150 * samples + 500_000

    exact = max(samples for samples in range(1, 40_000) if needs(samples) <= limit)
    assert largest_batch(needs, limit, 64, attempts=20) == exact


def test_a_net_that_does_not_fit_is_reported(netspec: Netspec, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = GPUS["t4"].__class__("a tiny one", (7, 5), 1000, GPUS["t4"].rates, GPUS["t4"].links)
    monkeypatch.setitem(GPUS, "t4", small)
    result = netspec.ok("plan", "train.yaml", "--device", "t4")
    assert "a tiny one: " in result.out
    assert "of 1.00 kB are needed, which does not fit" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "train.yaml", "--device", "h20"], "did you mean `h200`?"),
        (["plan", "train.yaml", "--device", "gpu"], "expected: one of a100, b200, h100, h200, l40s, rtx4090, t4"),
        (
            ["plan", "train.yaml", "--device", "h200", "--workers", "2", "parallel=hogwild"],
            "its workers share CPU memory",
        ),
        (["train", "train.yaml", "--device", "h200"], "the device `h200` only plans"),
        (["plan", "train.yaml", "train.precision=float16"], "`--device rtx4090`, `--device t4`"),
        (
            ["plan", "train.yaml", "--device", "t4", "train.precision=bfloat16"],
            "a device that supports it: `--device a100`, `--device b200`, ",
        ),
    ],
)
def test_unsupported_gpu_plans_are_reported(words: list[str], message: str, netspec: Netspec, work: Path) -> None:
    result = netspec(*words)
    assert result.status == 2
    assert message in result.err


def test_products_are_rated_by_the_units_that_a_gpu_has() -> None:
    turing, hopper = GPUS["t4"].rates, GPUS["h200"].rates
    assert (
        turing.contraction_rate(Precision.BFLOAT16)
        == turing.contraction_rate(Precision.FLOAT32)
        == turing.flops_per_second
    )
    assert hopper.contraction_rate(Precision.TF32) > 5 * hopper.flops_per_second
    assert machine_model() is DEFAULT_CORE  # outside of a plan
    assert open_device("h200").rates is hopper
    assert open_device("h200").low_precision_dtypes == (DType.BFLOAT16, DType.FLOAT16)
    assert open_device("t4").low_precision_dtypes == (DType.FLOAT16,)
