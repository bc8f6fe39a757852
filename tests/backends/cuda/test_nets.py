"""Full nets on netspec's CUDA kernels alone: no node runs array code, and they train as by reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from benchmarks.catalogue import NETS
from netspec.backends.cuda import launch
from netspec.backends.device_registry import NullDevice, open_device
from netspec.compile import Compiler, ProgramKind
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from netspec.tools.verification.trainings import losses_of
from tests.backends.cuda.calls import EmulatedDevice
from tests.backends.cuda.checks import few_blocks
from tests.backends.cuda.emulator import Emulator, compiler

ROOT = Path(__file__).parents[3]
FILES = {*ROOT.glob("model_zoo/*/net.yaml"), ROOT / "tests/nets/unet.yaml", *(net.file for net in NETS.values())}
LARGE = {
    "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "mobilenet_v2", "mobilenet_v3",
    "resnet50", "wide_resnet",
}  # fmt: skip
"""Models with many layers; smaller models have layers of the same kinds."""
RESNET = """
netspec: 1
inputs: {image: {shape: [3, 9, 9]}, label: {shape: [], dtype: int32}}
layers:
  - {name: conv1, type: Conv2D, filters: 6, kernel_size: 3, padding: 1, use_bias: false}
  - {name: bn1, type: BatchNormalization, momentum: 0.9, epsilon: 1e-5}
  - {name: relu1, type: Activation, activation: relu}
  - {name: conv2, type: Conv2D, filters: 8, kernel_size: 3, strides: 2, padding: 1, use_bias: false}
  - {name: bn2, type: BatchNormalization, momentum: 0.9, epsilon: 1e-5}
  - {name: relu2, type: Activation, activation: relu}
  - {name: conv3, type: Conv2D, filters: 8, kernel_size: 3, padding: 1, use_bias: false}
  - {name: bn3, type: BatchNormalization, momentum: 0.9, epsilon: 1e-5}
  - {name: short, type: Conv2D, from: relu1, filters: 8, kernel_size: 1, strides: 2, use_bias: false}
  - {name: bn4, type: BatchNormalization, momentum: 0.9, epsilon: 1e-5}
  - {name: sum, type: Add, from: [bn3, bn4]}
  - {name: relu3, type: Activation, activation: relu}
  - {name: pool, type: GlobalAveragePooling2D}
  - {name: logits, type: Dense, units: 4}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
metrics: [{type: SparseCategoricalAccuracy, from: [logits, label]}]
"""
SMALL: dict[str, list[str]] = {
    "model_zoo/lenet_mnist/net.yaml": [],
    "resnet.yaml": [],
    "tests/nets/lstm_char.yaml": ["vars.length=3", "vars.characters=5", "vars.width=8"],
    "tests/nets/transformer.yaml": ["vars.length=4", "vars.symbols=6", "vars.width=8", "vars.heads=2", "vars.depth=1"],
}
"""Overrides that make a net small enough to train in a second, although each thread of a GPU is emulated."""
BATCH, STEPS = 2, 3


class Planning(NullDevice):
    """A GPU with only netspec's kernels, for planning."""

    backends: ClassVar[tuple[str, ...]] = EmulatedDevice.backends
    kernels = EmulatedDevice.kernels


def compiled(file: Path, changes: list[str], device: Any) -> Compiler:
    solver = SGD.model_validate({"type": "SGD", "momentum": 0.9})
    return Compiler(load_net(file, changes), solver=solver, device=device, seed=5)


def is_large(file: Path) -> bool:
    return bool({file.stem, file.parent.name} & LARGE)


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=pytest.mark.exhaustive if is_large(file) else ()) for file in sorted(FILES)],
    ids=lambda file: "/".join(file.parts[-2:]),
)
@pytest.mark.slow
def test_no_node_runs_array_code(file: Path) -> None:
    compiler = compiled(file, [], Planning())
    for purpose in (ProgramKind.TRAIN, ProgramKind.TEST):
        choices = compiler.plan(purpose, 4).choices
        assert choices
        left = {node.op.name: choice.rejected for node, choice in choices.items() if choice.kernel.uses_array_library}
        assert left == {}


@pytest.fixture(scope="module")
def emulated() -> Iterator[None]:
    before = launch.use(Emulator())
    with few_blocks():
        yield
    launch.use(before)


def losses(compiler: Compiler) -> list[float]:
    """Return the losses of a training on synthetic samples."""
    return losses_of(compiler.program(ProgramKind.TRAIN, BATCH), STEPS, 2.0**-9, classes=4)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.exhaustive if "lenet" in name else pytest.mark.slow) for name in SMALL],
)
def test_net_trains_like_reference(name: str, emulated: None, tmp_path: Path) -> None:
    (tmp_path / "resnet.yaml").write_text(RESNET)
    file = tmp_path / name if name == "resnet.yaml" else ROOT / name
    expected = losses(compiled(file, SMALL[name], open_device("reference")))
    actual = losses(compiled(file, SMALL[name], EmulatedDevice()))
    # Sums in another order differ by 1e-7 each, over some hundred consecutive sums; batch normalization over the few
    # positions of a small image amplifies that.
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    assert expected[0] != expected[-1]
