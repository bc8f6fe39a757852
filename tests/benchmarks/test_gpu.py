"""The GPU benchmark: its rows name existing nets, and each row is measured or refused as it should be."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from benchmarks import bench_gpu, gpu_subject, netspec_subject
from benchmarks.alternate import BenchmarkError
from benchmarks.bench_gpu import ROWS, Row
from benchmarks.catalogue import NETS
from benchmarks.gpu_subject import answer
from netspec.backends.cuda import launch
from netspec.tools.measuring.roofline import Roofline
from tests.backends.cuda.compile import Collector
from tests.backends.cuda.fake import Machine


def test_the_table_matches_the_nets() -> None:
    assert {row.net for row in ROWS} <= set(NETS)
    assert len({(row.net, row.precision) for row in ROWS}) == len(ROWS) == 15
    assert [row.net for row in ROWS if row.floor] == ["resnet50"]


def test_a_dry_line_builds_and_plans_netspecs_side() -> None:
    result = answer({"subject": "netspec", "net": "lenet", "batch_size": 64, "precision": "tf32", "dry": True})
    assert (result["shape"], result["parameters"]) == ([64, 10], 431_080)
    assert result["nodes"] > 10
    assert result["nbytes"] > 4 * 2 * 431_080


def answers(monkeypatch: pytest.MonkeyPatch, **results: Any) -> None:
    def ask(row: Row, subject: str, **more: Any) -> dict[str, Any]:
        result = results[f"{subject}_losses" if more else subject]
        if isinstance(result, BenchmarkError):
            raise result
        return dict(result)

    monkeypatch.setattr(bench_gpu, "ask", ask)


OURS = {"times": [0.9, 1.0, 5.0], "fed": [1.2], "floor": 0.8, "notes": [], "gpu": {}}
SAME = {"netspec_losses": {"losses": [1.0, 2.0]}, "float64_losses": {"losses": [1.001, 2.0]}}


def test_the_fastest_peer_counts_and_one_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(
        monkeypatch,
        netspec=OURS,
        eager={"times": [2.0]},
        compile={"times": [1.2]},
        autotune=BenchmarkError("no"),
        **SAME,
    )
    result = bench_gpu.measure(Row("lenet", 64, "tf32", 1.1, floor=True), compare=True)
    assert (result["ratio"], result["reached"], result["failed"]) == (pytest.approx(1.2), True, {"autotune": "no"})
    assert result["agreement"] == pytest.approx(1e-3, rel=0.01)
    assert not bench_gpu.measure(Row("lenet", 64, "tf32", 1.3), compare=False)["reached"]


def test_a_net_with_different_losses_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, netspec_losses={"losses": [1.0, float("nan")]}, float64_losses={"losses": [1.0, 2.0]})
    with pytest.raises(BenchmarkError, match="losses differ"):
        bench_gpu.measure(Row("lenet", 64, "tf32", 1.5), compare=True)


def test_a_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.report.require", lambda *packages: None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BenchmarkError, match=r"(?s)needs CuPy.*`--dry` builds and plans"):
        bench_gpu.require_gpu()


def test_netspec_side_runs_end_to_end_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is simulated and computes nothing: losses are those of zeroed memory."""
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    monkeypatch.setattr(launch, "engine", Collector())
    monkeypatch.setattr(netspec_subject, "measure_roofline", lambda *arguments: Roofline(1e15, 1e12))
    for name, small in {"WARM_UP_STEPS": 2, "MIN_STEPS": 3, "MAX_STEPS": 5}.items():
        monkeypatch.setattr(gpu_subject, name, small)

    def ask(row: Row, subject: str, **more: Any) -> dict[str, Any]:
        request = {"net": row.net, "batch_size": row.batch_size, "precision": row.precision, **more}
        if subject == "netspec":
            result: dict[str, Any] = json.loads(json.dumps(answer({"subject": subject, **request})))
            return result
        return {"losses": [1e-9] * 3} if more else {"times": [1.0]}

    monkeypatch.setattr(bench_gpu, "ask", ask)
    with pytest.raises(BenchmarkError, match=r"losses differ from float64 by \[1.0, 1.0, 1.0\]"):
        bench_gpu.measure(Row("mlp", 4, "tf32", 1.5), compare=True)
    result = bench_gpu.measure(Row("mlp", 4, "tf32", 1.5, floor=True), compare=False)
    assert 0 < result["seconds"]["netspec"] <= result["fed_seconds"]
    assert result["above_floor"] > 1
    assert (result["notes"], result["gpu"]["name"]) == (["one CUDA graph"], "a made-up GPU")
    assert bench_gpu._line(result).startswith("mlp (4) tf32: ")
