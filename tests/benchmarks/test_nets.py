"""The benchmark nets are the published ones, and synthetic batches fit their files."""

from __future__ import annotations

import pytest

from benchmarks.bench_mnist import _accuracy
from benchmarks.catalogue import NETS, synthetic_batch, synthetic_weights
from benchmarks.render import geometric_mean
from netspec.compile import Compiler, ProgramKind, build
from netspec.graph.verify import verify, verify_layouts
from netspec.schema.specs.net import NetSpec
from netspec.solvers.sgd import SGD
from netspec.tools.specs import load_spec

PARAMETERS = {
    "mlp": 235_146,
    "lenet": 431_080,
    "cifar10_quick": 145_578,
    "resnet20": 272_474,  # 269,722 as in the paper, and 2,752 of two projection shortcuts
    "alexnet": 61_100_840,
    "googlenet": 6_998_552,
    "vgg_a": 132_863_336,
    "overfeat": 145_920_872,
    "resnet50": 25_557_032,
    "mobilenet_v1": 4_231_976,
    "lstm_char": 1_083_969,
    "transformer": 3_323_648,
}
"""Numbers of parameters: AlexNet, VGG-11 and ResNet-50 from torchvision, GoogLeNet from Caffe's zoo, and the others
computed by hand from the papers."""


@pytest.mark.parametrize("name", NETS)
def test_files_are_the_published_nets(name):
    net = NETS[name]
    spec = load_spec(net.file, ["vars.dropout=0.25"] if net.dropout else [])
    assert isinstance(spec, NetSpec)
    built = build(spec, 2, training=True)
    states = [state for state in built.builder.states.values() if state.role == "parameter"]
    assert sum(state.value.type.size for state in states) == PARAMETERS[name]
    (output,) = built.outputs.values()
    assert output.shape == (2, *(net.shape if net.symbols else ()), net.classes)
    images, _ = spec.inputs.values()
    assert images.shape == net.shape
    assert net.dropout == any(getattr(layer, "rate", None) == 0.25 for layer in spec.layers)


def test_synthetic_batches_and_weights_are_reproducible():
    net = NETS["mlp"]
    (images, labels), (again, _) = synthetic_batch(net, 4), synthetic_batch(net, 4)
    assert images.shape == (4, 784)
    assert (images == again).all()
    assert ((labels >= 0) & (labels < net.classes)).all()
    kernel, bias, gamma = synthetic_weights([("kernel", (800, 50)), ("bias", (50,)), ("gamma", (1000,))])
    assert kernel.std() == pytest.approx((2 / 800) ** 0.5, rel=0.02)  # of 40,000 numbers
    assert abs(bias.mean()) < 0.1
    assert gamma.mean() == pytest.approx(1, abs=0.02)


def test_figures():
    assert geometric_mean([1, 4]) == pytest.approx(2)
    output = '{"event": "test", "metrics": {"accuracy": 0.98}}\n{"event": "test", "metrics": {"accuracy": 0.991}}\n{}'
    assert _accuracy(output) == 0.991
    assert _accuracy("accuracy 0.9912\n") == 0.9912


LARGE = {"googlenet", "resnet50"}
"""Nets with many layers; smaller nets have layers of the same kinds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name in LARGE else pytest.mark.slow) for name in NETS]
)
def test_every_program_can_be_planned(name):
    solver = SGD.model_validate({"type": "SGD", "momentum": 0.9})
    spec = load_spec(NETS[name].file, ["vars.dropout=0.25"] if NETS[name].dropout else [])
    assert isinstance(spec, NetSpec)
    compiler = Compiler(spec, solver=solver, device="null")
    for purpose in (ProgramKind.TRAIN, ProgramKind.TEST, ProgramKind.PREDICT):
        plan = compiler.plan(purpose, 2)
        verify_layouts(verify(plan.graph), plan.layouts)
        assert plan.memory.arena_bytes >= plan.memory.lower_bound > 0
