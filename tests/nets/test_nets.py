"""Well-known nets, each a short spec: equal to the benchmark nets, and able to learn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.catalogue import LENET, NETS
from netspec.compile import LEARNING_RATE, LOSS, STEP, Compiler, ProgramKind, build
from netspec.graph.ops.random import RNG_INPUT
from netspec.schema.load import load_net
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from tests.compile.nets import solver

FOLDER = Path(__file__).parent
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))} | {"lenet": LENET}
LINES = 80
STEPS = 16

SMALL: Mapping[str, tuple[float, list[str]]] = {
    "resnet50": (0.003, ["vars.size=32", "vars.width=4", "vars.classes=4"]),
    "googlenet": (0.003, ["vars.size=32", "vars.shrink=8", "vars.classes=4", "vars.dropout=0"]),
    "transformer": (0.01, ["vars.length=8", "vars.symbols=16", "vars.width=16", "vars.heads=2", "vars.depth=2"]),
    "lstm_char": (0.02, ["vars.length=8", "vars.characters=16", "vars.width=16"]),
    "unet": (0.01, ["vars.size=16", "vars.width=4", "vars.levels=2"]),
    "lenet": (0.003, []),
}
"""Learning rate, and overrides that make a net small enough to train in a second."""
SLOW = {"resnet50", "googlenet", "lstm_char", "unet"}
"""Nets whose kernels take seconds to compile."""


def structure(spec: NetSpec) -> list[tuple[object, ...]]:
    """Return type, indices of the sources, output shape and parameter shapes of each layer."""
    built = build(spec, 1, training=False, with_losses=False)
    links = resolve_names(spec).layers
    position = {name: index for index, name in enumerate([*spec.inputs, *(link.name for link in links)])}
    states: dict[str, list[tuple[int, ...]]] = {}
    for name, info in built.builder.states.items():
        states.setdefault(name.rpartition("/")[0], []).append(info.value.shape)
    return [
        (
            getattr(link.fields, "type", ""),
            tuple(position[source] for source in link.sources),
            built.values[link.name].shape,
            tuple(states.get(link.name, ())),
        )
        for link in links
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_net_is_a_page(name):
    lines = [line for line in FILES[name].read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) < LINES
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", sorted(FILES.keys() & NETS.keys() - {"lenet"}))
def test_layers_equal_those_of_the_benchmark_net(name):
    assert structure(load_net(FILES[name])) == structure(load_net(NETS[name].file))


def test_u_net_has_the_parameters_of_the_paper():
    """Counted by hand from figure 1: 3x3 and 2x2 kernels with biases, a 1x1 kernel at the end."""
    widths = [64, 128, 256, 512, 1024]
    widths_in_and_out = list(zip([1, *widths], widths, strict=False))
    down = sum(9 * (a * b + b * b) + 2 * b for a, b in widths_in_and_out)
    up = sum(4 * 2 * b * b + b + 9 * (2 * b * b + b * b) + 2 * b for b in widths[:-1])
    states = build(load_net(FILES["unet"]), 1, training=False).builder.states.values()
    assert sum(info.value.type.size for info in states) == down + up + 64 * 2 + 2


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(pytest.param(name, "cpu", marks=pytest.mark.exhaustive if name in SLOW else ()) for name in FILES),
        *((name, "reference") for name in ("lstm_char", "unet")),
    ],
)
def test_a_net_memorizes_a_batch(name, device):
    """Synthetic samples: noise with random labels; for pixels, the label is whether they are bright."""
    rate, changes = SMALL[name]
    spec = load_net(FILES[name], changes)
    compiler = Compiler(spec, solver=solver("Adam", learning_rate=rate), seed=1, device=device)
    random = np.random.default_rng(0)
    fed = {
        input_: random.normal(size=(8, *declared.shape)).astype(np.float32)
        if declared.dtype == "float32"
        else random.integers(0, 2, (8, *declared.shape)).astype(np.int32)
        for input_, declared in spec.inputs.items()
    }
    if fed["label"].ndim == 3:
        fed["label"] = (fed["image"][:, 0] > 0).astype(np.int32)
    program = compiler.program(ProgramKind.TRAIN, 8)
    program_inputs = compiler.graph(ProgramKind.TRAIN, 8).inputs()
    losses = []
    for step in range(STEPS):
        special = {LEARNING_RATE: np.array(rate), STEP: np.array(step + 1.0), RNG_INPUT: np.array([1, step, 0])}
        losses.append(
            float(program({key: array for key, array in {**fed, **special}.items() if key in program_inputs})[LOSS])
        )
    assert losses[-1] < 0.8 * losses[0], losses
    assert np.mean(losses[STEPS // 2 :]) < np.mean(losses[: STEPS // 2]), losses
