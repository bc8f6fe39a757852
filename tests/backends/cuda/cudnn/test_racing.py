"""The plans of a convolution race, with and without the bias; the winner is remembered."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.cuda.cudnn import plans as plans_of
from netspec.backends.tuning import Tuner
from netspec.compile import Compiler, ProgramKind
from netspec.graph.kernel import Thunk
from netspec.schema.load import load_net
from tests.backends.cuda.calls import EmulatedDevice
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.emulator import Emulator, compiler

LENET = load_net(Path(__file__).parents[4] / "model_zoo" / "lenet_mnist" / "net.yaml")

load_kernels("cudnn")
pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run what follows a convolution with")


class Racing(EmulatedDevice):
    """One plan without the bias is the fastest."""

    name = "racing"
    backends: ClassVar[tuple[str, ...]] = ("reference", "cuda", "cudnn")
    kernels: ClassVar[tuple[str, ...]] = backends
    races_run = 0

    def timed(self, call: Thunk, least: float) -> float:
        """Return a fixed time for each plan instead of measuring."""
        self.races_run += 1
        fake.executed.clear()
        call()
        return 0.001 if fake.executed == [("eng2_k2=5", 1)] else 0.002

    def descriptions(self) -> dict[str, str]:
        return {"cudnn": "a stand-in"}


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = launch.use(Emulator())
    yield
    launch.use(before)


@pytest.mark.slow
def test_fastest_plan_wins_and_is_remembered() -> None:
    x = {"image": np.linspace(-1, 1, 2 * 28 * 28, dtype=np.float32).reshape(2, 1, 28, 28)}
    expected = Compiler(LENET, device="reference").program(ProgramKind.PREDICT, 2)(x)
    for again in (False, True):
        device = Racing()
        device.tuner = Tuner(device, "full")
        compiled = Compiler(LENET, device=device)
        program = compiled.program(ProgramKind.PREDICT, 2)
        assert again == (device.races_run == 0)
        won = [choice for choice in program.plan.choices.values() if choice.kernel.backend == "cudnn"]
        assert [choice.label for choice in won] == 2 * ["cudnn:ConvForwardKernel by eng2_k2=5, separate bias"]
        others = {
            label for choice in won for label, _ in choice.rejected if label.startswith("cudnn:ConvForwardKernel")
        }
        assert len(others) >= 6  # the default plan, three plans with the bias, two more without it
        actual = program(x)
        for name, right in expected.items():  # sums of 800 products in another order
            np.testing.assert_allclose(actual[name], right, rtol=1e-5, atol=1e-6)


def test_missing_plans_are_forgotten_and_new_ones_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library may offer different plans without a new version."""

    def chosen(plans: tuple[str, ...]) -> tuple[set[str], int]:
        monkeypatch.setattr(fake, "PLANS", plans)
        plans_of._plan_names.cache_clear()  # as in another process
        plans_of._find_plan.cache_clear()
        device = Racing()
        device.tuner = Tuner(device, "full")
        choices = Compiler(LENET, device=device).plan(ProgramKind.PREDICT, 2).choices.values()
        return {choice.label for choice in choices if choice.kernel.backend == "cudnn"}, device.races_run

    before, (first, raced) = fake.PLANS, chosen(fake.PLANS)
    assert first == {"cudnn:ConvForwardKernel by eng2_k2=5, separate bias"}
    assert raced
    left = tuple(label for label in before if label != "eng2_k2=5")
    second, repeated = chosen(left)
    assert second.isdisjoint(first)
    assert not repeated, "the times of all that are left are known"
    third, repeated = chosen((*left, "eng7"))
    assert repeated
    assert third.isdisjoint(first)
    chosen(before)  # restores the plans that other tests expect
