"""LSTM and RNN, whose sequences are (T, N, …) in Caffe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspec.exchange.caffe.fillers import initializers
from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.rules.weighted import flattened
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.values import Blob, Made
from netspec.exchange.caffe.wiring import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

PATH = "recurrent_param"


def _turned(array: NDArray[Any]) -> NDArray[Any]:
    """(out, in) → (in, out)."""
    return array.T


def _gates(array: NDArray[Any]) -> NDArray[Any]:
    """Gates one below another, in the order i, f, o, g → beside each other, in the order i, f, g, o."""
    import numpy as np

    if array.ndim == 0 or array.shape[0] % 4:
        return array  # of no shape that fits, as will be told
    size = array.shape[0] // 4
    i, f, o, g = (array[gate * size : (gate + 1) * size] for gate in range(4))
    return np.concatenate([i, f, g, o]).T


@rule("LSTM")
def lstm(net: Translator, node: Node) -> None:
    """LSTM over whole sequences."""
    x, fields = _sequence(net, node)
    parameters = {
        "kernel": Blob(node, 0, _gates),
        "bias": Blob(node, 1, _gates),
        "recurrent_kernel": Blob(node, 2, _gates),
    }
    net.give(node, net.one(node, "LSTM", [x], fields | {"unit_forget_bias": False}, parameters=parameters))


@rule("RNN")
def rnn(net: Translator, node: Node) -> None:
    """SimpleRNN, and a Dense behind it: Caffe's has a second product with a tanh."""
    x, fields = _sequence(net, node)
    parameters = {"kernel": Blob(node, 0, _turned), "bias": Blob(node, 1), "recurrent_kernel": Blob(node, 2, _turned)}
    h = net.one(node, "SimpleRNN", [x], fields, parameters=parameters)
    of_sequences = ("return_sequences", "recurrent_initializer")
    given = {name: value for name, value in fields.items() if name not in of_sequences}
    parameters = {"kernel": Blob(node, 3, _turned), "bias": Blob(node, 4)}
    out = net.one(node, "Dense", [h], given | {"activation": "tanh"}, parameters=parameters, part="output")
    net.give(node, out)


@rule("LSTMUnit")
def lstm_unit(net: Translator, node: Node) -> None:
    """One step of an LSTM: the cell before, what the gates are made of (1, N, 4D), and whether the sequence goes on.

    c = goes on · σ(f) · c before + σ(i) · tanh(g) and h = σ(o) · tanh(c), the gates in the order i, f, o, g.
    """
    before, x, goes_on = (net.read(node, index) for index in range(3))

    def made(type_: str, sources: list[Made], part: str, **fields: Any) -> Made:
        return net.one(node, type_, sources, fields, part=part)

    i, f, o, g = net.add(node, "Split", [x], {"sections": 4, "axis": -1}, part="gates")
    i, f, o = (made("Activation", [one], part, activation="sigmoid") for one, part in ((i, "i"), (f, "f"), (o, "o")))
    g = made("Activation", [g], "g", activation="tanh")
    marks = made("Reshape", [goes_on], "goes_on", target_shape=[1, 1])
    kept = made("Multiply", [made("Multiply", [f, before], "kept"), marks], "kept_if")
    cell = made("Add", [kept, made("Multiply", [i, g], "new")], "cell")
    net.give(node, cell)
    net.give(node, net.one(node, "Multiply", [o, made("Activation", [cell], "shown", activation="tanh")]), 1)


def _sequence(net: Translator, node: Node) -> tuple[Made, dict[str, Any]]:
    """What a recurrent layer reads, and the fields that both have."""
    given = node.layer[PATH]
    if given["expose_hidden"]:
        raise Unsupported("its states are inputs and outputs", f"{PATH}.expose_hidden")
    if len(node.bottoms) > 2:
        raise Unsupported("a third input, which is the same at all steps", "bottom")
    if not given["num_output"]:
        raise Unsupported("it has no `num_output`", PATH)
    x = flattened(net, node, net.read(node), 2)
    net.note(f"`{node.name}`: every sequence begins anew; what `{node.layer['bottom'][-1]}` says of it is left out")
    fillers = initializers(
        given, PATH, kernel_initializer="weight_filler", recurrent_initializer="weight_filler",
        bias_initializer="bias_filler",
    )  # fmt: skip
    return x, {"units": given["num_output"], "return_sequences": True, **fillers}
