"""Nets of the model zoo against their reference implementations, with the same weights: layers, loss, gradients.

Both compute in float64, and the answers are stored in float32 (2⁻²⁴ = 6e-8), so the differences stay far below 1e-6 of
the size of an array's elements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import netspec
from netspec.compile import ProgramKind
from netspec.exchange.formats.native.safetensors import write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import to_state_dict
from netspec.layers.activation.layers import Activation
from netspec.schema.bundled import zoo_root
from netspec.schema.load import load_spec
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.yaml.reader import read_yaml
from tests.interpret import environment
from tests.peers.recordings import load_answers
from tests.peers.zoo_nets import BATCH, KERAS_FILES, LABELS, NETS, image, summary, weight

TOLERANCE = 1e-6
ROUNDING = 1e-13
"""Size of gradients that are 0 except for rounding, such as that of a bias before a normalization, relative to the
largest ones."""
EACH_NET = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if net.cost == "fast" else getattr(pytest.mark, net.cost))
        for name, net in NETS.items()
    ],
)


@EACH_NET
def test_a_net_computes_what_its_reference_does(name: str, tmp_path: Path) -> None:
    net, answers = NETS[name], load_answers(f"zoo_{name}")
    weights = tmp_path / "reference.safetensors"
    write_safetensors(weights, _state_dict(answers), {})
    file = zoo_root() / (net.variant_of or name) / "net.yaml"
    spec = _without_dropout(load_spec(file, [f"vars.size={net.size}", *net.overrides]))
    model = netspec.load(spec, weights, device="reference", precision="float64")
    batch = {"image": image(net), "label": LABELS}

    built = model.compiler.net_graph(ProgramKind.PREDICT, BATCH)
    values = environment(list(built.outputs.values()), {**batch, **model.parameters})
    layers = {}
    for layer in resolve_names(spec).layers:
        value = built.values[layer.name]
        if value in values:  # else only training computes it: an auxiliary output
            if getattr(layer.fields, "activation", None) is not None and not isinstance(layer.fields, Activation):
                # Of the activation, which is a separate layer in the reference.
                value = value.inputs[0]
            layers[layer.name.replace("/", ".")] = values[value]
    expected = dict(zip(answers["layers"].tolist(), answers["layer_summaries"], strict=True))
    holders = {state.rpartition(".")[0] for state in _shapes(answers)} & expected.keys()
    assert holders <= layers.keys()
    _agree({layer: layers[layer] for layer in layers if layer in expected}, expected)

    losses, gradients = model.loss_and_gradients(batch)
    of_keras = net.reference.startswith("keras.")  # it averages images in float32
    np.testing.assert_allclose(sum(losses.values()), answers["loss"], rtol=1e-8 if of_keras else 1e-9)
    expected = dict(zip(answers["gradients"].tolist(), answers["gradient_summaries"], strict=True))
    by_reference_name = gradients if of_keras else to_state_dict(gradients)
    assert by_reference_name.keys() == expected.keys()
    _agree(by_reference_name, expected)


@pytest.mark.parametrize("name", [name for name, net in NETS.items() if not net.variant_of])
def test_a_card_has_the_counts_of_the_reference(name: str) -> None:
    card, answers = read_yaml(zoo_root() / name / "card.yaml"), load_answers(f"zoo_{name}")
    for key in ("parameters", "flops"):
        assert dict(card[key]) == {"count": int(answers[key]), "of": NETS[name].reference}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name == "densenet121" else ()) for name in KERAS_FILES]
)
def test_a_model_reads_the_keras_file_of_its_reference(name: str, tmp_path: Path) -> None:
    net, answers = NETS[name], load_answers("zoo_keras_files")
    file = tmp_path / "reference.keras"
    file.write_bytes(answers[f"{name}/file"].tobytes())
    spec = load_spec(zoo_root() / name / "net.yaml", [f"vars.size={net.size}"])
    outputs = netspec.load(spec, file).predict({"image": image(net).astype(np.float32)})
    (logits,) = outputs.values()
    # Both compute in float32, in different orders.
    size = abs(answers[f"{name}/logits"]).max()
    np.testing.assert_allclose(logits, answers[f"{name}/logits"], rtol=0, atol=1e-5 * size)


def _shapes(answers: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """Shapes of the reference's states by name."""
    parts = (line.split(" ", 1) for line in answers["states"].tolist())
    return {name: tuple(json.loads(shape)) for name, shape in parts}


def _state_dict(answers: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The reference's states."""
    return {
        name: np.zeros((), "int64") if name.endswith("num_batches_tracked") else weight(name, shape)
        for name, shape in _shapes(answers).items()
    }


def _without_dropout(spec: Any) -> NetSpec:
    assert isinstance(spec, NetSpec)
    layers = [layer.model_copy(update={"rate": 0.0}) if hasattr(layer, "rate") else layer for layer in spec.layers]
    return spec.model_copy(update={"layers": layers})


def _agree(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> None:
    scales = {name: abs(mean) + deviation for name, (mean, deviation, *_) in expected.items()}
    for name, array in arrays.items():
        tolerance = TOLERANCE * scales[name] + ROUNDING * max(scales.values())
        np.testing.assert_allclose(summary(name, array), expected[name], rtol=0, atol=tolerance, err_msg=name)
