"""Autotuning: the faster kernel wins, is stored on disk, and is also used for planning."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from netspec.backends import tuning
from netspec.backends.backend import COMMUNICATION, PACKAGES
from netspec.backends.device import Device
from netspec.backends.device_registry import CpuDevice, NullDevice, open_device
from netspec.backends.tuning import Tuner
from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind, make_plan
from netspec.errors import InputError
from netspec.graph.graph import Graph
from netspec.graph.kernel import Buffers, Kernel, KernelChoice, KernelOption, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Array, Op, Xp
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.schema.specs.train import TrainSpec
from netspec.tools.specs import load_spec
from tests.compile.nets import CLASSIFIER, net, solver


@dataclass(frozen=True)
class Double(Op):
    """2 x, which three kernels compute."""

    times: int = 2

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return x * self.times


SEEN: set[tuple[tuple[int, ...], str]] = set()
"""Steps and element types of the operands that kernels were bound to."""


class Doubling(Kernel):
    pause = 0.0

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,) = buffers.inputs, buffers.outputs
        assert y is not None
        SEEN.add((tuple(step // x.itemsize for step in x.strides), str(x.dtype)))

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
    def reject_reason(self, op: Double, *types: TensorType) -> str | None:
        return "only threefold" if op.times == 2 else None


@pytest.fixture(autouse=True)
def winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the stored winners."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "netspec" / "tuning"


def tuned(kind: type[Device] = CpuDevice, level: str = "quick") -> Device:
    device = kind()
    device.tuner = Tuner(device, level)
    return device


def chosen(device: Device, *shape: int) -> KernelChoice:
    """Return the choice of the kernel that doubles an array."""
    y = Double()(Input("x", TensorType(shape, DType.FLOAT32))())
    return make_plan(Graph({"y": y}), device).choices[y.node]


def test_faster_kernel_wins_and_loser_is_listed_with_its_time() -> None:
    choice = chosen(open_device("cpu", "quick"), 3, 4)
    assert choice.label == "numba:Awake"
    assert choice.seconds is not None
    assert choice.seconds < 0.001
    reasons = dict(choice.rejected)
    assert reasons["numba:Choosy"] == "only threefold"
    assert reasons["numba:Sleepy"].startswith("lost the race: ")
    assert chosen(open_device("cpu"), 3, 4).label == "numba:Sleepy"  # without autotuning, the rank decides


def test_winners_are_remembered_per_node_and_for_planning(winners: Path) -> None:
    chosen(tuned(), 3, 4)
    assert [path.suffix for path in winners.iterdir()] == [".json"]
    planning = tuned(NullDevice)
    assert chosen(planning, 3, 4).label == "numba:Awake"
    assert chosen(planning, 3, 5).label == "numba:Sleepy"  # no winner is stored, and planning runs no race


def test_winners_do_not_depend_on_whether_communication_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import netspec.distributed  # noqa: F401  # registers the backends of communication

    assert "workers" in CpuDevice().descriptions()
    chosen(tuned(), 3)
    for name in COMMUNICATION:
        monkeypatch.delitem(PACKAGES, name)
    assert "workers" not in CpuDevice().descriptions()
    assert chosen(tuned(NullDevice), 3).label == "numba:Awake"


def test_processes_merge_their_measurements() -> None:
    first, other = tuned(), tuned()
    chosen(first, 2)
    chosen(other, 3)
    chosen(first, 4)
    planning = tuned(NullDevice)
    assert {chosen(planning, size).label for size in (2, 3, 4)} == {"numba:Awake"}


def test_damaged_file_counts_as_missing(winners: Path) -> None:
    chosen(tuned(), 3)
    (path,) = winners.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert chosen(tuned(NullDevice), 3).label == "numba:Sleepy"
    assert chosen(tuned(), 3).label == "numba:Awake"


def test_quick_stops_when_its_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "QUICK_BUDGET", 1e-9)
    quick = tuned()
    assert [chosen(quick, size).label for size in (2, 3)] == ["numba:Awake", "numba:Sleepy"]
    assert chosen(tuned(level="full"), 3).label == "numba:Awake"


def test_kernels_race_on_real_layouts_with_a_time_per_variant() -> None:
    """The winner for plain float32 does not count for other layouts or element types, which race when they occur."""
    device, node = tuned(), Double()(Input("x", TensorType((2, 3, 4, 5), DType.FLOAT32))()).node
    last, narrow = Layout.channels_last(4), PLAIN.with_dtype(DType.BFLOAT16)
    for signature in (PLAIN, last, narrow):
        SEEN.clear()
        offers = [
            KernelOption(kernel, LayoutSignature((signature,), (signature,)), 1.0)
            for kernel in device.candidates(node).kernels
        ]
        times = device.measured_seconds(node, offers)
        assert times is not None
        assert {(signature.strides(node.types[0]), str(signature.stored_dtype(node.types[0])))} == SEEN
        assert tuned(NullDevice).measured_seconds(node, offers) == times
    assert device.tuner is not None
    content = device.tuner._store.read(device.tuner._file)
    assert content is not None
    (data,) = json.loads(content).values()
    assert len(data) == 2 * 3


@pytest.mark.slow
def test_cached_winners_train_the_same(tmp_path: Path) -> None:
    spec = net(CLASSIFIER, tmp_path)
    results = []
    for _ in range(2):
        compiler = Compiler(spec, solver=solver(), device=open_device("cpu", "full"))
        program = compiler.program(ProgramKind.TRAIN, 4)
        inputs = {name: np.ones(value.shape, str(value.dtype)) for name, value in program.inputs.items()}
        program({**inputs, LEARNING_RATE: np.array(0.1), STEP: np.array(1.0)})
        results.append({name: compiler.states[name] for name in compiler.states})
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name])


def test_training_file_sets_autotuning(tmp_path: Path) -> None:
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
