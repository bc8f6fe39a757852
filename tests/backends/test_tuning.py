"""Autotuning: the faster kernel wins, is remembered on disk, and is taken by whoever only plans."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from netspec.backends import tuning
from netspec.backends.device import CpuDevice, NullDevice, open_device
from netspec.backends.tuning import Tuner
from netspec.cli.specs import load_spec
from netspec.compile import LEARNING_RATE, STEP, Compiler, Purpose
from netspec.errors import InputError
from netspec.graph.kernel import Buffers, Choice, Kernel, Thunk, kernel, kernels_for
from netspec.graph.op import Array, Op, Xp
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.schema.train import TrainSpec
from tests.compile.nets import CLASSIFIER, net, solver


@dataclass(frozen=True)
class Double(Op):
    """2 x, by three kernels."""

    times: int = 2

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return x * self.times


class Doubling(Kernel):
    pause = 0.0

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,) = buffers.inputs, buffers.outputs
        assert y is not None

        def run() -> None:
            if self.pause:
                time.sleep(self.pause)
            np.multiply(x, 2, out=y)

        return run


@kernel(Double, backend="numba", rank=20)
class Sleepy(Doubling):
    pause = 0.002


@kernel(Double, backend="numba", rank=10)
class Awake(Doubling):
    pass


@kernel(Double, backend="numba", rank=30)
class Choosy(Doubling):
    def why_not(self, op: Double, *types: TensorType) -> str | None:
        return "only threefold" if op.times == 2 else None


@pytest.fixture(autouse=True)
def winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that winners are kept in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "netspec" / "tuning"


def double(*shape: int) -> Node:
    return Double()(Input("x", TensorType(shape, DType.FLOAT32))()).node


def test_the_faster_kernel_wins_and_the_loser_is_told_with_its_time() -> None:
    choice = open_device("cpu", "quick").choose(double(3, 4))
    assert choice.label == "numba:Awake"
    assert choice.seconds is not None
    assert choice.seconds < 0.001
    reasons = dict(choice.declined)
    assert reasons["numba:Choosy"] == "only threefold"
    assert reasons["numba:Sleepy"].startswith("lost the race: ")
    assert open_device("cpu").choose(double(3, 4)).label == "numba:Sleepy"  # by rank, where nobody asked for a race


def test_winners_are_remembered_for_the_node_and_by_whoever_only_plans(winners: Path) -> None:
    Tuner(CpuDevice(), "quick").choose(double(3, 4))
    assert [path.suffix for path in winners.iterdir()] == [".json"]
    planning = Tuner(NullDevice(), "quick")
    assert planning.choose(double(3, 4)).label == "numba:Awake"
    assert planning.choose(double(3, 5)).label == "numba:Sleepy"  # never raced: planning runs nothing


def test_each_process_keeps_what_others_found() -> None:
    one, other = Tuner(CpuDevice(), "quick"), Tuner(CpuDevice(), "quick")
    one.choose(double(2))
    other.choose(double(3))
    one.choose(double(4))
    planning = Tuner(NullDevice(), "quick")
    assert {planning.choose(double(size)).label for size in (2, 3, 4)} == {"numba:Awake"}


def test_a_damaged_file_is_no_file(winners: Path) -> None:
    Tuner(CpuDevice(), "quick").choose(double(3))
    (path,) = winners.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert Tuner(NullDevice(), "quick").choose(double(3)).label == "numba:Sleepy"
    assert Tuner(CpuDevice(), "quick").choose(double(3)).label == "numba:Awake"


def test_quick_stops_when_its_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "QUICK_BUDGET", 1e-9)
    quick = Tuner(CpuDevice(), "quick")
    assert [quick.choose(double(size)).label for size in (2, 3)] == ["numba:Awake", "numba:Sleepy"]
    assert Tuner(CpuDevice(), "full").choose(double(3)).label == "numba:Awake"


def test_a_small_lead_is_no_victory() -> None:
    usual, other = (one for one in kernels_for(Double, ["numba"]) if isinstance(one, (Sleepy, Awake)))
    kernels = {one.label: one for one in (usual, other)}
    decided = tuning._decided(Choice(usual), kernels, {usual.label: 1.00, other.label: 0.97})
    assert decided.kernel is usual
    assert tuning._decided(Choice(usual), kernels, {usual.label: 1.00, other.label: 0.90}).kernel is other


def test_a_net_trains_the_same_with_winners_remembered(tmp_path: Path) -> None:
    spec = net(CLASSIFIER, tmp_path)
    results = []
    for _ in range(2):
        compiler = Compiler(spec, solver=solver(), device=open_device("cpu", "full"))
        program = compiler.program(Purpose.TRAIN, 4)
        inputs = {name: np.ones(value.shape, str(value.dtype)) for name, value in program.inputs.items()}
        program({**inputs, LEARNING_RATE: np.array(0.1), STEP: np.array(1.0)})
        results.append({name: compiler.states[name] for name in compiler.states})
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name])


def test_a_training_file_says_whether_kernels_race(tmp_path: Path) -> None:
    text = Path("model_zoo/lenet_mnist/train.yaml").read_text(encoding="utf-8")
    text = text.replace("net: net.yaml", f"net: {Path('model_zoo/lenet_mnist/net.yaml').resolve()}")
    path = tmp_path / "train.yaml"
    path.write_text(f"{text}\ncompile: {{autotune: quick}}\n", encoding="utf-8")
    spec = load_spec(path, [])
    assert isinstance(spec, TrainSpec)
    assert spec.compile.autotune == "quick"
    path.write_text(f"{text}\ncompile: {{autotune: fast}}\n", encoding="utf-8")
    with pytest.raises(InputError, match="autotune"):
        load_spec(path, [])
