"""LSTM and RNN, whose sequences are (T, N, …) in Caffe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.formats.caffe.fillers import initializers
from netspec.exchange.formats.caffe.importer import CaffeImporter, NetValue, ParameterBlob, rule
from netspec.exchange.formats.caffe.rules.weighted import flattened
from netspec.exchange.formats.caffe.wiring import CaffeNode
from netspec.exchange.unsupported import UnsupportedFeature

PATH = "recurrent_param"


def _transposed(array: NDArray[Any]) -> NDArray[Any]:
    """(out, in) → (in, out)."""
    return array.T


def _gates(array: NDArray[Any]) -> NDArray[Any]:
    """Gates along the first axis in the order i, f, o, g → along the last in the order i, f, g, o."""
    if array.ndim == 0 or array.shape[0] % 4:
        return array  # an error reports the wrong shape later
    size = array.shape[0] // 4
    i, f, o, g = (array[gate * size : (gate + 1) * size] for gate in range(4))
    return np.concatenate([i, f, g, o]).T


@rule("LSTM")
def lstm(importer: CaffeImporter, node: CaffeNode) -> None:
    """LSTM over whole sequences."""
    x, fields = _sequence(importer, node)
    parameters = {
        "kernel": ParameterBlob(node, 0, _gates),
        "bias": ParameterBlob(node, 1, _gates),
        "recurrent_kernel": ParameterBlob(node, 2, _gates),
    }
    importer.set_top(node, importer.add(node, "LSTM", [x], fields | {"unit_forget_bias": False}, parameters=parameters))


@rule("RNN")
def rnn(importer: CaffeImporter, node: CaffeNode) -> None:
    """SimpleRNN and a Dense: Caffe's RNN has a second product with a tanh."""
    x, fields = _sequence(importer, node)
    parameters = {
        "kernel": ParameterBlob(node, 0, _transposed),
        "bias": ParameterBlob(node, 1),
        "recurrent_kernel": ParameterBlob(node, 2, _transposed),
    }
    h = importer.add(node, "SimpleRNN", [x], fields, parameters=parameters)
    recurrent_only = ("return_sequences", "recurrent_initializer")
    dense_fields = {name: value for name, value in fields.items() if name not in recurrent_only}
    parameters = {"kernel": ParameterBlob(node, 3, _transposed), "bias": ParameterBlob(node, 4)}
    out = importer.add(node, "Dense", [h], dense_fields | {"activation": "tanh"}, parameters=parameters, part="output")
    importer.set_top(node, out)


@rule("LSTMUnit")
def lstm_unit(importer: CaffeImporter, node: CaffeNode) -> None:
    """One step of an LSTM, from the previous cell, the gates (1, N, 4D), and the continuation mark.

    c = mark · σ(f) · previous c + σ(i) · tanh(g) and h = σ(o) · tanh(c), the gates in the order i, f, o, g.
    """
    before, x, goes_on = (importer.read(node, index) for index in range(3))

    def add_part(type_: str, sources: list[NetValue], part: str, **fields: Any) -> NetValue:
        return importer.add(node, type_, sources, fields, part=part)

    i, f, o, g = importer.add_outputs(node, "Split", [x], {"sections": 4, "axis": -1}, part="gates")
    i, f, o = (
        add_part("Activation", [gate], part, activation="sigmoid") for gate, part in ((i, "i"), (f, "f"), (o, "o"))
    )
    g = add_part("Activation", [g], "g", activation="tanh")
    marks = add_part("Reshape", [goes_on], "goes_on", target_shape=[1, 1])
    remembered = add_part("Multiply", [add_part("Multiply", [f, before], "kept"), marks], "kept_if")
    cell = add_part("Add", [remembered, add_part("Multiply", [i, g], "new")], "cell")
    importer.set_top(node, cell)
    cell_output = add_part("Activation", [cell], "shown", activation="tanh")
    importer.set_top(node, importer.add(node, "Multiply", [o, cell_output]), 1)


def _sequence(importer: CaffeImporter, node: CaffeNode) -> tuple[NetValue, dict[str, Any]]:
    """The input of a recurrent layer, and the fields that LSTM and RNN share."""
    param = node.layer[PATH]
    if param["expose_hidden"]:
        raise UnsupportedFeature(
            "initial and final states as bottoms and tops (`expose_hidden`) are not supported",
            field=f"{PATH}.expose_hidden",
        )
    if len(node.bottoms) > 2:
        raise UnsupportedFeature("a third bottom (static input) is not supported", field="bottom")
    if not param["num_output"]:
        raise UnsupportedFeature("`num_output` is missing", field=PATH)
    x = flattened(importer, node, importer.read(node), 2)
    importer.notes.add(
        f"`{node.name}`: every sequence starts from zero states; the sequence continuation indicators "
        f"`{node.layer['bottom'][-1]}` are left out",
        "{count} recurrent layers start every sequence from zero states, without sequence continuation indicators",
        f"`{node.name}`",
    )
    fillers = initializers(
        param, PATH, kernel_initializer="weight_filler", recurrent_initializer="weight_filler",
        bias_initializer="bias_filler",
    )  # fmt: skip
    return x, {"units": param["num_output"], "return_sequences": True, **fillers}
