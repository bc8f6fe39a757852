"""Convolutions on a planned GPU use cuDNN's kernels, whether its library is installed or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from netspec.backends.cuda.cudnn import library, plans
from netspec.backends.cuda.cudnn.device_properties import CHIPS, properties
from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, ProgramKind
from netspec.graph.execution_plan import ExecutionPlan, align_up
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.cudnn.fake import forget

LENET = load_net(Path(__file__).parents[4] / "model_zoo" / "lenet_mnist" / "net.yaml")
BIAS = 256
"""Bytes of a vector of a few channels, aligned: memory that is needed in addition to the library's workspace."""
SOLVER = SGD.model_validate({"type": "SGD", "learning_rate": 0.01})


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide CuPy, which planning does not need, and reset cached facts about the library."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    forget()
    yield
    forget()


def planned(name: str = "h200") -> tuple[ExecutionPlan, list[str]]:
    """Return the plan of LeNet's training step, and the notes on libraries."""
    device = open_device(name)
    plan = Compiler(LENET, solver=SOLVER, device=device).plan(ProgramKind.TRAIN, 64)
    return plan, [note for note in device.notes(plan) if "asked" in note]


def most_workspace(plan: ExecutionPlan) -> int:
    """Return the largest workspace of a call of cuDNN, in bytes."""
    spaces, choices = plan.memory.workspace, plan.choices
    actual = [node for node, choice in choices.items() if choice.kernel.backend == "cudnn"]
    assert len(actual) >= 4  # forward and weight gradient of two convolutions, input gradient of one
    return max((spaces[node].size for node in actual if node in spaces), default=0)


def test_without_the_package_its_kernels_are_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    plan, notes = planned()
    assert most_workspace(plan) == BIAS
    (note,) = notes
    assert note.startswith("cudnn was not asked: its kernels would take what is planned for them")
    assert note.endswith("(the package nvidia-cudnn-frontend is not installed)")


def test_the_package_plans_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    plan, notes = planned()
    assert most_workspace(plan) == BIAS + align_up(fake.WORKSPACE + 256 - 64)
    assert notes == []
    assert [why for why in planned("b200")[1] if "the properties of the GPU are unknown" in why]


def test_package_that_cannot_plan_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str) -> NoReturn:
        raise RuntimeError("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED\nat some line")

    monkeypatch.setitem(sys.modules, "cudnn", fake)
    monkeypatch.setattr(fake, "create_device_properties", fails)
    library._deviceless.cache_clear()
    plan, (note,) = planned()
    assert most_workspace(plan) == BIAS
    assert "cuDNN cannot plan here: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED)" in note


@pytest.mark.parametrize("name", CHIPS)
def test_clocks_follow_from_rates(name: str) -> None:
    """Published clocks are 1.4 GHz (A100) to 2.5 GHz (Ada); those of memory 1.6 GHz (HBM) to 10.5 GHz (GDDR)."""
    actual = properties(name)
    assert 1.4e6 < actual["smClockRateKHz"] < 2.6e6
    assert 1.5e6 < actual["memClockRateKHz"] < 10.6e6
    assert actual["multiProcessorCount"] * actual["maxThreadsPerSM"] >= 40 * 1024


def test_nondeterministic_sums_need_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only gradients may use nondeterministic engines, and only if permitted; other plans exclude these engines."""
    result: list[fake.pygraph] = []

    class Kept(fake.pygraph):
        def __init__(self, **fields: object) -> None:
            super().__init__(**fields)  # type: ignore[arg-type]  # as given
            result.append(self)

    monkeypatch.setitem(sys.modules, "cudnn", fake)
    monkeypatch.setattr(fake, "pygraph", Kept)
    for deterministic in (True, False):
        plans._find_plan.cache_clear()
        result.clear()
        device = open_device("h200", deterministic=deterministic)
        plan = Compiler(LENET, solver=SOLVER, device=device).plan(ProgramKind.TRAIN, 64)
        chosen = {choice.label for choice in plan.choices.values() if choice.kernel.backend == "cudnn"}
        gradients = {"cudnn:ConvInputGradientKernel", "cudnn:ConvWeightGradientKernel"}
        if not deterministic:
            gradients = {name.replace(":", ":Nondeterministic") for name in gradients}
        assert chosen == {"cudnn:ConvForwardKernel", *gradients}
        assert deterministic == all("NONDETERMINISTIC" in plan.unwanted for plan in result)
    plans._find_plan.cache_clear()
